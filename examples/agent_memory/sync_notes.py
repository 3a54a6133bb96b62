"""Keeps a folder of Markdown notes in an index of svcd, one document for each section. Standard library only.

    python3 sync_notes.py FOLDER [--index notes] [--url http://localhost:7700] [--key KEY] [--every SECONDS]

A section begins at a heading; its document has the note, the headings above it, its text and the time of its last change. Only
changed sections are sent, and sections that are gone are deleted, so cron may call it as often as you like.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*$")
SETTINGS = {
    "searchableAttributes": ["title", "headings", "text"],
    "filterableAttributes": ["note", "folder", "changed"],
    "sortableAttributes": ["changed"],
    "defaultMatchingStrategy": "bm25",
    "stemming": ["eng"],
    "bm25": {"weights": {"title": 2}},
}


def sections(text: str) -> Iterator[tuple[list[str], str]]:
    """(headings from the outermost to its own, text) of each section of a note; headings in code blocks are text."""
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        is_code ^= line.lstrip().startswith("```")
        found = None if is_code else HEADING.match(line)
        if found is None:
            lines.append(line)
            continue
        yield [title for _, title in headings], "\n".join(lines).strip()
        depth, lines = len(found[1]), []
        headings = [*((level, title) for level, title in headings if level < depth), (depth, found[2])]
    yield [title for _, title in headings], "\n".join(lines).strip()


def documents_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The documents of all notes by identifier. A section keeps its identifier while note and headings stay the same."""
    documents: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("*.md")):
        note = path.relative_to(folder).as_posix()
        for headings, text in sections(path.read_text(encoding="utf-8", errors="replace")):
            if not text:
                continue
            key = "\n".join([note, *headings])
            while (identifier := hashlib.sha256(key.encode()).hexdigest()[:32]) in documents:
                key += "'"  # the same headings twice
            documents[identifier] = {
                "id": identifier, "title": headings[-1] if headings else path.stem, "headings": headings, "text": text,
                "note": note, "folder": path.parent.relative_to(folder).as_posix(),
                "changed": time.strftime("%Y-%m-%d", time.gmtime(path.stat().st_mtime)),
            }
    return documents


class Svcd:
    """Requests to svcd."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer. A write is awaited."""
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self._url + path, content, self._headers, method=method)) as answer:
            found = json.load(answer)
        while "taskUid" in found or found.get("status") in ("enqueued", "processing"):
            found = self.call_task(found.get("taskUid", found.get("uid")))
        if found.get("status") in ("failed", "canceled"):
            raise RuntimeError(f"{method} {path}: {found['error']['message']}")
        return found

    def call_task(self, uid: int) -> Any:
        """The task when it has ended, or after some seconds."""
        time.sleep(0.05)
        with urllib.request.urlopen(urllib.request.Request(f"{self._url}/tasks/{uid}", headers=self._headers)) as answer:
            return json.load(answer)

    def stored(self, index: str) -> dict[str, dict[str, Any]]:
        """The documents of the index by identifier; {} if it does not exist yet."""
        found: dict[str, dict[str, Any]] = {}
        while True:
            try:
                page = self.call("POST", f"/indexes/{index}/documents/fetch", {"offset": len(found), "limit": 1000})
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
                self.call("POST", "/indexes", {"uid": index, "primaryKey": "id"})
                self.call("PATCH", f"/indexes/{index}/settings", SETTINGS)
                return found
            found |= {document["id"]: document for document in page["results"]}
            if len(found) >= page["total"]:
                return found


def sync(folder: Path, svcd: Svcd, index: str) -> tuple[int, int]:
    """Make the index equal to the folder. Returns how many sections were sent, and how many deleted."""
    wanted, stored = documents_of(folder), svcd.stored(index)
    changed = [document for identifier, document in wanted.items() if stored.get(identifier) != document]
    gone = [identifier for identifier in stored if identifier not in wanted]
    for start in range(0, len(changed), 1000):
        svcd.call("POST", f"/indexes/{index}/documents", changed[start:start + 1000])
    if gone:
        svcd.call("POST", f"/indexes/{index}/documents/delete-batch", gone)
    return len(changed), len(gone)


def main() -> None:
    """Run once, or every some seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--index", default="notes")
    parser.add_argument("--url", default="http://localhost:7700")
    parser.add_argument("--key", help="a key that may add, get and delete documents, and make the index")
    parser.add_argument("--every", type=float, metavar="SECONDS", help="run until it is stopped")
    given = parser.parse_args()
    if not given.folder.is_dir():
        sys.exit(f"{given.folder} is not a folder")
    while True:
        sent, deleted = sync(given.folder, Svcd(given.url, given.key), given.index)
        print(f"{sent} sections sent, {deleted} deleted", flush=True)
        if given.every is None:
            return
        time.sleep(given.every)


if __name__ == "__main__":
    main()
