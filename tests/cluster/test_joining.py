"""What must hold of a data folder that joins a cluster:

1. An empty folder becomes one of the cluster: the first makes the cluster, the others learn its uid.
2. The first node may bring data, which the others copy; no other may, nor a second folder under the name of the first.
3. A folder of another cluster, or one that has entries which the log has lost, is refused and left as it is.
4. A folder that is behind what was trimmed becomes a copy of a peer, the one that is furthest; without a peer it is refused.
5. Without the log, a folder that has joined is taken as it is; a new one waits, then is refused.
6. A folder without data, but with the keys of an earlier start, joins without them.
"""
from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from svcd.cluster import joining
from svcd.cluster.joining import CannotJoin
from svcd.cluster.log import Unavailable
from svcd.index.connections import open_writer, write_transaction
from svcd.instance import applied_log
from svcd.instance.applied_log import Position
from svcd.instance.instance import Instance
from svcd.instance.rows import KeyRow
from tests.cluster.conftest import KEY
from tests.support.memory_log import MemoryServers
from tests.support.scripted_server import Received, Reply, ScriptedServer

ENTRY = b'{"kind": "rows", "changes": []}'


def join(servers: MemoryServers, folder: Path, name: str = "a") -> Position:
    """unpack: takes the body of a peer's copy as the path of a folder."""
    return joining.join(servers.log(0.05), folder, name, KEY, lambda path, data: shutil.copytree(path.read_text(), data))


def record(servers: MemoryServers) -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads(servers.records["cluster"].value)
    return found


def fill(folder: Path) -> None:
    """Make a data folder with a task, and a key."""
    with closing(Instance(folder)) as instance:
        instance.keys.add_to_empty([KeyRow("u", ("search",), ("*",), 1, 1)])
        instance.queue.enqueue("indexCreation", "films", details=None)


def keys(folder: Path) -> list[str]:
    with closing(Instance(folder)) as instance:
        return [key.uid for key in instance.keys.read()[1]]


def advance(folder: Path, position: Position) -> None:
    with closing(open_writer(folder / "instance.sqlite")) as connection, write_transaction(connection):
        applied_log.set_position(connection, position)


@contextmanager
def peer(servers: MemoryServers, name: str, folder: Path, applied: int) -> Iterator[ScriptedServer]:
    """Another node, which gives a copy of a folder."""
    with closing(ScriptedServer(Reply(str(folder).encode()))) as server:
        told = {"url": server.url, "applied": applied, "version": "1"}
        servers.log().compare_and_set(f"node/{name}", json.dumps(told).encode(), 0)
        yield server


# -- 1. Empty folders


def test_1_the_first_empty_folder_makes_the_cluster(servers: MemoryServers, tmp_path: Path) -> None:
    first = join(servers, tmp_path / "a")
    assert first == Position(str(record(servers)["uid"])) and record(servers)["seed"] is None
    assert join(servers, tmp_path / "b", "b") == first
    assert join(servers, tmp_path / "a") == first  # again


def test_1_two_that_make_a_cluster_at_once_agree(servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = servers.log()
    other = {"uid": "theirs", "seed": None}

    class Late(type(log)):  # type: ignore[misc]
        """Another node comes first between looking and writing."""

        def compare_and_set(self, key: str, value: bytes | None, revision: int) -> int | None:
            servers.log().compare_and_set(key, json.dumps(other).encode(), 0)
            return super().compare_and_set(key, value, revision)  # type: ignore[no-any-return]

    assert joining.join(Late(servers, 1.0), tmp_path / "a", "a", KEY, shutil.copytree) == Position("theirs")


def test_1_a_node_that_has_lost_its_folder_reads_the_log_from_its_beginning(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    servers.log().append("one", ENTRY)
    shutil.rmtree(tmp_path / "a")
    assert join(servers, tmp_path / "a").applied == 0


# -- 2. A first node with data


def test_2_the_first_node_may_bring_data(servers: MemoryServers, tmp_path: Path) -> None:
    fill(tmp_path / "a")
    assert join(servers, tmp_path / "a") == Position(str(record(servers)["uid"])) and record(servers)["seed"] == "a"
    assert keys(tmp_path / "a") == ["u"]
    with peer(servers, "a", tmp_path / "a", 0) as first:
        assert join(servers, tmp_path / "b", "b") == join(servers, tmp_path / "a")
        assert first.calls == ["GET /cluster/copy"] and first.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert keys(tmp_path / "b") == ["u"]


def test_2_no_other_node_may_bring_data(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    for name in ("a", "b"):
        fill(tmp_path / f"full-{name}")
        with pytest.raises(CannotJoin, match="has data of its own, which the cluster does not have"):
            join(servers, tmp_path / f"full-{name}", name)
        assert keys(tmp_path / f"full-{name}") == ["u"]


def test_2_the_first_node_may_not_come_back_with_other_data(servers: MemoryServers, tmp_path: Path) -> None:
    """Such as a backup that was restored: the log would be applied to it a second time."""
    fill(tmp_path / "a")
    join(servers, tmp_path / "a")
    servers.log().append("one", ENTRY)
    fill(tmp_path / "restored")
    with pytest.raises(CannotJoin, match="has data of its own"):
        join(servers, tmp_path / "restored", "a")


def test_2_the_first_node_goes_on_where_a_start_was_interrupted(servers: MemoryServers, tmp_path: Path) -> None:
    fill(tmp_path / "a")
    servers.log().compare_and_set("cluster", json.dumps({"uid": "u", "seed": "a"}).encode(), 0)
    assert join(servers, tmp_path / "a") == Position("u") == join(servers, tmp_path / "a")


def test_2_a_first_node_that_lost_its_folder_copies_a_peer(servers: MemoryServers, tmp_path: Path) -> None:
    fill(tmp_path / "a")
    join(servers, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    with peer(servers, "b", tmp_path / "b", 0):
        join(servers, tmp_path / "a")
    assert keys(tmp_path / "a") == ["u"]


# -- 3. Foreign folders


def test_3_a_folder_of_another_cluster_is_refused(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    other = MemoryServers()
    join(other, tmp_path / "other")
    with pytest.raises(CannotJoin, match="is of another cluster"):
        join(other, tmp_path / "a")


def test_3_a_folder_with_entries_that_the_log_has_lost_is_refused(
        servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_LOOKS", 1)
    position = join(servers, tmp_path / "a")
    advance(tmp_path / "a", Position(position.log, applied=5))
    with pytest.raises(CannotJoin, match="has entries that the log has lost"):
        join(servers, tmp_path / "a")


@pytest.mark.parametrize("is_known", [True, False])
def test_3_a_log_without_a_record_is_of_no_cluster(servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   is_known: bool) -> None:
    monkeypatch.setattr(joining, "_LOOKS", 1)
    if is_known:  # the folder has been of a cluster
        join(servers, tmp_path / "a")
        servers.records.clear()
    else:  # the log has
        servers.log().append("one", ENTRY)
    with pytest.raises(CannotJoin, match="has no record of its cluster"):
        join(servers, tmp_path / "a")
    assert not servers.records


def test_3_a_server_that_has_no_record_for_a_moment_is_asked_again(servers: MemoryServers, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    position = join(servers, tmp_path / "a")
    records = dict(servers.records)
    servers.records.clear()
    monkeypatch.setattr(joining.time, "sleep", lambda _: servers.records.update(records))
    assert join(servers, tmp_path / "a") == position


# -- 4. Copies


def trimmed(servers: MemoryServers, count: int = 5) -> None:
    for number in range(count):
        servers.log().append(f"e{number}", ENTRY)
    servers.log().trim(count - 1)


def copied(servers: MemoryServers, tmp_path: Path, name: str, applied: int) -> Path:
    """The folder of a node that is this far."""
    folder = tmp_path / f"of-{name}"
    fill(folder)
    advance(folder, Position(str(record(servers)["uid"]), applied=applied))
    return folder


def test_4_a_folder_behind_what_was_trimmed_becomes_a_copy_of_the_furthest_peer(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    (tmp_path / "a" / "old").touch()
    trimmed(servers)
    with peer(servers, "b", copied(servers, tmp_path, "b", 4), 4) as behind, peer(servers, "c", copied(servers, tmp_path, "c", 5), 5):
        assert join(servers, tmp_path / "a").applied == 5
        assert behind.calls == [] and not (tmp_path / "a" / "old").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_4_the_next_peer_is_asked_when_one_fails(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    trimmed(servers)
    with peer(servers, "b", copied(servers, tmp_path, "b", 4), 4), peer(servers, "c", tmp_path, 5) as broken:
        broken.replies = [Reply({"message": "the files change too fast"}, 503)]
        assert join(servers, tmp_path / "a").applied == 4


def test_4_without_a_peer_it_is_refused_and_left_as_it_is(servers: MemoryServers, tmp_path: Path) -> None:
    position = join(servers, tmp_path / "a")
    trimmed(servers)
    with pytest.raises(CannotJoin, match="there is no other node"):
        join(servers, tmp_path / "a")
    servers.log().compare_and_set("node/a", json.dumps({"url": "http://127.0.0.1:1", "applied": 9}).encode(), 0)
    with pytest.raises(CannotJoin, match="there is no other node"):  # it does not ask itself
        join(servers, tmp_path / "a")
    servers.log().compare_and_set("node/b", json.dumps({"url": "http://127.0.0.1:1", "applied": 9}).encode(), 0)
    with pytest.raises(CannotJoin, match=r"http://127.0.0.1:1: .*refused"):
        join(servers, tmp_path / "a")
    advance(tmp_path / "a", Position(position.log, applied=4))
    assert join(servers, tmp_path / "a").applied == 4


def test_4_a_copy_that_breaks_off_is_not_taken(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    trimmed(servers)

    def torn(request: Received) -> Reply:
        return Reply(b"part", length=1000)

    with peer(servers, "b", tmp_path, 5) as server:
        server.replies = [torn]
        with pytest.raises(CannotJoin):
            join(servers, tmp_path / "a")
    assert keys(tmp_path / "a") == []


def test_4_a_copy_of_another_cluster_is_refused(servers: MemoryServers, tmp_path: Path) -> None:
    join(servers, tmp_path / "a")
    trimmed(servers)
    folder = tmp_path / "foreign"
    fill(folder)
    with peer(servers, "b", folder, 5), pytest.raises(CannotJoin, match="is not of this cluster"):
        join(servers, tmp_path / "a")


# -- 5. Without the log


def test_5_without_the_log(servers: MemoryServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_WAIT_S", 0.0)
    position = join(servers, tmp_path / "a")
    servers.set_majority(False)
    assert join(servers, tmp_path / "a") == position
    with pytest.raises(Unavailable):
        join(servers, tmp_path / "b", "b")
    assert not (tmp_path / "b").exists()


# -- 6. Keys


def test_6_keys_of_a_start_without_data_are_made_anew(servers: MemoryServers, tmp_path: Path) -> None:
    with closing(Instance(tmp_path / "a")) as instance:
        instance.keys.add_to_empty([KeyRow("u", ("search",), ("*",), 1, 1)])
    join(servers, tmp_path / "a")
    assert keys(tmp_path / "a") == []
