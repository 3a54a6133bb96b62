"""Materialized postings: the sets of the commonest terms and prefixes, stored ready-made.

Reading a set from FTS5 costs 0.2 us a document: 0.1 s for a word that half of a million documents hold, at its first use
after a start or a bulk import. The table `materialized_postings` has such sets with the generation they were made at;
readers bring them up to date with the delta like any cached set. They are made after the batch that made them necessary,
while nothing else waits. Small indexes need none. See docs/storage.md#postings.
"""
from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

from svcd.base.docids import from_bytes, to_bytes, union_of
from svcd.index import fts_encoding, prefix_postings
from svcd.index.connections import write_transaction
from svcd.index.read_transaction import Cache
from svcd.index.reader import IndexReader
from svcd.index.schema import SHARED_COLUMN
from svcd.index.term_reader import PostingKey

# Sets below this many documents, or this share of all, are quickly read from FTS5.
LEAST = 4_096
SHARE = 16
# Made again before there are more generations or written documents than a delta can bridge.
MOST_GENERATIONS = 50
MOST_WRITTEN = 500
# Frequencies of these prefixes are counted; longer ones are taken from the common terms that start with them.
_PREFIX_LENGTHS = (1, 2)
_LONGER = 3
_CACHE_BYTES = 4 << 20
_TERMS_AT_ONCE = 1_000  # about a millisecond


def is_stale(connection: sqlite3.Connection, generation: int, documents: int) -> bool:
    """Should the sets of an index be made, or made again? connection: any on its file."""
    if documents < LEAST:
        return False
    made = connection.execute("SELECT value FROM meta WHERE key = 'materialized_postings'").fetchone()
    if made is None or generation - made[0] > MOST_GENERATIONS:
        return True
    changes = [docids for (docids,) in connection.execute("SELECT docids FROM changes WHERE generation > ?", made)]
    return None in changes or len(union_of(map(from_bytes, changes))) > MOST_WRITTEN


def write_postings(writer: sqlite3.Connection, reader: IndexReader, should_stop: Callable[[], bool]) -> None:
    """Store the sets as `reader` sees them, one transaction each; those stored before should_stop() remain."""
    least = max(LEAST, reader.number_of_documents // SHARE)
    made: list[str] = []
    for key in _keys(reader, least, should_stop):
        if should_stop():
            break
        docids = reader.terms.posting_docids(key)
        if len(docids) >= least:
            made.append(reader.terms.materialized_key(key))
            with write_transaction(writer):
                writer.execute("INSERT OR REPLACE INTO materialized_postings(key, generation, docids) VALUES (?, ?, ?)",
                               (made[-1], reader.generation, to_bytes(docids)))
    if should_stop():  # not complete: the next call goes on, and finds what is stored
        return
    with write_transaction(writer):
        writer.execute("DELETE FROM materialized_postings WHERE generation < ?", (reader.generation,))
        writer.execute("INSERT OR REPLACE INTO meta(key, value) VALUES ('materialized_postings', ?)", (reader.generation,))


def _keys(reader: IndexReader, least: int, should_stop: Callable[[], bool]) -> Iterator[PostingKey]:
    """The sets that may be large: of terms and prefixes that at least so many documents hold."""
    columns = [column for column in reader.terms.columns().values() if column < SHARED_COLUMN]
    for spelled, is_prefix in _common_terms(reader, least, should_stop):
        if not (is_prefix and prefix_postings.has_prefix_postings(spelled)):
            yield "word", spelled, is_prefix, None
            for column in columns:
                yield "word", spelled, is_prefix, column
        for bucket in fts_encoding.BUCKETS:
            yield "position", spelled, is_prefix, bucket


def _common_terms(reader: IndexReader, least: int, should_stop: Callable[[], bool]) -> list[tuple[str, bool]]:
    counts: dict[str, int] = {}
    common: list[tuple[str, bool]] = []
    starts: set[str] = set()  # prefixes of common terms: typed letter by letter, each is searched for
    for number, (term, documents) in enumerate(reader.vocabulary.document_frequencies()):
        if number % _TERMS_AT_ONCE == 0 and should_stop():
            break
        if documents >= least:
            common.append((term, False))
            plain = term.partition("~")[0]  # an escape must not be cut
            starts.update(plain[:length] for length in range(_LONGER, len(plain) + 1))
        for length in _PREFIX_LENGTHS:
            if len(term) >= length and "~" not in term[:length]:
                counts[term[:length]] = counts.get(term[:length], 0) + documents
    starts.update(start for start, documents in counts.items() if documents >= least)
    return common + [(start, True) for start in sorted(starts)]


def reader_of(connection: sqlite3.Connection) -> IndexReader:
    """A reader with a small cache of its own: each set is read once."""
    return IndexReader(connection, "materialized", Cache(_CACHE_BYTES))
