"""Reads server-sent events (WHATWG HTML 9.2.6) from bytes as they come, and gives the data of each event.

Ignores names, ids, retry times and comments, and an event at the end of the stream that lacks its empty line.
"""
from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_MARK = "\ufeff"
# Characters of an event; a chunk has a few kB. Without a limit a service could fill the memory with an endless event.
MOST_EVENT = 16 << 20


class EventTooLong(Exception):
    """An event has more than MOST_EVENT characters."""


class EventReader:
    """The reader of one stream."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._rest = ""  # an incomplete line
        self._lines: list[str] = []  # data of the current event
        self._length = 0  # characters in _lines
        self._is_first = True
        self._skips_newline = False  # the last character was a carriage return, so a newline would belong to the same line end

    def feed(self, piece: bytes) -> Iterator[str]:
        """Yield the data of the events that end in this piece. Raises UnicodeDecodeError, EventTooLong."""
        for line in self._complete_lines(self._decode(piece)):
            if line:
                name, _, value = line.partition(":")
                if name == "data":
                    self._lines.append(value.removeprefix(" "))
                    self._length += len(value) + 1
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
