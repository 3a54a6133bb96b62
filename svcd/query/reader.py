"""The Reader protocol: the interface of an index for searches.

`svcd.index.reader.IndexReader` reads an index file, `tests/support/dict_reader.py` reads dictionaries. A reader is one read
transaction: all results belong to one state of the index. Its parts:

    vocabulary   the words of the index
    terms        documents by word, field, position and pair of words; the forward index
    values       documents by value of a field, values in order, doc values
    geo          points and geometries of documents
    vectors      vectors of documents by embedder, and the vectors nearest to a query

Sets of documents are roaring bitmaps (`svcd.base.docids`), words are lemmas, fields are dotted names. An unknown word, field
or pair has the empty set; unknown names never raise. See `svcd.text.term_positions.bucketed_position` for bucketed positions.
"""
from __future__ import annotations

from array import array
from contextlib import AbstractContextManager
from typing import Callable, Collection, Hashable, Iterator, Mapping, Protocol, Sequence, TypeVar

from svcd.base.doc_values import DocValues
from svcd.base.docids import DocIds
from svcd.geo.sphere import Bounds, Point
from svcd.schema.index_settings import IndexSettings
from svcd.vectors.vector import DocumentVectors

T = TypeVar("T")

# Parts of a cache key. Classes are listed because mypy checks whether their instances are hashable.
Key = tuple[Hashable | type, ...]
# A number, or a text in its stored form (`svcd.schema.field_values`).
Value = float | str

# Precedes each word of `joined_words` and follows the last one. No lemma contains it, because normalization removes control
# characters.
WORD_MARK = "\0"


class Vocabulary(Protocol):
    """The words of an index."""

    def has_word(self, word: str) -> bool:
        """Return whether any document contains this word."""

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """Return the first `limit` words that start with the prefix, in byte order, including the prefix itself."""

    def first_characters(self) -> Sequence[str]:
        """Return the distinct first characters of all words."""

    def joined_words(self, character: str) -> str:
        """Return all words that begin with the character, in byte order, each between two WORD_MARKs; "" without words.

        Called for each query word that may have typos, so implementations should cache it.
        """


class DocumentWords(Protocol):
    """The words of one document. See `svcd.text.term_positions` for occurrences."""

    docid: int

    @property
    def fields(self) -> Sequence[str]:
        """The fields that contain words, by their numbers in the document."""

    def occurrences(self, word: str) -> list[int]:
        """Return the occurrences of a word, ascending. Called often for the same words, so implementations should cache it."""

    def occurrences_of_any(self, words: Collection[str]) -> list[int]:
        """Return the occurrences of any of these words, in any order."""

    def occurrences_of_prefix(self, prefix: str) -> list[int]:
        """Return the occurrences of all words that start with a prefix."""

    def length(self, field: int) -> int:
        """Return the number of words in the field with this number."""


class Terms(Protocol):
    """The postings and the forward index of an index: the documents of words, and the words of documents."""

    def indexed_fields(self) -> Sequence[str]:
        """Return the attributes that contain at least one word, in field-number order."""

    # Documents of words

    def word_docids(self, word: str) -> DocIds:
        """Return the documents with the word in any field."""

    def word_fields(self, word: str) -> Sequence[str]:
        """Return the fields that contain the word."""

    def word_field_docids(self, word: str, field: str) -> DocIds:
        """Return the documents with the word in this field."""

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        """Return the documents with the word at this bucketed position of any field."""

    def words_docids(self, words: Sequence[str]) -> DocIds:
        """Return the union of `word_docids` over many words, which are mostly rare."""

    # Documents of the words with a prefix

    def prefix_docids(self, prefix: str) -> DocIds:
        """Return the union of `word_docids` over the words that start with the prefix."""

    def prefix_fields(self, prefix: str) -> Sequence[str]:
        """Return the fields that contain a word that starts with the prefix."""

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        """Return the union of `word_field_docids` over the words that start with the prefix."""

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        """Return the union of `word_position_docids` over the words that start with the prefix."""

    # Documents of pairs of words. With `candidates` the result only has to be exact for these documents, so that it can be
    # computed from their forward index rows.

    def pair_docids(self, distance: int, left: str, right: str, candidates: DocIds | None = None) -> DocIds:
        """Return the documents with this smallest distance (1, 2 or 3) from left to right, in that order."""

    def prefix_pair_docids(self, distance: int, left: str, prefix: str, candidates: DocIds | None = None) -> DocIds:
        """Return the union of `pair_docids` over the right words that start with the prefix."""

    def near_docids(self, distance: int, lefts: Sequence[str], rights: Sequence[str], prefix: str | None,
                    candidates: DocIds) -> DocIds:
        """Return the candidates with this smallest distance (1, 2 or 3) between a left and a right word.

        The wrong order adds 1 to a distance. prefix: words that start with it count as right words too, but only in the right
        order. The result may include documents with a smaller distance.
        """

    def field_count_docids(self, field: str, count: int) -> DocIds:
        """Return the documents whose field has exactly `count` words; the empty set if count is not from 1 to 30."""

    # Words of documents

    def document_words(self, docids: Sequence[int]) -> Iterator[DocumentWords]:
        """Yield the words of a few documents, in the given order, from the forward index.

        Reading some dozens of documents is cheaper than looking up every position in the inverted index.
        """


class WordCounts(Protocol):
    """The frequencies of index terms and the lengths of documents for BM25 (`svcd.schema.word_weights`)."""

    def docids(self, term: str) -> DocIds:
        """Return the documents with an index term."""

    def frequencies(self, term: str) -> bytes:
        """Return the code of the frequency of an index term in each of its documents, by ascending docid."""

    def lengths(self) -> Sequence[int]:
        """Return docid -> code of the length; long enough for all documents with words."""

    def average_length(self) -> float:
        """Return the mean of the lengths of the documents with words."""


class Values(Protocol):
    """The values of the fields that `field_values.kept_fields` selects; other fields are empty.

    Numbers ascend by value, -0.0 before 0.0; texts ascend by the bytes of their stored form.
    """

    def present_docids(self, field: str) -> DocIds:
        """Return the documents that have the field, even if it is null."""

    def null_docids(self, field: str) -> DocIds:
        """Return the documents in which the field is null."""

    def empty_docids(self, field: str) -> DocIds:
        """Return the documents in which the field is an empty text, array or object."""

    def value_docids(self, field: str, value: Value) -> DocIds:
        """Return the documents with this value."""

    def values_docids(self, field: str, values: Sequence[Value]) -> DocIds:
        """Return the union of `value_docids` over many values of both kinds."""

    def containing_docids(self, field: str, part: str) -> DocIds:
        """Return the documents with a text that contains `part`, which is in normal form and not empty."""

    def range_docids(self, field: str, low: Value | None, high: Value | None, has_low: bool = True,
                     has_high: bool = True) -> DocIds:
        """Return the documents with a value from low to high, which have the same kind; None for no bound.

        has_low, has_high: whether the range includes the bounds.
        """

    def kind_docids(self, field: str, kind: type[Value]) -> DocIds:
        """Return the documents with any value of a kind, `float` or `str`."""

    def ordered_values(self, field: str, kind: type[Value], ascending: bool = True,
                       among: DocIds | None = None) -> Iterator[tuple[Value, DocIds]]:
        """Yield the values of a kind with their documents, in order; the sets may be empty. Reads lazily.

        among: restricts the documents.
        """

    def distinct_values(self, field: str, kind: type[Value]) -> Sequence[Value]:
        """Return all values of a kind, ascending."""

    def few_values(self, field: str, kind: type[Value]) -> Sequence[Value] | None:
        """Return all values of a kind, ascending; None if they are many. Some may no longer occur in any document."""

    def value_counts(self, field: str, kind: type[Value]) -> Sequence[int]:
        """Return the number of documents with each of `distinct_values`."""

    def doc_values(self, field: str, kind: type[Value], documents: int | None = None) -> DocValues | None:
        """Return the values of a kind by document, for fields with many values: it reads all rows of the field.

        documents: number of documents that the caller would read otherwise; the result is None while that is faster.
        """

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """Yield (docid, its distinct values) in the given order; reads each document, so only for few documents."""

    def spellings(self, field: str) -> Mapping[str, str]:
        """Return text -> how documents spell it, for some of the texts that all documents spell alike."""
        ...

    def spelling(self, field: str, value: str, docid: int) -> str:
        """Return the spelling of a text in a document that contains it."""

    def sort_buckets(self, field: str, ascending: bool, candidates: DocIds) -> Iterator[tuple[Value | None, DocIds]]:
        """Yield the candidates by their value of the field, best first (docs/ranking.md#sort); None last."""


class Geo(Protocol):
    """The points of documents while `_geo` is filterable or sortable, their geometries while `_geojson` is filterable."""

    def located_docids(self) -> DocIds:
        """Return the documents with a point."""

    def points(self, docids: Sequence[int]) -> Iterator[tuple[int, Point]]:
        """Yield (docid, point) of the documents with a point, in no order."""

    def nearest(self, point: Point, candidates: DocIds) -> Iterator[tuple[int, Point]]:
        """Yield (docid, point) of the candidates with a point, nearest first, then by docid. Reads lazily."""

    def docids_within(self, point: Point, metres: float) -> DocIds:
        """Return the documents with a point at most `metres` away."""

    def geometries_meeting(self, sides: Bounds) -> Iterator[tuple[int, Bounds]]:
        """Yield (docid, bounding box of its geometry) of the documents whose box intersects `sides`, in no order.

        Boxes are south, west, north and east in degrees and include their sides; no box crosses the antimeridian.
        """

    def wide_geometries(self) -> Sequence[tuple[int, Bounds]]:
        """The same of those that may go over the antimeridian, or around a pole: svcd.geo.geometry.is_wide()."""

    def geometry(self, docid: int) -> bytes:
        """Return the stored geometry of a document with a geometry."""


class Vectors(Protocol):
    """The vectors of documents, by the name of their embedder in the settings (docs/vectors.md).

    For an embedder without vectors, and for an unknown name, results are empty.
    """

    def dimensions(self, embedder: str) -> int | None:
        """Return the length of the embedder's vectors; None while it is unknown."""

    def embedded_docids(self, embedder: str) -> DocIds:
        """Return the documents with a vector."""

    def user_provided_docids(self, embedder: str) -> DocIds:
        """Return the documents with vectors that a user provided; may be empty."""

    def fixed_docids(self, embedder: str) -> DocIds:
        """Return the documents whose vectors are not regenerated (`regenerate` is false); may be empty."""

    def fragment_docids(self, embedder: str, fragment: str) -> DocIds:
        """Return the documents with a vector for this indexing fragment."""

    def document_vectors(self, docids: Sequence[int], embedder: str) -> Iterator[tuple[int, DocumentVectors]]:
        """Yield (docid, vectors) of the documents with an entry for the embedder, in no order."""

    def nearest(self, embedder: str, vector: array[float], candidates: DocIds, limit: int) -> Sequence[tuple[float, int]]:
        """Return (distance, docid) of the `limit` nearest vectors of the candidates, nearest first, then by docid.

        Each document occurs once, with its nearest vector. Its other vectors count towards the limit, so that the result may
        be shorter. vector: has the length of the embedder's vectors.
        """


class Reader(Protocol):
    """One index in one read transaction."""

    @property
    def settings(self) -> IndexSettings:
        """The settings with their defaults; the same object until they change."""

    @property
    def primary_key(self) -> str | None:
        """The attribute that identifies documents; None while it is not set."""

    @property
    def state(self) -> Hashable:
        """Equal for readers of the same state of the same index."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the index."""

    @property
    def terms(self) -> Terms:
        """The postings and the forward index."""

    @property
    def word_counts(self) -> WordCounts | None:
        """The stored counts of words; None if the index stores none."""

    @property
    def values(self) -> Values:
        """The values of fields."""

    @property
    def geo(self) -> Geo:
        """The points and geometries of documents."""

    @property
    def vectors(self) -> Vectors:
        """The vectors of documents."""

    def limited(self, expired: Callable[[], bool]) -> AbstractContextManager[None]:
        """Return a block in which reads raise TimeoutError once expired() is true; nothing is cached that was not read whole."""

    def cached(self, key: Key, make: Callable[[], T]) -> T:
        """Return make(), cached under the key for later readers until the next write to the index.

        make: must depend only on the state of the index, and never return None. Use it for slow computations.
        """

    def all_docids(self) -> DocIds:
        """Return all documents of the index."""

    def fields(self) -> Sequence[str]:
        """Return all attributes that any document ever had, in field-number order."""

    def documents(self, docids: Sequence[int]) -> Sequence[str]:
        """Return the documents as compact JSON texts, in the given order; members are in field-number order."""

    def documents_utf8(self, docids: Sequence[int]) -> Sequence[bytes]:
        """As documents(), in UTF-8, which for long documents can need a quarter of the memory."""

    def average_document_size(self) -> int:
        """Return the average size of the JSON text of a document in bytes; at least 1."""

    def identified_docids(self, document_ids: Sequence[str]) -> Mapping[str, int]:
        """Return identifier -> docid, for the identifiers that exist."""

    def identified_documents(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """Return identifier -> JSON text of the document, for the identifiers that exist."""
