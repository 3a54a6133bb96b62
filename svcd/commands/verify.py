"""`svcd verify`: are the files of a data folder whole, and do they agree with each other?

Reads committed states of the files, so a daemon may go on meanwhile. The short check reads every page of every file; the full
one also works on a copy of each index: FTS5 checks its own structure, its counts of documents are compared with those of the
forward index, the sets of documents with a value, a letter or a vector with the rows of the documents, and the sets that are kept
beside FTS5 with fresh ones made from it.
"""
from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from svcd.base import json_text
from svcd.base.docids import EMPTY, DocIds, from_bytes
from svcd.cli.config import load
from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed
from svcd.index import fts_encoding, materialized
from svcd.index.connections import copy_file, meta, open_reader
from svcd.index.prefix_postings import first_letters, has_prefix_postings
from svcd.index.schema import COUNT_BLOCK, DOCID_BITS, LEAST_DOCUMENTS
from svcd.index.value_writer import posting_entries, rows_of
from svcd.index.vector_rows import EMBEDDED, LENGTH_SHIFT, OUTDATED, docid_of
from svcd.schema.field_values import stored_form
from svcd.tasks.archive import waiting_payloads

MOST_FAULTS = 20
Key = tuple[str, int]

ABOUT = (
    "Check the files of a data folder: the one of the configuration, or --folder. A daemon may be running on it. Ends with "
    "status 1 when something is wrong."
)


@click.command("verify", help=ABOUT)
@click.option("--folder", type=click.Path(path_type=Path), help="The data folder.")
@click.option("--full", is_flag=True,
              help="Compare what belongs together as well; takes minutes for large indexes, and the room of a copy.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def command(context: click.Context, folder: Path | None, full: bool, is_json: bool) -> int:
    """Check file after file, and print what is wrong."""
    folder = folder or load(context.find_root().obj or {}, os.environ).db_path
    if not (folder / "instance.sqlite").exists():
        raise CommandFailed(f"{folder} is not a data folder of svcd: it has no file instance.sqlite")
    faults = found_faults(folder, full, on_file=lambda name: None if is_json else output.remark(f"{name} ..."))
    wrong = sum(map(len, faults.values()))
    if is_json:
        output.print_json({"folder": str(folder), "isFull": full, "faults": faults, "isWhole": not wrong})
    else:
        for name, found in faults.items():
            for fault in found:
                print(f"{output.styled(name, 'bad')}: {fault}")
        print(f"{folder}: {len(faults)} files, {wrong or 'no'} {'fault' if wrong < 2 else 'faults'}"
              f"{'' if full else ' (--full compares more)'}")
    return instance.FAILED if wrong else 0


def found_faults(folder: Path, is_full: bool, on_file: Callable[[str], None] = lambda name: None) -> dict[str, list[str]]:
    """What is wrong with each file of a data folder, by the name of the file. on_file: called with the name of the next file."""
    faults: dict[str, list[str]] = {}
    for name, check in _checks(folder, is_full):
        on_file(name)
        faults[name] = _found(check)
    return faults


def _checks(folder: Path, is_full: bool) -> Iterator[tuple[str, Callable[[], Iterator[str]]]]:
    """(name of a file, its check)."""
    yield "instance.sqlite", lambda: _instance_faults(folder)
    with closing(open_reader(folder / "instance.sqlite")) as connection:
        rows = connection.execute("SELECT uid, uuid FROM indexes ORDER BY uid").fetchall()
    for uid, uuid in rows:
        path = folder / "indexes" / f"{uuid}.sqlite"
        yield f"index {uid}", lambda path=path: _index_faults(path, is_full)  # type: ignore[misc]  # of the default argument


def _found(check: Callable[[], Iterator[str]]) -> list[str]:
    found: list[str] = []
    try:
        for fault in check():
            found.append(fault)
            if len(found) == MOST_FAULTS:
                found.append("and more")
                break
    except (sqlite3.Error, OSError, ValueError) as error:
        found.append(str(error))
    return found


def _page_faults(connection: sqlite3.Connection) -> Iterator[str]:
    for (said,) in connection.execute(f"PRAGMA integrity_check({MOST_FAULTS})"):
        if said != "ok":
            yield said


def _instance_faults(folder: Path) -> Iterator[str]:
    with closing(open_reader(folder / "instance.sqlite")) as connection:
        yield from _page_faults(connection)
        waiting = waiting_payloads(connection)
    for uid, payload in waiting:
        if not (folder / "payloads" / payload).exists() and _still_waits(folder, uid):
            yield f"the documents of task {uid}, which waits, are missing: payloads/{payload}"


def _still_waits(folder: Path, uid: int) -> bool:
    """A task that has ended since it was listed needs its payload no more."""
    with closing(open_reader(folder / "instance.sqlite")) as connection:
        return uid in [each for each, _ in waiting_payloads(connection)]


def _index_faults(path: Path, is_full: bool) -> Iterator[str]:
    if not path.exists():
        yield f"its file {path} is missing"
        return
    with closing(open_reader(path)) as connection:
        yield from _page_faults(connection)
        connection.execute("BEGIN")
        yield from _row_faults(connection)
    if is_full:
        with tempfile.TemporaryDirectory(prefix=".svcd-verify-", dir=path.parent.parent) as work:
            copy = Path(work) / "copy.sqlite"
            copy_file(path, copy)
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                yield from _structure_faults(connection)
                yield from _count_faults(connection)
                yield from _posting_faults(connection)
                yield from _set_faults(connection)


def _row_faults(connection: sqlite3.Connection) -> Iterator[str]:
    """Each document is JSON, and each row of the forward index is of one; a document without words has no row there."""
    for docid, text in connection.execute("SELECT docid, json FROM documents"):
        try:
            json_text.loads(text)
        except ValueError as error:
            yield f"document {docid} is not JSON: {error}"
    for (docid,) in connection.execute("SELECT docid FROM forward_index WHERE docid NOT IN (SELECT docid FROM documents)"):
        yield f"document {docid} of forward_index is not in documents"
    yield from _lost_words(connection)
    docids = [docid for (docid,) in connection.execute("SELECT docid FROM documents ORDER BY docid")]
    kept = meta(connection, "docids")
    if list(from_bytes(kept or b"")) != docids:
        yield "the set of all documents differs from the documents that are there"


def _lost_words(connection: sqlite3.Connection) -> Iterator[str]:
    """A document without a row in the forward index has no words, so none may be counted in its fields."""
    counts = connection.execute("SELECT block, counts FROM field_word_counts").fetchall()
    for (docid,) in connection.execute("SELECT docid FROM documents WHERE docid NOT IN (SELECT docid FROM forward_index)"):
        block, offset = divmod(docid, COUNT_BLOCK)
        if any(found[offset:offset + 1] not in (b"", b"\0") for start, found in counts if start == block):
            yield f"document {docid} of documents is not in forward_index"


def _structure_faults(connection: sqlite3.Connection) -> Iterator[str]:
    for table in ("terms", "term_positions"):
        try:
            connection.execute(f"INSERT INTO {table}({table}) VALUES ('integrity-check')")
        except sqlite3.DatabaseError as error:
            yield f"FTS5 table {table}: {error}"


def _count_faults(connection: sqlite3.Connection) -> Iterator[str]:
    """For each term, FTS5 knows as many documents as the forward index."""
    counted: Counter[str] = Counter()
    for (forward,) in connection.execute("SELECT words FROM forward_index"):
        counted.update({term for row in fts_encoding.forward_rows(forward).values() for term in row.split(" ")} - {""})
    for term, documents in connection.execute("SELECT term, doc FROM vocabulary WHERE term <> ?", (fts_encoding.POSITION_GAP,)):
        expected = counted.pop(term, 0)
        if expected != documents:
            yield f"the term `{term}` is in {expected} documents, but FTS5 has it in {documents}"
    for term, expected in counted.items():
        yield f"the term `{term}` is in {expected} documents, but FTS5 does not have it"


class _Sums:
    """How many documents each of some sets has, and the sum of their docids: enough to tell sets apart, in little memory."""

    def __init__(self) -> None:
        self._sums: dict[Any, tuple[int, int]] = {}

    def add(self, name: Any, docids: Sequence[int]) -> None:
        count, total = self._sums.get(name, (0, 0))
        self._sums[name] = count + len(docids), total + sum(docids)

    def faults(self, noun: str, stored: _Sums) -> Iterator[str]:
        """noun: what the sets are of; stored: the same of the sets that the file has."""
        for name in self._sums.keys() | stored._sums.keys():
            expected, found = self._sums.get(name, (0, 0)), stored._sums.get(name, (0, 0))
            if expected != found:
                yield f"the documents with the {noun} {name} are {found[0]}; they should be {expected[0]}, or others"


def _posting_faults(connection: sqlite3.Connection) -> Iterator[str]:
    """The sets of documents with a value, a first letter or a vector are those that the rows of the documents say."""
    fields = dict(connection.execute("SELECT fid, name FROM fields"))
    expected, stored = _Sums(), _Sums()
    for docid, text in connection.execute("SELECT docid, field_values FROM document_values"):
        for fid, entry in rows_of(text, stored_form).items():
            for kind, key in posting_entries(entry):
                expected.add((fields.get(fid, fid), kind, key), (docid,))
    for fid, kind, key, docids in connection.execute("SELECT fid, kind, value, docids FROM value_postings"):
        stored.add((fields.get(fid, fid), kind, key), from_bytes(docids).to_array())
    yield from expected.faults("value", stored)
    expected, stored = _Sums(), _Sums()
    for docid, forward in connection.execute("SELECT docid, words FROM forward_index"):
        for column, row in fts_encoding.forward_rows(forward).items():
            for letter in filter(has_prefix_postings, first_letters(fts_encoding.positions(row))):
                expected.add((column, letter), (docid,))
    for letter, column, docids in connection.execute("SELECT letter, fts_column, docids FROM prefix_postings"):
        stored.add((column, letter), from_bytes(docids).to_array())
    yield from expected.faults("column and letter", stored)
    expected, stored = _Sums(), _Sums()
    for row, origin, length in connection.execute("SELECT id, origin, length(vectors) FROM document_vectors"):
        if length:
            expected.add((row >> DOCID_BITS, OUTDATED if origin >> LENGTH_SHIFT else EMBEDDED), (docid_of(row),))
    for embedder, kind, docids in connection.execute(
            "SELECT embedder, kind, docids FROM vector_postings WHERE kind IN (?, ?)", (EMBEDDED, OUTDATED)):
        stored.add((embedder, kind), from_bytes(docids).to_array())
    yield from expected.faults("vectors of embedder and kind", stored)


def _set_faults(connection: sqlite3.Connection) -> Iterator[str]:
    """The sets beside FTS5, brought up to date, are those that are made from it anew."""
    docids = DocIds([docid for (docid,) in connection.execute("SELECT docid FROM documents")])
    if len(docids) < LEAST_DOCUMENTS:
        return
    materialized.materialize(connection, docids, lambda: False)
    kept = _sets(connection)
    connection.execute("DELETE FROM meta WHERE key LIKE 'materialized_%'")
    materialized.materialize(connection, docids, lambda: False)
    fresh = _sets(connection)
    for key in kept.keys() & fresh.keys():
        if kept[key] != fresh[key]:
            yield f"the set {key[0]} (part {key[1]}) has {len(kept[key])} documents; it should have {len(fresh[key])}"


def _sets(connection: sqlite3.Connection) -> dict[Key, DocIds]:
    found: dict[Key, DocIds] = {}
    for key, part, content in connection.execute("SELECT key, part, docids FROM materialized_postings"):
        found[key, part] = found.get((key, part), EMPTY) | from_bytes(content)
    return found
