"""`svcd export`: the documents of an index as NDJSON or JSON, on standard output or in a file."""
from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import click

from svcd.commands import instance, output
from svcd.commands.instance import Instance, index_path

PAGE = 1000

ABOUT = (
    "Write the documents of INDEX, one JSON object a line."
)


@click.command("export", help=ABOUT)
@click.argument("index")
@click.option("--output", "-o", "path", type=click.Path(path_type=Path, dir_okay=False),
              help="The file to write; standard output otherwise.")
@click.option("--filter", "filter_text", help="Only documents that match, as in searches.")
@click.option("--fields", help="Only these attributes, separated by commas.")
@click.option("--vectors", is_flag=True, help="Include the vectors of documents.")
@click.option("--array", is_flag=True, help="One JSON array instead of a document a line.")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the number of documents as JSON; needs --output.")
@click.pass_context
def command(context: click.Context, index: str, path: Path | None, filter_text: str | None, fields: str | None, vectors: bool,
            array: bool, url: str | None, key: str | None, folder: Path | None, is_json: bool) -> int:
    """Read page after page, and write."""
    if is_json and path is None:
        raise click.UsageError("--json prints a summary where the documents would go: name a file with --output.")
    wanted: dict[str, Any] = {"retrieveVectors": vectors}
    if filter_text is not None:
        wanted["filter"] = filter_text
    if fields is not None:
        wanted["fields"] = [name.strip() for name in fields.split(",")]
    bar = output.Bar("documents", is_json or path is None and sys.stdout.isatty())
    with instance.opened(context, url, key, folder) as source, _written(path) as out:
        count = 0
        for count, document in enumerate(_pages(source, index, wanted, bar), 1):
            before = ("[\n" if count == 1 else ",\n") if array else ""
            out.write(before + json.dumps(document, ensure_ascii=False) + ("" if array else "\n"))
        if array:
            out.write("\n]\n" if count else "[]\n")
    bar.end()
    if is_json:
        output.print_json({"index": index, "documents": count, "file": str(path)})
    elif path is not None:
        print(f"{count:,} documents of {index} in {path}")
    return 0


def _pages(source: Instance, index: str, wanted: Mapping[str, Any], bar: output.Bar) -> Iterator[Any]:
    offset = 0
    while True:
        page = source.call("POST", f"{index_path(index)}/documents/fetch", {**wanted, "offset": offset, "limit": PAGE})
        yield from page["results"]
        offset += PAGE
        bar.show(min(offset, page["total"]), min(1.0, offset / max(page["total"], 1)))
        if offset >= page["total"]:
            return


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
