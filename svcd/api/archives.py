"""Dumps and snapshots over HTTP: each request enqueues one.

Knows what a dump takes at the moment of its request; refuses to know what is in the files (svcd.tasks.archive).
"""
from __future__ import annotations

from svcd.api import shapes
from svcd.api.context import Answer, Context
from svcd.api.routes import Route
from svcd.tasks.dump_lines import key_line

_TAG = "Backups"


def create_dump(ctx: Context) -> Answer:
    """Enqueue a dump. Keys and instance uid are those of this moment, all else of the one when it is made."""
    _, newest_first = ctx.instance.keys.read()
    content = {"keys": [key_line(row) for row in reversed(newest_first)], "instanceUid": ctx.instance.uid}
    task = ctx.queue.enqueue("dumpCreation", None, details={"dumpUid": None}, content=content)
    return Answer(202, shapes.task_summary(task))


def create_snapshot(ctx: Context) -> Answer:
    """Enqueue a snapshot; those that wait become one."""
    return Answer(202, shapes.task_summary(ctx.queue.enqueue("snapshotCreation", None, details=None)))


ROUTES = (
    Route("POST", "/dumps", create_dump, "dumps.create", {202: "TaskSummary"}, "Create a dump", _TAG),
    Route("POST", "/snapshots", create_snapshot, "snapshots.create", {202: "TaskSummary"}, "Create a snapshot", _TAG),
)
