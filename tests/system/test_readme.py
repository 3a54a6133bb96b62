"""The README shows what happens: its commands run against a daemon, their output is what it prints."""
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import shown_commands
from tests.support.daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands need curl")
def test_what_the_readme_shows_happens(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path).start()
    try:
        shown_commands.check(ROOT / "README.md", ROOT, {"localhost:7700": f"127.0.0.1:{daemon.port}"})
    finally:
        daemon.stop()


def test_the_readme_names_both_commands() -> None:
    assert "\nmake run\n" in README and "\nmake test\n" in README


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "svcd").iterdir():
        if path.suffix == ".py" and not path.name.startswith("__") or (path / "__init__.py").exists():
            assert f"| `{path.name}` |" in page, f"the table of packages leaves out {path.name}"
