"""What documents contribute to the tables of an index: their words and values in the form in which they are stored.

It depends on the documents, their docids and the settings alone, not on the state of the index: attributes have their names
here, and the writer puts FTS columns and field numbers in. Only tuples, lists, dictionaries, texts, bytes and numbers, so that
another process can make it and send it with `marshal` (docs/tasks-and-batches.md#analysis-process).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from svcd.index import fts_encoding, prefix_postings
from svcd.index.bitmap_blocks import BLOCK_BITS
from svcd.index.schema import COUNTED_WORDS
from svcd.index.value_writer import MIXED, FieldEntry, Postings, RowEdits, json_array, posting_entries

Positions = Mapping[str, Sequence[str]]  # attribute -> word at each position, "" for a position gap

# Of one attribute: its row of the forward index, its text for the table `terms`, how many words it holds (0 above
# COUNTED_WORDS), and the first letters of its words.
FieldWords = tuple[str, str, int, str]
# attribute -> its words, and the text for the table `term_positions`.
Words = tuple[dict[str, FieldWords], str]
# attribute -> its JSON array in document_values, and its postings.
Values = dict[str, tuple[str, Postings]]
# Of new documents that are written together, because they share most of them: bitmap block -> attribute -> what ValueWriter adds;
# block -> attribute -> first letter -> docids.
AddedPostings = dict[int, dict[str, RowEdits]]
AddedLetters = dict[int, dict[str, dict[str, list[int]]]]
# The documents in their order; those that are new have no letters and postings of their own, and words are None where they stay.
EncodedDocuments = tuple[list[tuple["Words | None", Values]], AddedPostings, AddedLetters]

_NO_POSTINGS: Postings = {}


def encoded_documents(documents: Iterable[tuple[Positions | None, Mapping[str, FieldEntry], int | None]]) -> EncodedDocuments:
    """Encode documents that are written together.

    documents: of each (words, None if they stay as they are stored; attribute -> values; docid if it is new).
    """
    encoded: list[tuple[Words | None, Values]] = []
    postings: AddedPostings = {}
    letters: AddedLetters = {}
    for positions, values, docid in documents:
        if docid is None:
            encoded.append((None if positions is None else _words(positions, None, 0), encoded_values(values)))
        else:
            block = docid >> BLOCK_BITS
            encoded.append((None if positions is None else _words(positions, letters.setdefault(block, {}), docid),
                            _new_values(values, postings.setdefault(block, {}), docid)))
    return encoded, postings, letters


def _words(positions: Positions, letters: dict[str, dict[str, list[int]]] | None, docid: int) -> Words:
    fields: dict[str, FieldWords] = {}
    terms = []
    for name, words in positions.items():
        row = fts_encoding.row_text(words)
        count = len(words) - words.count("")
        found = prefix_postings.first_letters(words)
        if letters is not None:
            docids_by_letter = letters.setdefault(name, {})
            for letter in found:
                docids_by_letter.setdefault(letter, []).append(docid)
        fields[name] = (fts_encoding.forward_row(row), fts_encoding.column_text(row), count if count <= COUNTED_WORDS else 0,
                        "".join(found) if letters is None else "")
        terms.append(fts_encoding.terms_of(row, words))
    return fields, fts_encoding.position_terms_text(terms)


def encoded_values(values: Mapping[str, FieldEntry]) -> Values:
    """The values of a document, by attribute."""
    return {name: (json_array(held), posting_entries(held)) for name, held in values.items()}


def _new_values(values: Mapping[str, FieldEntry], postings: dict[str, RowEdits], docid: int) -> Values:
    for name, held in values.items():
        added = postings.setdefault(name, {})
        for key, spelling in posting_entries(held).items():
            edit = added.get(key)
            if edit is None:
                added[key] = [spelling, docid]
            else:
                edit.append(docid)
                if edit[0] != spelling:
                    edit[0] = MIXED
    return {name: (json_array(held), _NO_POSTINGS) for name, held in values.items()}
