"""Score details: what each rule says of a document, the score that follows, and how both are shown
(docs/ranking.md#scores-and-score-details).

All scores are doubles; ranks are unsigned integers of 32 bits that wrap around.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, NamedTuple, Sequence

from svcd.base.quantities import shown_number
from svcd.geo.sphere import Point
from svcd.schema.ranking_rules import ATTRIBUTE_RANK, PROXIMITY, TYPO, WORD_POSITION, WORDS

EXACT_ATTRIBUTE, EXACT_WORDS = "exactAttribute", "exactWords"

_WRAP = 0xFFFF_FFFF
EXACT_MATCH, MATCHES_START, NO_EXACT_MATCH = 3, 2, 1  # ranks of exactAttribute, of 3
_MATCH_TYPES = {EXACT_MATCH: "exactMatch", MATCHES_START: "matchesStart", NO_EXACT_MATCH: "noExactMatch"}


class Ranked(NamedTuple):
    """The documents have rank `rank` of `most` by this rule; `most` is best."""

    rule: str
    rank: int
    most: int

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        return self.rank / self.most


class Sorted(NamedTuple):
    """The value by which the documents were sorted: a number, a normalized string, or None without one."""

    field: str
    ascending: bool
    value: float | str | None


class GeoSorted(NamedTuple):
    """About how far the documents are from the point that they are sorted by.

    place, metres: of the first of them; None for documents without a point.
    """

    point: Point
    ascending: bool
    place: Point | None
    metres: float | None


class VectorSorted(NamedTuple):
    """How similar the documents are to the vector of the query, from 0 to 1; None for documents without a vector."""

    similarity: float | None

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        return self.similarity or 0.0


class Skipped(NamedTuple):
    """The cutoff passed before the rule could order the documents."""


class Pinned(NamedTuple):
    """A search rule put the document at a position, whatever the ranking rules say; its only detail."""

    position: int


Detail = Pinned | Ranked | Sorted | GeoSorted | VectorSorted | Skipped


def score(details: Iterable[Detail]) -> float:
    """The global score of a document, between 0 and 1: its similarity, or all ranks merged in order; 1.0 without either."""
    rank, most = 1, 1
    for detail in details:
        if isinstance(detail, Ranked):
            rank, most = max(rank - 1, 0) * detail.most + detail.rank & _WRAP, most * detail.most & _WRAP
        elif isinstance(detail, VectorSorted):
            return detail.score
        elif isinstance(detail, Skipped):
            rank = max(rank - 1, 0)
    return rank / most if most else 0.0


def score_details(
    details: Sequence[Detail], are_separated: bool, is_hidden: Callable[[str], bool]
) -> dict[str, Any]:
    """`_rankingScoreDetails`.

    are_separated: result of is_attribute_split. is_hidden: says of a field that its name and values must not be shown.
    """
    view: dict[str, Any] = {}
    order = 0
    by_rule = {detail.rule: detail for detail in details if isinstance(detail, Ranked)}
    for detail in details:
        if isinstance(detail, Sorted):
            view.update(_sorted(detail, order, is_hidden))
        elif isinstance(detail, GeoSorted):
            view.update(_geo_sorted(detail, order))
        elif isinstance(detail, VectorSorted):
            view["vectorSort"] = {"order": order, "similarity": detail.similarity}
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


def _sorted(detail: Sorted, order: int, is_hidden: Callable[[str], bool]) -> dict[str, Any]:
    if is_hidden(detail.field):
        return {f"<hidden-rule-{order}>": {"order": order, "value": "<hidden>"}}
    direction = "asc" if detail.ascending else "desc"
    return {f"{detail.field}:{direction}": {"order": order, "value": detail.value}}


def _geo_sorted(detail: GeoSorted, order: int) -> dict[str, Any]:
    direction = "asc" if detail.ascending else "desc"
    place = detail.place and dict(zip(("lat", "lng"), detail.place))
    name = f"_geoPoint({', '.join(map(shown_number, detail.point))}):{direction}"
    return {name: {"order": order, "value": place, "distance": detail.metres}}


def _merged_into_earlier(
    detail: Ranked, view: dict[str, Any], by_rule: dict[str, Ranked], are_separated: bool
) -> bool:
    """The second halves of `attribute` and `exactness` have no entry, and no order, of their own."""
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
}
