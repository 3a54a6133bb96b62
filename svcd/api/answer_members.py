"""Members that the answers of several search routes share: metadata, durations, facets, vectors."""
from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from svcd.api.admission import SearchQueue
from svcd.base import tracing
from svcd.facets.distribution import Facets
from svcd.search.request import SearchResult
from svcd.vectors.vector import single

if TYPE_CHECKING:
    from svcd.api.context import Context

PERFORMANCE_DETAILS = "performanceDetails"
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))
_METADATA_HEADER = "Svc-Include-Metadata"
METADATA_HEADERS = {_METADATA_HEADER: "`true` or `1`, in any letter case, adds `metadata` to each search, or to a merged "
                                      "answer a list with the metadata of all searches."}


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
    return list(map(_shortest, vector))


def _shortest(number: float) -> float:
    return next((shown for digits in (6, 7, 8) if single(shown := float(f"{number:.{digits}g}")) == number), number)


# The durations of the steps of a search, for the member `performanceDetails`


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


def performance_details() -> dict[str, str] | None:
    """Path of a step -> its duration, in the order in which the steps ended; None if nothing is measured."""
    measuring = tracing.recorder()
    if measuring is None:
        return None
    return {path: duration(nanoseconds) for path, nanoseconds in measuring.durations.items()}


def duration(nanoseconds: int) -> str:
    """A duration in the largest unit that fits in it, with two decimals: `1.23ms`."""
    size, unit = next((each for each in _UNITS if nanoseconds >= each[0]), _UNITS[-1])
    return f"{nanoseconds / size:.2f}{unit}"
