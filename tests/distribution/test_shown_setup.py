"""The blocks ```sh of the pages set up, start and install svcd. What must hold of each: its commands end well, or it starts a daemon.

They run in a clone of their own, on a machine without anything (tests/support/shown_setup.py).
"""
from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.shown_blocks import ROOT, Block, of_kind
from tests.support.shown_setup import cloned

pytestmark = pytest.mark.slow

# Program -> what a block with it has.
TOOLS = {"curl": "curl ", "openssl": "openssl ", "dpkg-deb": ".deb"}
# What a page has from elsewhere.
WORDS = {"glove.6B.100d.txt": "film 0.1 0.2\nspace 0.3 0.1\n"}
# What `make` runs, as far as a page promises it.
RUNS = {"make test\n": ("ruff check", "mypy", "-m pytest"), "make dist\n": ("-m distribution.build",)}


def blocks_by_page() -> Mapping[Path, list[Block]]:
    """Each block once, and none that another test runs: those of a page's daemon, and the wheel of test_installed.py."""
    found: dict[Path, list[Block]] = {}
    known: set[str] = set()
    for block in of_kind("sh"):
        if block.text not in known and block.note != "the daemon of this page" and ".whl" not in block.text:
            known.add(block.text)
            found.setdefault(block.page, []).append(block)
    return found


@pytest.mark.parametrize("page", blocks_by_page(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_do_what_a_page_says(page: Path, tmp_path: Path, bytecode: Mapping[str, str], request: pytest.FixtureRequest) -> None:
    blocks = blocks_by_page()[page]
    text = "".join(block.text for block in blocks)
    for tool, said in TOOLS.items():
        if said in text and shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = [request.getfixturevalue(name) for name, said in (("pyz", "svcd.pyz"), ("package", ".deb")) if said in text]
    with cloned(tmp_path, bytecode, *made) as clone:
        for name, content in WORDS.items():
            clone.save(name, content)
        for block in blocks:
            printed = clone.do(block.text)
            assert all(program in printed for program in RUNS.get(block.text, ())), printed
