"""1. Dumps and snapshots are enqueued, whatever body comes.
2. A dump takes the keys of the moment of its request, without their values, the oldest first.
"""
from __future__ import annotations

import pytest


@pytest.mark.parametrize("path, kind", [("/dumps", "dumpCreation"), ("/snapshots", "snapshotCreation")])
def test_archives_are_enqueued(client, check_shape, path: str, kind: str) -> None:
    for content in (b"", b"null", b"{}", b"{"):
        got = client.send("POST", path, content)
        assert (got.status, got.value["type"], got.value["indexUid"]) == (202, kind, None)
        check_shape(got.value, "TaskSummary")
    task = client.get("/tasks/0").value
    assert task.get("details") == ({"dumpUid": None} if kind == "dumpCreation" else None)


def test_a_dump_takes_the_keys_of_its_request(connect) -> None:
    client = connect("a master key of some bytes")
    for name in ("first", "second"):
        client.ask("a master key of some bytes", "POST", "/keys", {
            "name": name, "actions": ["search"], "indexes": ["*"], "expiresAt": "2099-01-01T00:00:00Z"})
    client.ask("a master key of some bytes", "POST", "/dumps")
    taken = client.instance.queue.task(0, with_content=True).content
    assert taken["instanceUid"] == client.instance.uid
    assert [row["name"] for row in taken["keys"]] == ["first", "second"]
    assert list(taken["keys"][0]) == ["description", "name", "uid", "actions", "indexes", "expires_at", "created_at",
                                      "updated_at"]
    assert taken["keys"][0]["expires_at"] == "2099-01-01T00:00:00Z"
