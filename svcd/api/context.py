"""What a handler receives (Context) and what it returns (HandlerResult)."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from svcd.api.search_cache import SearchCache
from svcd.api.streaming import ConcurrencyLimit
from svcd.api.traffic import Report, Traffic
from svcd.auth.keys import Keys
from svcd.auth.permissions import ALL_PERMITTED, Permission
from svcd.http.message import Portions

if TYPE_CHECKING:
    from svcd.api.admission import SearchQueue
    from svcd.http.message import Request
    from svcd.index.reader import IndexReader
    from svcd.instance.data_folder import IndexSnapshot
    from svcd.instance.instance import Instance
    from svcd.instance.queue import Queue

JSON = "application/json"
NDJSON = "application/x-ndjson"


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


@dataclass(slots=True)
class Context:
    """One request, authorised and decoded.

    path: the checked path parameters, by the names of the route.
    query: every declared parameter, decoded, with defaults filled in.
    body: decoded as the route declares; absent members are absent. None for Stream and for no body.
    searches: a search needs one of its slots. search_cache: hits of earlier searches.
    traffic: counters of this process; reports: fetches those of the other processes; broadcast: sends them a command.
    keys: computes the values of API keys.
    streams, large_answers: limits of answers without end, and of those made in portions.
    recheck_permission: checks the key again, for long answers. Raises the same errors as the first check.
    snapshot: while a request reads several indexes, all of them as of one moment (api.joins.index_snapshot).
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
    broadcast: Callable[[Mapping[str, Any]], None] = lambda order: None
    streams: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1))
    large_answers: ConcurrencyLimit = field(default_factory=lambda: ConcurrencyLimit(1))
    recheck_permission: Callable[[], Permission] = lambda: ALL_PERMITTED
    search_cache: SearchCache = field(default_factory=SearchCache)
    snapshot: IndexSnapshot | None = None

    @property
    def queue(self) -> Queue:
        """The tasks of the instance."""
        return self.instance.queue

    def read(self, index_uid: str) -> AbstractContextManager[IndexReader]:
        """An index as this request sees it; index_not_found when there is none."""
        return (self.instance if self.snapshot is None else self.snapshot).read(index_uid)

    @property
    def index_uid(self) -> str:
        """The index that the path names."""
        return self.path["index_uid"]
