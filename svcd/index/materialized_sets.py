"""Joins leaves to the sets of terms, prefixes and pairs: the second half of making materialized postings.

Leaves as svcd.index.materialized_leaves has gathered them, family by family. The union of the codes of leaves has all parts of a
set at once, and its containers go into the rows as they are.
"""
from __future__ import annotations

import marshal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter

from svcd.base.docids import DocIds, bytes_of_containers, containers_of, from_bytes, union_of
from svcd.base.roaring_format import StoredContainer
from svcd.index import bitmap_blocks
from svcd.index.bitmap_blocks import BLOCK_BITS, WHOLE
from svcd.index.fts_encoding import BUCKETS
from svcd.index.materialized_choice import Choice, Families, Node
from svcd.index.materialized_leaves import FIRST_COLUMN
from svcd.index.materialized_reader import materialized_key

# Portions of leaves from this number on are corrections: of documents of which nothing in the other portions of the block counts.
CORRECTIONS = 1 << BLOCK_BITS

Row = tuple[str, int, int, bytes]  # key, part, block, documents
_Part = list[tuple[int, StoredContainer]]  # a container for each bitmap block
_Parts = Mapping[int, _Part]  # by place


def family_rows(connection: sqlite3.Connection, choice: Choice, family: int, least: int, corrected: Mapping[int, DocIds],
                check: Callable[[], None]) -> list[Row]:
    """The rows of the sets of a family, by key.

    least: so many documents make a term or a prefix common. corrected: bitmap block -> the codes of documents that are in
    corrections. check: called each 0.01 s; what it raises ends the work.
    """
    pairs = choice.families.pair_leaves(family)
    nodes = pairs.nodes if pairs else _letter_nodes if family == Families.LETTERS else choice.nodes
    rows: list[Row] = []
    for node, parts in _node_parts(connection, family, nodes, corrected, check).items():
        check()
        if pairs:
            rows += _rows(materialized_key("adjacent", *node), 0, parts[0])
        elif _has(parts, least):
            for place, containers in parts.items():
                if place < FIRST_COLUMN:
                    rows += _rows(materialized_key("position", *node), BUCKETS[place], containers)
                else:
                    rows += _rows(materialized_key("word", *node), place - FIRST_COLUMN, containers)
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
        for _, portion, leaves in portions:
            for leaf, stored_codes in marshal.loads(leaves).items():
                if leaf not in known:
                    known[leaf] = tuple(nodes_of(leaf))
                codes = DocIds.deserialize(stored_codes)
                if void is not None and portion < CORRECTIONS:
                    codes -= void
                for node in known[leaf] if codes else ():
                    sets[node].append(codes)
        for node, several in sets.items():
            parts = found[node]
            for place, container in containers_of(union_of(several)):
                parts[place].append((block, container))
    return found


def _has(parts: _Parts, least: int) -> bool:
    """Have the parts of a term or prefix together so many documents? Of a letter those of positions, else those of columns."""
    columns = [part for place, part in parts.items() if place >= FIRST_COLUMN] or list(parts.values())
    counts = [sum(count for _, (count, _, _) in part) for part in columns]
    if max(counts) >= least or sum(counts) < least:
        return max(counts) >= least
    return len(union_of(from_bytes(bytes_of_containers(part)) for part in columns)) >= least


def _rows(key: str, part: int, containers: _Part) -> Iterator[Row]:
    """The rows of a set, as set_rows() divides it."""
    if sum(count for _, (count, _, _) in containers) <= bitmap_blocks.MOST_IN_WHOLE:
        yield key, part, WHOLE, bytes_of_containers(containers)
        return
    for block, container in containers:
        yield key, part, block, bytes_of_containers([(block, container)])
