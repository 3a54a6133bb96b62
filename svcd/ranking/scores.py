"""Score details: the detail of each rule for a document, the score computed from them, and their JSON form.

All scores are doubles; ranks are unsigned integers of 32 bits that wrap around. See docs/ranking.md#scores-and-score-details.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, NamedTuple, Sequence

from svcd.base.quantities import shown_number
from svcd.geo.sphere import Point
from svcd.schema.ranking_rules import ATTRIBUTE_RANK, BM25, PROXIMITY, TYPO, WORD_POSITION, WORDS

EXACT_ATTRIBUTE, EXACT_WORDS = "exactAttribute", "exactWords"

_WRAP = 0xFFFF_FFFF
EXACT_MATCH, MATCHES_START, NO_EXACT_MATCH = 3, 2, 1  # ranks of exactAttribute, of 3
_MATCH_TYPES = {EXACT_MATCH: "exactMatch", MATCHES_START: "matchesStart", NO_EXACT_MATCH: "noExactMatch"}


class Ranked(NamedTuple):
    """The rank of the documents by this rule, from 0 to `most`, which is best."""

    rule: str
    rank: int
    most: int

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        return self.rank / self.most


class Sorted(NamedTuple):
    """The value by which the documents were sorted: a number, a normalized string, or None for documents without a value."""

    field: str
    ascending: bool
    value: float | str | None


class GeoSorted(NamedTuple):
    """The approximate distance of the documents from the point of the sort expression.

    place, metres: point and distance of the first document; None for documents without a point.
    """

    point: Point
    ascending: bool
    place: Point | None
    metres: float | None


class VectorSorted(NamedTuple):
    """The similarity of the documents to the query vector, from 0 to 1; None for documents without a vector."""

    similarity: float | None

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        return self.similarity or 0.0


class Fused(NamedTuple):
    """The score of the fusion of two lists: the part of each. has_vector: whether the list by vectors has the document."""

    kind: str
    words: float
    vectors: float
    has_vector: bool

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        return self.words + self.vectors


class Skipped(NamedTuple):
    """The cutoff passed before the rule ordered the documents."""


class Pinned(NamedTuple):
    """A search rule pinned the document at a position, independent of the ranking rules; it is the only detail of the hit."""

    position: int


Detail = Pinned | Fused | Ranked | Sorted | GeoSorted | VectorSorted | Skipped


def score(details: Iterable[Detail]) -> float:
    """Return the score of a document, from 0 to 1: its similarity, its fused score, or all ranks merged in order; else 1.0."""
    rank, most = 1, 1
    for detail in details:
        if isinstance(detail, Ranked):
            rank, most = max(rank - 1, 0) * detail.most + detail.rank & _WRAP, most * detail.most & _WRAP
        elif isinstance(detail, (VectorSorted, Fused)):
            return detail.score
        elif isinstance(detail, Skipped):
            rank = max(rank - 1, 0)
    return rank / most if most else 0.0


def score_details(details: Sequence[Detail], are_separated: bool, is_hidden: Callable[[str], bool]) -> dict[str, Any]:
    """Return `_rankingScoreDetails`.

    are_separated: result of is_attribute_split. is_hidden: returns whether the name and values of a field must be hidden.
    """
    view: dict[str, Any] = {}
    order = 0
    by_rule = {detail.rule: detail for detail in details if isinstance(detail, Ranked)}
    for detail in details:
        if isinstance(detail, Sorted):
            if is_hidden(detail.field):
                view[f"<hidden-rule-{order}>"] = {"order": order, "value": "<hidden>"}
            else:
                view[f"{detail.field}:{'asc' if detail.ascending else 'desc'}"] = {"order": order, "value": detail.value}
        elif isinstance(detail, GeoSorted):
            name = f"_geoPoint({', '.join(map(shown_number, detail.point))}):{'asc' if detail.ascending else 'desc'}"
            place = detail.place and dict(zip(("lat", "lng"), detail.place))
            view[name] = {"order": order, "value": place, "distance": detail.metres}
        elif isinstance(detail, VectorSorted):
            view["vectorSort"] = {"order": order, "similarity": detail.similarity}
        elif isinstance(detail, Fused):
            view["fusion"] = {"order": order, "kind": detail.kind, "words": detail.words, "vectors": detail.vectors,
                              "score": detail.score}
        elif isinstance(detail, Skipped):
            view["skipped"] = {"order": order}
        elif isinstance(detail, Pinned):
            view["pin"] = {"order": order, "position": detail.position}
        elif not _merged_into_earlier(detail, view, by_rule, are_separated):
            view.update(_RANKED[detail.rule](detail, order, are_separated))
        else:
            continue
        order += 1
    return view


def _merged_into_earlier(detail: Ranked, view: dict[str, Any], by_rule: dict[str, Ranked], are_separated: bool) -> bool:
    """Add the second half of `attribute` or `exactness` to the entry of the first half; return False for other rules."""
    if detail.rule == WORD_POSITION and not are_separated:
        attribute = view["attribute"]
        attribute["queryWordDistanceScore"] = detail.score
        attribute["score"] = score((by_rule[ATTRIBUTE_RANK], detail))
        return True
    if detail.rule != EXACT_WORDS:
        return False
    exact_attribute = by_rule[EXACT_ATTRIBUTE]
    if exact_attribute.rank == NO_EXACT_MATCH:
        exactness = view["exactness"]
        del exactness["score"]
        exactness["matchingWords"] = detail.rank - 1
        exactness["maxMatchingWords"] = detail.most - 1
        exactness["score"] = score((exact_attribute, detail))
    return True


def _words(detail: Ranked, order: int, are_separated: bool) -> dict[str, Any]:
    counts = {"matchingWords": detail.rank, "maxMatchingWords": detail.most}
    return {"words": {"order": order, **counts, "score": detail.score}}


def _typo(detail: Ranked, order: int, are_separated: bool) -> dict[str, Any]:
    counts = {"typoCount": detail.most - detail.rank, "maxTypoCount": detail.most - 1}
    return {"typo": {"order": order, **counts, "score": detail.score}}


def _plain(detail: Ranked, order: int, are_separated: bool) -> dict[str, Any]:
    return {detail.rule: {"order": order, "score": detail.score}}


def _attribute_rank(detail: Ranked, order: int, are_separated: bool) -> dict[str, Any]:
    if are_separated:
        return _plain(detail, order, are_separated)
    return {"attribute": {"order": order, "attributeRankingOrderScore": detail.score}}


def _exact_attribute(detail: Ranked, order: int, are_separated: bool) -> dict[str, Any]:
    match_type = _MATCH_TYPES[detail.rank]
    return {"exactness": {"order": order, "matchType": match_type, "score": detail.score}}


_RANKED: dict[str, Callable[[Ranked, int, bool], dict[str, Any]]] = {
    WORDS: _words,
    TYPO: _typo,
    PROXIMITY: _plain,
    ATTRIBUTE_RANK: _attribute_rank,
    WORD_POSITION: _plain,
    EXACT_ATTRIBUTE: _exact_attribute,
    BM25: _plain,
}
