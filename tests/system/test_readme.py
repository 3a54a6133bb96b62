"""README and docs show what happens: their commands run, and print what the pages say (tests/support/shown_commands.py).

Each page has a daemon and a folder of its own.
"""
from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import shown_commands
from tests.support.daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = [page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))
         if shown_commands.parts_of(page) and not shown_commands.has_own_test(page)]
README = (ROOT / "README.md").read_text()


@pytest.mark.skipif(shutil.which("curl") is None, reason="the commands need curl")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_shows_happens(page: Path, tmp_path: Path, bytecode: Mapping[str, str]) -> None:
    daemon = Daemon(tmp_path, shown_commands.options_of(page), variables=bytecode).start()
    try:
        shown_commands.follow(page, tmp_path, daemon.port, bytecode)
    finally:
        daemon.stop()


def test_the_guide_is_complete() -> None:
    """Each page is linked from the first one, which the README links."""
    first = (GUIDE / "README.md").read_text()
    assert {path.name for path in GUIDE.glob("*.md")} - {"README.md"} == set(re.findall(r"\]\(([\w-]+\.md)\)", first))
    assert "(docs/guide/README.md)" in README


def test_the_readme_names_both_commands() -> None:
    assert "\nmake run\n" in README and "\nmake test\n" in README


def test_the_architecture_page_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "svcd").iterdir():
        if path.suffix == ".py" and not path.name.startswith("__") or (path / "__init__.py").exists():
            assert f"| `{path.name}` |" in page, f"the table of packages leaves out {path.name}"
