"""The commands as somebody calls them, each against a running daemon and against a folder:

1. Documents come in, are found, come out as they were, and are in a backup, which becomes an instance with the same ones.
2. A fault says what was wrong in one line, with the status that scripts ask for: 1 failed, 2 misused, 3 no instance.
3. --json prints one JSON value.
4. verify finds damage in each kind of file, and none in a sound folder.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.index.schema import LEAST_DOCUMENTS
from tests.commands.conftest import Run
from tests.support.daemon import Daemon, running

FILMS = [{"id": number, "title": f"Film {number}", "year": 1900 + number % 100} for number in range(LEAST_DOCUMENTS + 10)]
MASTER_KEY = "a-master-key-of-some-length"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    with running(folder, "--master-key", MASTER_KEY, "--snapshot-dir", str(folder / "snapshots")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def run(daemon: Daemon, files: Path, monkeypatch: pytest.MonkeyPatch, call: Run) -> Run:
    """run(arguments) -> status, standard output, standard error; in the configuration of the daemon."""
    monkeypatch.chdir(files)
    monkeypatch.setenv("XDG_STATE_HOME", str(files / "state"))
    for name, value in {"HTTP_ADDR": f"127.0.0.1:{daemon.port}", "MASTER_KEY": MASTER_KEY, "DB_PATH": str(daemon.data),
                        "SNAPSHOT_DIR": str(daemon.folder / "snapshots")}.items():
        monkeypatch.setenv(f"SVC_{name}", value)
    return call


def test_documents_come_in_are_found_and_come_out_as_they_were(run: Run, daemon: Daemon, files: Path) -> None:
    (files / "films.json").write_text(json.dumps(FILMS))
    assert run("import", "films.json", "films", "--portion", "50000") == (0, f"{len(FILMS):,} documents in films\n", "")
    status, out, _ = run("search", "films", "film", "77", "--limit", "1", "--scores")
    assert status == 0 and out.startswith("Film 77  ") and "words: matchingWords 2" in out
    status, out, _ = run("explain", "films", "77", "film", "77")
    assert status == 0 and out.startswith("hit at place 1, score ") and "  77: 77 (exact) in " in out and "1 just before it" not in out
    status, out, _ = run("explain", "films", "78", "77", "--json")
    assert status == 0 and json.loads(out)["cause"]["kind"] == "wordMissing"
    assert run("explain", "films", "x", "77") == (1, "", "svcd: Document `x` not found.\n")
    assert run("export", "films", "-o", "out.ndjson")[:2] == (0, f"{len(FILMS):,} documents of films in out.ndjson\n")
    assert [json.loads(line) for line in (files / "out.ndjson").read_text().splitlines()] == FILMS
    status, out, _ = run("export", "films", "--array", "--fields", "id")
    assert json.loads(out) == [{"id": each["id"]} for each in FILMS]
    status, out, _ = run("status", "--json")
    assert json.loads(out)["indexes"] == {"films": {"documents": len(FILMS), "isIndexing": False}}
    assert "films" in run("status")[1]


def test_a_file_of_settings_is_compared_with_an_index(run: Run, files: Path) -> None:
    (files / "films.json").write_text(json.dumps(FILMS))
    assert run("import", "films.json", "films", "--restart")[0] == 0
    (files / "settings.toml").write_text('stopWords = ["of"]\n[typoTolerance]\nenabled = true\n')
    status, out, _ = run("settings", "diff", "settings.toml", "films")
    assert status == 0 and out.splitlines()[:4] == ["stopWords", "  - []", '  + ["of"]', f"{len(FILMS):,} documents: words again"]
    assert json.loads(run("settings", "diff", "settings.toml", "films", "--json")[1])["madeAgain"]["words"] == len(FILMS)
    (files / "same.json").write_text('{"stopWords": []}')
    assert run("settings", "diff", "same.json", "films") == (0, "no setting changes\n", "")
    (files / "bad.json").write_text('{"typoTolerance": {"minWordSizeForTypos": {"oneTypo": 20}}}')
    for file, reason in (("bad.json", "rejected: "), ("settings.ini", "settings.ini"), ("broken.json", "not JSON")):
        (files / "broken.json").write_text("{")
        status, out, error = run("settings", "diff", file, "films")
        assert status > 0 and out == "" and reason in error and error.count("\n") == 1


def test_a_backup_becomes_an_instance_with_the_same_documents(run: Run, files: Path) -> None:
    for _ in range(3):
        status, out, _ = run("backup", "backups", "--keep", "2", "--json")
        assert status == 0
    backups = sorted((files / "backups").iterdir())
    assert [str(files / each) for each in [json.loads(out)["file"]]] == [str(backups[-1])] and len(backups) == 2
    status, out, _ = run("restore", str(backups[-1]), "restored", "--json")
    assert json.loads(out) == {"folder": "restored", "indexes": {"films": len(FILMS)}}
    assert run("restore", str(backups[-1]), "restored")[0] == 1
    assert json.loads(run("search", "films", "film 7", "--limit", "1", "--folder", "restored", "--json")[1])["hits"] == [FILMS[7]]
    assert run("backup", "again", "--folder", "restored")[0] == 0 and len(list((files / "again").iterdir())) == 1


def test_verify_finds_nothing_in_a_sound_folder_and_damage_in_each_kind_of_file(run: Run, files: Path) -> None:
    assert run("verify")[0] == 0  # of the daemon, while it runs
    assert run("verify", "--folder", "restored", "--full")[:2] == (0, "restored: 2 files, no fault\n")
    (index,) = (files / "restored/indexes").glob("*.sqlite")
    for change, words in (
        ("UPDATE documents SET json = '{' WHERE docid = 1", "differs from its checksum"),
        ("UPDATE forward_index SET words = (SELECT words FROM forward_index WHERE docid = 3) WHERE docid = 2", "forward_index has the row"),
        ("DELETE FROM prefix_postings WHERE letter = 'f'", "prefix_postings has no further row"),
        ("UPDATE meta SET value = x'' WHERE key = 'docids'", "the set of all documents differs"),
        ("DELETE FROM forward_index WHERE docid = 4", "forward_index has the row"),
        ("UPDATE terms_data SET block = zeroblob(length(block)) WHERE id > 10", "FTS5 table terms"),
    ):
        sound = index.read_bytes()
        with closing(sqlite3.connect(index, isolation_level=None)) as connection:
            connection.execute(change)
        status, out, _ = run("verify", "--folder", "restored", "--full")
        assert status == 1 and words in out
        index.write_bytes(sound)
    index.unlink()
    status, out, _ = run("verify", "--folder", "restored", "--json")
    assert status == 1 and not json.loads(out)["isWhole"] and "is missing" in out


@pytest.mark.parametrize("arguments, status, words", [
    (("search", "nope", "x"), 1, "Index `nope` not found."),
    (("import", "nothing.json", "films"), 1, "nothing.json does not exist"),
    (("export", "films", "--filter", "year > 1"), 1, "is not filterable"),
    (("search", "films", "x", "--key", "wrong"), 1, "name a key with --key"),
    (("status", "--url", "http://127.0.0.1:1"), 3, "does not answer: Connection refused; start the daemon"),
    (("status", "--url", "ftp://x"), 2, "not an address"),
    (("status", "--folder", "nowhere"), 1, "is not a data folder"),
    (("status", "--folder", "x", "--url", "http://y"), 2, "leave out --url"),
    (("export", "films", "--json"), 2, "name a file with --output"),
    (("search",), 2, "Missing argument 'INDEX'"),
    (("serch", "films"), 2, "did you mean search?"),
    (("verify", "--folder", "nowhere"), 1, "is not a data folder"),
    (("config", "init", "films.json"), 1, "exists already"),
])
def test_a_fault_is_one_line_with_a_status(run: Run, files: Path, arguments: tuple[str, ...], status: int, words: str) -> None:
    (files / "films.json").touch()
    ended, out, err = run(*arguments)
    assert ended == status and words in err and out == "" and err.count("\n") == 1 and err.startswith("svcd: ")


def test_a_folder_in_use_is_refused(run: Run, daemon: Daemon) -> None:
    status, _, err = run("status", "--folder", str(daemon.data))
    assert status == 1 and "another svcd" in err


def test_the_configuration_tells_where_each_value_comes_from(run: Run, files: Path) -> None:
    status, out, _ = run("--log-level", "WARN", "config")
    assert status == 0 and "log_level" in out and "--log-level" in out and "SVC_HTTP_ADDR" in out and MASTER_KEY not in out
    assert json.loads(run("config", "--json")[1])["env"] == {"value": "development", "source": "default", "where": "--env"}
    assert run("config", "init", "fresh.toml")[0] == 0 and "#http_addr" in (files / "fresh.toml").read_text()
    assert run("--config-file-path", "fresh.toml", "config")[0] == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(run: Run, shell: str) -> None:
    status, out, _ = run("completion", shell)
    assert status == 0 and "_SVCD_COMPLETE" in out
