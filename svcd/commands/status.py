"""`svcd status`: show the indexes and the tasks of an instance."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from svcd.commands import instance, output
from svcd.commands.instance import Instance, Refused

_STATES = ("enqueued", "processing", "failed")

ABOUT = (
    "Show whether the instance runs, its indexes, and its tasks. Ends with status 3 when it does not answer."
)


@click.command("status", help=ABOUT)
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")
@click.pass_context
def command(context: click.Context, url: str | None, key: str | None, folder: Path | None, is_json: bool) -> int:
    """Ask once and print."""
    with instance.opened(context, url, key, folder) as source:
        found = _status(source)
    if is_json:
        output.print_json(found)
    else:
        _print(found)
    return 0


def _status(source: Instance) -> dict[str, Any]:
    health = source.call("GET", "/health")["status"]
    try:
        stats, version = source.call("GET", "/stats"), source.call("GET", "/version")["pkgVersion"]
    except Refused as refused:
        return {"url": source.url, "status": health, "refused": str(refused)}
    tasks = {state: source.call("GET", f"/tasks?statuses={state}&limit=0")["total"] for state in _STATES}
    running = source.call("GET", "/batches?statuses=processing&limit=1")["results"]
    return {
        "url": source.url, "status": health, "version": version, "databaseSize": stats["databaseSize"],
        "indexes": {uid: {"documents": each["numberOfDocuments"], "isIndexing": each["isIndexing"]}
                    for uid, each in stats["indexes"].items()},
        "tasks": tasks, "progress": running[0]["progress"]["percentage"] if running and running[0].get("progress") else None,
    }


def _print(found: dict[str, Any]) -> None:
    print(f"{found['url']}  {output.styled(found['status'], 'good')}")
    if "refused" in found:
        print(found["refused"])
        return
    tasks = found["tasks"]
    print(f"interface {found['version']}, {output.size(found['databaseSize'])} on disk")
    print(f"tasks: {tasks['enqueued']:,} waiting, {tasks['processing']:,} running"
          f"{'' if found['progress'] is None else format(found['progress'], '.0f').join((' (', ' %)'))}, "
          + output.styled(f"{tasks['failed']:,} failed", "bad" if tasks["failed"] else "faint"))
    if found["indexes"]:
        print(output.table([[output.shortened(uid), f"{each['documents']:,} documents", "indexing" if each["isIndexing"] else ""]
                            for uid, each in found["indexes"].items()]))
