"""A Reader over plain dictionaries: the independent second store that the engine is tested on.

Built from documents through `documents.positions`; every relation is worked out word by word, in the
plainest way.
"""
from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

from svcd import bitsets
from svcd.engine import attributes, documents
from svcd.engine.analysis import analyzer_of
from svcd.engine.field_values import FieldValues, field_values, kept_fields
from svcd.engine.filterable import Filterable
from svcd.engine.geo.geojson import read_geojson
from svcd.engine.geo.shape import Shape
from svcd.engine.geo_fields import validate_geo
from svcd.engine.searchable import Searchable
from svcd.engine.reader import WORD_MARK, DocIds, Sides, Value
from svcd.columns import Column
from svcd.sphere import Point, direction, distance

DEFAULTS: dict[str, Any] = {
    "displayedAttributes": ["*"],
    "searchableAttributes": ["*"],
    "filterableAttributes": [],
    "sortableAttributes": [],
    "rankingRules": ["words", "typo", "proximity", "attributeRank", "sort", "wordPosition", "exactness"],
    "stopWords": [],
    "nonSeparatorTokens": [],
    "separatorTokens": [],
    "dictionary": [],
    "synonyms": {},
    "distinctAttribute": None,
    "proximityPrecision": "byWord",
    "typoTolerance": {
        "enabled": True,
        "minWordSizeForTypos": {"oneTypo": 5, "twoTypos": 9},
        "disableOnWords": [],
        "disableOnAttributes": [],
        "disableOnNumbers": False,
    },
    "faceting": {"maxValuesPerFacet": 100, "sortFacetValuesBy": {"*": "alpha"}},
    "facetSearch": True,
    "pagination": {"maxTotalHits": 1000},
    "searchCutoffMs": None,
    "localizedAttributes": None,
    "prefixSearch": "indexingTime",
}


class DictReader:
    """An index in memory: documents get the docids 0, 1, 2... in their order."""

    least_for_columns = 1000  # documents that would have to be looked into

    def __init__(
        self,
        texts: Iterable[Mapping[str, Any]],
        settings: Mapping[str, Any] | None = None,
        primary_key: str = "id",
    ) -> None:
        self.settings: dict[str, Any] = {**DEFAULTS, **(settings or {})}
        self.primary_key: str | None = primary_key
        self._documents = list(texts)
        self._words: dict[str, set[int]] = defaultdict(set)
        self._fields: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._positions: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._pairs: dict[tuple[int, str, str], set[int]] = defaultdict(set)
        self._counts: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._names: dict[str, None] = {}
        self._rows: list[Mapping[str, Sequence[str]]] = []
        is_kept = kept_fields(self.settings)
        self._values = [field_values(document, is_kept) for document in self._documents]
        self._indexed: set[str] = set()
        self._remembered: dict[Any, Any] = {}
        for document in self._documents:
            self._names.update(dict.fromkeys(document))
        for docid, document in enumerate(self._documents):
            self._add(docid, document)
        self._sorted = sorted(self._words, key=str.encode)

    def _add(self, docid: int, document: Mapping[str, Any]) -> None:
        self._names.update(dict.fromkeys(documents.names(document)))
        searchable = Searchable.of(self.settings)
        found = documents.positions(
            document,
            analyzer_of(self.settings),
            searchable.__contains__,
            attributes.locales_test(self.settings["localizedAttributes"]),
        )
        self._rows.append(found)
        nearest: dict[tuple[str, str], int] = {}
        for field, words in found.items():
            self._indexed.add(field)
            placed = [(place, word) for place, word in enumerate(words) if word]
            self._counts[field, len(placed)].add(docid)
            for place, word in placed:
                self._words[word].add(docid)
                self._fields[word][field].add(docid)
                self._positions[word][documents.bucketed_position(place)].add(docid)
                for apart, right in enumerate(words[place + 1 : place + 4], 1):
                    if right:
                        nearest[word, right] = min(apart, nearest.get((word, right), 9))
        for (left, right), apart in nearest.items():
            self._pairs[apart, left, right].add(docid)

    @property
    def state(self) -> int:
        return id(self)

    def all_docids(self) -> DocIds:
        return bitsets.from_docids(range(len(self._documents)))

    def indexed_fields(self) -> list[str]:
        return [name for name in self._names if name in self._indexed]

    def fields(self) -> list[str]:
        return list(self._names)

    def has_word(self, word: str) -> bool:
        return word in self._words

    def word_docids(self, word: str) -> DocIds:
        return bitsets.from_docids(list(self._words.get(word, ())))

    def word_fields(self, word: str) -> list[str]:
        return [name for name in self._names if name in self._fields.get(word, {})]

    def word_field_docids(self, word: str, field: str) -> DocIds:
        return bitsets.from_docids(list(self._fields.get(word, {}).get(field, ())))

    def word_positions(self, word: str) -> list[int]:
        return sorted(self._positions.get(word, {}))

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        return bitsets.from_docids(list(self._positions.get(word, {}).get(bucketed, ())))

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> list[str]:
        return [word for word in self._sorted if word.startswith(prefix)][:limit]

    def first_characters(self) -> list[str]:
        return sorted({word[0] for word in self._words})

    def joined_words(self, character: str) -> str:
        words = self.words_with_prefix(character)
        return WORD_MARK + WORD_MARK.join(words) + WORD_MARK if words else ""

    def prefix_docids(self, prefix: str) -> DocIds:
        return _union(self.word_docids(word) for word in self.words_with_prefix(prefix))

    def prefix_fields(self, prefix: str) -> list[str]:
        fields = {field for word in self.words_with_prefix(prefix) for field in self.word_fields(word)}
        return [name for name in self._names if name in fields]

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        return _union(self.word_field_docids(word, field) for word in self.words_with_prefix(prefix))

    def prefix_positions(self, prefix: str) -> list[int]:
        return sorted({place for word in self.words_with_prefix(prefix) for place in self.word_positions(word)})

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        return _union(self.word_position_docids(word, bucketed) for word in self.words_with_prefix(prefix))

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        return bitsets.from_docids(list(self._pairs.get((distance, left, right), ())))

    def prefix_pair_docids(
        self, distance: int, left: str, prefix: str, candidates: DocIds | None = None
    ) -> DocIds:
        return _union(self.pair_docids(distance, left, right) for right in self.words_with_prefix(prefix))

    def field_count_docids(self, field: str, count: int) -> DocIds:
        return bitsets.from_docids(list(self._counts.get((field, count), ()))) if 1 <= count <= 30 else 0

    def words_docids(self, words: Sequence[str]) -> DocIds:
        return _union(self.word_docids(word) for word in words)

    def remembered(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]

    def rows(self, docids: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Sequence[str]]]]:
        return ((docid, self._rows[docid]) for docid in docids)

    def _field(self, docid: int, field: str) -> FieldValues:
        return self._values[docid].get(field) or FieldValues()

    def _where(self, is_wanted: Callable[[int], bool]) -> DocIds:
        return bitsets.from_docids([docid for docid in range(len(self._documents)) if is_wanted(docid)])

    def present_docids(self, field: str) -> DocIds:
        return self._where(lambda docid: field in self._values[docid])

    def null_docids(self, field: str) -> DocIds:
        return self._where(lambda docid: self._field(docid, field).is_null)

    def empty_docids(self, field: str) -> DocIds:
        return self._where(lambda docid: self._field(docid, field).is_empty)

    def value_docids(self, field: str, value: Value) -> DocIds:
        return self._where(lambda docid: any(_is_same(value, each) for each in self._field(docid, field).each()))

    def containing_docids(self, field: str, part: str) -> DocIds:
        return _union(docids for value, docids in self.ordered_values(field, str) if part in str(value))

    def range_docids(
        self, field: str, low: Value | None, high: Value | None, has_low: bool = True, has_high: bool = True
    ) -> DocIds:
        kind = type(high if low is None else low)

        def is_within(value: Value) -> bool:
            key = _key(value)
            is_above = low is None or _key(low) < key or (has_low and _key(low) == key)
            return is_above and (high is None or key < _key(high) or (has_high and key == _key(high)))

        return _union(docids for value, docids in self.ordered_values(field, kind) if is_within(value))

    def kind_docids(self, field: str, kind: type[Value]) -> DocIds:
        return _union(docids for _, docids in self.ordered_values(field, kind))

    def ordered_values(
        self, field: str, kind: type[Value], ascending: bool = True, among: DocIds | None = None
    ) -> Iterator[tuple[Value, DocIds]]:
        values = self.values(field, kind)
        for value in values if ascending else values[::-1]:
            yield value, self.value_docids(field, value) & (self.all_docids() if among is None else among)

    def values(self, field: str, kind: type[Value]) -> list[Value]:
        met = {_key(value): value for docid in range(len(self._documents))
               for value in self._field(docid, field).each() if isinstance(value, kind)}
        return [met[key] for key in sorted(met)]

    def few_values(self, field: str, kind: type[Value]) -> list[Value] | None:
        values = self.values(field, kind)
        return values if len(values) <= 1024 else None

    def value_counts(self, field: str, kind: type[Value]) -> list[int]:
        return [docids.bit_count() for _, docids in self.ordered_values(field, kind)]

    def column(self, field: str, kind: type[Value], documents: int | None = None) -> Column | None:
        sets = [bitsets.to_docids(docids) for _, docids in self.ordered_values(field, kind)]
        if documents is not None and documents < self.least_for_columns:
            return None
        return Column([docid for docids in sets for docid in docids], list(map(len, sets)))

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        return ((docid, self._field(docid, field).each()) for docid in docids)

    def spelling(self, field: str, value: str, docid: int) -> str:
        return self._field(docid, field).values[value] or ""

    def located_docids(self) -> DocIds:
        return self._where(lambda docid: self._point(docid) is not None)

    def _point(self, docid: int) -> Point | None:
        is_kept = "_geo" in self.settings["sortableAttributes"] or Filterable.of(self.settings).names("_geo")
        return validate_geo("", self._documents[docid]) if is_kept else None

    def points(self, docids: Sequence[int]) -> Iterator[tuple[int, Point]]:
        return ((docid, point) for docid in docids if (point := self._point(docid)) is not None)

    def nearest(self, point: Point, candidates: DocIds) -> Iterator[tuple[int, Point]]:
        origin = direction(point)
        chords = {docid: math.dist(origin, direction(place))
                  for docid, place in self.points(bitsets.to_docids(candidates))}
        yield from self.points(sorted(chords, key=lambda docid: (chords[docid], docid)))

    def docids_within(self, point: Point, metres: float) -> DocIds:
        places = self.points(bitsets.to_docids(self.all_docids()))
        return bitsets.from_docids([docid for docid, place in places if distance(point, place) <= metres])

    def _shape(self, docid: int) -> Shape | None:
        is_kept = Filterable.of(self.settings).names("_geojson")
        return read_geojson(self._documents[docid].get("_geojson")) if is_kept else None

    def shapes_meeting(self, sides: Sides) -> Iterator[tuple[int, Sides]]:
        south, west, north, east = sides
        for docid in range(len(self._documents)):
            own = (shape := self._shape(docid)) and shape.sides()
            if own and own[0] <= north and own[1] <= east and own[2] >= south and own[3] >= west:
                yield docid, own

    def shape(self, docid: int) -> bytes:
        shape = self._shape(docid)
        assert shape is not None
        return shape.packed()

    def sort_buckets(
        self, field: str, ascending: bool, candidates: DocIds
    ) -> Iterator[tuple[float | str | None, DocIds]]:
        left = candidates
        for kind in (float, str):
            for value, docids in self.ordered_values(field, kind, ascending):
                if left & docids:
                    yield value, left & docids
                    left &= ~docids
        if left:
            yield None, left

    def documents(self, docids: Sequence[int]) -> list[str]:
        return [self._text(docid) for docid in docids]

    def documents_utf8(self, docids: Sequence[int]) -> list[bytes]:
        return [text.encode() for text in self.documents(docids)]

    def average_document_size(self) -> int:
        return max(sum(map(len, self.documents(range(len(self._documents))))) // max(len(self._documents), 1), 1)

    def identified_documents(self, document_ids: Sequence[str]) -> dict[str, str]:
        docids = {str(document.get(self.primary_key)): docid for docid, document in enumerate(self._documents)}
        return {wanted: self._text(docids[wanted]) for wanted in document_ids if wanted in docids}

    def _text(self, docid: int) -> str:
        document = self._documents[docid]
        ordered = {name: document[name] for name in self._names if name in document}
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def _union(sets: Iterable[DocIds]) -> DocIds:
    union = 0
    for docids in sets:
        union |= docids
    return union


def _key(value: Value) -> tuple[bytes | float, float]:
    """By this values of one kind ascend; -0.0 stands before 0.0."""
    return (value.encode(), 0) if isinstance(value, str) else (value, math.copysign(1, value))


def _is_same(left: Value, right: Value) -> bool:
    return type(left) is type(right) and _key(left) == _key(right)
