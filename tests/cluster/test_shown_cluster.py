"""What docs/cluster.md shows happens: three servers of rqlite and three nodes, on three addresses of this machine."""
from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import shown_commands
from tests.support.log_servers import RqliteServers, free_ports, program

PAGE = shown_commands.ROOT / "docs" / "cluster.md"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="127.0.0.2 is an address of this machine on Linux alone"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the commands need curl"),
]


def test_what_the_page_shows_happens(tmp_path: Path, bytecode: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(program(RqliteServers.command, RqliteServers.search_path)).parent
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    http, log, raft = free_ports(3)
    shown_commands.follow(PAGE, tmp_path, http, bytecode, {":7700": f":{http}", ":4001": f":{log}", ":4002": f":{raft}"})
