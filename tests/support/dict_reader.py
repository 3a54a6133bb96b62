"""A Reader over plain dictionaries: the independent second store that the engine is tested on.

Built from documents through `documents.positions`; every relation is worked out word by word, in the
plainest way.
"""
from __future__ import annotations

import json
import math
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from svcd.base.doc_values import DocValues
from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.base.positions import FIELD_SHIFT, bucketed_position
from svcd.geo.geojson import read_geojson
from svcd.geo.geometry import Shape, is_wide
from svcd.geo.sphere import Bounds, Point, direction, distance
from svcd.query.reader import WORD_MARK, Value
from svcd.schema import documents
from svcd.schema.field_values import FieldValues, field_values, kept_fields, validate_geo
from svcd.schema.index_settings import IndexSettings
from svcd.vectors.vector import DocumentVectors, Vector, cosine_distance, vector_of
from tests.support.distances import quantized_distance

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


class DictVocabulary:
    """The words of some documents."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(words, key=str.encode)

    def has_word(self, word: str) -> bool:
        return word in self._words

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> list[str]:
        return [word for word in self._words if word.startswith(prefix)][:limit]

    def first_characters(self) -> list[str]:
        return sorted({word[0] for word in self._words})

    def joined_words(self, character: str) -> str:
        words = self.words_with_prefix(character)
        return WORD_MARK + WORD_MARK.join(words) + WORD_MARK if words else ""


class DictTerms:
    """The words of documents by field and position, and the documents of words."""

    def __init__(self, rows: Sequence[Mapping[str, Sequence[str]]], field_order: Callable[[], Iterable[str]]) -> None:
        self._rows = rows
        self._field_order = field_order
        self._words: dict[str, set[int]] = defaultdict(set)
        self._fields: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._positions: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._pairs: dict[tuple[int, str, str], set[int]] = defaultdict(set)
        self._counts: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._indexed: set[str] = set()
        for docid, row in enumerate(rows):
            self._add(docid, row)
        self.vocabulary = self._vocabulary = DictVocabulary(self._words)

    def _add(self, docid: int, found: Mapping[str, Sequence[str]]) -> None:
        nearest: dict[tuple[str, str], int] = {}
        for field, words in found.items():
            self._indexed.add(field)
            placed = [(place, word) for place, word in enumerate(words) if word]
            self._counts[field, len(placed)].add(docid)
            for place, word in placed:
                self._words[word].add(docid)
                self._fields[word][field].add(docid)
                self._positions[word][bucketed_position(place)].add(docid)
                for apart, right in enumerate(words[place + 1 : place + 4], 1):
                    if right:
                        nearest[word, right] = min(apart, nearest.get((word, right), 9))
        for (left, right), apart in nearest.items():
            self._pairs[apart, left, right].add(docid)

    def indexed_fields(self) -> list[str]:
        return [name for name in self._field_order() if name in self._indexed]

    def word_docids(self, word: str) -> DocIds:
        return DocIds(list(self._words.get(word, ())))

    def word_fields(self, word: str) -> list[str]:
        return [name for name in self._field_order() if name in self._fields.get(word, {})]

    def word_field_docids(self, word: str, field: str) -> DocIds:
        return DocIds(list(self._fields.get(word, {}).get(field, ())))

    def word_positions(self, word: str) -> list[int]:
        return sorted(self._positions.get(word, {}))

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        return DocIds(list(self._positions.get(word, {}).get(bucketed, ())))

    def prefix_docids(self, prefix: str) -> DocIds:
        return union_of(self.word_docids(word) for word in self._vocabulary.words_with_prefix(prefix))

    def prefix_fields(self, prefix: str) -> list[str]:
        fields = {field for word in self._vocabulary.words_with_prefix(prefix) for field in self.word_fields(word)}
        return [name for name in self._field_order() if name in fields]

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        return union_of(self.word_field_docids(word, field) for word in self._vocabulary.words_with_prefix(prefix))

    def prefix_positions(self, prefix: str) -> list[int]:
        return sorted({place for word in self._vocabulary.words_with_prefix(prefix) for place in self.word_positions(word)})

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        return union_of(self.word_position_docids(word, bucketed) for word in self._vocabulary.words_with_prefix(prefix))

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        return DocIds(list(self._pairs.get((distance, left, right), ())))

    def prefix_pair_docids(
        self, distance: int, left: str, prefix: str, candidates: DocIds | None = None
    ) -> DocIds:
        return union_of(self.pair_docids(distance, left, right) for right in self._vocabulary.words_with_prefix(prefix))

    def near_docids(
        self, distance: int, lefts: Sequence[str], rights: Sequence[str], prefix: str | None, candidates: DocIds
    ) -> DocIds:
        continued = [] if prefix is None else self._vocabulary.words_with_prefix(prefix)
        in_order = (self.pair_docids(distance, left, right) for left in lefts for right in {*rights, *continued})
        in_wrong_order = (self.pair_docids(distance - 1, right, left) for left in lefts for right in rights)
        return union_of([*in_order, *in_wrong_order]) & candidates

    def field_count_docids(self, field: str, count: int) -> DocIds:
        return DocIds(list(self._counts.get((field, count), ()))) if 1 <= count <= 30 else EMPTY

    def words_docids(self, words: Sequence[str]) -> DocIds:
        return union_of(self.word_docids(word) for word in words)

    def document_words(self, docids: Sequence[int]) -> Iterator[ListedWords]:
        return (ListedWords(docid, self._rows[docid]) for docid in docids)


class ListedWords:
    """A DocumentWords over lists: field -> its words by position, "" for a position gap."""

    def __init__(self, docid: int, words_by_position: Mapping[str, Sequence[str]]) -> None:
        self.docid = docid
        self.fields = list(words_by_position)
        self._words = list(words_by_position.values())

    def _where(self, is_meant: Callable[[str], bool]) -> list[int]:
        return [(number << FIELD_SHIFT) + position for number, words in enumerate(self._words)
                for position, word in enumerate(words) if word and is_meant(word)]

    def occurrences(self, word: str) -> list[int]:
        return self._where(word.__eq__)

    def occurrences_of_any(self, words: Collection[str]) -> list[int]:
        return self._where(words.__contains__)

    def occurrences_of_prefix(self, prefix: str) -> list[int]:
        return self._where(lambda word: word.startswith(prefix))

    def length(self, field: int) -> int:
        return sum(map(bool, self._words[field]))


class DictValues:
    """The values of documents by field."""

    least_for_doc_values = 1000  # documents that would have to be looked into

    def __init__(self, values: Sequence[Mapping[str, FieldValues]]) -> None:
        self._values = values
        self._count = len(values)
        self._all_docids = _everything(self._count)

    def _field(self, docid: int, field: str) -> FieldValues:
        return self._values[docid].get(field) or FieldValues()

    def present_docids(self, field: str) -> DocIds:
        return _where(self._count, lambda docid: field in self._values[docid])

    def null_docids(self, field: str) -> DocIds:
        return _where(self._count, lambda docid: self._field(docid, field).is_null)

    def empty_docids(self, field: str) -> DocIds:
        return _where(self._count, lambda docid: self._field(docid, field).is_empty)

    def value_docids(self, field: str, value: Value) -> DocIds:
        return _where(self._count, lambda docid: any(_is_same(value, each) for each in self._field(docid, field).each()))

    def containing_docids(self, field: str, part: str) -> DocIds:
        return union_of(docids for value, docids in self.ordered_values(field, str) if part in str(value))

    def range_docids(
        self, field: str, low: Value | None, high: Value | None, has_low: bool = True, has_high: bool = True
    ) -> DocIds:
        kind = type(high if low is None else low)

        def is_within(value: Value) -> bool:
            key = _key(value)
            is_above = low is None or _key(low) < key or (has_low and _key(low) == key)
            return is_above and (high is None or key < _key(high) or (has_high and key == _key(high)))

        return union_of(docids for value, docids in self.ordered_values(field, kind) if is_within(value))

    def kind_docids(self, field: str, kind: type[Value]) -> DocIds:
        return union_of(docids for _, docids in self.ordered_values(field, kind))

    def ordered_values(
        self, field: str, kind: type[Value], ascending: bool = True, among: DocIds | None = None
    ) -> Iterator[tuple[Value, DocIds]]:
        values = self.distinct_values(field, kind)
        for value in values if ascending else values[::-1]:
            yield value, self.value_docids(field, value) & (self._all_docids if among is None else among)

    def distinct_values(self, field: str, kind: type[Value]) -> list[Value]:
        met = {_key(value): value for docid in range(self._count)
               for value in self._field(docid, field).each() if isinstance(value, kind)}
        return [met[key] for key in sorted(met)]

    def few_values(self, field: str, kind: type[Value]) -> list[Value] | None:
        values = self.distinct_values(field, kind)
        return values if len(values) <= 1024 else None

    def value_counts(self, field: str, kind: type[Value]) -> list[int]:
        return [len(docids) for _, docids in self.ordered_values(field, kind)]

    def doc_values(self, field: str, kind: type[Value], documents: int | None = None) -> DocValues | None:
        sets = [list(docids) for _, docids in self.ordered_values(field, kind)]
        if documents is not None and documents < self.least_for_doc_values:
            return None
        return DocValues([docid for docids in sets for docid in docids], list(map(len, sets)))

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        return ((docid, self._field(docid, field).each()) for docid in docids)

    def spellings(self, field: str) -> Mapping[str, str]:
        return {}

    def spelling(self, field: str, value: str, docid: int) -> str:
        return self._field(docid, field).values[value] or ""

    def values_docids(self, field: str, values: Sequence[Value]) -> DocIds:
        return union_of(self.value_docids(field, value) for value in values)

    def sort_buckets(
        self, field: str, ascending: bool, candidates: DocIds
    ) -> Iterator[tuple[float | str | None, DocIds]]:
        left = candidates
        for kind in (float, str):
            for value, docids in self.ordered_values(field, kind, ascending):
                if left & docids:
                    yield value, left & docids
                    left -= docids
        if left:
            yield None, left


class DictGeo:
    """The points and geometries of documents."""

    def __init__(self, documents: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
        self._documents = documents
        self.settings = settings
        self._shapes: dict[int, Shape | None] = {}  # read once: outlines are long

    def located_docids(self) -> DocIds:
        return _where(len(self._documents), lambda docid: self._point(docid) is not None)

    def _point(self, docid: int) -> Point | None:
        is_kept = "_geo" in self.settings.sortable_attributes or self.settings.filterable.names("_geo")
        return validate_geo("", self._documents[docid]) if is_kept else None

    def points(self, docids: Sequence[int]) -> Iterator[tuple[int, Point]]:
        return ((docid, point) for docid in docids if (point := self._point(docid)) is not None)

    def nearest(self, point: Point, candidates: DocIds) -> Iterator[tuple[int, Point]]:
        origin = direction(point)
        chords = {docid: math.dist(origin, direction(place))
                  for docid, place in self.points(list(candidates))}
        yield from self.points(sorted(chords, key=lambda docid: (chords[docid], docid)))

    def docids_within(self, point: Point, metres: float) -> DocIds:
        places = self.points(list(_everything(len(self._documents))))
        return DocIds([docid for docid, place in places if distance(point, place) <= metres])

    def _geometry(self, docid: int) -> Shape | None:
        if docid not in self._shapes:
            is_kept = self.settings.filterable.names("_geojson")
            self._shapes[docid] = read_geojson(self._documents[docid].get("_geojson")) if is_kept else None
        return self._shapes[docid]

    def geometries_meeting(self, sides: Bounds) -> Iterator[tuple[int, Bounds]]:
        south, west, north, east = sides
        for docid in range(len(self._documents)):
            own = (shape := self._geometry(docid)) and shape.bounds()
            if own and own[0] <= north and own[1] <= east and own[2] >= south and own[3] >= west:
                yield docid, own

    def wide_geometries(self) -> list[tuple[int, Bounds]]:
        shapes = {docid: self._geometry(docid) for docid in range(len(self._documents))}
        return [(docid, shape.bounds()) for docid, shape in shapes.items() if shape and is_wide(shape.bounds())]

    def geometry(self, docid: int) -> bytes:
        shape = self._geometry(docid)
        assert shape is not None
        return shape.packed()


class DictVectors:
    """The vectors that `_vectors` of the documents gives, for the embedders of the settings.

    fragments: (embedder, fragment) -> docids, for tests to fill.
    """

    def __init__(self, documents: Sequence[Mapping[str, Any]], settings: IndexSettings) -> None:
        self._quantized = {name: bool((embedder or {}).get("binaryQuantized")) for name, embedder in settings.embedders.items()}
        self._entries = {name: dict(self._read_entries(documents, name)) for name in self._quantized}
        self.fragments: dict[tuple[str, str], DocIds] = {}
        self._dimensions = {name: (embedder or {}).get("dimensions") for name, embedder in settings.embedders.items()}

    def dimensions(self, embedder: str) -> int | None:
        return self._dimensions.get(embedder)

    def _read_entries(self, documents: Sequence[Mapping[str, Any]], embedder: str) -> Iterator[tuple[int, DocumentVectors]]:
        for docid, document in enumerate(documents):
            given = document.get("_vectors") or {}
            if embedder not in given:
                continue
            entry = given[embedder]
            regenerate = isinstance(entry, Mapping) and entry["regenerate"]
            listed = (entry.get("embeddings") if isinstance(entry, Mapping) else entry) or []
            vectors = [listed] if listed and not isinstance(listed[0], list) else listed
            if self._quantized[embedder]:
                vectors = [[float(number > 0) for number in vector] for vector in vectors]
            yield docid, DocumentVectors([vector_of(vector) for vector in vectors], regenerate)

    def embedded_docids(self, embedder: str) -> DocIds:
        return DocIds([docid for docid, entry in self._entries.get(embedder, {}).items() if entry.vectors])

    def user_provided_docids(self, embedder: str) -> DocIds:
        return DocIds([docid for docid, entry in self._entries.get(embedder, {}).items() if not entry.regenerate])

    fixed_docids = user_provided_docids

    def fragment_docids(self, embedder: str, fragment: str) -> DocIds:
        return self.fragments.get((embedder, fragment), EMPTY)

    def document_vectors(self, docids: Sequence[int], embedder: str) -> Iterator[tuple[int, DocumentVectors]]:
        entries = self._entries.get(embedder, {})
        return ((docid, entries[docid]) for docid in docids if docid in entries)

    def nearest(self, embedder: str, vector: Vector, candidates: DocIds, limit: int) -> list[tuple[float, int]]:
        distance = quantized_distance if self._quantized.get(embedder) else cosine_distance
        found = sorted((distance(vector, each), docid) for docid, entry in self._entries.get(embedder, {}).items()
                       for each in entry.vectors if docid in candidates)
        nearest: dict[int, float] = {}
        for apart, docid in found[:limit]:
            nearest.setdefault(docid, apart)
        return [(apart, docid) for docid, apart in nearest.items()]


class DictReader:
    """An index in memory: documents get the docids 0, 1, 2... in their order."""

    word_counts = None

    def __init__(
        self,
        texts: Iterable[Mapping[str, Any]],
        settings: Mapping[str, Any] | None = None,
        primary_key: str = "id",
    ) -> None:
        self.settings = IndexSettings.of({**DEFAULTS, **(settings or {})})
        self.primary_key: str | None = primary_key
        self._documents = list(texts)
        self._cached: dict[Any, Any] = {}
        self._names: dict[str, None] = {}
        for document in self._documents:
            self._names.update(dict.fromkeys(document))
        self.terms = DictTerms([self._words_by_position(document) for document in self._documents], self.fields)
        self.vocabulary = self.terms.vocabulary
        is_kept = kept_fields(self.settings)
        self.values = DictValues([field_values(document, is_kept) for document in self._documents])
        self.geo = DictGeo(self._documents, self.settings)
        self.vectors = DictVectors(self._documents, self.settings)

    def _words_by_position(self, document: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
        self._names.update(dict.fromkeys(documents.attribute_names(document)))
        searchable = self.settings.searchable
        return documents.terms_by_attribute(
            document,
            self.settings.analyzer,
            searchable.__contains__,
            self.settings.locales_of,
        )

    @property
    def state(self) -> int:
        return id(self)

    def limited(self, expired: Callable[[], bool]) -> AbstractContextManager[None]:
        return nullcontext()

    def cached(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]

    def all_docids(self) -> DocIds:
        return _everything(len(self._documents))

    def fields(self) -> list[str]:
        return list(self._names)

    def documents(self, docids: Sequence[int]) -> list[str]:
        return [self._text(docid) for docid in docids]

    def documents_utf8(self, docids: Sequence[int]) -> list[bytes]:
        return [text.encode() for text in self.documents(docids)]

    def average_document_size(self) -> int:
        return max(sum(map(len, self.documents(range(len(self._documents))))) // max(len(self._documents), 1), 1)

    def identified_docids(self, document_ids: Sequence[str]) -> dict[str, int]:
        docids = {str(document.get(self.primary_key)): docid for docid, document in enumerate(self._documents)}
        return {wanted: docids[wanted] for wanted in document_ids if wanted in docids}

    def identified_documents(self, document_ids: Sequence[str]) -> dict[str, str]:
        docids = {str(document.get(self.primary_key)): docid for docid, document in enumerate(self._documents)}
        return {wanted: self._text(docids[wanted]) for wanted in document_ids if wanted in docids}

    def docid_of(self, document_id: str) -> int | None:
        return next((docid for docid, document in enumerate(self._documents)
                     if str(document.get(self.primary_key)) == document_id), None)

    def _text(self, docid: int) -> str:
        document = self._documents[docid]
        ordered = {name: document[name] for name in self._names if name in document}
        return json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))


def _everything(count: int) -> DocIds:
    return DocIds(range(count))


def _where(count: int, is_wanted: Callable[[int], bool]) -> DocIds:
    return DocIds([docid for docid in range(count) if is_wanted(docid)])


def _key(value: Value) -> tuple[bytes | float, float]:
    """By this values of one kind ascend; -0.0 stands before 0.0."""
    return (value.encode(), 0) if isinstance(value, str) else (value, math.copysign(1, value))


def _is_same(left: Value, right: Value) -> bool:
    return type(left) is type(right) and _key(left) == _key(right)
