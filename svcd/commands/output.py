"""The output of commands: results on standard output, progress and remarks on standard error.

Only terminals get colours and moving bars; NO_COLOR (https://no-color.org) switches colours off.
"""
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

BAR_CELLS = 24
MOST_NAME = 40  # characters of a name in a table; a uid may have 400
# Seconds between two drawings of a bar, and between two lines without a terminal.
REDRAW_S, LINE_S = 0.1, 10.0
_STYLES = {"bold": "1", "faint": "2", "found": "1;33", "bad": "31", "good": "32", "name": "36"}
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def has_colours(stream: TextIO) -> bool:
    """Return whether text on this stream may be coloured."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str, stream: TextIO | None = None) -> str:
    """Return the text with a style, `bold`, `faint`, `found`, `bad`, `good` or `name`, if the stream may be coloured."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if has_colours(stream or sys.stdout) else text


def print_json(value: Any) -> None:
    """Print a result for scripts."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def remark(text: str) -> None:
    """Print a message that is not part of the result."""
    print(text, file=sys.stderr)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as text in columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def shortened(name: str) -> str:
    """Shorten a long name in the middle: names that begin alike often differ at the end."""
    return name if len(name) <= MOST_NAME else f"{name[:MOST_NAME // 2]}…{name[-(MOST_NAME // 2 - 1):]}"


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Format seconds as minutes and seconds, `1:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Bar:
    """Progress on standard error: a moving bar with rate and time left in a terminal, else a line every ten seconds."""

    def __init__(self, noun: str, is_silent: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """noun: the counted objects, in the plural."""
        self._noun = noun
        self._is_silent = is_silent
        self._clock = clock
        self._begin = self._drawn_at = clock()
        self._skipped = 0
        self._width = 0

    def skip(self, count: int) -> None:
        """Exclude `count` objects of an earlier run from the rate."""
        self._skipped = count

    def show(self, count: int, share: float | None) -> None:
        """Show progress. count: number done so far; share: part of the whole, 0 to 1, None when unknown."""
        now = self._clock()
        is_moving = sys.stderr.isatty()
        if self._is_silent or now - self._drawn_at < (REDRAW_S if is_moving else LINE_S):
            return
        self._drawn_at = now
        text = self.text(count, share, now - self._begin)
        if is_moving:
            print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
            self._width = max(self._width, len(text))
        else:
            print(text, file=sys.stderr)

    def text(self, count: int, share: float | None, seconds: float) -> str:
        """Return the line to show."""
        fresh = count - self._skipped
        parts = [f"{count:,} {self._noun}", f"{fresh / seconds:,.0f}/s" if seconds > 0 else ""]
        if share is not None:
            filled = round(min(share, 1.0) * BAR_CELLS)
            parts.insert(0, f"{share:4.0%} {'█' * filled}{'░' * (BAR_CELLS - filled)}")
            if 0 < share < 1:
                parts.append(f"{duration(seconds * (1 - share) / share)} left")
        return "  ".join(filter(None, parts))

    def end(self) -> None:
        """Remove the bar."""
        if self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0
