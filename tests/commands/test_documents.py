"""What must hold of an import:

1. Each format gives the same documents, packed or not; a folder gives those of its files in the order of their names.
2. What was acknowledged is not sent again by an import that goes on, and nothing else is left out.
3. A source that cannot be read, or is malformed, says which and why; what stands before was sent and noted.
"""
from __future__ import annotations

import gzip
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from svcd.commands import documents, output
from svcd.commands.documents import Place, sources_of
from svcd.commands.instance import CommandFailed

FILMS = [{"id": number, "title": f"Film {number}"} for number in range(10)]


class Target:
    """Takes documents; fails at the request of a number, if that is given."""

    url = "http://there"

    def __init__(self, fails_at: int | None = None) -> None:
        self.received: list[Any] = []
        self.requests = 0
        self._fails_at = fails_at

    def send(self, method: str, path: str, body: bytes, content_type: str) -> Any:
        if self.requests == self._fails_at:
            raise CommandFailed("it went away")
        self.requests += 1
        self.received += [json.loads(line) for line in body.decode().splitlines()]
        return {"taskUid": self.requests}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def imported(target: Target, named: str, portion: int = 60) -> tuple[Place, int]:
    """The place at the end, and the number of documents that an earlier import has sent."""
    sources = sources_of(named)
    place = Place.of(target.url, "films", sources)
    end = documents._send(target, "POST", "/x", sources, place, portion, output.Bar("", True))  # type: ignore[arg-type]
    return end, place.total


def ndjson(films: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in films)


def written(folder: Path, name: str) -> Path:
    path = folder / name
    texts = {"json": json.dumps(FILMS), "ndjson": ndjson(FILMS), "jsonl": ndjson(FILMS),
             "csv": "id:number,title\n" + "".join(f"{each['id']},{each['title']}\n" for each in FILMS)}
    content = texts[name.split(".")[1]].encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.parametrize("name", ["a.json", "a.ndjson", "a.jsonl", "a.csv", "a.json.gz", "a.ndjson.gz", "a.csv.gz"])
def test_each_format_gives_the_same_documents(tmp_path, name):
    target = Target()
    sent, _ = imported(target, str(written(tmp_path, name)))
    assert target.received == FILMS and sent.total == len(FILMS) and len(sent.tasks) == target.requests > 1


def test_a_table_gives_its_rows(tmp_path):
    with closing(sqlite3.connect(tmp_path / "films.db")) as database, database:
        database.execute("CREATE TABLE films(id, title, poster)")
        database.executemany("INSERT INTO films VALUES (:id, :title, x'00')", FILMS)
    target = Target()
    imported(target, f"{tmp_path / 'films.db'}:films")
    assert target.received == FILMS


def test_a_folder_gives_its_files_by_name(tmp_path):
    (tmp_path / "b.ndjson").write_text(ndjson(FILMS[5:]))
    (tmp_path / "a.json").write_text(json.dumps(FILMS[:5]))
    (tmp_path / "notes.txt").write_text("no documents")
    target = Target()
    imported(target, str(tmp_path))
    assert target.received == FILMS


@pytest.mark.parametrize("fails_at", range(4))
def test_an_import_that_broke_off_goes_on_where_it_was(tmp_path, fails_at):
    (tmp_path / "a.json").write_text(json.dumps(FILMS[:4]))
    (tmp_path / "b.json").write_text(json.dumps(FILMS[4:]))
    first, second = Target(fails_at), Target()
    with pytest.raises(CommandFailed):
        imported(first, str(tmp_path))
    sent, skipped = imported(second, str(tmp_path))
    assert first.received + second.received == FILMS
    assert (sent.total, skipped) == (len(FILMS), len(first.received))
    third = Target()
    imported(third, str(tmp_path))
    assert third.received == FILMS  # the one before was complete


def test_a_file_that_has_changed_is_sent_whole(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(FILMS[:4]))
    with pytest.raises(CommandFailed):
        imported(Target(fails_at=1), str(path))
    path.write_text(json.dumps(FILMS))
    target = Target()
    imported(target, str(path))
    assert target.received == FILMS


def test_a_malformed_file_says_where_and_keeps_what_stands_before(tmp_path):
    path = tmp_path / "a.ndjson"
    path.write_text(ndjson(FILMS[:6]) + '{"id": }\n')
    target = Target()
    with pytest.raises(CommandFailed, match="a.ndjson is malformed: .*line 7"):
        imported(target, str(path), portion=1)
    assert target.received == FILMS[:len(target.received)]


@pytest.mark.parametrize("named, words", [
    ("nowhere.json", "does not exist; expected a file, a folder, FILE:TABLE"), ("a.txt", "unknown format"),
    ("empty", "does not contain a file with the extension"), ("films.db:x", "table x not found in"),
    ("films.db", "is an SQLite database; name one of its tables, FILE:TABLE: films.db:films$"),
    ("a.txt", "or FILE:TABLE of an SQLite database"), ("a.txt:films", "is not an SQLite database"), ("bad.ndjson.gz", "cannot be read"),
])
def test_what_cannot_be_imported_says_why(tmp_path, monkeypatch, named, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.ndjson.gz").write_bytes(b"no gzip")
    with closing(sqlite3.connect("films.db")) as database, database:
        database.execute("CREATE TABLE films(id)")
    with pytest.raises(CommandFailed, match=words):
        imported(Target(), named)


def test_standard_input_is_always_sent_whole(monkeypatch):
    for fails_at in (1, None):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(ndjson(FILMS).encode())))
        target = Target(fails_at)
        if fails_at is None:
            imported(target, "-")
            assert target.received == FILMS
        else:
            with pytest.raises(CommandFailed):
                imported(target, "-")
