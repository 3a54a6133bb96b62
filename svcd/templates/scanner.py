"""Scan the text of a template before the library parses it: check limits and unclosed tags, and find the place of each part.

The time is linear in the length of the text, also for hostile text.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from svcd.templates import limits
from svcd.templates.limits import TemplateError

_OPENING = re.compile(r"\{\{|\{%")
_CLOSING = {"{{": "}}", "{%": "%}"}
_NAME = re.compile(r"-?\s*(\w*)")
_END_OF_RAW = re.compile(r"\{%-?\s*endraw\s*-?%\}")
# Tags with an end tag.
BLOCKS = frozenset({"capture", "case", "comment", "for", "if", "ifchanged", "tablerow", "unless"})


# Members of documents may have the names of these keywords, which the library does not accept after a dot.
_KEYWORD_MEMBER = re.compile(
    r"""("[^"]*"|'[^']*')|(?<!\.)\.\s*(and|as|blank|cols|contains|continue|else|empty|false|for|if|in|limit|nil|not|null|offset|or"""
    r"""|reversed|true|with)(?![\w-])""")


class Part(NamedTuple):
    """A tag or output. inner: begin and end of the text between its delimiters; start: offset of its first word.

    name: name of the tag, empty for an output.
    """

    inner: tuple[int, int]
    start: int
    text: str
    name: str


def scan(text: str) -> list[Part]:
    """Return all tags and outputs outside of `raw`. Raises TemplateError beyond the limits, and for an unclosed one."""
    if len(text) > limits.TEXT:
        raise TemplateError(f"liquid: Template is longer than {limits.TEXT} characters\n")
    parts = list(_parts(text))
    depth = 0
    for part in parts:
        depth += (part.name in BLOCKS) - part.name.startswith("end")
        if depth > limits.NESTING:
            raise located(text, part.start, f"more than {limits.NESTING} nested blocks")
    return parts


def _parts(text: str) -> Iterator[Part]:
    position = 0
    while opening := _OPENING.search(text, position):
        end = text.find(_CLOSING[opening[0]], opening.end())
        inner = text[opening.end():end if end >= 0 else None]
        start = opening.end() + len(inner) - len(inner.removeprefix("-").lstrip())
        if end < 0:
            raise located(text, start, "expected Literal" if opening[0] == "{{" else "expected TagInner")
        if len(inner) > limits.PART:
            raise located(text, start, f"longer than {limits.PART} characters")
        position = end + 2
        name = _NAME.match(inner)[1] if opening[0] == "{%" else ""  # type: ignore[index]  # it matches everything
        yield Part((opening.end(), end), start, inner.strip("- \t\r\n"), name)
        if name == "raw":
            closed = _END_OF_RAW.search(text, position)
            if closed is None:
                raise located(text, start, "Unclosed block. {% endraw %} tag expected.")
            position = closed.end()


def readable(text: str, parts: Sequence[Part]) -> str:
    """Return the template for the library: `doc.limit` becomes `doc['limit']`."""
    pieces: list[str] = []
    position = 0
    for part in parts:
        begin, end = part.inner
        pieces += (text[position:begin], readable_part(text[begin:end]))
        position = end
    return "".join([*pieces, text[position:]])


def readable_part(inner: str) -> str:
    """Return one tag or output for the library."""
    return _KEYWORD_MEMBER.sub(lambda found: found[1] or f"['{found[2]}']", inner)


def located(text: str, offset: int, reason: str) -> TemplateError:
    """Return an error at this place of the text, with the line and a mark below it."""
    begin = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    line = text.count("\n", 0, begin) + 1
    shown = text[begin:end if end >= 0 else None]
    margin = " " * len(str(line))
    return TemplateError(f"liquid: {margin}--> {line}:{offset - begin + 1}\n{margin} |\n{line} | {shown}\n"
                         f"{margin} | {' ' * (offset - begin)}^---\n{margin} |\n{margin} = {reason}\n")
