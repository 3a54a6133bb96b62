"""The official clients at POST /mcp. What must hold:

1. The client of Python, in both families of revisions and over stdio, and the client of TypeScript list every tool, call each without an
   error, read a resource and get the prompt. They check results against the schemas of the tools.
2. The server scenarios of the conformance suite that do not need tools, resources or prompts of its own server pass whole, for both
   revisions.

A test whose package is not installed is skipped; `make assistants` installs them.
"""
from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.mcp.tools import TOOLS
from tests.support.daemon import Daemon, running
from tests.support.mcp_clients import PACKAGES, has_client, node, python_client, typescript_client

KEY = "a-master-key-of-some-length"
FILMS = [{"id": 1, "title": "Alien", "year": 1979, "_vectors": {"e": [1, 0]}}, {"id": 2, "title": "Heat", "year": 1995, "_vectors": {"e": [1, 1]}}]
SETTINGS = {"filterableAttributes": ["year"], "embedders": {"e": {"source": "userProvided", "dimensions": 2}}}
CALLS: list[tuple[str, Any]] = [
    ("list_indexes", {}), ("search", {"question": "alien", "facets": ["year"]}), ("get_documents", {"ids": [1, "2", "none"]}),
    ("facet_values", {"field": "year"}), ("similar", {"id": 1}), ("add_documents", {"documents": [{"id": 3, "title": "Ronin", "_vectors": {"e": None}}]}),
    ("delete_documents", {"ids": ["3"]})]
# Scenarios that call nothing of the suite's own server, by revision; four checks of `server-stateless` do, and are left out.
SCENARIOS = {
    "2025-11-25": ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection"),
    "2026-07-28": ("server-stateless", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection", "caching",
                   "http-header-validation", "sep-2164-resource-not-found"),
}
# What a check says that needs a tool of the suite's own server.
OF_ITS_SERVER = "Not testable: server does not list the diagnostic tool"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon"), "--master-key", KEY, "--experimental-mcp", "--mcp-write") as daemon:
        _fill(daemon, {"authorization": f"Bearer {KEY}"})
        yield daemon


def _fill(daemon: Daemon, headers: dict[str, str]) -> None:
    for method, path, body in (("PATCH", "/indexes/films/settings", SETTINGS), ("POST", "/indexes/films/documents?wait=20s", FILMS)):
        assert daemon.call(method, path, json.dumps(body), headers).status in (200, 202)


def check(found: dict[str, Any]) -> None:
    assert found["tools"] == list(TOOLS) and not any(found["errors"]), found
    described, searched, documents, values, similar, added, deleted = found["results"]
    assert described["indexes"][0]["documents"] >= 2 and searched["passages"][0]["id"] == 1 and documents["missing"] == ["none"]
    assert values["values"][0] == {"value": "1979", "count": 1} and similar["passages"][0]["id"] == 2
    assert added["status"] == deleted["status"] == "succeeded"
    assert json.loads(found["resource"])["index"] == "films" and "list_indexes" in found["prompt"]


@pytest.mark.skipif(not has_client(), reason="the official client of Python is not installed: make assistants")
@pytest.mark.parametrize("mode", ["2026-07-28", "handshake"])
def test_the_client_of_python_calls_every_tool(daemon: Daemon, mode: str) -> None:
    found = python_client(f"http://localhost:{daemon.port}/mcp", CALLS, KEY, mode)
    check(found)
    assert (found["revision"] == "2026-07-28") == (mode == "2026-07-28")


@pytest.mark.skipif(not has_client(), reason="the official client of Python is not installed: make assistants")
def test_the_client_of_python_calls_every_tool_over_stdio(daemon: Daemon) -> None:
    command = [sys.executable, "-m", "svcd", "mcp", "--url", f"http://localhost:{daemon.port}", "--key", KEY]
    found = python_client(command, CALLS)
    check(found)
    assert found["revision"] == "2026-07-28"


@pytest.mark.skipif(node() is None or not (PACKAGES / "sdk").exists(),
                    reason="the official client of TypeScript is not installed: make assistants")
def test_the_client_of_typescript_calls_every_tool(daemon: Daemon) -> None:
    check(typescript_client(f"http://localhost:{daemon.port}/mcp", CALLS, KEY))


def _is_node_22() -> bool:
    version = subprocess.run([node() or "false", "--version"], check=False, capture_output=True, text=True).stdout
    return int((re.findall(r"\d+", version) or ["0"])[0]) >= 22


@pytest.fixture(scope="module")
def open_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Without keys: the suite cannot send one."""
    if not (PACKAGES / "conformance").exists() or not _is_node_22():
        pytest.skip("the conformance suite or Node.js 22 is not installed: make assistants")
    with running(tmp_path_factory.mktemp("open"), "--experimental-mcp") as daemon:
        _fill(daemon, {})
        yield daemon


@pytest.mark.slow
@pytest.mark.parametrize("revision", SCENARIOS)
def test_scenarios_of_the_conformance_suite_pass(open_daemon: Daemon, revision: str, tmp_path: Path) -> None:
    failed = []
    for scenario in SCENARIOS[revision]:
        subprocess.run([node() or "node", str(PACKAGES / "conformance" / "dist" / "index.js"), "server", "--url",
                        f"http://localhost:{open_daemon.port}/mcp", "--scenario", scenario, "--spec-version", revision,
                        "--output-dir", str(tmp_path / scenario)], check=False, capture_output=True, text=True, timeout=120)
        checks = [check for path in (tmp_path / scenario).rglob("checks.json") for check in json.loads(path.read_text())]
        assert checks, scenario
        failed += [(scenario, check["id"], check.get("errorMessage")) for check in checks
                   if check["status"] not in ("SUCCESS", "INFO", "SKIPPED") and OF_ITS_SERVER not in (check.get("errorMessage") or "")]
    assert failed == []
