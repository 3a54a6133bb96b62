"""The official clients of the Model Context Protocol, where they are installed: of Python (PyPI `mcp`), of TypeScript (npm
`@modelcontextprotocol/sdk`), and the conformance suite (npm `@modelcontextprotocol/conformance`): `make assistants` installs them."""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_MODULES = Path(sys.prefix) / "mcp" / "node_modules"
PACKAGES = _MODULES / "@modelcontextprotocol"
_HERE = Path(__file__).parent


def has_client() -> bool:
    return find_spec("mcp") is not None


def python_client(target: str | list[str], calls: list[tuple[str, Any]], key: str | None = None, mode: str = "2026-07-28") -> dict[str, Any]:
    """What the client of Python got. target: an address, or a command. mode: `2026-07-28`, or `handshake`."""
    asked = {"target": target, "calls": calls, "key": key, "mode": mode}
    ran = subprocess.run([sys.executable, str(_HERE / "mcp_client.py"), json.dumps(asked)], check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def node() -> str | None:
    """Node.js; the conformance suite needs version 22, which the package `node` of npm brings."""
    own = _MODULES / "node" / "bin" / "node"
    return str(own) if own.exists() else shutil.which("node")


def typescript_client(url: str, calls: list[tuple[str, Any]], key: str) -> dict[str, Any]:
    """What the client of TypeScript got."""
    ran = subprocess.run([node() or "node", str(_HERE / "mcp_client.mjs"), str(PACKAGES / "sdk"), url, key, json.dumps(calls)],
                         check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
