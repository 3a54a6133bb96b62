"""The words and values of documents, encoded for the tables of an index.

The result depends only on the documents, their docids and the settings, not on the state of the index: it refers to attributes
by name, and the writer puts in FTS columns and field numbers. It consists only of tuples, lists, dictionaries, texts, bytes and
numbers, so that another process can build it and send it with `marshal` (docs/tasks-and-batches.md#analysis-process).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from svcd.index import fts, prefix_postings
from svcd.index.bitmap_blocks import BLOCK_BITS
from svcd.index.schema import COUNTED_WORDS
from svcd.index.value_writer import MIXED, Postings, RowEdits, json_array, posting_entries
from svcd.schema.field_values import FieldValues

Positions = Mapping[str, Sequence[str]]  # attribute -> word at each position, "" for a position gap

# The words of one attribute: its row of the forward index, its text for the table `terms`, its number of words (0 above
# COUNTED_WORDS), and the first letters of its words.
FieldWords = tuple[str, str, int, str]
# attribute -> its words, and the text for the table `term_positions`.
Words = tuple[dict[str, FieldWords], str]
# The values of one attribute: its JSON array in document_values, and its postings.
AttributeValues = tuple[str, Postings]
Values = dict[str, AttributeValues]
# The postings of new documents that are written together, joined because the documents share most of them: bitmap block ->
# attribute -> the edits for ValueWriter; block -> attribute -> first letter -> docids.
AddedPostings = dict[int, dict[str, RowEdits]]
AddedLetters = dict[int, dict[str, dict[str, list[int]]]]
# The documents in their order. New documents come without letters and postings; words are None where they do not change.
EncodedDocuments = tuple[list[tuple["Words | None", Values]], AddedPostings, AddedLetters]

_NO_POSTINGS: Postings = {}


class AttributeWords(NamedTuple):
    """The words of one attribute. found: with first letters; new: without them; position_terms: for `term_positions`."""

    found: FieldWords
    new: FieldWords
    position_terms: str


def attribute_words(terms: Sequence[str]) -> AttributeWords:
    """Encode the words of an attribute by position, "" for a position gap."""
    row = fts.row_text(terms)
    count = len(terms) - terms.count("")
    stored = fts.forward_row(row), fts.column_text(row), count if count <= COUNTED_WORDS else 0
    return AttributeWords((*stored, "".join(prefix_postings.first_letters(terms))), (*stored, ""),
                          fts.position_terms_of(fts.terms_of(row, terms)))


def attribute_values(entry: FieldValues) -> AttributeValues:
    """Encode the values of an attribute."""
    return json_array(entry), posting_entries(entry)


def encoded_values(values: Mapping[str, FieldValues]) -> Values:
    """Return the encoded values of a document, by attribute."""
    return {name: attribute_values(held) for name, held in values.items()}


def encoded_documents(documents: Iterable[tuple[Positions | None, Mapping[str, FieldValues], int | None]]) -> EncodedDocuments:
    """Encode documents that are written together: (words, None if they stay; attribute -> values; docid if new) of each."""
    portion = EncodedPortion()
    for positions, values, docid in documents:
        words = None if positions is None else {name: attribute_words(terms) for name, terms in positions.items()}
        portion.add(words, encoded_values(values), docid)
    return portion.documents


class EncodedPortion:
    """Gathers the encoded attributes of documents that are written together."""

    def __init__(self) -> None:
        self.documents: EncodedDocuments = ([], {}, {})

    def add(self, words: Mapping[str, AttributeWords] | None, values: Values, docid: int | None) -> None:
        """Add a document. words: None if they do not change; docid: given for a new document only."""
        encoded, postings, letters = self.documents
        if docid is None:
            encoded.append((_words(words, False), values))
            return
        block = docid >> BLOCK_BITS
        encoded.append((_words(words, True), {name: (array, _NO_POSTINGS) for name, (array, _) in values.items()}))
        if words:
            letters_of_block = letters.setdefault(block, {})
            for name, ((_, _, _, first_letters), _, _) in words.items():
                docids_by_letter = letters_of_block.setdefault(name, {})
                for letter in first_letters:
                    if letter in docids_by_letter:
                        docids_by_letter[letter].append(docid)
                    else:
                        docids_by_letter[letter] = [docid]
        postings_of_block = postings.setdefault(block, {}) if values else {}
        for name, (_, entries) in values.items():
            edits = postings_of_block.setdefault(name, {})
            for key, spelling in entries.items():
                edit = edits.get(key)
                if edit is None:
                    edits[key] = [spelling, docid]
                else:
                    edit.append(docid)
                    if edit[0] != spelling:
                        edit[0] = MIXED


def _words(words: Mapping[str, AttributeWords] | None, is_new: bool) -> Words | None:
    if words is None:
        return None
    return ({name: each.new if is_new else each.found for name, each in words.items()},
            " ".join([each.position_terms for each in words.values()]))
