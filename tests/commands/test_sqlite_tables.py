"""Tables of SQLite as sources and targets. What must hold:

1. The declared primary key of a table is that of a new index, whatever its name; an index that has one keeps it.
2. Texts that are JSON objects or arrays become values, and become texts again; other texts stay.
3. Values of type BLOB are left out, and their columns are named.
4. An export makes a new table, with columns as they come; a failed one leaves nothing, and an existing table is not touched.
5. The daemon loads no sqlite-utils, and the commands load it only for tables.
"""
from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from svcd.commands import sqlite_tables
from svcd.commands.documents import sources_of
from svcd.commands.instance import CommandFailed, Instance
from tests.commands.conftest import Run
from tests.support.daemon import Daemon, running


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


def made(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
    return path


@contextmanager
def opened(path: Path) -> Iterator[sqlite_utils.Database]:
    with closing(sqlite_utils.Database(path)) as database:
        yield database


def read(named: str) -> list[Any]:
    (source,) = sources_of(named)
    return [json.loads(text) for texts, _ in source.read() for text in texts]


def test_a_table_comes_in_with_its_primary_key_and_goes_out_again(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    made(tmp_path / "t.db", "CREATE TABLE prod(code TEXT PRIMARY KEY, name TEXT, tags TEXT, picture BLOB)",
         """INSERT INTO prod VALUES ('a1', 'tea', '["hot", {"of": "leaves"}]', x'00ff'), ('b2', '[sic] cake', NULL, NULL)""")
    status, out, err = run("import", "t.db:prod", "prod")
    assert (status, out) == (0, "2 documents in prod\n")
    assert "values of type BLOB are left out" in err and "columns: picture" in err
    instance = Instance(f"127.0.0.1:{daemon.port}", None)
    assert instance.call("GET", "/indexes/prod")["primaryKey"] == "code"
    documents = [{"code": "a1", "name": "tea", "tags": ["hot", {"of": "leaves"}]},
                 {"code": "b2", "name": "[sic] cake", "tags": None, "picture": None}]
    assert instance.call("GET", "/indexes/prod/documents")["results"] == documents
    assert run("export", "prod", "-o", "out.db:made") == (0, "2 documents of prod in out.db:made\n", "")
    status, _, err = run("export", "prod", "-o", "out.db:made")
    assert status == 1 and "out.db has a table made already; name another table" in err
    assert run("export", "prod", "-o", "out.db:again", "--fields", "name")[0] == 0
    with opened(tmp_path / "out.db") as database:
        table = database.table("made")
        assert table.pks == ["code"] and [column.name for column in table.columns] == ["code", "name", "tags", "picture"]
        first = {"code": "a1", "name": "tea", "tags": '["hot", {"of": "leaves"}]', "picture": None}
        assert list(table.rows)[0] == first and table.count == 2
        assert {*database.table_names()} == {"made", "again"}
    assert run("export", "prod", "-o", "new.db:made", "--array")[0] == 2 and not (tmp_path / "new.db").exists()


def test_an_index_keeps_its_primary_key(run: Run, daemon: Daemon, tmp_path: Path) -> None:
    Instance(f"127.0.0.1:{daemon.port}", None).call("POST", "/indexes?wait=10s", {"uid": "kept", "primaryKey": "name"})
    made(tmp_path / "t.db", "CREATE TABLE prod(code TEXT PRIMARY KEY, name TEXT)", "INSERT INTO prod VALUES ('a1', 'tea')")
    assert run("import", "t.db:prod", "kept")[0] == 0
    assert run("import", "t.db:prod", "named", "--primary-key", "name")[0] == 0


def test_a_file_name_with_a_colon_is_no_table(run: Run, tmp_path: Path) -> None:
    (tmp_path / "films.json").write_text('[{"id": 1}]')
    assert run("import", "films.json", "colon")[0] == 0
    assert run("export", "colon", "-o", "at-10:30.ndjson")[0] == 0 and (tmp_path / "at-10:30.ndjson").read_text() == '{"id": 1}\n'


@pytest.mark.parametrize(("columns", "key"), [
    ("code TEXT PRIMARY KEY, n", "code"), ("n, k INTEGER PRIMARY KEY", "k"), ("a, b", None), ("a, b, PRIMARY KEY (a, b)", None),
    ('"odd ""name" TEXT PRIMARY KEY, b', 'odd "name'),
])
def test_a_primary_key_of_one_column_counts(tmp_path: Path, columns: str, key: str | None) -> None:
    made(tmp_path / "t.db", f"CREATE TABLE t({columns})", "CREATE VIEW v AS SELECT * FROM t")
    assert sqlite_tables.facts(tmp_path / "t.db", "t") == (0, key, [])
    assert sqlite_tables.facts(tmp_path / "t.db", "v").primary_key is None


@pytest.mark.parametrize("text", ['{"a": 1', "[draft]", "plain", "[" * 100_000, "1", "null", "{}x"])
def test_other_texts_stay(tmp_path: Path, text: str) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute("CREATE TABLE t(a)")
        database.execute("INSERT INTO t VALUES (?)", (text,))
    assert read(f"{tmp_path}/t.db:t") == [{"a": text}]


def test_columns_are_added_as_they_come(tmp_path: Path) -> None:
    rows = [{"id": number, **({f"only{number}": [number]} if number % 150 == 0 else {})} for number in range(400)]
    rows.append({"id": 400, "large": 2**70})
    sqlite_tables.write(tmp_path / "o.db", "t", iter(rows), "id")
    sqlite_tables.write(tmp_path / "o.db", "empty", iter(()), "id")
    with opened(tmp_path / "o.db") as database:
        table = database.table("t")
        assert {column.name for column in table.columns} == {"id", "only0", "only150", "only300", "large"} and table.count == 401
        assert table.get(400)["large"] == str(2**70) and table.get(150)["only150"] == "[150]"
        assert database.table("empty").pks == ["id"]


def test_a_failed_export_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="are the same column in SQLite"):
        sqlite_tables.write(tmp_path / "o.db", "t", iter([{"id": 1, "Id": 2}]), "id")
    assert list(tmp_path.iterdir()) == []
    made(tmp_path / "o.db", "CREATE TABLE mine(a)")

    def rows() -> Iterator[dict[str, int]]:
        yield from ({"id": number} for number in range(300))
        raise CommandFailed("it went away")

    with pytest.raises(CommandFailed, match="went away"):
        sqlite_tables.write(tmp_path / "o.db", "t", rows(), "id")
    with opened(tmp_path / "o.db") as database:
        assert database.table_names() == ["mine"]


def test_the_daemon_and_other_commands_load_no_sqlite_utils() -> None:
    code = ("import sys, svcd.cli.main, svcd.cli.daemon, svcd.cli.wiring, svcd.commands.documents\n"
            "print('sqlite_utils' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
