"""Sketches: a few bits for each number of a vector, from which its product with a query can be estimated.

A number is taken relative to the root mean square of its vector and cut into equal steps around zero. The number of the step,
counted from the lowest one, has `bits` bits. A sketch holds the highest bit of all numbers, then the next lower bit of all
numbers, and so on, each as one little-endian integer whose lowest bit is that of the first number. Zero bits alone stand for a
vector that is compared by its exact distance only, such as one of zeros; no other one has this sketch, as not all numbers can
be far below zero.

The sketch of a quantized vector is the vector. See docs/vectors.md#sketches.
"""
from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import hypot, sqrt
from typing import NamedTuple

from svcd.base.little_endian import bytes_of
from svcd.vectors.vector import padded

# A vector or query with a smaller or larger norm is compared exactly: single precision makes distances to such vectors special.
LEAST_NORM, MOST_NORM = 2.0 ** -10, 2.0 ** 50
# (least dimensions, bits, step in root mean squares): the fewer numbers there are, the more each of them matters. The steps are
# about those that lose least of normally distributed numbers.
_FORMS = ((96, 3, 0.5), (48, 4, 0.335), (16, 6, 0.104), (1, 8, 0.0308))
# A number to which this is added is rounded to an integer, which is in the lowest byte of its single-precision form.
_TO_INTEGER = 1.5 * 2.0 ** 23
_MOST_STEPS = 127  # of which the byte can tell the number, above and below zero


class SketchForm(NamedTuple):
    """How the vectors of an embedder are sketched. bits: for each number; step: 0 for quantized vectors."""

    dimensions: int
    bits: int
    step: float

    @classmethod
    def of(cls, dimensions: int, is_quantized: bool) -> SketchForm:
        """The form for vectors of this length."""
        if is_quantized:
            return cls(padded(dimensions), 1, 0.0)
        return next(cls(dimensions, bits, step) for least, bits, step in _FORMS if dimensions >= least)

    @property
    def part_size(self) -> int:
        """The bytes of one bit of all numbers."""
        return -(-self.dimensions // 8)

    @property
    def size(self) -> int:
        """The bytes of a sketch."""
        return self.part_size * self.bits

    def sketch(self, vector: Sequence[float]) -> bytes:
        """The sketch of a vector that is not quantized."""
        length = hypot(*vector)
        if not LEAST_NORM <= length <= MOST_NORM:
            return bytes(self.size)
        factor = sqrt(self.dimensions) / (self.step * length)
        # A step goes from its number up to the next one, so its middle is what must be rounded to it.
        shift = _TO_INTEGER - 0.5
        shifted = [number * factor + shift for number in vector]
        if sqrt(self.dimensions) >= self.step * _MOST_STEPS:  # else no number can be so large
            least, most = _TO_INTEGER - _MOST_STEPS, _TO_INTEGER + _MOST_STEPS
            shifted = [min(max(number, least), most) for number in shifted]
        lows = bytes_of(array("f", shifted))[::4][::-1]
        size = self.part_size
        return b"".join([int(lows.translate(digits), 2).to_bytes(size, "little") for digits in _DIGITS[self.bits]])


def _digits(bits: int) -> list[bytes]:
    """For each bit of a step's number, the highest first, a table from the lowest byte of the step to the binary digit."""
    middle = 1 << bits - 1
    numbers = [max(0, min(2 * middle - 1, (low if low < 128 else low - 256) + middle)) for low in range(256)]
    return [bytes(48 + (number >> bit & 1) for number in numbers) for bit in reversed(range(bits))]


_DIGITS = {bits: _digits(bits) for _, bits, _ in _FORMS}
