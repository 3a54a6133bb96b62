"""Arrays of numbers as bytes that are the same on every machine: little-endian."""
from __future__ import annotations

import sys
from array import array
from typing import Any

_IS_BIG = sys.byteorder == "big"


def numbers_of(typecode: str, stored: bytes) -> array[Any]:
    """The numbers that bytes_of() gave. Raises ValueError for bytes that are no whole number of them."""
    numbers: array[Any] = array(typecode)
    numbers.frombytes(stored)
    if _IS_BIG:
        numbers.byteswap()
    return numbers


def bytes_of(numbers: array[Any]) -> bytes:
    """The numbers of an array, one after the other."""
    if _IS_BIG:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
