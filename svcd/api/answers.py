"""The JSON text of the answers of search routes: AnswerBuilder collects it, other functions make members that routes share."""
from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.admission import SearchQueue
from svcd.api.filters import hydrate_hits
from svcd.api.streaming import SEPARATOR, list_body
from svcd.base import tracing
from svcd.base.json_text import dumps
from svcd.facets.distribution import Facets
from svcd.http.message import MEMORY_STEP, BodyMemory
from svcd.search.request import SearchResult
from svcd.vectors.vector import single

if TYPE_CHECKING:
    from svcd.api.context import Context, Headers
    from svcd.http.message import Portions
    from svcd.index.reader import IndexReader as Reader
    from svcd.search.hits import LongPage

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_METADATA_HEADER = "Svc-Include-Metadata"
METADATA_HEADERS = {_METADATA_HEADER: "`true` or `1`, in any letter case, adds `metadata` to each search, or to a merged "
                                      "answer a list with the metadata of all searches."}


class AnswerBuilder:
    """Collects the JSON text of an answer.

    held: closes the readers that a large answer still needs after its handler has returned. expected: estimated bytes
    of the hits that are formatted only when they are sent; size: bytes of encoded text.
    """

    def __init__(self, held: ExitStack, memory: BodyMemory | None = None) -> None:
        """memory: shared by all answers that may hold much encoded text; the answer returns its part when it is sent."""
        self.held = held
        self.expected = self.size = 0
        self._memory = memory
        self._taken = 0  # bytes of it
        self._parts: deque[Iterable[bytes]] = deque()
        self._readers: dict[str, Reader] = {}

    def add(self, *texts: bytes) -> None:
        """Append encoded text. Raises a 503 if other answers use all of the memory."""
        self._parts.append(texts)
        if self._memory is None:
            return
        self.size += sum(map(len, texts))
        while self.size > self._taken + MEMORY_STEP:  # the first step is free
            self._memory.take(MEMORY_STEP)
            self.held.callback(self._memory.release, MEMORY_STEP)
            self._taken += MEMORY_STEP

    def add_hits(self, ctx: Context, hits: LongPage, readers: Mapping[str, Reader], index_uid: str | None = None) -> None:
        """Append hits that are formatted when the answer is sent; other arguments: see hydrate_hits()."""
        def parts() -> Iterator[bytes]:
            between = b""
            for portion in hits.portions():
                for hit in hydrate_hits(ctx, portion, readers, index_uid):
                    yield between
                    yield from hits.long_strings.pieces(hit)
                    between = SEPARATOR

        self._parts.append(parts())
        self.expected += hits.expected_bytes

    def end(self, members: Mapping[str, Any]) -> None:
        """Append the members after the hits, with `performanceDetails` if they are measured, and close the answer."""
        self.add(f"],{dumps({**members, **performance_members()})[1:]}".encode())

    @contextmanager
    def reading(self, ctx: Context, index_uid: str) -> Iterator[tuple[Reader, Callable[[], None]]]:
        """(reader, keep): a reader, and a function to call in this block if the reader is needed after it.

        A reader that was kept is used again, so that all parts of an answer come from one snapshot of the index.
        """
        known = self._readers.get(index_uid)
        if known is not None:
            yield known, lambda: None
            return
        with ExitStack() as own:
            reader = own.enter_context(ctx.read(index_uid))

            def keep() -> None:
                own.callback(reader.close)
                self.held.push(own.pop_all())
                self._readers[index_uid] = reader

            yield reader, keep

    def body(self, ctx: Context) -> bytes | Portions:
        """The whole body. Raises a 503 if it is large and too many large answers are being sent."""
        if not self.expected and not self._taken:
            return b"".join(chain.from_iterable(self._parts))

        def parts() -> Iterator[bytes]:
            while self._parts:  # each part is dropped when the next one is read
                yield from self._parts.popleft()

        return list_body(b"", parts(), bytes, expected=self.expected + self.size, limit=ctx.services.large_answers,
                         held=self.held, separator=b"")


# The answer to one query on one index, here or over the network


class AnswerParts(NamedTuple):
    """The parts of an answer that may be cached, as JSON texts: joining them saves parsing and encoding every hit.

    hits: without the brackets. of_query, of_page, last: members, each with the comma before it. etag: empty if the answer may
    change without the index.
    """

    hits: bytes
    of_query: bytes
    of_page: bytes
    last: bytes
    etag: bytes = b""

    def headers(self, has_metadata: bool) -> Headers:
        """The headers of an answer with these parts. An answer with `metadata` has other bytes, and gets no ETag."""
        return (("ETag", self.etag.decode()),) if self.etag and not has_metadata else ()


def parts_of(hits: Iterable[str], found: SearchResult, index_uid: str) -> AnswerParts:
    """The parts of the answer with this result. hits: as the answer shows them."""
    vector = found.query_vectors.get(0)
    return AnswerParts(",".join(hits).encode(),
                       b"" if vector is None else members_text({"queryVector": shown_vector(vector)}).encode(),
                       members_text({**found.pagination, **facet_members(found.facets.get(index_uid))}).encode(),
                       b"" if found.semantic_hits is None else members_text(semantic_members(found)).encode())


def text_after_hits(ctx: Context, has_metadata: bool, body: Mapping[str, Any], parts: AnswerParts, milliseconds: int,
                    request_uid: str, index_uid: str, primary_key: str | None, instance: str | None = None,
                    more: str = "") -> bytes:
    """The text of an answer after its hits. The search is noted in the query log, if there is one.

    has_metadata: wants_metadata(). body: the parameters of the search. milliseconds: the processing time. instance: its name in
    a network. more: members that a search over a network adds.
    """
    if ctx.services.query_log is not None and not ctx.is_proxied:
        ctx.services.query_log.note(request_uid, index_uid, body.get("q"), parts.of_page, milliseconds, ctx.permission.key_uid,
                                    ctx.person)
    query = f'],"query":{dumps(body.get("q") or "")}'
    suffix = f',"requestUid":"{request_uid}"'
    if has_metadata:
        suffix += f',"metadata":{dumps(metadata(body.get("q"), index_uid, primary_key, instance))}'
    suffix += more
    if details := performance_members():
        suffix += members_text(details)
    elapsed = f',"processingTimeMs":{milliseconds}'
    return b"".join((query.encode(), parts.of_query, elapsed.encode(), parts.of_page, suffix.encode(), parts.last, b"}"))


def members_text(members: Mapping[str, Any]) -> str:
    """The text of members, with the comma before it."""
    return f",{dumps(members)[1:-1]}" if members else ""


# Members that several answers have


def wants_metadata(ctx: Context) -> bool:
    """Return whether a header of the request asks for `metadata`."""
    return (ctx.header("Include-Metadata") or "").lower() in ("true", "1")


def metadata(text: str | None, index_uid: str, primary_key: str | None, remote: str | None = None) -> dict[str, str]:
    """The `metadata` of one query, without members that have no value. remote: the instance that the query names."""
    members = {"query": text, "queryUid": uuid7(), "indexUid": index_uid, "primaryKey": primary_key, "remote": remote}
    return {name: value for name, value in members.items() if value is not None}


def uuid7() -> str:
    """A new UUID of version 7. It begins with the time, so newer UUIDs sort after older ones."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF000 << 64) & ~(0xC000 << 48) | 0x7000 << 64 | 0x8000 << 48
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def milliseconds_since(started: float) -> int:
    """Milliseconds since a time of the monotonic clock."""
    return int((time.monotonic() - started) * 1000)


def facet_members(facets: Facets | None) -> dict[str, Any]:
    """The members of an answer with the counts and statistics of facets."""
    return {} if facets is None else {"facetDistribution": facets.distribution, "facetStats": facets.stats}


def semantic_members(found: SearchResult) -> dict[str, int]:
    """The last member of an answer: the number of hits found by their vectors; {} if no query searched vectors."""
    return {} if found.semantic_hits is None else {"semanticHitCount": found.semantic_hits}


def shown_vector(vector: Sequence[float]) -> list[float]:
    """Numbers of single precision with the fewest digits that identify them: 0.1, not 0.10000000149011612."""
    return [next((shown for digits in (6, 7, 8) if single(shown := float(f"{number:.{digits}g}")) == number), number)
            for number in vector]


# The durations of the steps of a search


def measured(is_asked: Any) -> AbstractContextManager[None]:
    """Measure the steps of the search in this block, if is_asked, but not the steps of other searches of the request."""
    outer = tracing.recorder()
    # All searches of a request share one wait in the queue, so it counts for each of them.
    durations = None if outer is None else outer.durations
    return tracing.recording(tracing.Recorder(time.perf_counter_ns, durations) if is_asked else None)


def timed_slot(searches: SearchQueue, is_long: bool = False) -> AbstractContextManager[None]:
    """A slot of the search queue; the wait for it is measured. is_long: for a request with many searches."""
    tracing.begin("wait in queue")
    return searches.long_slot() if is_long else searches.slot()


def performance_members() -> dict[str, dict[str, str]]:
    """The member `performanceDetails`: path of a step -> duration, in the order in which the steps ended; {} if not measured."""
    measuring = tracing.recorder()
    if measuring is None:
        return {}
    return {"performanceDetails": {path: duration(nanoseconds) for path, nanoseconds in measuring.durations.items()}}


def duration(nanoseconds: int) -> str:
    """A duration in the largest unit that fits in it, with two decimals: `1.23ms`."""
    size, unit = next((each for each in _UNITS if nanoseconds >= each[0]), _UNITS[-1])
    return f"{nanoseconds / size:.2f}{unit}"
