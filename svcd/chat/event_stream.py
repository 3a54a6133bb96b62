"""Reads server-sent events (WHATWG HTML 9.2.6) from bytes as they come: the data of each event.

Names, ids, retry times and comments are ignored; an event without its empty line at the end of the stream is none.
"""
from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_MARK = "\ufeff"
# A chunk has some kB. A service that sends more than this many characters without an end would fill the memory.
MOST_EVENT = 16 << 20


class EventTooLong(Exception):
    """An event has more than MOST_EVENT characters."""


class EventReader:
    """The reader of one stream."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""  # a line that is not complete yet
        self._lines: list[str] = []  # of the data of the present event
        self._length = 0  # of the lines
        self._is_first = True
        self._skips_newline = False  # the line end before it was a carriage return, of which it may be the second half

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that end in this piece. Raises UnicodeDecodeError, EventTooLong."""
        for line in self._complete_lines(self._decode(piece)):
            if line:
                self._add(line)
            elif self._lines:
                lines, self._lines, self._length = self._lines, [], 0
                yield "\n".join(lines)
        if self._length + len(self._rest) > MOST_EVENT:
            raise EventTooLong(f"an event has more than {MOST_EVENT} characters")

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
            self._length += len(value) + 1
