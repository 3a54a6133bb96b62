"""`svcd cluster`: show the nodes of a cluster, compare them, and prepare single nodes (docs/cluster.md).

`join` works on the data folder of a stopped node, with the configuration of its next start. The other commands ask one node.
"""
from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from svcd.cli.config import load
from svcd.commands import instance, output
from svcd.commands.instance import MISUSED, UNREACHABLE, CommandFailed, Instance

_LOOK_S = 0.2
_SHOWN_OF_A_HASH = 8
_MOST_INDEXES = 1_000_000
_WAITING = "/tasks?statuses=enqueued,processing&limit=0"

Status = Mapping[str, Any]

ABOUT = (
    "Show the nodes of a cluster, compare them, and prepare them for a stop or a start. All of these commands except join ask "
    "the daemon of the configuration, or the daemon at --url."
)
STATUS = "Show all nodes, as one of them sees them: who leads, who is behind, whether their contents agree."
JOIN = (
    "Add the data folder of the configuration to a cluster, and fetch a copy of another node's data if it needs one: "
    "svcd --cluster URL --node-name NAME cluster join. The start of the daemon does the same. No daemon may have the folder open."
)
DRAIN = (
    "Let another node lead, and wait until it does. You can then stop this node, and no write has to wait for a new leader. "
    "Until then the node still accepts reads and writes. A start or --undo lets it lead again."
)
VERIFY = (
    "Wait until no task is waiting and all live nodes have the same hash, of the same last task, for every index. If they "
    "still differ at the end, the command names the indexes and ends with status 1."
)
FORGET = (
    "Forget the node NAME, which will not come back: the log keeps all entries that a known node lacks. If the node comes "
    "back after all, it fetches a copy of another node's data."
)


def _options(command: Any) -> Any:
    """Add the options that name a node, and --json."""
    for option in (
        click.option("--json", "is_json", is_flag=True, help="Print the result as JSON."),
        click.option("--key", help="API key or master key; by default the master key of the configuration."),
        click.option("--url", help="Address of the node; by default the address in the configuration."),
    ):
        command = option(command)
    return command


@click.group("cluster", help=ABOUT)
def command() -> None:
    """The commands below."""


# Reading from a node


@command.command("status", help=STATUS, short_help="Show all nodes: who leads, who is behind.")
@_options
@click.pass_context
def status(context: click.Context, url: str | None, key: str | None, is_json: bool) -> int:
    """Ask once and print."""
    with instance.opened(context, url, key, None) as node:
        found: Status = node.call("GET", "/cluster")
    if is_json:
        output.print_json(found)
        return 0
    leader = found["leader"] or output.styled("nobody", "bad")
    print(f"cluster {found['uid']}: {leader} leads, {found['lastEntry']:,} entries applied")
    if not found["hasQuorum"]:
        print(output.styled("The log has lost its majority: reads work, writes are refused.", "bad"))
    rows = []
    for node in found["nodes"]:
        silent = f"silent for {output.duration(node['secondsSinceSeen'])}"
        rows.append([node["name"], "leads" if node["isLeader"] else "follows" if node["isAlive"] else silent,
                     f"{node['lag']:,} behind" if node["lag"] else "up to date", f"svcd {node['version']}", node["url"],
                     node["fault"] or ""])
    print(output.table(rows))
    differing = _differing(found)
    total = len(_indexes(found))
    print(f"indexes: {total - len(differing)} of {total} agree"
          f"{', not yet ' + ', '.join(differing) if differing else ''} (svcd cluster verify waits until all do)")
    return 0


def _living(found: Status) -> list[Mapping[str, Any]]:
    return [node for node in found["nodes"] if node["isAlive"]]


def _indexes(found: Status, known: Iterable[str] = ()) -> set[str]:
    """Return the indexes of live nodes, and the known ones."""
    return {uid for node in _living(found) for uid in node["indexes"]}.union(known)


def _differing(found: Status, known: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the indexes in which live nodes differ: uid -> name of a node -> hash and last task, None without a hash."""
    differing = {}
    for uid in sorted(_indexes(found, known)):
        contents = {node["name"]: node["indexes"].get(uid) for node in _living(found)}
        if None in contents.values() or any(content != next(iter(contents.values())) for content in contents.values()):
            differing[uid] = contents
    return differing


@command.command("verify", help=VERIFY, short_help="Compare the contents of all nodes.")
@click.option("--within", type=click.IntRange(0), default=30, show_default=True, metavar="SECONDS", help="How long to wait.")
@_options
@click.pass_context
def verify(context: click.Context, within: int, url: str | None, key: str | None, is_json: bool) -> int:
    """Ask until the nodes agree or the time is over, then print."""
    with instance.opened(context, url, key, None) as node:
        found = _awaited(node, within, lambda found: found["hasQuorum"] and not node.call("GET", _WAITING)["total"]
                         and not _differing(found, _known(node)))
        known = _known(node)
    differing, living = _differing(found, known), _living(found)
    away = [node["name"] for node in found["nodes"] if not node["isAlive"]]
    is_right = found["hasQuorum"] and not differing
    if is_json:
        output.print_json({"agree": is_right, "hasQuorum": found["hasQuorum"], "nodes": [node["name"] for node in living],
                           "silent": away, "differing": differing})
        return 0 if is_right else instance.FAILED
    if away:
        output.remark(f"not compared, because silent: {', '.join(away)}")
    if not found["hasQuorum"]:
        output.remark("the log has lost its majority: nodes cannot see each other")
    for uid, contents in differing.items():
        print(f"{output.styled(uid, 'bad')}: " + ", ".join(
            f"{name} " + ("has no hash" if each is None else f"{each['hash'][:_SHOWN_OF_A_HASH]} after task {each['lastTask']}")
            for name, each in contents.items()))
    indexes = len(_indexes(found, known))
    print(f"{', '.join(node['name'] for node in living)}: {indexes - len(differing)} of {indexes} indexes agree")
    return 0 if is_right else instance.FAILED


def _known(node: Instance) -> list[str]:
    """Return all indexes of a node, with or without hash."""
    return [index["uid"] for index in node.call("GET", f"/indexes?limit={_MOST_INDEXES}")["results"]]


def _awaited(node: Instance, within_s: float, is_met: Callable[[Status], bool]) -> Status:
    """Ask a node until its answer meets a condition or the time is over; return the last answer."""
    deadline = time.monotonic() + within_s
    while True:
        found: Status = node.call("GET", "/cluster")
        if is_met(found) or time.monotonic() > deadline:
            return found
        time.sleep(_LOOK_S)


# Changing a node


@command.command("drain", help=DRAIN, short_help="Let other nodes lead, before a stop.")
@click.option("--undo", is_flag=True, help="Let the node lead again.")
@click.option("--within", type=click.IntRange(0), default=30, show_default=True, metavar="SECONDS", help="How long to wait.")
@_options
@click.pass_context
def drain(context: click.Context, undo: bool, within: int, url: str | None, key: str | None, is_json: bool) -> int:
    """Request it, and wait until another node leads."""
    with instance.opened(context, url, key, None) as node:
        if undo:
            summary: Status = node.call("DELETE", "/cluster/drain")
        else:
            name = node.call("POST", "/cluster/drain")["node"]
            summary = _awaited(node, within, lambda found: found["leader"] not in (None, name))
    name, leader = summary["node"], summary["leader"]
    if not undo and leader in (None, name):
        raise CommandFailed(f"no other node leads after {within} s: is one up and fit (svcd cluster status)? {name} leads no "
                            "more until `svcd cluster drain --undo`; if it is stopped now, writes wait until another is up")
    if is_json:
        output.print_json({"node": name, "leader": leader, "isDraining": not undo})
    elif undo:
        print(f"{name} may lead again")
    else:
        print(f"{leader} leads: {name} may be stopped")
    return 0


@command.command("forget", help=FORGET, short_help="Forget a node that will not come back.")
@click.argument("name")
@_options
@click.pass_context
def forget(context: click.Context, name: str, url: str | None, key: str | None, is_json: bool) -> int:
    """Have the cluster remove a node."""
    with instance.opened(context, url, key, None) as node:
        found: Status = node.call("GET", "/cluster")
        if any(each["name"] == name and each["isAlive"] and name != found["node"] for each in found["nodes"]):
            raise CommandFailed(f"node {name} is up: stop it first")
        node.call("DELETE", f"/cluster/nodes/{quote(name, safe='')}")
    if is_json:
        output.print_json({"forgotten": name})
    else:
        print(f"{name} is forgotten")
    return 0


# Joining


@command.command("join", help=JOIN, short_help="Prepare the data folder of a node.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def join(context: click.Context, is_json: bool) -> int:
    """Join the cluster as the next start would do before it opens the folder."""
    config = load(context.find_root().obj or {}, os.environ)
    if config.cluster is None:
        raise CommandFailed("--cluster is missing in the configuration: svcd --cluster URL --node-name NAME cluster join",
        MISUSED)
    from svcd.cluster import joining
    from svcd.cluster.log import Unavailable
    from svcd.cluster.service import TIMEOUT_S, open_log
    from svcd.tasks.archive_import import import_snapshot

    before = _applied(config.db_path)
    with _locked(config.db_path), closing(open_log(config.cluster, TIMEOUT_S)) as log:
        try:
            log.last()  # otherwise a folder that has joined already would be accepted without the log
            position = joining.join(log, config.db_path, config.node_name, config.master_key,
                                    lambda path, folder: import_snapshot(path, folder, keeps_cluster=True))
        except joining.CannotJoin as refused:
            raise CommandFailed(str(refused)) from None
        except Unavailable as failure:
            raise CommandFailed(f"the log does not answer: {failure}", UNREACHABLE) from None
    is_copied = position.applied != (before or 0)
    if is_json:
        output.print_json({"folder": str(config.db_path), "cluster": position.log, "applied": position.applied,
                           "isCopied": is_copied})
        return 0
    state = (f"is now a copy of another node's data, up to entry {position.applied:,}" if is_copied
             else f"has applied {position.applied:,} entries, and gets the others from the log" if before is not None
             else "is now of the cluster")
    print(f"{config.db_path} {state}; start the node with `svcd`")
    return 0


def _applied(folder: Path) -> int | None:
    """Return the last log entry that is applied to a data folder; None for a folder outside of clusters."""
    from svcd.index.connections import open_reader

    path = folder / "instance.sqlite"
    if not path.exists():
        return None
    with closing(open_reader(path)) as reader:
        try:
            row = reader.execute("SELECT applied FROM log_position").fetchone()
        except sqlite3.OperationalError:  # the folder of an older svcd
            return None
    return row[0] if row else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a data folder, if it exists. Raises CommandFailed when another svcd has it open."""
    from svcd.instance.instance import FolderInUse, lock_folder

    if not folder.exists():
        yield
        return
    try:
        lock = lock_folder(folder / "LOCK")
    except FolderInUse as used:
        raise CommandFailed(str(used)) from None
    with lock:
        yield
