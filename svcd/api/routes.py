"""Routes: what one declares (Route), what its handler receives and returns (Context, HandlerResult), the tree of paths
that requests are matched against (Table), and the counters of requests by route (Traffic).

Most modules of this package export `ROUTES`, a tuple of Route; svcd.api.app joins them. Matching, permission, decoding
and the OpenAPI document all follow from these declarations.
"""
from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from svcd.api.admission import SearchCache, SearchQueue, Timer
from svcd.api.bodies import MAX_VALUES
from svcd.api.chat_state import Chats
from svcd.api.query_embedding import QueryEmbedding
from svcd.api.streaming import ConcurrencyLimit
from svcd.auth.keys import ALL_PERMITTED, Keys, Permission
from svcd.base.errors import ApiError
from svcd.http.message import BodyMemory, Portions
from svcd.instance.data_folder import is_hidden
from svcd.validation import Field, Param

if TYPE_CHECKING:
    from svcd.api.active_rules import ActiveRules
    from svcd.api.cluster import ClusterView
    from svcd.api.personalization import Personalization
    from svcd.http.message import Request
    from svcd.index.reader import IndexReader
    from svcd.instance.data_folder import IndexSnapshot
    from svcd.instance.instance import Instance
    from svcd.instance.queue import Queue
    from svcd.remote.client import Client

JSON = "application/json"
NDJSON = "application/x-ndjson"


# Requests and their durations by method, declared path and status, for `/metrics`

# Upper bounds of the histogram in seconds: those that existing dashboards expect.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


# Searches that are counted apart: those that ask for the order of a user, and those that reached their time limit.
SEARCH_KINDS = PERSONALIZED, DEGRADED = "personalized", "degraded"


class Timing:
    """Histogram of the durations of one method and path. Only Traffic changes it."""

    __slots__ = ("by_bucket", "seconds")

    def __init__(self, by_bucket: list[int] | None = None, seconds: float = 0.0) -> None:
        """by_bucket: how many requests fell between two bounds; the last, beyond all of them."""
        self.by_bucket = by_bucket or [0] * (len(BOUNDS_S) + 1)
        self.seconds = seconds

    def cumulative(self) -> list[int]:
        """How many requests took at most each of BOUNDS_S; the last: how many there were."""
        return list(accumulate(self.by_bucket))


class Traffic:
    """The counters of one process since its start; those of others can be added.

    Threads: every request thread comes here; `_lock` guards all counters.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: dict[tuple[str, str, int], int] = {}
        self._timings: dict[tuple[str, str], Timing] = {}
        self._searches = dict.fromkeys(SEARCH_KINDS, 0)

    def timing(self, method: str, path: str) -> Timing:
        """The histogram of one method and path; from now on it is shown, even while it is empty."""
        with self._lock:
            return self._timings.setdefault((method, path), Timing())

    def count(self, method: str, path: str, status: int) -> None:
        """One more request was answered."""
        key = (method, path, status)
        with self._lock:
            self._answered[key] = self._answered.get(key, 0) + 1

    def note(self, timing: Timing, seconds: float) -> None:
        """Add the duration of one request."""
        bucket = bisect_left(BOUNDS_S, seconds)
        with self._lock:
            timing.by_bucket[bucket] += 1
            timing.seconds += seconds

    def count_search(self, kind: str) -> None:
        """One more search was of a kind: PERSONALIZED or DEGRADED."""
        with self._lock:
            self._searches[kind] += 1

    def searches(self, kind: str) -> int:
        """How many searches were of a kind."""
        return self._searches[kind]

    def answered(self) -> dict[tuple[str, str, int], int]:
        """(method, path, status) -> requests."""
        with self._lock:
            return dict(self._answered)

    def timings(self) -> dict[tuple[str, str], Timing]:
        """(method, path) -> how long requests took, as copies."""
        with self._lock:
            return {key: Timing(list(timing.by_bucket), timing.seconds) for key, timing in self._timings.items()}

    def as_json(self) -> dict[str, Any]:
        """All counters, as add_json() reads them."""
        return {
            "answered": [[*key, count] for key, count in self.answered().items()],
            "timings": [[*key, timing.by_bucket, timing.seconds] for key, timing in self.timings().items()],
            "searches": {kind: self.searches(kind) for kind in SEARCH_KINDS},
        }

    def add_json(self, counters: Mapping[str, Any]) -> None:
        """Add the counters of another process."""
        with self._lock:
            for method, path, status, count in counters["answered"]:
                key = (method, path, status)
                self._answered[key] = self._answered.get(key, 0) + count
            for method, path, by_bucket, seconds in counters["timings"]:
                timing = self._timings.setdefault((method, path), Timing())
                timing.by_bucket = [own + more for own, more in zip(timing.by_bucket, by_bucket, strict=True)]
                timing.seconds += seconds
            for kind, count in counters["searches"].items():
                self._searches[kind] += count


@dataclass(frozen=True, slots=True)
class Report:
    """Counters of another process of this instance. traffic: as Traffic.as_json(); running, waiting: searches."""

    traffic: Mapping[str, Any]
    running: int
    waiting: int


def sum_of(own: Traffic, reports: Iterable[Report]) -> Traffic:
    """The counters of all processes."""
    total = Traffic()
    for counters in (own.as_json(), *(report.traffic for report in reports)):
        total.add_json(counters)
    return total


# What a handler receives and what it returns


class UsageCounter(Protocol):
    """Counts requests for the usage report. Implemented by svcd.analytics, which this package must not import."""

    def note(self, route: Route, ctx: Context) -> None:
        """Count the parameters of a request, before its handler runs."""

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Count an answer."""

    def chat_began(self, model: str, messages: int, milliseconds: float) -> None:
        """Count a chat whose stream has begun. messages: those of the request; milliseconds: until then."""


@dataclass(frozen=True, slots=True)
class Text:
    """A body that is encoded already: JSON text, bytes, portions, or an iterator of bytes that may block."""

    body: str | bytes | Portions | Iterator[bytes]
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What a handler returns. value: anything JSON, or a Text; None with status 204 is an empty body."""

    status: int
    value: Any = None
    headers: tuple[tuple[str, str], ...] = ()


def global_client() -> Client:
    """A client that calls global addresses only."""
    from svcd.remote.client import Client  # loaded with the first call
    from svcd.remote.guard import Guard

    return Client(Guard())


@dataclass(slots=True)
class Context:
    """One request, authorised and decoded.

    path: the checked path parameters, by the names of the route.
    query: every declared parameter, decoded, with defaults filled in.
    body: decoded as the route declares; absent members are absent. None for Stream and for no body.
    searches: a search needs one of its slots. search_cache: hits of earlier searches.
    traffic: counters of this process; reports: fetches those of the other processes; broadcast: sends them a command.
    keys: computes the values of API keys.
    streams, large_answers: limits of answers without end, and of those made in portions. answer_memory: for multi-searches.
    recheck_permission: checks the key again, for long answers. Raises the same errors as the first check.
    embedding: makes vectors of queries. client: returns what calls other hosts, one for each process.
    active_rules: returns the search rules; called while their feature is on.
    chats: what chats share. usage: counts for the usage report; None without one.
    personalization: orders hits for users; None without a key of the service.
    snapshot: while a request reads several indexes, all of them as of one moment (api.joins.index_snapshot).
    search_until: the time (monotonic) after which the searches of this request rank no more.
    shows_page: do browsers get the page at `/`?
    """

    instance: Instance
    runner: Any
    request: Request
    searches: SearchQueue
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    permission: Permission = ALL_PERMITTED
    traffic: Traffic = field(default_factory=Traffic)
    reports: Callable[[], Sequence[Report]] = tuple
    keys: Keys = field(default_factory=lambda: Keys(None))
    broadcast: Callable[[Mapping[str, Any]], None] = lambda command: None
    streams: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1))
    large_answers: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1))
    answer_memory: BodyMemory = field(default_factory=lambda: BodyMemory(1 << 62))
    recheck_permission: Callable[[], Permission] = lambda: ALL_PERMITTED
    search_cache: SearchCache = field(default_factory=lambda: SearchCache(lambda: 0))
    embedding: QueryEmbedding = field(default_factory=lambda: QueryEmbedding(SearchQueue(1)))
    client: Callable[[], Client] = global_client
    active_rules: Callable[[], ActiveRules | None] = lambda: None
    personalization: Personalization | None = None
    snapshot: IndexSnapshot | None = None
    search_until: float = float("inf")
    chats: Chats = field(default_factory=Chats)
    cluster: ClusterView | None = None
    usage: UsageCounter | None = None
    shows_page: bool = False

    @property
    def queue(self) -> Queue:
        """The tasks of the instance."""
        return self.instance.queue

    def read(self, index_uid: str) -> AbstractContextManager[IndexReader]:
        """An index as this request sees it; index_not_found when there is none."""
        if is_hidden(index_uid):  # the uids of foreign keys are not checked when they are set
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        return (self.instance if self.snapshot is None else self.snapshot).read(index_uid)

    def timer(self) -> Timer:
        """The cutoff of a search that begins now."""
        return Timer(self.searches.yield_turn, self.search_until)

    def header(self, name: str) -> str | None:
        """A header that instances know under two names: `Svc-{name}` and, from the reference engine, `Meili-{name}`."""
        headers = self.request.headers
        return headers.get(f"Svc-{name}") or headers.get(f"Meili-{name}")

    @property
    def is_proxied(self) -> bool:
        """Was the request sent by another instance that searches its network?"""
        return self.header("Proxy-Search") == "true"

    @property
    def index_uid(self) -> str:
        """The index that the path names."""
        return self.path["index_uid"]


# What a route declares

Schema = str | Mapping[str, Any]  # the name of a component of shapes.SCHEMAS, or a JSON schema
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose members are declared.

    immutable: {member: code} of members that exist but can't be changed. is_open: other members are ignored. most_values: how
    many JSON values it may have, at all levels.
    """

    fields: Mapping[str, Field]
    code: str = "bad_request"
    immutable: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    most_values: int = MAX_VALUES


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value that one check covers as a whole (a list, or the value of one setting)."""

    check: Any
    code: str = "bad_request"
    most_values: int = MAX_VALUES


@dataclass(frozen=True, slots=True)
class Stream:
    """A body that the handler reads itself, chunk by chunk; it checks the content type too."""

    content_types: tuple[str, ...] = (JSON,)


Body = Fields | Value | Stream


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path.

    path: segments separated by `/`, parameters as `{index_uid}`.
    run: the handler, in the module of what it is about.
    action: the permission it needs; several when it needs all of them, None for the public routes.
    answers: {status: shape}; errors are not listed, they have one shape.
    joins_rules: it applies the filters of tenant tokens (Permission.search_filter); routes that do not reject tokens
        with filters.
    feature: (flag, what the message of feature_not_enabled begins with) of the experimental feature it needs.
    query: the declared parameters in the order in which messages list them.
    headers: request headers that change its answer -> description.
    """

    method: str
    path: str
    run: Callable[[Context], HandlerResult]
    action: str | tuple[str, ...] | None
    answers: Mapping[int, Schema]
    summary: str
    tag: str
    feature: tuple[str, str] | None = None
    query: Mapping[str, Param] = field(default_factory=dict)
    body: Body | None = None
    answer_type: str = JSON
    joins_rules: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def actions(self) -> tuple[str, ...]:
        """All permissions it needs; () for the public routes."""
        return (self.action,) if isinstance(self.action, str) else self.action or ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path parameters, in order."""
        return tuple(_NAME.findall(self.path))


# The tree of paths

Match = tuple[Route, dict[str, str]]  # and the raw values of its path parameters


class _Node:
    """One node of the tree of paths: a literal segment is tried before the parameter."""

    __slots__ = ("literal", "parameter", "routes")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}

    def grow(self, segment: str) -> _Node:
        """The child for one segment of a declared path, made when it is new."""
        if segment.startswith("{"):
            self.parameter = self.parameter or _Node()
            return self.parameter
        return self.literal.setdefault(segment, _Node())

    def find(self, segments: tuple[str, ...], values: tuple[str, ...] = ()) -> tuple[_Node, tuple[str, ...]] | None:
        """The node of a path with the values of its parameters; None when there is no such path."""
        if not segments:
            return (self, values) if self.routes else None
        head, rest = segments[0], segments[1:]
        child = self.literal.get(head)
        found = child.find(rest, values) if child else None
        if found is None and self.parameter is not None:
            found = self.parameter.find(rest, (*values, head))
        return found


class Table:
    """All routes of the interface, ready for matching."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError when two routes have the same method and path."""
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in segments_of(route.path):
            node = node.grow(segment)
        if node.routes.setdefault(route.method, route) is not route:
            raise ValueError(f"two routes for {route.method} {route.path}")

    def match(self, method: str, segments: tuple[str, ...]) -> Match | None:
        """The route and the raw values of its path parameters; None when no route fits.

        method: HEAD is GET here. segments: percent-decoded, without empty ones.
        """
        found = self._root.find(segments)
        if found is None:
            return None
        node, values = found
        route = node.routes.get(method)
        return (route, dict(zip(route.parameters, values))) if route else None

    def methods(self, segments: tuple[str, ...]) -> tuple[str, ...]:
        """The methods that a path has; () when there is no such path."""
        found = self._root.find(segments)
        return tuple(found[0].routes) if found else ()

    def pattern(self, segments: tuple[str, ...]) -> str | None:
        """The path as its routes declare it; None when there is no such path."""
        found = self._root.find(segments)
        return next(iter(found[0].routes.values())).path if found else None


def segments_of(path: str) -> tuple[str, ...]:
    """`/indexes/{index_uid}` -> ("indexes", "{index_uid}"); "/" -> ()."""
    return tuple(path.strip("/").split("/")) if path.strip("/") else ()


# Which requests any worker process may answer (docs/http.md#worker-processes); checked before routes are matched

_METHODS = frozenset(("GET", "POST"))
_SEARCHES = frozenset(("search", "facet-search", "similar"))
_SEVERAL = ("multi-search",)


def is_for_all(request: Request) -> bool:
    """True for searches of all kinds: they only read, so any process may answer them."""
    if request.method not in _METHODS or "search" not in request.path and "similar" not in request.path:
        return False
    segments = request.segments
    return segments == _SEVERAL or len(segments) == 3 and segments[0] == "indexes" and segments[2] in _SEARCHES
