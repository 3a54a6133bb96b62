"""Gathers groups from documents, and joins them into the sets of terms, prefixes and pairs. See svcd.index.materialized_choice.

A portion of the documents is within one bitmap block. For each group it has a bitmap of *encoded positions*: position number *
65,536 + the lower 16 bits of the docid. The position number is the index of a bucketed position in BUCKETS, FIRST_COLUMN + an FTS
column, or 0 for pairs. So one bitmap has the documents of a group at all positions and in all columns, a container each. The
union of the bitmaps of several groups has all parts of a set at once, and its containers go into the rows unchanged.

Words are handled for hundreds of documents at once, field by field, with functions that run in C: some 0.5 us a word.
"""
from __future__ import annotations

import marshal
import sqlite3
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress, groupby, islice, repeat
from operator import add, itemgetter

from svcd.base.docids import DocIds, bytes_of_containers, containers_of, from_bytes, union_of
from svcd.base.positions import bucketed_position
from svcd.base.roaring_format import StoredContainer
from svcd.index import bitmap_blocks
from svcd.index.bitmap_blocks import BLOCK_BITS, WHOLE
from svcd.index.fts import BUCKETS, SEPARATOR_MARK
from svcd.index.materialized_choice import LETTERS, Choice, Families, Node
from svcd.index.materialized_reader import materialized_key
from svcd.index.schema import SHARED_COLUMN

FIRST_COLUMN = 32
_ALL_NUMBERS = FIRST_COLUMN + SHARED_COLUMN + 1
DOCIDS_OF_BLOCK = (1 << BLOCK_BITS) - 1  # the bits of a docid that identify it within its block
_SEVEN_GAPS = " " * 8
_BETWEEN_ROWS = "  "  # a gap, so that no pair extends from one document into the next
_BUCKETED = DocIds(range(FIRST_COLUMN << BLOCK_BITS))

GroupRow = tuple[int, int, int, bytes]  # family, bitmap block, number of the portion, marshalled {group: encoded positions}
# The newest format that every Python from 3.11 on reads: a data folder outlives the interpreter that wrote it.
_MARSHAL_FORM = 4
_discard = deque[None](maxlen=0).extend


class _GroupPositions(dict[str, "array[int]"]):
    """Term -> the encoded positions of its group. group_of: returns the group of a term, None if no set has it."""

    def __init__(self, group_of: Callable[[str], str | None]) -> None:
        self.groups: defaultdict[str | None, array[int]] = defaultdict(lambda: array("I"))
        self._group_of = group_of
        self[""] = self.groups[None]  # a position gap; the gatherer also relies on it that no such dictionary is empty

    def __missing__(self, term: str) -> array[int]:
        encoded = self[term] = self.groups[self._group_of(term)]
        return encoded


class GroupGatherer:
    """Gathers the groups of a portion of the documents, all in one bitmap block. size: number of encoded positions of words."""

    def __init__(self, choice: Choice, least: int) -> None:
        self._families = choice.families
        self._terms = _GroupPositions(lambda term: choice.group(term, least))
        # Left term -> by right term
        self._pairs = {left: _GroupPositions(pairs.group) for left, pairs in self._families.pairs.items()}
        self._numbers: list[int] = []  # by position: the position number, shifted
        self.size = 0

    def add(self, rows: Iterable[tuple[int, str]]) -> None:
        """Gather groups from rows of the forward index. rows: (docid, words)."""
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
        """Gather one field. lows: the lower 16 bits of the docids. texts: the row of the field of each document."""
        joined = _BETWEEN_ROWS.join(texts)
        if SEPARATOR_MARK in joined:
            texts = [text.replace(SEPARATOR_MARK, _SEVEN_GAPS) for text in texts]
            joined = _BETWEEN_ROWS.join(texts)
        lengths = [text.count(" ") + 2 for text in texts]
        terms = joined.split(" ")
        documents = list(chain.from_iterable(map(repeat, lows, lengths)))
        # Pairs of adjacent terms
        after = list(map(self._pairs.get, terms))
        groups = list(map(dict.__getitem__, filter(None, after), compress(islice(terms, 1, None), after)))
        _discard(map(array.append, groups, compress(documents, after)))
        # Terms
        self._numbers += (_NUMBERS[bucketed_position(position)] << BLOCK_BITS
                          for position in range(len(self._numbers), max(lengths)))
        numbers = chain.from_iterable(map(self._numbers.__getitem__, map(slice, lengths)))
        documents = list(compress(documents, terms))
        groups = list(map(self._terms.__getitem__, filter(None, terms)))
        _discard(map(array.append, groups, map(add, compress(numbers, terms), documents)))
        _discard(map(array.append, groups, map((FIRST_COLUMN + column << BLOCK_BITS).__add__, documents)))
        self.size += 2 * len(groups)

    def rows(self, block: int, portion: int) -> list[GroupRow]:
        """Return the rows of the portion, by family. portion: a number that is unique within this bitmap block."""
        families: defaultdict[int, dict[str, bytes]] = defaultdict(dict)
        letters: defaultdict[str, list[DocIds]] = defaultdict(list)
        for group, encoded in self._terms.groups.items():
            if group is not None:
                positions = DocIds(encoded)
                families[self._families.of_group(group)][group] = positions.serialize()
                if group[0] in LETTERS:
                    letters[group[0]].append(positions)
        families[Families.LETTERS] = {letter: (union_of(sets) & _BUCKETED).serialize() for letter, sets in letters.items()}
        for left, pairs in self._pairs.items():
            families[self._families.of_pairs(left)] = {
                group: DocIds(encoded).serialize() for group, encoded in pairs.groups.items() if group is not None}
        return [(family, block, portion, marshal.dumps(groups, _MARSHAL_FORM)) for family, groups in families.items() if groups]


def encoded_positions_of(docids: DocIds) -> DocIds:
    """Return all encoded positions that documents of one bitmap block may have, in any group."""
    lows = [docid & DOCIDS_OF_BLOCK for docid in docids]
    return DocIds(array("I", chain.from_iterable(map((number << BLOCK_BITS).__add__, lows) for number in range(_ALL_NUMBERS))))


_NUMBERS = {bucket: number for number, bucket in enumerate(BUCKETS)}


# Portions of groups from this number on are corrections: for their documents, other portions of the same block do not count.
CORRECTIONS = 1 << BLOCK_BITS

Row = tuple[str, int, int, bytes]  # key, part, block, documents
_Part = list[tuple[int, StoredContainer]]  # a container for each bitmap block
_Parts = Mapping[int, _Part]  # by position number


def family_rows(connection: sqlite3.Connection, choice: Choice, family: int, least: int, corrected: Mapping[int, DocIds],
                check: Callable[[], None]) -> list[Row]:
    """Return the rows of the sets of a family, by key.

    least: number of documents from which a term or prefix is common. corrected: bitmap block -> all encoded positions of the
    documents in corrections. check: called each 0.01 s; it ends the work by raising an exception.
    """
    pairs = choice.families.pair_groups(family)
    nodes = pairs.nodes if pairs else _letter_nodes if family == Families.LETTERS else choice.nodes
    rows: list[Row] = []
    for node, parts in _node_parts(connection, family, nodes, corrected, check).items():
        check()
        if pairs:
            rows += _rows(materialized_key("adjacent", *node), 0, parts[0])
        elif _has(parts, least):
            for number, containers in parts.items():
                if number < FIRST_COLUMN:
                    rows += _rows(materialized_key("position", *node), BUCKETS[number], containers)
                else:
                    rows += _rows(materialized_key("word", *node), number - FIRST_COLUMN, containers)
    return sorted(rows)


def _letter_nodes(letter: str) -> Iterator[Node]:
    yield letter, True


def _node_parts(
    connection: sqlite3.Connection, family: int, nodes_of: Callable[[str], Iterator[Node]], corrected: Mapping[int, DocIds],
    check: Callable[[], None]
) -> Mapping[Node, _Parts]:
    found: defaultdict[Node, defaultdict[int, _Part]] = defaultdict(lambda: defaultdict(list))
    known: dict[str, tuple[Node, ...]] = {}
    stored = connection.execute("SELECT block, portion, leaves FROM materialized_leaves WHERE family = ? ORDER BY block, portion",
                                (family,))
    for block, portions in groupby(stored, itemgetter(0)):
        check()
        sets: defaultdict[Node, list[DocIds]] = defaultdict(list)
        void = corrected.get(block)
        for _, portion, groups in portions:
            for group, stored_positions in marshal.loads(groups).items():
                if group not in known:
                    known[group] = tuple(nodes_of(group))
                encoded = DocIds.deserialize(stored_positions)
                if void is not None and portion < CORRECTIONS:
                    encoded -= void
                for node in known[group] if encoded else ():
                    sets[node].append(encoded)
        for node, several in sets.items():
            parts = found[node]
            for number, container in containers_of(union_of(several)):
                parts[number].append((block, container))
    return found


def _has(parts: _Parts, least: int) -> bool:
    """Return whether a term or prefix has at least `least` documents. The set of a letter has positions only."""
    columns = [part for number, part in parts.items() if number >= FIRST_COLUMN] or list(parts.values())
    counts = [sum(count for _, (count, _, _) in part) for part in columns]
    if max(counts) >= least or sum(counts) < least:
        return max(counts) >= least
    return len(union_of(from_bytes(bytes_of_containers(part)) for part in columns)) >= least


def _rows(key: str, part: int, containers: _Part) -> Iterator[Row]:
    """Yield the rows of a set, divided as set_rows() does it."""
    if sum(count for _, (count, _, _) in containers) <= bitmap_blocks.MOST_IN_WHOLE:
        yield key, part, WHOLE, bytes_of_containers(containers)
        return
    for block, container in containers:
        yield key, part, block, bytes_of_containers([(block, container)])
