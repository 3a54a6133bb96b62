"""What handlers receive: the parts of the process that answer requests (Services), and one request (Context).

Services are made once for each process, from the launch options (svcd.cli.wiring; svcd.cli.search_worker without the parts
that write).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from svcd.api.admission import SearchCache, SearchQueue, Timer
from svcd.api.search_services import ActiveRules, Personalization, QueryEmbedding, no_services
from svcd.api.streaming import ConcurrencyLimit
from svcd.api.traffic import ChatTraffic, Report, Traffic
from svcd.auth.keys import ALL_PERMITTED, Keys, Permission
from svcd.base.errors import ApiError
from svcd.http.message import BodyMemory, HttpError
from svcd.instance.data_folder import is_hidden

try:
    from _blake2 import blake2b  # the same as in hashlib, which also loads OpenSSL: 2 ms of a first search, 3 MB
except ImportError:  # a private module, which other interpreters may lack
    from hashlib import blake2b

if TYPE_CHECKING:
    from svcd.cluster.service import ClusterService
    from svcd.embedding import Embedders
    from svcd.http.message import Request
    from svcd.index.reader import IndexReader
    from svcd.instance.data_folder import DataFolderReader, IndexSnapshot
    from svcd.instance.instance import Instance
    from svcd.instance.queue import Queue
    from svcd.mcp.limits import CallLimit
    from svcd.querylog.recorder import Recorder
    from svcd.remote.client import Client
    from svcd.remote.reranking import Reranker
    from svcd.tasks.dry_runs import DryRuns

Headers = tuple[tuple[str, str], ...]
# Bytes of the answers of all multi-searches of a process together; one answer has at most half of them.
ANSWER_MEMORY = 64 << 20


class UsageCounter(Protocol):
    """Counts requests for the usage report. svcd.analytics implements it, which this package must not import."""

    def note(self, route: tuple[str, str], ctx: Context) -> None:
        """Count the parameters of a request before its handler runs. route: method and path."""

    def answered(self, request: Request, status: int, seconds: float) -> None:
        """Count a response."""

    def chat_began(self, model: str, messages: int, milliseconds: float) -> None:
        """Count a chat whose stream has begun. messages: number in the request; milliseconds: time until the stream began."""


def global_client() -> Client:
    """A client that calls global addresses only."""
    from svcd.remote.client import Client  # loaded with the first call
    from svcd.remote.guard import Guard

    return Client(Guard())


@dataclass
class Services:
    """The parts of one process that handlers use.

    data_folder: reads the data folder. Handlers of searches use it, because they also run in search workers.
    keys: checks API keys and computes their values. searches: gives each search a slot.
    instance: the same data folder with its writer; None in a search worker.
    cluster: the cluster, in the main process of a node. usage: counts for the usage report; None if nothing is reported.
    traffic: counters of this process; reports: fetches the counters of the other processes; broadcast: sends them a command
        (svcd.cli.search_worker).
    streams, large_answers, waiting_writes: how many responses without end, responses made in portions, and requests that wait
        for a task may exist at once.
    make_embedders, make_client, make_reranker, make_dry_runs: make a part when the first request needs it. Without
        make_reranker, searches cannot be personalized.
    query_log: collects searches; None without a query log.
    keeps_changes: indexes keep a log of their changes. shows_page: browsers get the page at `/`. renames_by_patch:
        `PATCH /indexes/{index_uid}` accepts a new uid. mcp_writes: assistants may write. mcp_calls_per_minute: of each key.
    """

    data_folder: DataFolderReader
    keys: Keys
    searches: SearchQueue
    instance: Instance | None = None
    cluster: ClusterService | None = None
    usage: UsageCounter | None = None
    traffic: Traffic = field(default_factory=Traffic)
    reports: Callable[[], Sequence[Report]] = tuple
    broadcast: Callable[[Mapping[str, Any]], None] = lambda command: None
    streams: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1))
    large_answers: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1, "large answers"))
    waiting_writes: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1, "requests that wait for a task"))
    make_embedders: Callable[[], Embedders] = no_services
    make_client: Callable[[], Client] = global_client
    make_reranker: Callable[[], Reranker] | None = None
    make_dry_runs: Callable[[], DryRuns] | None = None
    query_log: Recorder | None = None
    keeps_changes: bool = False
    shows_page: bool = False
    renames_by_patch: bool = False
    mcp_writes: bool = False
    mcp_calls_per_minute: int = 600
    answer_memory: BodyMemory = field(default_factory=lambda: BodyMemory(ANSWER_MEMORY, "large answers"))
    chats: ChatTraffic = field(default_factory=ChatTraffic)

    @cached_property
    def search_cache(self) -> SearchCache:
        """The hits of earlier searches."""
        return SearchCache(lambda: self.data_folder.answer_limit)

    @cached_property
    def embedding(self) -> QueryEmbedding:
        """Makes vectors of queries."""
        return QueryEmbedding(self.searches, self.make_embedders)

    @cached_property
    def client(self) -> Client:
        """Calls other hosts."""
        return self.make_client()

    @cached_property
    def dry_runs(self) -> DryRuns:
        """Tells what writes would do; in the main process."""
        assert self.make_dry_runs
        return self.make_dry_runs()

    @cached_property
    def mcp_calls(self) -> CallLimit:
        """Limits the calls of assistants."""
        from svcd.mcp.limits import CallLimit  # few instances serve assistants

        return CallLimit(self.mcp_calls_per_minute)

    @cached_property
    def active_rules(self) -> ActiveRules:
        """The search rules of the instance; used while their feature is on."""
        return ActiveRules(self.data_folder)

    @cached_property
    def personalization(self) -> Personalization | None:
        """Orders hits for users; None without a reranker."""
        return None if self.make_reranker is None else Personalization(self.searches, self.make_reranker)


@dataclass(slots=True)
class Context:
    """One request, authorised and decoded.

    recheck_permission: checks the key again, for long answers. Raises the same errors as the first check. path: the checked path
    parameters, by the names of the route. query: every declared parameter, decoded, with defaults filled in. body: decoded as
    the route declares; absent members are absent. None for Stream and for no body. is_dry_run: a write asks what it would do.
    snapshot: all indexes of a request as of one moment, while it reads several (svcd.api.filters.index_snapshot). search_until:
    the time (monotonic) after which the searches of this request stop ranking.
    """

    services: Services
    request: Request
    permission: Permission = ALL_PERMITTED
    recheck_permission: Callable[[], Permission] = lambda: ALL_PERMITTED
    path: Mapping[str, Any] = field(default_factory=dict)
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    is_dry_run: bool = False
    snapshot: IndexSnapshot | None = None
    search_until: float = float("inf")

    @property
    def instance(self) -> Instance:
        """The data folder with its writer. Only handlers of the main process may use it."""
        instance = self.services.instance
        if instance is None:
            raise RuntimeError("a search worker cannot write: its handlers use `services.data_folder`")
        return instance

    @property
    def queue(self) -> Queue:
        """The tasks of the instance."""
        return self.instance.queue

    def read(self, index_uid: str) -> AbstractContextManager[IndexReader]:
        """Open an index as this request sees it. Raises index_not_found."""
        if is_hidden(index_uid):  # the uids of foreign keys are not checked when they are set
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        return (self.services.data_folder if self.snapshot is None else self.snapshot).read(index_uid)

    def timer(self) -> Timer:
        """The cutoff of a search that begins now."""
        return Timer(self.services.searches.yield_turn, self.search_until)

    def header(self, name: str) -> str | None:
        """A header with two names: `Svc-{name}` and, from the reference engine, `Meili-{name}`."""
        headers = self.request.headers
        return headers.get(f"Svc-{name}") or headers.get(f"Meili-{name}")

    def etag(self, *basis: object) -> str:
        """The ETag of the answer that these values decide, by their repr() (docs/http.md#conditional-requests).

        It is weak: `processingTimeMs` and `requestUid` differ in each answer.
        """
        text = f"{self.services.data_folder.start} {basis}"
        return f'W/"{blake2b(text.encode(), digest_size=15).hexdigest()}"'

    def tagged(self, etag: str) -> Headers:
        """The headers of an answer with this ETag. Raises the status 304 if the client has the answer."""
        headers = (("ETag", etag),)
        if etag.removeprefix("W/") in (self.request.headers.get("if-none-match") or ""):
            raise HttpError(304, "The client has this answer.", headers)
        return headers

    @property
    def is_proxied(self) -> bool:
        """Return whether another instance that searches its network sent the request."""
        return self.header("Proxy-Search") == "true"

    @property
    def person(self) -> str:
        """Tells people apart as far as that is known: by a header that clients of the reference engine send, else by address."""
        headers = self.request.headers
        return (headers.get("x-ms-user-id") or headers.get("x-forwarded-for") or self.request.client)[:100]

    @property
    def index_uid(self) -> str:
        """The index that the path names."""
        return self.path["index_uid"]
