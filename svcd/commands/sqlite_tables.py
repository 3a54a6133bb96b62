"""Tables of SQLite databases, as sources of `svcd import` and targets of `svcd export`, by sqlite-utils.

The commands load this module only for a table; the daemon never loads sqlite-utils.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sqlite_utils import Database
from sqlite_utils.db import Table, View

from svcd.base.errors import quoted
from svcd.commands.instance import CommandFailed

_ROWS = 1000
_INTEGERS = range(-(2**63), 2**63)


class TableFacts(NamedTuple):
    """Facts about a table or view that an import needs before it reads rows.

    rows: their number. primary_key: the declared primary key, if it is one column. blobs: columns with values that JSON cannot
    represent.
    """

    rows: int
    primary_key: str | None
    blobs: list[str]


def table_names(path: Path) -> list[str]:
    """Return the names of tables and views."""
    with _reading(path) as database:
        return [*database.table_names(), *database.view_names()]


def facts(path: Path, table: str) -> TableFacts:
    """Return the facts of a table or view; reads all of it. Raises CommandFailed if it is absent."""
    with _reading(path) as database:
        names = [*database.table_names(), *database.view_names()]
        if table not in names:
            raise CommandFailed(f"table {table} not found in {path}; its tables are: {', '.join(names) or 'none'}")
        source = database.table(table) if table in database.table_names() else database.view(table)
        keys = source.pks if isinstance(source, Table) and not source.use_rowid else []
        columns = [column.name for column in source.columns]
        has_blob = ", ".join(f"max(typeof({_spelled(name)}) = 'blob')" for name in columns)
        found = database.execute(f"SELECT {has_blob} FROM {_spelled(table)}").fetchone()
        return TableFacts(source.count, keys[0] if len(keys) == 1 else None,
                          [name for name, is_blob in zip(columns, found) if is_blob])


def documents(path: Path, table: str) -> Iterator[tuple[list[str], int]]:
    """Yield the rows as texts of documents, with the number of rows read. Texts that are JSON objects or arrays become values."""
    with _reading(path) as database:
        source: Table | View = database.table(table) if table in database.table_names() else database.view(table)
        texts: list[str] = []
        done = 0
        for done, row in enumerate(source.rows, 1):
            document = {name: _json_value(value) for name, value in row.items() if not isinstance(value, bytes)}
            texts.append(json.dumps(document, ensure_ascii=False))
            if len(texts) == _ROWS:
                yield texts, done
                texts = []
        yield texts, done


def write(path: Path, table: str, rows: Iterable[Mapping[str, Any]], primary_key: str | None) -> None:
    """Write documents as rows of a new table; columns are added as they come, objects and arrays become JSON.

    The database may exist; without it the file gets its name when it is complete. Raises CommandFailed.
    """
    is_new = not path.exists()
    partial = path.with_name(path.name + ".partial") if is_new else path
    try:
        with closing(Database(partial)) as database:
            if table in [*database.table_names(), *database.view_names()]:
                raise CommandFailed(f"{path} has a table {table} already; name another table, or drop it before")
            try:
                database.table(table).insert_all(map(_storable, rows), pk=primary_key, alter=True)
                if primary_key and not database.table(table).exists():
                    database.table(table).create({primary_key: str}, pk=primary_key)
            except BaseException:
                database.table(table).drop(ignore=True)
                raise
        if is_new:
            partial.replace(path)
    except sqlite3.Error as failure:
        raise CommandFailed(f"table {table} cannot be written to {path}: {failure}") from None
    finally:
        if is_new:
            partial.unlink(missing_ok=True)


@contextmanager
def _reading(path: Path) -> Iterator[Database]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield Database(connection)


def _spelled(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _json_value(value: Any) -> Any:
    """Return the value of a text that is a JSON object or array, as sqlite-utils stores them; any other value unchanged."""
    if not isinstance(value, str) or not value.startswith(("{", "[")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _storable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a row: integers that SQLite cannot store become texts."""
    folded: dict[str, str] = {}
    for name in document:
        if folded.setdefault(name.lower(), name) != name:
            raise CommandFailed(f"the attributes {quoted(folded[name.lower()])} and {quoted(name)} are the same column in "
                                "SQLite; choose attributes with --fields")
    return {name: str(value) if isinstance(value, int) and value not in _INTEGERS else value for name, value in document.items()}
