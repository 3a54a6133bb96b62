"""`examples/agent_memory`. What must hold:

1. Each section of a note is a document with its headings; headings in code are text; two sections with the same headings are two documents.
2. A second call sends nothing; a changed, moved or deleted section changes the index accordingly.
3. The official client of Python (PyPI `mcp`, which need not be installed) finds a note over HTTP, and by the command over stdio.
4. The configurations of assistants that the README shows are JSON, and name a command and an address that exist.
"""
from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import ROOT, Daemon, running
from tests.support.mcp_clients import has_client, python_client

EXAMPLE = ROOT / "examples" / "agent_memory"
_SPEC = spec_from_file_location("sync_notes", EXAMPLE / "sync_notes.py")
assert _SPEC is not None and _SPEC.loader is not None
sync_notes: Any = module_from_spec(_SPEC)
_SPEC.loader.exec_module(sync_notes)

HOUSE = """Before any heading.

# House
## Boiler
The boiler was serviced in March by Ms Ode.
```sh
# no heading
```
## Garden
Apples need pruning.
## Garden
Roses, too.
## Empty
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon"), "--experimental-mcp") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "home").mkdir()
    (folder / "home" / "house.md").write_text(HOUSE)
    (folder / "work.md").write_text("# Meeting\nThe budget was approved.")
    return folder


def synced(notes: Path, daemon: Daemon) -> str:
    command = [sys.executable, str(EXAMPLE / "sync_notes.py"), str(notes), "--url", f"http://localhost:{daemon.port}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_sections_are_documents(notes: Path) -> None:
    found = sorted(sync_notes.documents_of(notes).values(), key=lambda document: (document["note"], document["headings"], document["text"]))
    assert [(each["note"], each["headings"], each["title"]) for each in found] == [
        ("home/house.md", [], "house"), ("home/house.md", ["House", "Boiler"], "Boiler"), ("home/house.md", ["House", "Garden"], "Garden"),
        ("home/house.md", ["House", "Garden"], "Garden"), ("work.md", ["Meeting"], "Meeting")]
    assert "# no heading" in found[1]["text"] and found[0]["folder"] == "home" and found[4]["folder"] == "."


def test_the_index_follows_the_folder(notes: Path, daemon: Daemon) -> None:
    assert synced(notes, daemon) == "5 sections sent, 0 deleted"
    assert synced(notes, daemon) == "0 sections sent, 0 deleted"
    (notes / "work.md").write_text("# Meeting\nThe budget was refused.\n# Lunch\nSoup.")
    assert synced(notes, daemon) == "2 sections sent, 0 deleted"
    (notes / "work.md").write_text("# Lunch\nSoup.")
    assert synced(notes, daemon) == "0 sections sent, 1 deleted"


@pytest.mark.skipif(not has_client(), reason="the official client of Python is not installed: make assistants")
def test_the_official_client_finds_a_note(notes: Path, daemon: Daemon) -> None:
    synced(notes, daemon)
    url = f"http://localhost:{daemon.port}"
    for target in (f"{url}/mcp", [sys.executable, "-m", "svcd", "mcp", "--url", url]):
        found = python_client(target, [("search", {"question": "who serviced the boiler?", "filter": "folder = home"})])
        (passage, *_) = found["results"][0]["passages"]
        assert passage["title"] == "Boiler" and "Ms Ode" in passage["fields"]["text"]


def test_the_configurations_are_json() -> None:
    shown = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.S)]
    servers = [server for each in shown for server in next(iter(each.values())).values()]
    assert len(servers) == 3
    for server in servers:
        assert server.get("url") == "http://localhost:7700/mcp" or (server["command"], server["args"][0]) == ("svcd", "mcp")
