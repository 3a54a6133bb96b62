"""Applies tasks that change search rules to the hidden index of the rules. See docs/search-rules.md#storage."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from svcd.base import json_text
from svcd.base.quantities import rfc3339_micro
from svcd.index.writer import IndexWriter
from svcd.rules import stored
from svcd.schema.settings import merged
from svcd.tasks.documents import DocumentWriter
from svcd.tasks.payloads import IndexingTask

_LIMIT = 4 << 20  # bytes of rules that are written together


def update_rules(writer: IndexWriter, tasks: Sequence[IndexingTask]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Apply updates in the order of the tasks, and write the rules once. Yields (uid of the task, counters that it shows)."""
    _prepare(writer)
    rules: dict[str, stored.Rule | None] = {
        uid: json_text.loads(each.json) for uid, each in writer.stored([task.content["uid"] for task in tasks]).items()}
    before = dict(rules)
    for task in tasks:
        uid, change = task.content["uid"], task.content.get("update")
        rules[uid] = None if change is None else stored.updated(rules.get(uid), uid, change, rfc3339_micro(task.enqueued_at))
        yield task.uid, {}
    documents = DocumentWriter(writer, _LIMIT)
    documents.delete([uid for uid, rule in rules.items() if rule is None and before.get(uid) is not None])
    kept = [(uid, rule) for uid, rule in rules.items() if rule is not None]
    documents.put(kept, sum(len(json_text.dumps(rule)) for _, rule in kept), is_update=False, may_create=True)
    documents.finish()


def clear_rules(writer: IndexWriter, tasks: Sequence[IndexingTask]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Remove all rules. The first task that clears them counts them; earlier updates have no effect. Yields as update_rules()."""
    _prepare(writer)
    before = writer.number_of_documents
    writer.clear()
    for task in tasks:
        if task.kind == "dsrClear":
            yield task.uid, {"deletedDocuments": before}
            before = 0
        else:
            yield task.uid, {}


def _prepare(writer: IndexWriter) -> None:
    """Give a new index of rules its primary key and settings."""
    if writer.primary_key is None:
        writer.primary_key = stored.PRIMARY_KEY
        writer.register([stored.PRIMARY_KEY])
        writer.settings = merged(writer.settings, stored.SETTINGS)
