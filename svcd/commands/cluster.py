"""`svcd cluster`: the nodes of a cluster, and what is done to them one by one (docs/cluster.md).

`join` works on the data folder of a node that is stopped, with the configuration of its next start. The others ask one node.
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
    "Show the nodes of a cluster, compare them, and prepare them for a stop or a start. Each of these commands but join asks "
    "the daemon of the configuration, or the one that --url names."
)
STATUS = "Show all nodes as one of them knows them: who leads, who is behind, whether their contents agree."
JOIN = (
    "Make the data folder of the configuration one of a cluster, and fetch a copy of another node's data if it needs one, "
    "without starting the daemon, which would do the same: svcd --cluster URL --node-name NAME cluster join. No daemon may "
    "have the folder open."
)
DRAIN = (
    "Leave it to other nodes to lead, and wait until one does: then the node may be stopped, and no write has to wait for a new "
    "leader. Until then it goes on to take reads and writes. A start ends it, and so does --undo."
)
VERIFY = (
    "Wait until no task waits, and all nodes that are up show the same hash, of the same last task, for every index. Ends with "
    "status 1, and names the indexes, when they differ after that time."
)
FORGET = (
    "Forget the node NAME, which will not come back: the log keeps what a node lacks for as long as it is known. Should it come "
    "back after all, it fetches a copy of another node's data."
)


def _options(command: Any) -> Any:
    """Adds the options that say which node is asked, and --json."""
    for option in (
        click.option("--json", "is_json", is_flag=True, help="Print the result as JSON."),
        click.option("--key", help="API key or master key; by default the master key of the configuration."),
        click.option("--url", help="Address of the node; by default that of the configuration."),
    ):
        command = option(command)
    return command


@click.group("cluster", help=ABOUT)
def command() -> None:
    """The commands below."""


# What a node tells


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
        print(output.styled("The log has no majority: reads go on, writes are refused.", "bad"))
    print(output.table([_row(node) for node in found["nodes"]]))
    differing = _differing(found)
    total = len(_indexes(found))
    print(f"indexes: {total - len(differing)} of {total} agree"
          f"{', not yet ' + ', '.join(differing) if differing else ''} (svcd cluster verify waits until all do)")
    return 0


def _row(node: Mapping[str, Any]) -> list[str]:
    is_alive = node["isAlive"]
    state = "leads" if node["isLeader"] else "follows" if is_alive else f"silent for {output.duration(node['secondsSinceSeen'])}"
    behind = f"{node['lag']:,} behind" if node["lag"] else "up to date"
    return [node["name"], state, behind, f"svcd {node['version']}", node["url"], node["fault"] or ""]


def _living(found: Status) -> list[Mapping[str, Any]]:
    return [node for node in found["nodes"] if node["isAlive"]]


def _indexes(found: Status, known: Iterable[str] = ()) -> set[str]:
    """The indexes of living nodes, and those that are known of elsewhere."""
    return {uid for node in _living(found) for uid in node["indexes"]}.union(known)


def _differing(found: Status, known: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    """The indexes in which living nodes do not agree: uid -> name of a node -> what it has, None for nothing yet."""
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
    """Ask again and again, then print."""
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
        output.remark("the log has no majority: nodes do not learn of each other")
    for uid, contents in differing.items():
        print(f"{output.styled(uid, 'bad')}: " + ", ".join(f"{name} {_content(each)}" for name, each in contents.items()))
    indexes = len(_indexes(found, known))
    print(f"{', '.join(node['name'] for node in living)}: {indexes - len(differing)} of {indexes} indexes agree")
    return 0 if is_right else instance.FAILED


def _known(node: Instance) -> list[str]:
    """The indexes of a node, hashed or not."""
    return [index["uid"] for index in node.call("GET", f"/indexes?limit={_MOST_INDEXES}")["results"]]


def _content(content: Mapping[str, Any] | None) -> str:
    return "has no hash" if content is None else f"{content['hash'][:_SHOWN_OF_A_HASH]} after task {content['lastTask']}"


def _awaited(node: Instance, within_s: float, is_met: Callable[[Status], bool]) -> Status:
    """What a node tells once a condition is met, or when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        found: Status = node.call("GET", "/cluster")
        if is_met(found) or time.monotonic() > deadline:
            return found
        time.sleep(_LOOK_S)


# What is done to a node


@command.command("drain", help=DRAIN, short_help="Let other nodes lead, before a stop.")
@click.option("--undo", is_flag=True, help="Let it take part in leading again.")
@click.option("--within", type=click.IntRange(0), default=30, show_default=True, metavar="SECONDS", help="How long to wait.")
@_options
@click.pass_context
def drain(context: click.Context, undo: bool, within: int, url: str | None, key: str | None, is_json: bool) -> int:
    """Ask for it, and wait until another node leads."""
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
        print(f"{name} takes part in leading again")
    else:
        print(f"{leader} leads: {name} may be stopped")
    return 0


@command.command("forget", help=FORGET, short_help="Forget a node that will not come back.")
@click.argument("name")
@_options
@click.pass_context
def forget(context: click.Context, name: str, url: str | None, key: str | None, is_json: bool) -> int:
    """Have a node removed."""
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
    """Do what the next start would do before it opens the folder."""
    config = load(context.find_root().obj or {}, os.environ)
    if config.cluster is None:
        raise CommandFailed("the configuration has no --cluster: svcd --cluster URL --node-name NAME cluster join", MISUSED)
    from svcd.cluster import joining
    from svcd.cluster.log import Unavailable
    from svcd.cluster.log_address import open_log
    from svcd.cluster.service import TIMEOUT_S
    from svcd.tasks.archive_import import import_snapshot

    before = _applied(config.db_path)
    with _locked(config.db_path), closing(open_log(config.cluster, TIMEOUT_S)) as log:
        try:
            log.last()  # a folder that has joined already would be taken as it is without the log
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
    """How far the log is applied to a data folder; None for one that is of no cluster."""
    from svcd.index.connections import open_reader

    path = folder / "instance.sqlite"
    if not path.exists():
        return None
    with closing(open_reader(path)) as reader:
        try:
            row = reader.execute("SELECT applied FROM log_position").fetchone()
        except sqlite3.OperationalError:  # of an older svcd
            return None
    return row[0] if row else None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other svcd from a data folder, if it exists. Raises CommandFailed when one has it open."""
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
