"""What documents contribute to the tables of an index: their words and values in the form in which they are stored.

It depends on the documents and the settings alone, not on the state of the index: attributes have their names here, and the
writer puts FTS columns, field numbers and docids in. Only tuples, lists, dictionaries, texts, bytes and numbers, so that
another process can make it and send it with `marshal` (docs/tasks-and-batches.md#analysis-process).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from svcd.index import fts_encoding, prefix_postings
from svcd.index.schema import COUNTED_WORDS
from svcd.index.value_writer import MIXED, FieldEntry, Key, Postings, json_array, posting_entries

Positions = Mapping[str, Sequence[str]]  # attribute -> word at each position, "" for a position gap

# Of one attribute: its row of the forward index, its text for the table `terms`, how many words it holds (0 above
# COUNTED_WORDS), and the first letters of its words.
FieldWords = tuple[str, str, int, str]
# attribute -> its words, and the text for the table `term_positions`.
Words = tuple[dict[str, FieldWords], str]
# attribute -> its JSON array in document_values, and its postings.
Values = dict[str, tuple[str, Postings]]
# Of documents that are written together, and new: attribute -> (kind, key) -> spelling, then the places of the documents in
# the list; attribute -> letter -> places. Gathered here, because the documents of a list share most of them.
AddedPostings = dict[str, dict[tuple[int, Key], list[Any]]]
AddedLetters = dict[str, dict[str, list[int]]]
# The documents in their order; those that are new have no letters and postings of their own.
EncodedDocuments = tuple[list[tuple[Words, Values]], AddedPostings, AddedLetters]

_NO_POSTINGS: Postings = {}


def encoded_documents(documents: Iterable[tuple[Positions, Mapping[str, FieldEntry], bool]]) -> EncodedDocuments:
    """Encode documents that are written together.

    documents: of each (words, attribute -> values, is it new).
    """
    encoded: list[tuple[Words, Values]] = []
    postings: AddedPostings = {}
    letters: AddedLetters = {}
    for place, (positions, values, is_new) in enumerate(documents):
        if is_new:
            encoded.append((_new_words(positions, letters, place), _new_values(values, postings, place)))
        else:
            encoded.append((encoded_words(positions), encoded_values(values)))
    return encoded, postings, letters


def encoded_words(positions: Positions) -> Words:
    """The words of a document."""
    return _new_words(positions, None, 0)


def _new_words(positions: Positions, letters: AddedLetters | None, place: int) -> Words:
    fields: dict[str, FieldWords] = {}
    terms = []
    for name, words in positions.items():
        row = fts_encoding.row_text(words)
        count = len(words) - words.count("")
        found = prefix_postings.first_letters(words)
        if letters is not None:
            places_by_letter = letters.setdefault(name, {})
            for letter in found:
                places_by_letter.setdefault(letter, []).append(place)
        fields[name] = (fts_encoding.forward_row(row), fts_encoding.column_text(row), count if count <= COUNTED_WORDS else 0,
                        "".join(found) if letters is None else "")
        terms.append(fts_encoding.terms_of(row, words))
    return fields, fts_encoding.position_terms_text(terms)


def encoded_values(values: Mapping[str, FieldEntry]) -> Values:
    """The values of a document, by attribute."""
    return {name: (json_array(held), posting_entries(held)) for name, held in values.items()}


def _new_values(values: Mapping[str, FieldEntry], postings: AddedPostings, place: int) -> Values:
    for name, held in values.items():
        added = postings.setdefault(name, {})
        for key, spelling in posting_entries(held).items():
            places = added.get(key)
            if places is None:
                added[key] = [spelling, place]
            else:
                places.append(place)
                if places[0] != spelling:
                    places[0] = MIXED
    return {name: (json_array(held), _NO_POSTINGS) for name, held in values.items()}
