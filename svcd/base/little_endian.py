"""Arrays of numbers as bytes that are the same on every machine: little-endian."""
from __future__ import annotations

import sys
from array import array
from typing import Any

_IS_BIG = sys.byteorder == "big"


def numbers_of(typecode: str, stored: bytes) -> array[Any]:
    """Return the numbers from the bytes of bytes_of(). Raises ValueError if the last number is cut off."""
    numbers: array[Any] = array(typecode)
    numbers.frombytes(stored)
    if _IS_BIG:
        numbers.byteswap()
    return numbers


def bytes_of(numbers: array[Any]) -> bytes:
    """Return the numbers of an array as bytes."""
    if _IS_BIG:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
