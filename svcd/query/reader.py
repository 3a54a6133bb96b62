"""The Reader protocol: what a search may ask of one index.

`svcd.index.reader.IndexReader` answers from an index file, `tests/support/dict_reader.py` from dictionaries. A reader is
one read transaction: all of its answers belong to one state of the index. Its parts:

    vocabulary   which words exist
    terms        which documents hold a word, in which field, at which position, near which other word; forward index
    values       which documents have a value of a field, the values in their order, doc values
    geo          points and geometries of documents
    vectors      vectors of documents by embedder, the nearest ones of a vector

Sets of documents are roaring bitmaps (`svcd.base.docids`), words are lemmas, fields are dotted names. An unknown word, field
or pair has the empty set; nothing here raises for a name that the index does not know. Bucketed positions are those of
`svcd.base.positions.bucketed_position`.
"""
from __future__ import annotations

from array import array
from typing import Callable, Collection, Hashable, Iterator, Mapping, Protocol, Sequence, TypeVar

from svcd.base.docids import DocIds
from svcd.base.doc_values import DocValues
from svcd.geo.sphere import Bounds, Point
from svcd.schema.index_settings import IndexSettings
from svcd.vectors.vector import DocumentVectors

T = TypeVar("T")

# Parts of a cache key; classes can be parts like any other hashable value (mypy looks at how instances are hashed).
Key = tuple[Hashable | type, ...]
# A number, or a text in its stored form (`svcd.schema.field_values`).
Value = float | str

# Stands before each word and after the last one in `joined_words`. No lemma contains it, for control characters are
# removed from every token.
WORD_MARK = "\0"


class Vocabulary(Protocol):
    """The words of an index."""

    def has_word(self, word: str) -> bool:
        """Does any document hold this word?"""

    def words_with_prefix(self, prefix: str, limit: int | None = None) -> Sequence[str]:
        """The first `limit` words that start with the prefix, in byte order, the prefix itself included."""

    def first_characters(self) -> Sequence[str]:
        """The distinct first characters of all words."""

    def joined_words(self, character: str) -> str:
        """All words that begin with the character, in byte order, a WORD_MARK around each.

        "" when there is none. Asked for each query word that may have typos: keep it.
        """


class DocumentWords(Protocol):
    """The words of one document. fields: those that hold words; occurrences are those of `svcd.base.positions`."""

    docid: int

    @property
    def fields(self) -> Sequence[str]:
        """The fields that hold words, by their numbers in the document."""

    def occurrences(self, word: str) -> list[int]:
        """The occurrences of a word, ascending. Asked for the same words again and again: keep them."""

    def occurrences_of_any(self, words: Collection[str]) -> list[int]:
        """The occurrences of any of these words, in any order."""

    def occurrences_of_prefix(self, prefix: str) -> list[int]:
        """The occurrences of all words that start with a prefix."""

    def length(self, field: int) -> int:
        """The number of words of the field with this number."""


class Terms(Protocol):
    """The postings and the forward index of an index: the documents of words, and the words of documents."""

    def indexed_fields(self) -> Sequence[str]:
        """Attributes that hold at least one word, in field-number order."""

    # Documents of words

    def word_docids(self, word: str) -> DocIds:
        """Documents with the word in any field."""

    def word_fields(self, word: str) -> Sequence[str]:
        """Fields that hold the word."""

    def word_field_docids(self, word: str, field: str) -> DocIds:
        """Documents with the word in this field."""

    def word_positions(self, word: str) -> Sequence[int]:
        """Bucketed positions of the word over all fields, ascending."""

    def word_position_docids(self, word: str, bucketed: int) -> DocIds:
        """Documents with the word at this bucketed position of any field."""

    def words_docids(self, words: Sequence[str]) -> DocIds:
        """Union of `word_docids` over many words, most of them rare."""

    # Documents of the words with a prefix

    def prefix_docids(self, prefix: str) -> DocIds:
        """Union of `word_docids` over the words that start with the prefix."""

    def prefix_fields(self, prefix: str) -> Sequence[str]:
        """Fields that hold a word that starts with the prefix."""

    def prefix_field_docids(self, prefix: str, field: str) -> DocIds:
        """Union of `word_field_docids` over the words that start with the prefix."""

    def prefix_positions(self, prefix: str) -> Sequence[int]:
        """Bucketed positions of the words that start with the prefix, ascending."""

    def prefix_position_docids(self, prefix: str, bucketed: int) -> DocIds:
        """Union of `word_position_docids` over the words that start with the prefix."""

    # Documents of pairs of words. With candidates the answer need only be right for these documents: it may then come
    # from their forward index rows.

    def pair_docids(
        self, distance: int, left: str, right: str, candidates: DocIds | None = None
    ) -> DocIds:
        """Documents whose smallest distance from left to right, in that order, is 1, 2 or 3."""

    def prefix_pair_docids(
        self, distance: int, left: str, prefix: str, candidates: DocIds | None = None
    ) -> DocIds:
        """Union of `pair_docids` over the right words that start with the prefix."""

    def near_docids(
        self, distance: int, lefts: Sequence[str], rights: Sequence[str], prefix: str | None, candidates: DocIds
    ) -> DocIds:
        """Candidates whose smallest distance between a left and a right word is 1, 2 or 3; in the wrong order it is one more.

        prefix: all words that start with it are right ones as well, but in the right order only. Documents with a smaller
        distance may be in the answer, too.
        """

    def field_count_docids(self, field: str, count: int) -> DocIds:
        """Documents whose field has exactly so many words (1 to 30; else the empty set)."""

    # Words of documents

    def document_words(self, docids: Sequence[int]) -> Iterator[DocumentWords]:
        """The words of a few documents, in the order asked, from the forward index.

        Looking into some dozens of documents is cheaper than asking for every position in the index.
        """


class Values(Protocol):
    """The values of fields: of those of which `field_values.kept_fields` has some kept; other fields have none.

    Numbers ascend by value, -0.0 before 0.0, texts by the bytes of their stored form.
    """

    def present_docids(self, field: str) -> DocIds:
        """Documents that have the field, be it null."""

    def null_docids(self, field: str) -> DocIds:
        """Documents in which the field is null."""

    def empty_docids(self, field: str) -> DocIds:
        """Documents in which the field is an empty text, array or object."""

    def value_docids(self, field: str, value: Value) -> DocIds:
        """Documents with this value."""

    def values_docids(self, field: str, values: Sequence[Value]) -> DocIds:
        """Union of `value_docids` over many values of both kinds."""

    def containing_docids(self, field: str, part: str) -> DocIds:
        """Documents with a text that contains another one, which is in normal form and not empty."""

    def range_docids(
        self, field: str, low: Value | None, high: Value | None, has_low: bool = True, has_high: bool = True
    ) -> DocIds:
        """Documents with a value from low to high, which are of one kind; None for one without bound.

        has_low, has_high: do the bounds belong to the range?
        """

    def kind_docids(self, field: str, kind: type[Value]) -> DocIds:
        """Documents with any value of a kind, `float` or `str`."""

    def ordered_values(
        self, field: str, kind: type[Value], ascending: bool = True, among: DocIds | None = None
    ) -> Iterator[tuple[Value, DocIds]]:
        """The values of a kind with their documents (perhaps none), in order; read as they are asked for.

        among: the only documents that count.
        """

    def distinct_values(self, field: str, kind: type[Value]) -> Sequence[Value]:
        """All values of a kind, ascending."""

    def few_values(self, field: str, kind: type[Value]) -> Sequence[Value] | None:
        """All values of a kind, ascending, perhaps with some that no document has any more; None when they are many."""

    def value_counts(self, field: str, kind: type[Value]) -> Sequence[int]:
        """For each of `distinct_values`, how many documents have it."""

    def doc_values(self, field: str, kind: type[Value], documents: int | None = None) -> DocValues | None:
        """The values of a kind by document; for fields with many of them, as all rows are read for it.

        documents: None while it is quicker to look into so many documents, which will be done then.
        """

    def field_values(self, field: str, docids: Sequence[int]) -> Iterator[tuple[int, Sequence[Value]]]:
        """(docid, its values, each once) of documents, in the order asked; for few: it looks into each of them."""

    def spelling(self, field: str, value: str, docid: int) -> str:
        """A text as a document that has it spells it."""

    def sort_buckets(
        self, field: str, ascending: bool, candidates: DocIds
    ) -> Iterator[tuple[Value | None, DocIds]]:
        """The candidates by their value of the field, best first (docs/ranking.md#sort), None last."""


class Geo(Protocol):
    """The points of documents while `_geo` is filterable or sortable, their geometries while `_geojson` is filterable."""

    def located_docids(self) -> DocIds:
        """Documents that have a point."""

    def points(self, docids: Sequence[int]) -> Iterator[tuple[int, Point]]:
        """(docid, point) of those of some documents that have one, in no order."""

    def nearest(self, point: Point, candidates: DocIds) -> Iterator[tuple[int, Point]]:
        """(docid, point) of the candidates that have one, nearest first, equally near ones by docid; as asked for."""

    def docids_within(self, point: Point, metres: float) -> DocIds:
        """Documents whose point is at most so far away."""

    def geometries_meeting(self, sides: Bounds) -> Iterator[tuple[int, Bounds]]:
        """(docid, the box around its geometry) of the documents whose box meets a box, in no order.

        Boxes are south, west, north and east in degrees, sides included; none goes over the antimeridian.
        """

    def wide_geometries(self) -> Sequence[tuple[int, Bounds]]:
        """The same of those that may go over the antimeridian, or around a pole: svcd.geo.geometry.is_wide()."""

    def geometry(self, docid: int) -> bytes:
        """The geometry of a document that has one, as it was kept."""


class Vectors(Protocol):
    """The vectors of documents, by the name of the embedder of the settings that they belong to (docs/vectors.md).

    An embedder without vectors, and a name that is none, have empty answers.
    """

    def dimensions(self, embedder: str) -> int | None:
        """The length of the embedder's vectors, None while it is not known."""

    def embedded_docids(self, embedder: str) -> DocIds:
        """Documents that have a vector."""

    def user_provided_docids(self, embedder: str) -> DocIds:
        """Documents of which a user has given the vectors; perhaps none at all."""

    def fixed_docids(self, embedder: str) -> DocIds:
        """Documents whose vectors are not made again (`regenerate` is false); perhaps none at all."""

    def fragment_docids(self, embedder: str, fragment: str) -> DocIds:
        """Documents with a vector that was made of this indexing fragment."""

    def document_vectors(self, docids: Sequence[int], embedder: str) -> Iterator[tuple[int, DocumentVectors]]:
        """(docid, vectors) of those of some documents that have an entry for the embedder, in no order."""

    def nearest(
        self, embedder: str, vector: array[float], candidates: DocIds, limit: int
    ) -> Sequence[tuple[float, int]]:
        """(distance, docid) of the `limit` nearest vectors of the candidates, nearest first, equally near ones by docid.

        A document is named once, with its nearest vector; the further ones of it count for the limit, so that there may be
        fewer documents. vector: of the embedder's length.
        """


class Reader(Protocol):
    """One index in one read transaction."""

    @property
    def settings(self) -> IndexSettings:
        """The settings with their defaults; the same object while they do not change."""

    @property
    def primary_key(self) -> str | None:
        """The attribute that identifies documents, None while the index has none."""

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
    def values(self) -> Values:
        """The values of fields."""

    @property
    def geo(self) -> Geo:
        """The points and geometries of documents."""

    @property
    def vectors(self) -> Vectors:
        """The vectors of documents."""

    def cached(self, key: Key, make: Callable[[], T]) -> T:
        """make(), cached under the key for later readers until the index is written to.

        For what follows from the state of the index alone and takes long to compute; never None.
        """

    def all_docids(self) -> DocIds:
        """Every document of the index."""

    def fields(self) -> Sequence[str]:
        """All attributes that any document ever had, in field-number order."""

    def documents(self, docids: Sequence[int]) -> Sequence[str]:
        """The documents as compact JSON texts, members in field-number order; in the order asked."""

    def documents_utf8(self, docids: Sequence[int]) -> Sequence[bytes]:
        """As documents(), in UTF-8: of long ones it takes a fourth of the memory at times."""

    def average_document_size(self) -> int:
        """Bytes that the JSON text of a document usually has, at least 1."""

    def identified_docids(self, document_ids: Sequence[str]) -> Mapping[str, int]:
        """Identifier -> docid, of those identifiers that some document has."""

    def identified_documents(self, document_ids: Sequence[str]) -> Mapping[str, str]:
        """Identifier -> the JSON text of the document, of those identifiers that some document has."""
