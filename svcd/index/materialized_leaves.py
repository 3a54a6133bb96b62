"""Gathers leaves from documents: the first half of making materialized postings. What leaves are: svcd.index.materialized_choice.

A set of a leaf in a portion of the documents, which lie in one bitmap block, is a set of *codes*: place * 65,536 + the lower
16 bits of the docid. A place is that of a bucketed position in BUCKETS, FIRST_COLUMN and an FTS column, or 0 for pairs. So one
bitmap has the documents of a leaf at all positions and in all columns, a container each.

Words are handled by hundreds of documents, field by field, in what runs in C: some 0.5 us a word.
"""
from __future__ import annotations

import marshal
from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress, islice, repeat
from operator import add

from svcd.base.docids import DocIds, union_of
from svcd.base.positions import bucketed_position
from svcd.index.bitmap_blocks import BLOCK_BITS
from svcd.index.fts_encoding import BUCKETS, SEPARATOR_MARK
from svcd.index.materialized_choice import LETTERS, Choice, Families, PairLeaves
from svcd.index.schema import SHARED_COLUMN

FIRST_COLUMN = 32
_ALL_PLACES = FIRST_COLUMN + SHARED_COLUMN + 1
DOCIDS_OF_BLOCK = (1 << BLOCK_BITS) - 1  # the bits of a docid that say which one of its block it is
_SEVEN_GAPS = " " * 8
_BETWEEN_ROWS = "  "  # a gap, so that no pair reaches from one document into the next
_POSITIONS = DocIds(range(FIRST_COLUMN << BLOCK_BITS))

LeafRow = tuple[int, int, int, bytes]  # family, bitmap block, number of the portion, marshalled {leaf: set of codes}
# The newest form that every Python from 3.11 on reads: a data folder outlives the interpreter that wrote it.
_MARSHAL_FORM = 4
_discard = deque[None](maxlen=0).extend


class _TermCodes(dict[str, "array[int]"]):
    """Term -> the codes of its leaf. least: so many documents make a term common."""

    def __init__(self, choice: Choice, least: int) -> None:
        self.leaves: defaultdict[str | None, array[int]] = defaultdict(lambda: array("I"))
        self._choice = choice
        self._least = least

    def __missing__(self, term: str) -> array[int]:
        codes = self[term] = self.leaves[self._choice.leaf(term, self._least)]
        return codes


class _PairCodes(dict[str, "array[int]"]):
    """Right term -> the codes of the leaf of its pair."""

    def __init__(self, pairs: PairLeaves) -> None:
        self.leaves: defaultdict[str | None, array[int]] = defaultdict(lambda: array("I"))
        self._pairs = pairs
        self[""] = self.leaves[None]

    def __missing__(self, right: str) -> array[int]:
        codes = self[right] = self.leaves[self._pairs.leaf(right)]
        return codes


class LeafGatherer:
    """Gathers the leaves of a portion of the documents, all in one bitmap block. size: how many codes of words it has."""

    def __init__(self, choice: Choice, least: int) -> None:
        self._families = choice.families
        self._terms = _TermCodes(choice, least)
        self._pairs = {left: _PairCodes(pairs) for left, pairs in self._families.pairs.items()}
        self._places: list[int] = []  # by position
        self.size = 0

    def add(self, rows: Iterable[tuple[int, str]]) -> None:
        """Gather from rows of the forward index (docid, words)."""
        fields: defaultdict[str, tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
        for docid, forward in rows:
            for line in forward.split("\n"):
                column, _, row = line.partition("\t")
                lows, texts = fields[column]
                lows.append(docid & DOCIDS_OF_BLOCK)
                texts.append(row)
        for column, (lows, texts) in fields.items():
            self._add_field(min(int(column), SHARED_COLUMN), lows, texts)

    def _add_field(self, column: int, lows: Sequence[int], texts: Sequence[str]) -> None:
        """lows: the lower 16 bits of the docids. texts: of each its row of the field."""
        joined = _BETWEEN_ROWS.join(texts)
        if SEPARATOR_MARK in joined:
            texts = [text.replace(SEPARATOR_MARK, _SEVEN_GAPS) for text in texts]
            joined = _BETWEEN_ROWS.join(texts)
        lengths = [text.count(" ") + 2 for text in texts]
        terms = joined.split(" ")
        documents = list(chain.from_iterable(map(repeat, lows, lengths)))
        self._add_pairs(terms, documents)
        places = chain.from_iterable(map(self._places_up_to(max(lengths)).__getitem__, map(slice, lengths)))
        documents = list(compress(documents, terms))
        leaves = list(map(self._terms.__getitem__, filter(None, terms)))
        _discard(map(array.append, leaves, map(add, compress(places, terms), documents)))
        _discard(map(array.append, leaves, map((FIRST_COLUMN + column << BLOCK_BITS).__add__, documents)))
        self.size += 2 * len(leaves)

    def _add_pairs(self, terms: Sequence[str], documents: Sequence[int]) -> None:
        after = list(map(self._pairs.get, terms))
        leaves = list(map(dict.__getitem__, filter(None, after), compress(islice(terms, 1, None), after)))
        _discard(map(array.append, leaves, compress(documents, after)))

    def _places_up_to(self, length: int) -> Sequence[int]:
        known = len(self._places)
        if length > known:
            self._places += (_PLACES[bucketed_position(position)] << BLOCK_BITS for position in range(known, length))
        return self._places

    def rows(self, block: int, portion: int) -> list[LeafRow]:
        """The rows of the portion, by family. portion: a number that no other one of this bitmap block has."""
        families: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
        letters: defaultdict[str, list[DocIds]] = defaultdict(list)
        for leaf, codes in self._terms.leaves.items():
            if leaf is not None:
                docids = DocIds(codes)
                families[self._families.of_leaf(leaf)][leaf] = docids.serialize()
                if leaf[0] in LETTERS:
                    letters[leaf[0]].append(docids)
        families[Families.LETTERS] = {letter: (union_of(sets) & _POSITIONS).serialize() for letter, sets in letters.items()}
        for left, pairs in self._pairs.items():
            families[self._families.of_pairs(left)] = _serialized(pairs.leaves)
        return [(family, block, portion, marshal.dumps(leaves, _MARSHAL_FORM)) for family, leaves in families.items() if leaves]


def codes_of_documents(docids: DocIds) -> DocIds:
    """All codes that documents of one bitmap block may have, in any leaf."""
    lows = [docid & DOCIDS_OF_BLOCK for docid in docids]
    return DocIds(array("I", chain.from_iterable(map((place << BLOCK_BITS).__add__, lows) for place in range(_ALL_PLACES))))


_PLACES = {bucket: place for place, bucket in enumerate(BUCKETS)}


def _serialized(leaves: Mapping[str | None, array[int]]) -> dict[str, bytes]:
    return {leaf: DocIds(codes).serialize() for leaf, codes in leaves.items() if leaf is not None}
