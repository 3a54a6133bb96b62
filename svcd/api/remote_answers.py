"""Reads the answer of a remote to a search: its hits with the values that order them, its pins, totals and facets.

A remote answers like any client's request, except that `_federation` of its hits has more members
(svcd.search.remote_hits). Source: docs/network.md#merging.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.facets.distribution import Facets
from svcd.remote import remote_calls
from svcd.search.merge_order import MergeKey, read_values
from svcd.search.remote_hits import (
    EXTRA_DOCUMENT, FEDERATION, PINNED_POSITION, SCORE_VALUES, WEIGHTED_SCORE, RemoteHit, RemoteResult,
)

Json = Mapping[str, Any]

_FOR_MERGING = (SCORE_VALUES, EXTRA_DOCUMENT, PINNED_POSITION)
_PAGINATIONS = (("hitsPerPage", "page", "totalPages", "totalHits"), ("limit", "offset", "estimatedTotalHits"))


def remote_result(remote: str, answer: Any) -> RemoteResult:
    """Read the answer of a remote.

    Raises ValueError for anything but an answer to a federated search, and remote_bad_response for hits that cannot be merged.
    Leaves out a hit if only a member of it has a wrong type.
    """
    total = _checked_total(answer)
    facets = _facets(answer)
    query_vectors = {int(number): vector for number, vector in _object(answer.get("queryVectors") or {}).items()}
    if not all(isinstance(vector, list) and all(map(_is_number, vector)) for vector in query_vectors.values()):
        raise ValueError("not a vector")
    entries = answer.get("metadata")
    primary_keys = {
        entry["indexUid"]: entry["primaryKey"] for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("primaryKey"), str) and isinstance(entry.get("indexUid"), str)}
    hits = [hit for given in answer["hits"] if (hit := _hit(remote, given)) is not None]
    return RemoteResult(
        hits=[hit for hit in hits if hit.pinned_position is None],
        pinned_hits=[hit for hit in hits if hit.pinned_position is not None],
        total=total,
        facets=facets,
        query_vectors=query_vectors,
        milliseconds=answer["processingTimeMs"],
        primary_keys=primary_keys if hits else {},  # the reference engine ignores them, too
    )


def _checked_total(answer: Any) -> int:
    """The number of documents that the remote has found. Checks the members that every answer has. Raises ValueError."""
    hits = answer.get("hits") if isinstance(answer, dict) else None
    if not isinstance(hits, list) or not all(isinstance(hit, dict) for hit in hits):
        raise ValueError("no hits")
    if not _is_count(answer.get("processingTimeMs")):
        raise ValueError("no processing time")
    for names in _PAGINATIONS:
        if all(_is_count(answer.get(name)) for name in names):
            return int(answer[names[-1]])
    raise ValueError("no total")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _hit(remote: str, given: Json) -> RemoteHit | None:
    """A hit; None if a member has a wrong type. Raises remote_bad_response if a required member is missing."""
    if FEDERATION not in given:
        raise remote_calls.missing_in_hit(f".{FEDERATION}")
    federation = given[FEDERATION]
    if not isinstance(federation, dict):
        raise remote_calls.unexpected_in_hit(f".{FEDERATION}", "map", federation)
    for name in (SCORE_VALUES, WEIGHTED_SCORE):
        if name not in federation:
            raise remote_calls.missing_in_hit(f".{FEDERATION}.{name}")
    extra, pinned = federation.get(EXTRA_DOCUMENT) or {}, federation.get(PINNED_POSITION)
    score, number, index_uid = federation[WEIGHTED_SCORE], federation.get("queriesPosition"), federation.get("indexUid")
    try:
        compared, is_semantic = read_values(federation[SCORE_VALUES])
    except ValueError:
        return None
    is_placed = _is_count(number) and (pinned is None or _is_count(pinned)) and _is_number(score)
    if not is_placed or not isinstance(extra, dict) or not isinstance(index_uid, str):
        return None
    shown = {name: value for name, value in federation.items() if name not in _FOR_MERGING}
    document = {**given, FEDERATION: {**shown, "remote": remote}}
    return RemoteHit(MergeKey(compared, float(score)), number or 0, index_uid, document, extra, pinned, is_semantic)


def _facets(answer: Json) -> dict[str, Facets]:
    """Index uid -> facets. Raises ValueError."""
    facets = {}
    for index_uid, own in _object(answer.get("facetsByIndex") or {}).items():
        own = _object(own)
        distribution = {field: _object(counts) for field, counts in _object(own.get("distribution") or {}).items()}
        if not all(_is_count(count) for counts in distribution.values() for count in counts.values()):
            raise ValueError("a count that is not a number")
        stats = {field: (_object(ends).get("min"), ends.get("max")) for field, ends in _object(own.get("stats") or {}).items()}
        if not all(_is_number(end) for ends in stats.values() for end in ends):
            raise ValueError("a minimum or maximum that is not a number")
        facets[index_uid] = Facets(distribution, {field: {"min": float(least), "max": float(most)}  # type: ignore[arg-type]  # they are numbers
                                                  for field, (least, most) in stats.items()})
    return facets


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
