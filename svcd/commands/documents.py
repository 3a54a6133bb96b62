"""`svcd import` and `svcd export`: the documents of an index from files and into files.

An import sends the documents of files, folders and SQLite tables in portions, and resumes after an interruption.
"""
from __future__ import annotations

import gzip
import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO
from urllib.parse import urlencode

import click

from svcd.api.uploads import CSV, JSON, NDJSON, documents_in
from svcd.base.errors import ApiError
from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed, Instance, Refused, index_path

TYPES = {".json": JSON, ".ndjson": NDJSON, ".jsonl": NDJSON, ".csv": CSV}
# Bytes of a request: large enough that the cost of a request does not matter, small enough to be repeated soon.
DEFAULT_PORTION = 8_000_000
_CHUNK = 1 << 18
_PAGE = 1000  # documents of an answer to an export
DATABASES = (".db", ".sqlite", ".sqlite3")
_SQLITE = b"SQLite format 3\0"  # how each database begins

IMPORT = (
    "Add the documents of SOURCE to INDEX, and create the index if it does not exist. SOURCE is a file (.json, .ndjson, .jsonl, "
    ".csv, each also with .gz), a folder of such files, `-` for NDJSON on standard input, or FILE:TABLE of an SQLite database, "
    "whose primary key identifies the documents and whose JSON texts become values. "
    "Run the same command again to resume an interrupted import."
)


@dataclass(frozen=True)
class Source:
    """A source of documents.

    identity: changes with the content; empty for a source that cannot be read again. total: bytes or rows, None when unknown.
    read: opens the source and yields (texts of documents, part of the total that has been read). primary_key: the declared one.
    """

    name: str
    identity: str
    total: int | None
    read: Callable[[], Iterator[tuple[list[str], int]]]
    primary_key: str | None = None


@click.command("import", help=IMPORT)
@click.argument("source")
@click.argument("index")
@click.option("--primary-key", help="The attribute that identifies a document; by default svcd finds it by its name.")
@click.option("--update", is_flag=True, help="Change only the given attributes of a document.")
@click.option("--delimiter", default=",", show_default=True, help="The separator of the columns of a CSV file.")
@click.option("--portion", default=DEFAULT_PORTION, show_default=True, type=click.IntRange(min=1),
              help="Bytes of documents in a request.")
@click.option("--restart", is_flag=True, help="Start from the beginning, even if an earlier import was interrupted.")
@click.option("--no-wait", is_flag=True, help="End when all documents are sent, before they are indexed.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON, and no progress.")
@click.pass_context
def import_command(context: click.Context, source: str, index: str, primary_key: str | None, update: bool, delimiter: str,
                   portion: int, restart: bool, no_wait: bool, url: str | None, key: str | None, folder: Path | None,
                   is_json: bool) -> int:
    """Send all documents, then wait until they are indexed."""
    sources = sources_of(source, delimiter)
    with instance.opened(context, url, key, folder) as target:
        primary_key = primary_key or sources[0].primary_key and _lacking_primary_key(target, index, sources[0].primary_key)
        path = f"{index_path(index)}/documents" + (f"?{urlencode({'primaryKey': primary_key})}" if primary_key else "")
        place = Place.of(target.url if folder is None else str(folder.absolute()), index, sources)
        if restart:
            place.forget()
        skipped = place.total  # documents that an earlier import has sent
        place = _send(target, "PUT" if update else "POST", path, sources, place, portion, output.Bar("documents", is_json))
        indexed = None if no_wait and folder is None else _wait(target, place.tasks, is_json)
    if is_json:
        output.print_json({"index": index, "documents": place.total, "skipped": skipped, "tasks": list(place.tasks),
                           "indexed": indexed})
    else:
        resumed = f", {skipped:,} of them by an earlier import" if skipped else ""
        print(f"{place.total:,} documents {'sent' if indexed is None else f'in {index}'}{resumed}")
    return 0


def _lacking_primary_key(target: Instance, index: str, declared: str) -> str | None:
    """Return the declared primary key of a table unless the index has a primary key already."""
    try:
        has_one = target.call("GET", index_path(index))["primaryKey"] is not None
    except Refused as refused:
        if refused.code not in ("index_not_found", "invalid_api_key"):  # a key may add documents and not see the index
            raise
        has_one = False
    return None if has_one else declared


# Sources


def sources_of(named: str, delimiter: str = ",") -> list[Source]:
    """Return the sources that an argument names. Raises CommandFailed."""
    if named == "-":
        return [Source("standard input", "", None, lambda: _of_stream(sys.stdin.buffer, NDJSON, delimiter))]
    path = Path(named)
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if _type_of(each))
        if not files:
            raise CommandFailed(f"{path} does not contain a file with the extension {', '.join(TYPES)} (or these with .gz)")
        return [_file(each, delimiter) for each in files]
    if path.exists():
        return [_file(path, delimiter)]
    database, colon, table = named.rpartition(":")
    if colon and Path(database).is_file():
        return [_table(Path(database), table)]
    raise CommandFailed(f"{named} does not exist; expected a file, a folder, FILE:TABLE of an SQLite database, or -")


def _type_of(path: Path) -> str | None:
    return TYPES.get(Path(path.name.removesuffix(".gz")).suffix.lower())


def _file(path: Path, delimiter: str) -> Source:
    kind = _type_of(path)
    if kind is None and is_database(path):
        from svcd.commands.sqlite_tables import table_names  # loads sqlite-utils

        raise CommandFailed(f"{path} is an SQLite database; name one of its tables, FILE:TABLE: "
                            f"{', '.join(f'{path}:{table}' for table in table_names(path)) or 'it has none'}")
    if kind is None:
        raise CommandFailed(f"{path}: unknown format; expected a file with the extension {', '.join(TYPES)} (or these with "
                            ".gz), or FILE:TABLE of an SQLite database")
    facts = path.stat()

    def read() -> Iterator[tuple[list[str], int]]:
        with path.open("rb") as file:
            yield from _of_stream(file, kind, delimiter, path.suffix == ".gz")

    return Source(str(path), f"{path.absolute()} {facts.st_size} {facts.st_mtime_ns}", facts.st_size, read)


def _of_stream(file: BinaryIO, kind: str, delimiter: str, is_packed: bool = False) -> Iterator[tuple[list[str], int]]:
    position = 0

    def chunks() -> Iterator[bytes]:
        nonlocal position
        content: Any = gzip.GzipFile(fileobj=file) if is_packed else file
        while chunk := content.read(_CHUNK):
            position = file.tell() if file.seekable() else position + len(chunk)
            yield chunk

    for texts in documents_in(chunks(), kind, delimiter):
        yield texts, position


def _table(path: Path, table: str) -> Source:
    if not is_database(path):
        raise CommandFailed(f"{path} is not an SQLite database; name the file alone, or FILE:TABLE of a database")
    from svcd.commands import sqlite_tables  # loads sqlite-utils

    try:
        known = sqlite_tables.facts(path, table)
    except sqlite3.Error as failure:
        raise CommandFailed(f"{path}:{table} cannot be read: {failure}") from None
    if known.blobs:
        output.remark(f"{path}:{table}: values of type BLOB are left out, because JSON cannot represent them; "
                      f"columns: {', '.join(known.blobs)}")
    facts = path.stat()
    return Source(f"{path}:{table}", f"{path.absolute()}:{table} {facts.st_size} {facts.st_mtime_ns}", known.rows,
                  lambda: sqlite_tables.documents(path, table), known.primary_key)


def is_database(path: Path) -> bool:
    """Return whether a path is a file that begins like a database of SQLite."""
    if not path.is_file():  # a read from a pipe would wait
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


# The progress of an import


@dataclass(frozen=True)
class Place:
    """The acknowledged part of an import, kept in a file until the import is complete.

    path: the file; None for an import without a file. finished: number of sources that were sent completely; documents: number
    of documents sent of the next source; tasks: all enqueued tasks.
    """

    path: Path | None
    finished: int = 0
    documents: int = 0
    total: int = 0
    tasks: tuple[int, ...] = ()

    @classmethod
    def of(cls, target: str, index: str, sources: Sequence[Source]) -> Place:
        """Return the noted progress of an import of these sources."""
        if not all(source.identity for source in sources):
            return cls(None)
        what = json.dumps([target, index, [source.identity for source in sources]])
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        path = state / "svcd" / "imports" / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.json"
        try:
            noted = json.loads(path.read_text())
            return cls(path, noted["finished"], noted["documents"], noted["total"], tuple(noted["tasks"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls(path)

    def note(self) -> None:
        """Write the file."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"finished": self.finished, "documents": self.documents, "total": self.total,
                                     "tasks": self.tasks}))
        fresh.replace(self.path)

    def forget(self) -> None:
        """Delete the file: the next import starts from the beginning."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


# Sending


def _send(target: Instance, method: str, path: str, sources: Sequence[Source], place: Place, portion: int,
          bar: output.Bar) -> Place:
    """Send the documents after `place`; return the place at the end."""
    bar.skip(place.total)
    try:
        for number in range(place.finished, len(sources)):
            source = sources[number]
            for texts, read in portions(source, place.documents, portion):
                if texts:
                    task = target.send(method, path, "\n".join(texts).encode(), NDJSON)
                    place = replace(place, documents=place.documents + len(texts), total=place.total + len(texts),
                                    tasks=(*place.tasks, task["taskUid"]))
                    place.note()
                bar.show(place.total, None if source.total is None else (number + read / max(source.total, 1)) / len(sources))
            place = replace(place, finished=number + 1, documents=0)
            place.note()
    finally:
        bar.end()
    place.forget()
    return place


def portions(source: Source, skipped: int, most_bytes: int) -> Iterator[tuple[list[str], int]]:
    """Yield the documents after the first `skipped` ones in lists of about `most_bytes`, with the part that has been read.

    Empty lists report progress. Raises CommandFailed for a source that cannot be read or is malformed.
    """
    texts: list[str] = []
    size = seen = read = 0
    try:
        for some, read in source.read():
            for text in some:
                seen += 1
                if seen > skipped:
                    texts.append(text)
                    size += len(text)
                if size >= most_bytes:
                    yield texts, read
                    texts, size = [], 0
            yield [], read
    except (OSError, EOFError, sqlite3.Error) as failure:
        raise CommandFailed(f"{source.name} cannot be read: {getattr(failure, 'strerror', None) or failure}") from None
    except (ValueError, ApiError) as wrong:
        raise CommandFailed(f"{source.name} is malformed: {wrong}. The documents before the fault were sent; correct the file "
                            "and import it again.") from None
    yield texts, read


def _wait(target: Instance, tasks: Sequence[int], is_silent: bool) -> int:
    """Wait for all tasks and return the number of documents they added or changed. Raises CommandFailed with the first error."""
    bar, indexed, failures = output.Bar("portions indexed", is_silent), 0, []
    for done, uid in enumerate(tasks):

        def tell(task: Mapping[str, Any], done: int = done) -> None:
            bar.show(done, (done + (target.progress(task) or 0)) / len(tasks))

        try:
            indexed += target.finished(uid, tell)["details"]["indexedDocuments"] or 0
        except CommandFailed as failure:
            failures.append(failure)
    bar.end()
    if failures:
        more = f" ({len(failures) - 1} more tasks failed)" if len(failures) > 1 else ""
        raise CommandFailed(f"{failures[0]}{more}")
    return indexed


# Export


@click.command("export", help="Write the documents of INDEX, one JSON object a line, or as a table of an SQLite database.")
@click.argument("index")
@click.option("--output", "-o", "path", type=click.Path(path_type=Path, dir_okay=False),
              help="The file to write, or FILE:TABLE for a new table of an SQLite database; standard output otherwise.")
@click.option("--filter", "filter_text", help="Only documents that match, as in searches.")
@click.option("--fields", help="Only these attributes, separated by commas.")
@click.option("--vectors", is_flag=True, help="Include the vectors of documents.")
@click.option("--array", is_flag=True, help="One JSON array instead of a document a line.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the number of documents as JSON; needs --output.")
@click.pass_context
def export_command(context: click.Context, index: str, path: Path | None, filter_text: str | None, fields: str | None,
                   vectors: bool, array: bool, url: str | None, key: str | None, folder: Path | None, is_json: bool) -> int:
    """Read page after page, and write."""
    if is_json and path is None:
        raise click.UsageError("--json prints a summary where the documents would go: name a file with --output.")
    wanted: dict[str, Any] = {"retrieveVectors": vectors}
    if filter_text is not None:
        wanted["filter"] = filter_text
    if fields is not None:
        wanted["fields"] = [name.strip() for name in fields.split(",")]
    bar = output.Bar("documents", is_json or path is None and sys.stdout.isatty())
    database, table = _table_of(path)
    if database is not None and array:
        raise click.UsageError("--array is a format of files; a table has rows.")
    count = 0

    def pages() -> Iterator[Any]:
        nonlocal count
        offset = total = 0
        while not offset or offset < total:
            page = source.call("POST", f"{index_path(index)}/documents/fetch", {**wanted, "offset": offset, "limit": _PAGE})
            for document in page["results"]:
                count += 1
                yield document
            offset, total = offset + _PAGE, page["total"]
            bar.show(min(offset, total), min(1.0, offset / max(total, 1)))

    with instance.opened(context, url, key, folder) as source:
        try:
            if database is not None:
                from svcd.commands import sqlite_tables  # loads sqlite-utils

                primary_key = source.call("GET", index_path(index))["primaryKey"]
                is_written = "fields" not in wanted or primary_key in wanted["fields"]
                sqlite_tables.write(database, table, pages(), primary_key if is_written else None)
            else:
                with _written(path) as out:
                    for document in pages():
                        before = ("[\n" if count == 1 else ",\n") if array else ""
                        out.write(before + json.dumps(document, ensure_ascii=False) + ("" if array else "\n"))
                    if array:
                        out.write("\n]\n" if count else "[]\n")
        finally:
            bar.end()
    if is_json:
        output.print_json({"index": index, "documents": count, "file": str(path)})
    elif path is not None:
        print(f"{count:,} documents of {index} in {path}")
    return 0


def _table_of(path: Path | None) -> tuple[Path | None, str]:
    """Return (database, table) of FILE:TABLE; the database is None for any other file, whose name may contain colons."""
    file, _, table = str(path or "").rpartition(":")
    database = Path(file)
    is_table = bool(table and file) and (database.suffix in DATABASES or is_database(database))
    return (database, table) if is_table else (None, "")


@contextmanager
def _written(path: Path | None) -> Iterator[TextIO]:
    """Yield standard output, or a file that gets its name only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as out:
            yield out
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
