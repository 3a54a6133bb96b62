"""`svcd mcp`, as an assistant starts it. What must hold:

1. Each message gets the reply of POST /mcp, in one line, in both families of revisions; notifications get none.
2. With --folder it needs no daemon, and writes with --write; it ends with its input, or by a signal, and so does its daemon, even after
   SIGKILL.
3. What goes wrong (no daemon, the feature off, a wrong key) is an error of the protocol with the id of the request.
"""
from __future__ import annotations

import io
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.commands.instance import Instance
from svcd.commands.mcp import relay
from svcd.mcp import protocol
from tests.commands.conftest import Run
from tests.support.daemon import Daemon, running

META = {protocol.VERSION_KEY: "2026-07-28", protocol.CAPABILITIES_KEY: {}}
KEY = "a-master-key-of-some-length"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon"), "--master-key", KEY, "--experimental-mcp") as daemon:
        yield daemon


def message(method: str, *, is_stateless: bool = False, **params: Any) -> bytes:
    params |= {"_meta": META} if is_stateless else {}
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).encode() + b"\n"


def replies(source: Instance, *lines: bytes) -> list[Any]:
    out = io.BytesIO()
    relay(source, io.BytesIO(b"".join(lines)), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_messages_get_the_reply_of_the_daemon(daemon: Daemon) -> None:
    source = Instance(f"localhost:{daemon.port}", KEY)
    found = replies(source, message("initialize", protocolVersion="2025-06-18"), b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n',
                    b"\n", message("tools/list", is_stateless=True), message("resources/read", is_stateless=True, uri="svcd://a/ä b"),
                    message("ping", is_stateless=True), b"no json\n", b"[]\n")
    assert [each["id"] for each in found] == [7, 7, 7, 7, None, None]
    assert found[0]["result"]["protocolVersion"] == "2025-06-18" and found[1]["result"]["resultType"] == "complete"
    assert [each["error"]["code"] for each in found[2:]] == [-32602, -32601, -32700, -32600]


def test_failures_are_errors_of_the_protocol(daemon: Daemon) -> None:
    for source, reason in ((Instance(f"localhost:{daemon.port}", "wrong"), "The provided API key is invalid."),
                           (Instance("localhost:1", None), "does not answer")):
        (found,) = replies(source, message("ping"), b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        assert found["id"] == 7 and found["error"]["code"] == -32603 and reason in found["error"]["message"]


def test_a_feature_that_is_off_is_named(daemon: Daemon) -> None:
    master = {"authorization": f"Bearer {KEY}"}
    daemon.call("PATCH", "/experimental-features", '{"mcp": false}', master)
    (found,) = replies(Instance(f"localhost:{daemon.port}", KEY), message("ping"))
    daemon.call("PATCH", "/experimental-features", '{"mcp": true}', master)
    assert "--experimental-mcp" in found["error"]["message"]


def test_writing_needs_a_folder(call: Run) -> None:
    status, _, err = call("mcp", "--write")
    assert status == 2 and "--mcp-write" in err


def test_a_folder_needs_no_daemon(daemon: Daemon, tmp_path: Path) -> None:
    with running(tmp_path) as other:
        assert other.call("POST", "/indexes?wait=20s", '{"uid": "notes", "primaryKey": "id"}').status == 200
        folder = other.data
    command = [sys.executable, "-m", "svcd", "mcp", "--folder", str(folder), "--write"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as assistant:
        assert assistant.stdin is not None and assistant.stdout is not None
        for line in (message("tools/call", name="add_documents", arguments={"documents": [{"id": 1, "text": "remember me"}]}),
                     message("tools/call", name="search", arguments={"question": "who remembers?"})):
            assistant.stdin.write(line)
            assistant.stdin.flush()
        added, found = (json.loads(assistant.stdout.readline())["result"] for _ in range(2))
        assistant.send_signal(signal.SIGTERM)
        assert assistant.wait(60) == 128 + signal.SIGTERM
    assert added["structuredContent"]["status"] == "succeeded", added
    assert found["structuredContent"]["passages"][0]["fields"] == {"text": "remember me"}, found
    again = subprocess.run(command, input=message("ping"), check=False, capture_output=True, timeout=60)  # the folder is free again
    assert again.returncode == 0 and json.loads(again.stdout)["result"] == {}


def test_the_daemon_of_a_killed_command_ends(tmp_path: Path) -> None:
    with running(tmp_path) as other:
        folder = other.data
    command = [sys.executable, "-m", "svcd", "mcp", "--folder", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as assistant:
        assert assistant.stdin is not None and assistant.stdout is not None
        assistant.stdin.write(message("ping"))
        assistant.stdin.flush()
        assert assistant.stdout.readline()
        (child,) = Path(f"/proc/{assistant.pid}/task/{assistant.pid}/children").read_text().split()
        daemon = os.pidfd_open(int(child))
        assistant.kill()
    try:
        assert select.select([daemon], [], [], 60)[0]  # readable once the process has ended
    finally:
        os.close(daemon)
