"""Reads server-sent events (WHATWG HTML 9.2.6) from bytes as they come: the data of each event.

Names, ids, retry times and comments are ignored; an event without its empty line at the end of the stream is none.
"""
from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_MARK = "\ufeff"


class EventReader:
    """The reader of one stream."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""  # a line that is not complete yet
        self._lines: list[str] = []  # of the data of the present event
        self._is_first = True
        self._skips_newline = False  # the line end before it was a carriage return, of which it may be the second half

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that end in this piece. Raises UnicodeDecodeError."""
        for line in self._complete_lines(self._decode(piece)):
            if line:
                self._add(line)
            elif self._lines:
                lines, self._lines = self._lines, []
                yield "\n".join(lines)

    def _complete_lines(self, text: str) -> list[str]:
        if not text:
            return []
        if self._is_first:
            self._is_first = False
            text = text.removeprefix(_MARK)
        if self._skips_newline:
            text = text.removeprefix("\n")
        self._skips_newline = text.endswith("\r")
        *lines, self._rest = _LINE_END.split(self._rest + text)
        return lines

    def _add(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "data":
            self._lines.append(value.removeprefix(" "))
