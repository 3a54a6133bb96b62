"""Joins groups into the sets of terms, prefixes and pairs: the second half of building materialized postings.

It works family by family on the groups that svcd.index.materialized_groups gathered. The union of the encoded positions of
several groups has all parts of a set at once, and its bitmap containers go into the rows unchanged.
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
from svcd.index.materialized_groups import FIRST_COLUMN
from svcd.index.materialized_reader import materialized_key

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
