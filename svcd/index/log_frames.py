"""Looks for damage in the write-ahead log of a SQLite file.

When SQLite opens a log, it uses the frames up to the first wrong checksum and does not report that later commits are lost. A
frame torn by a crash belongs to a transaction that was never committed, so no commit follows it. If a commit follows, the frame
was once written completely and is damaged. The format: https://sqlite.org/fileformat2.html#the_write_ahead_log.
"""
from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682  # plus 1 if checksums are of big-endian numbers


def faults(path: Path) -> Iterator[str]:
    """Yield the fault of a database's log, one sentence at most. A daemon may be writing it."""
    log = Path(f"{path}-wal")
    try:
        fault, head = _fault(found := log.read_bytes()), found[:_HEAD.size]
        # A log that was restarted meanwhile has another header.
        if fault and log.read_bytes()[:_HEAD.size] == head and _fault(log.read_bytes()) == fault:
            yield fault
    except FileNotFoundError:
        pass


def _fault(log: bytes) -> str | None:
    if not log:
        return None
    if len(log) < _HEAD.size:
        return f"its log has {len(log)} bytes, fewer than its header: commits may be lost"
    magic, _, page_size, _, *salts, first, second = _HEAD.unpack_from(log)
    sums = _sums(log[:24], (0, 0), magic & 1)
    if magic & ~1 != _MAGIC or sums != (first, second) or page_size < 512:
        return "the header of its log is damaged: all commits in it are lost"
    size = _FRAME.size + page_size
    frames = range(_HEAD.size, len(log) - size + 1, size)
    for number, start in enumerate(frames):
        page, _, *frame_salts, first, second = _FRAME.unpack_from(log, start)
        sums = _sums(log[start:start + 8] + log[start + _FRAME.size:start + size], sums, magic & 1)
        if not page or frame_salts != salts or sums != (first, second):
            # A later frame with the same salts and a number of pages ends a transaction.
            later = (_FRAME.unpack_from(log, at) for at in frames[number:])
            return (f"frame {number} of its log is damaged: commits from there on are lost"
                    if any(pages and found == salts for _, pages, *found, _, _ in later) else None)
    return None


def _sums(data: bytes, before: tuple[int, int], is_big: int) -> tuple[int, int]:
    """Return the checksum that the format defines over pairs of 32-bit numbers."""
    numbers = array("I", data)
    if is_big == (sys.byteorder == "little"):
        numbers.byteswap()
    first, second = before
    values = iter(numbers)
    for left, right in zip(values, values):
        first = (first + left + second) & 0xFFFF_FFFF
        second = (second + right + first) & 0xFFFF_FFFF
    return first, second
