"""Sketches: a few bits for each number of a vector, to estimate its product with a query.

Each number is divided by the root mean square of its vector and rounded to equal steps around zero. The number of the step,
counted from the lowest step, has `bits` bits. A sketch has the highest bit of all numbers, then the next lower bit of all
numbers, and so on, each as one little-endian integer; the first number has the lowest bit. A sketch of zero bits marks a vector
that must be compared exactly, such as a vector of zeros; it is unique, because not all numbers can be far below zero.

The sketch of a quantized vector is the vector. See docs/vectors.md#sketches.
"""
from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import hypot, sqrt
from typing import NamedTuple

from svcd.base.docids import bytes_of
from svcd.vectors.vector import padded

# Vectors and queries with a smaller or larger norm are compared exactly: single precision makes their distances special.
LEAST_NORM, MOST_NORM = 2.0 ** -10, 2.0 ** 50
# (least dimensions, bits, step in root mean squares). With fewer numbers, each number matters more. The steps minimize the error
# for normally distributed numbers.
_FORMS = ((96, 3, 0.5), (48, 4, 0.335), (16, 6, 0.104), (1, 8, 0.0308))
# Adding this rounds a number to an integer, which is then the lowest byte of the single-precision form.
_TO_INTEGER = 1.5 * 2.0 ** 23
_MOST_STEPS = 127  # maximum number of steps above and below zero in one byte


class SketchForm(NamedTuple):
    """Parameters of the sketches of an embedder. bits: bits for each number. step: 0 for quantized vectors."""

    dimensions: int
    bits: int
    step: float

    @classmethod
    def of(cls, dimensions: int, is_quantized: bool) -> SketchForm:
        """Return the form for vectors of this length."""
        if is_quantized:
            return cls(padded(dimensions), 1, 0.0)
        return next(cls(dimensions, bits, step) for least, bits, step in _FORMS if dimensions >= least)

    @property
    def part_size(self) -> int:
        """The size in bytes of one bit of all numbers."""
        return -(-self.dimensions // 8)

    @property
    def size(self) -> int:
        """The size of a sketch in bytes."""
        return self.part_size * self.bits

    def sketch(self, vector: Sequence[float]) -> bytes:
        """Return the sketch of a vector that is not quantized."""
        length = hypot(*vector)
        if not LEAST_NORM <= length <= MOST_NORM:
            return bytes(self.size)
        factor = sqrt(self.dimensions) / (self.step * length)
        # A step extends from its number to the next, so its middle must round to its number.
        shift = _TO_INTEGER - 0.5
        shifted = [number * factor + shift for number in vector]
        if sqrt(self.dimensions) >= self.step * _MOST_STEPS:  # else no number can be so large
            least, most = _TO_INTEGER - _MOST_STEPS, _TO_INTEGER + _MOST_STEPS
            shifted = [min(max(number, least), most) for number in shifted]
        lows = bytes_of(array("f", shifted))[::4][::-1]
        size = self.part_size
        return b"".join([int(lows.translate(digits), 2).to_bytes(size, "little") for digits in _DIGITS[self.bits]])


def _digits(bits: int) -> list[bytes]:
    """Return a table for each bit of the number of a step, the highest bit first: lowest byte of the step -> binary digit."""
    middle = 1 << bits - 1
    numbers = [max(0, min(2 * middle - 1, (low if low < 128 else low - 256) + middle)) for low in range(256)]
    return [bytes(48 + (number >> bit & 1) for number in numbers) for bit in reversed(range(bits))]


_DIGITS = {bits: _digits(bits) for _, bits, _ in _FORMS}
