"""Applies tasks that change search rules to the hidden index of the rules. See docs/search-rules.md#storage."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svcd.base import json_text
from svcd.base.quantities import rfc3339_micro
from svcd.index.writer import IndexWriter
from svcd.rules import stored
from svcd.schema.settings import merged
from svcd.tasks.documents import DocumentWriter
from svcd.tasks.payloads import IndexingTask

_LIMIT = 4 << 20  # bytes of rules that are written together


def change_rules(writer: IndexWriter, tasks: Sequence[IndexingTask]) -> list[dict[str, Any]]:
    """Apply the tasks of a batch in their order, and write the rules once; return the counters that each task shows.

    If a task clears the rules, the updates before it have no effect; the first such task counts the rules.
    """
    if writer.primary_key is None:
        writer.primary_key = stored.PRIMARY_KEY
        writer.register([stored.PRIMARY_KEY])
        writer.settings = merged(writer.settings, stored.SETTINGS)
    counters: list[dict[str, Any]] = [{} for _ in tasks]
    clears = [place for place, task in enumerate(tasks) if task.kind == "dsrClear"]
    if clears:
        for place in clears:
            counters[place] = {"deletedDocuments": 0}
        counters[clears[0]] = {"deletedDocuments": writer.number_of_documents}
        writer.clear()
        return counters
    rules: dict[str, stored.Rule | None] = {
        uid: json_text.loads(each.json) for uid, each in writer.stored([task.content["uid"] for task in tasks]).items()}
    before = dict(rules)
    for task in tasks:
        uid, change = task.content["uid"], task.content.get("update")
        rules[uid] = None if change is None else stored.updated(rules.get(uid), uid, change, rfc3339_micro(task.enqueued_at))
    documents = DocumentWriter(writer, _LIMIT)
    documents.delete([uid for uid, rule in rules.items() if rule is None and before.get(uid) is not None])
    kept = [(uid, rule) for uid, rule in rules.items() if rule is not None]
    documents.put(kept, sum(len(json_text.dumps(rule)) for _, rule in kept), is_update=False, may_create=True)
    documents.finish()
    return counters
