"""The fenced blocks of the pages: where each stands, of what kind it is, what it says.

The kind is the word after the fence. tests/system/test_shown_blocks.py has the table of kinds, with what runs a block of each.
"""
from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
               if "node_modules" not in path.parts)

_BLOCK = re.compile(r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^(?P<indent> *)```(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.S | re.M)
_INDENTED = re.compile(r"\n\n( {4}\S.*)")
# What is typed, sent or configured begins a line so. A list in a diagram does not.
_TYPED = re.compile(r"\s*(?:[$>#] |>>>|(?:make|svcd|curl|python3?|pip|npm|apt-get|systemctl|sudo|cd|install|export|podman|docker) "
                    r"|(?:GET|POST|PUT|PATCH|DELETE) |(?:SELECT|INSERT|CREATE) |\{\"|\[\w+\]$|\w+=)")
_DRAWN = re.compile(r"[─│▼►]|-->|->|---|\w {3,}\S")


class Block(NamedTuple):
    """note: the comment in the line before it."""

    page: Path
    line: int
    kind: str
    text: str
    note: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_diagram(self) -> bool:
        """Is it drawn, without a line that a reader could type?"""
        return bool(_DRAWN.search(self.text)) and not any(map(_TYPED.match, self.text.splitlines()))


def blocks_of(page: Path) -> list[Block]:
    """All of them, in their order."""
    text = page.read_text()
    found = [Block(page, text.count("\n", 0, each.start("indent")) + 1, each["kind"], dedent(each["text"]), each["note"] or "")
             for each in _BLOCK.finditer(text)]
    assert 2 * len(found) == len(re.findall(r"^\s*(?:```|~~~)", text, re.M)), f"{page}: fences that are no pairs"
    return found


def unfenced(page: Path) -> list[str]:
    """The first lines of blocks that are indented instead, which nothing would run."""
    return _INDENTED.findall(_BLOCK.sub("", page.read_text()))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of_kind(kind: str) -> list[Block]:
    return [block for block in BLOCKS if block.kind == kind]
