"""Looks for damage in the write-ahead log of a file of SQLite.

When the log is opened, SQLite takes the frames up to the first whose checksum is wrong, and nothing tells that commits after it
are lost. A frame that was torn by a crash is of a transaction that never was committed, so it has no commit after it; one with a
commit after it was written as a whole once. The format: https://sqlite.org/fileformat2.html#the_write_ahead_log.
"""
from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682  # and one more where checksums are of big-endian numbers


def faults(path: Path) -> Iterator[str]:
    """What is wrong with the log of a database, a sentence at most. A daemon may be writing it."""
    log = Path(f"{path}-wal")
    try:
        fault, head = _fault(found := log.read_bytes()), found[:_HEAD.size]
        # A log that was begun anew meanwhile has another header.
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
            return (f"frame {number} of its log is damaged: commits from there on are lost"
                    if any(_is_commit(log, later, salts) for later in frames[number:]) else None)
    return None


def _is_commit(log: bytes, start: int, salts: list[int]) -> bool:
    """Does a frame of this use of the log end a transaction?"""
    _, pages, *found, _, _ = _FRAME.unpack_from(log, start)
    return bool(pages) and found == salts


def _sums(data: bytes, before: tuple[int, int], is_big: int) -> tuple[int, int]:
    """The checksum of the format, of pairs of numbers of 32 bits."""
    numbers = array("I", data)
    if is_big == (sys.byteorder == "little"):
        numbers.byteswap()
    first, second = before
    values = iter(numbers)
    for left, right in zip(values, values):
        first = (first + left + second) & 0xFFFF_FFFF
        second = (second + right + first) & 0xFFFF_FFFF
    return first, second
