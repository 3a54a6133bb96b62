"""`svcd import-from`: copy features, indexes with settings and documents, and keys from a running instance of svcd or of the
reference engine, and resume an interrupted copy (docs/guide/moving.md).
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from svcd.api.uploads import NDJSON
from svcd.commands import instance, output
from svcd.commands.documents import DEFAULT_PORTION, Place, Source
from svcd.commands.instance import MISUSED, CommandFailed, Instance, Refused, index_path

_FIRST_PAGE, _LARGEST_PAGE = 100, 10_000
_LIST_PAGE = 1000
_KEY_MEMBERS = ("uid", "name", "description", "actions", "indexes", "expiresAt")
# The parts of an embedder of the source `composite`, which have secrets, too.
_ROLES = ("searchEmbedder", "indexingEmbedder")

ABOUT = (
    "Copy everything from the running instance at URL, of svcd or of the reference engine: features, indexes with settings, "
    "documents and vectors, and the definitions of keys. The target is the daemon of the configuration, or --to, or --folder. "
    "Run the same command again to resume an interrupted copy."
)


@click.command("import-from", help=ABOUT)
@click.argument("source_url", metavar="URL")
@click.option("--key", "source_key", help="Its master key; an API key does without the keys.")
@click.option("--restart", is_flag=True, help="Start from the beginning, even if an earlier copy was interrupted.")
@click.option("--to", "url", help="Address of the target; by default the address in the configuration.")
@click.option("--to-key", "key", help="Master key of the target; by default the master key of the configuration.")
@click.option("--folder", type=click.Path(path_type=Path), help="Copy into a data folder that no daemon has open.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON, and no progress.")
@click.pass_context
def command(context: click.Context, source_url: str, source_key: str | None, restart: bool, url: str | None, key: str | None,
            folder: Path | None, is_json: bool) -> int:
    """Copy index after index, then wait until all is indexed."""
    source = Instance(source_url, source_key)
    indexes = list(_listed(source, "/indexes"))
    with instance.opened(context, url, key, folder) as target:
        if source.url == target.url:
            raise CommandFailed(f"{source.url} is the target, too; name another target with --to or --folder", MISUSED)
        copy_features(source, target)
        copies = [Copy(source, target, target.url if folder is None else str(folder.absolute()), index) for index in indexes]
        bar = output.Bar("documents", is_json)
        documents = 0
        try:
            for number, copy in enumerate(copies):
                if restart:
                    copy.place.forget()
                for count, share in copy.run():
                    bar.show(documents + count, (number + share) / len(copies))
                documents += copy.place.documents
        finally:
            bar.end()
        keys = _copy_keys(source, target)
        tasks = [task for copy in copies for task in copy.tasks]
        bar = output.Bar("tasks", is_json)
        for done, uid in enumerate(tasks):
            target.finished(uid)
            bar.show(done, done / len(tasks))
        bar.end()
        for copy in copies:
            copy.place.forget()
    if is_json:
        output.print_json({"indexes": {copy.uid: copy.place.documents for copy in copies}, "keys": keys})
    else:
        print(f"{len(copies):,} indexes, {documents:,} documents and {keys:,} keys of {source.url}")
    return 0


class Copy:
    """The copy of one index. place: the acknowledged part; tasks: the tasks of the target."""

    def __init__(self, source: Instance, target: Instance, target_name: str, index: Mapping[str, Any]) -> None:
        self._source, self._target, self._index = source, target, index
        self.uid: str = index["uid"]
        # An index that was changed in between is copied from its beginning: other documents may be at these offsets.
        identity = f"{source.url} {self.uid} {index['createdAt']} {index['updatedAt']}"
        self.place = Place.of(target_name, self.uid, [Source(self.uid, identity, None, lambda: iter(()))])
        self._others: list[int] = []

    @property
    def tasks(self) -> list[int]:
        """Return the uids of all tasks that the target has to finish."""
        return [*self._others, *self.place.tasks]

    def run(self) -> Iterator[tuple[int, float]]:
        """Copy settings and documents; yield the number of documents copied and the part of all of them, 0 to 1."""
        path = index_path(self.uid)
        settings = self._source.call("GET", f"{path}/settings")
        for name in remove_secrets(settings):
            output.remark(f"{self.uid}: the API key of the embedder {name} is hidden; set it in the settings of the target")
        if not _exists(self._target, path):
            self._send("POST", "/indexes", {"uid": self.uid, "primaryKey": self._index["primaryKey"]})
        self._send("PATCH", f"{path}/settings", settings)
        vectors = {"retrieveVectors": True} if settings.get("embedders") else {}
        limit, total = _FIRST_PAGE, None
        while total is None or self.place.documents < total:
            page = self._source.call("POST", f"{path}/documents/fetch",
                                     {"offset": self.place.documents, "limit": limit, **vectors})
            total = page["total"]
            if not page["results"]:
                break
            size = 0
            for body, count in _bodies(page["results"]):
                task = self._target.send("POST", f"{path}/documents", body, NDJSON)["taskUid"]
                self.place = replace(self.place, documents=self.place.documents + count, tasks=(*self.place.tasks, task))
                self.place.note()
                size += len(body)
            limit = max(1, min(_LARGEST_PAGE, len(page["results"]) * DEFAULT_PORTION // max(size, 1)))
            yield self.place.documents, min(1.0, self.place.documents / max(total, 1))

    def _send(self, method: str, path: str, value: Mapping[str, Any]) -> None:
        self._others.append(self._target.call(method, path, value)["taskUid"])


def remove_secrets(settings: Mapping[str, Any]) -> list[str]:
    """Remove the API keys of embedders, which responses mask; return the names of their embedders."""
    found = []
    for name, embedder in (settings.get("embedders") or {}).items():
        parts = [embedder, *(embedder[role] for role in _ROLES if embedder.get(role))]
        keys = [part.pop("apiKey", None) for part in parts]
        if any(keys):
            found.append(name)
    return found


def _bodies(documents: list[Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the documents as NDJSON of about DEFAULT_PORTION bytes, with their number."""
    lines: list[bytes] = []
    size = 0
    for document in documents:
        lines.append(json.dumps(document, ensure_ascii=False).encode())
        size += len(lines[-1])
        if size >= DEFAULT_PORTION:
            yield b"\n".join(lines), len(lines)
            lines, size = [], 0
    if lines:
        yield b"\n".join(lines), len(lines)


def _listed(source: Instance, path: str) -> Iterator[Any]:
    """Yield all objects of a list that comes in pages."""
    offset, total = 0, 1
    while offset < total:
        page = source.call("GET", f"{path}?offset={offset}&limit={_LIST_PAGE}")
        yield from page["results"]
        offset, total = offset + _LIST_PAGE, page["total"]


def _exists(target: Instance, path: str) -> bool:
    try:
        target.call("GET", path)
    except Refused as refused:
        if refused.code == "index_not_found":
            return False
        raise
    return True


def copy_features(source: Instance, target: Instance) -> None:
    """Turn on the features of the source that the target has; settings may need them."""
    try:
        known, wanted = target.call("GET", "/experimental-features"), source.call("GET", "/experimental-features")
        if missing := {name: True for name, is_on in wanted.items() if is_on is True and known.get(name) is False}:
            target.call("PATCH", "/experimental-features", missing)
    except Refused as refused:
        output.remark(f"features are not copied: {refused.format_message()}")


def _copy_keys(source: Instance, target: Instance) -> int:
    """Define the keys of the source in the target, and return how many the target has of them."""
    try:
        keys = list(_listed(source, "/keys"))
    except Refused as refused:
        output.remark(f"keys are not copied: {refused.format_message()}")
        return 0
    count, has_other_value = 0, False
    for key in keys:
        try:
            made = target.call("POST", "/keys", {name: key.get(name) for name in _KEY_MEMBERS})
            has_other_value |= made["key"] != key["key"]
        except Refused as refused:
            if refused.code != "api_key_already_exists":
                output.remark(f"the key {key.get('name') or key['uid']} is not copied: {refused.format_message()}")
                continue
        count += 1
    if has_other_value:
        output.remark("the keys have other values than before, because the master keys differ; start svcd with the same one")
    return count
