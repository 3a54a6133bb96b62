"""Sets of documents: their class, their bytes on disk, and operations that are faster than the methods of the class.

Only this module knows whether DocIds is the compiled class of pyroaring or the class in plain Python; other modules import it
from here. Any value of SVCD_PLAIN_BITMAPS in the environment selects the class in plain Python.

DocIds is immutable: operators and methods return new sets. A result of an operator may take several times the memory that it
needs; DocIds(result) makes a compact copy for a set that is kept.

The bytes of a set on disk depend neither on the class nor on the way in which the set was made. (pyroaring 1.0 stores runs where
a list takes the same room, so there they depend on the class; both classes read both.)

    none                      no bytes
    1 to 8 docids             each in 4 bytes, little-endian, ascending
    more                      the portable roaring format (https://github.com/RoaringBitmap/RoaringFormatSpec), each container in
                              the smallest form, runs only where they are smaller than both others; then a zero byte if the
                              length were a multiple of 4

So the length tells the forms apart. Most values of an index have one to four documents, which would take 18 to 48 bytes in the
roaring format.
"""
from __future__ import annotations

import importlib
import os
import re
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any

from svcd.base import plain_bitmaps
from svcd.base.roaring_format import THICK, StoredContainer, has_needless_runs, joined, stored_containers

# The first version that detects damaged bytes, also in a memoryview; before 1.0.2 such bytes could crash the process.
_OLDEST = (1, 0, 3)


def _compiled() -> Any:
    """Return the module pyroaring, or None if it is not wanted, not installed or too old."""
    if os.environ.get("SVCD_PLAIN_BITMAPS"):
        return None
    try:
        pyroaring = importlib.import_module("pyroaring")
    except ImportError:
        return None
    return pyroaring if tuple(map(int, re.findall(r"\d+", pyroaring.__version__)[:3])) >= _OLDEST else None


_PYROARING = _compiled()
PLAIN_PYTHON = "plain Python"
# The class and its version, for logs.
IMPLEMENTATION = f"pyroaring {_PYROARING.__version__}" if _PYROARING else PLAIN_PYTHON

if TYPE_CHECKING:
    from svcd.base.plain_bitmaps import DocIds
else:
    DocIds = _PYROARING.FrozenBitMap if _PYROARING else plain_bitmaps.DocIds

EMPTY = DocIds()


# On disk

FEW = 8  # up to FEW docids of 4 bytes never take more than the roaring format, except for one long run
_DOCID_BYTES = 4
_FORMATS = [struct.Struct(f"<{count}I") for count in range(FEW + 1)]


def to_bytes(docids: DocIds) -> bytes:
    """Return the stored form of a set."""
    count = len(docids)
    return _FORMATS[count].pack(*docids) if count <= FEW else _padded(_canonical(docids))


def few_with(data: bytes, added: Iterable[int]) -> bytes | None:
    """Add docids to the stored form of a small set; None if one of the sets has more than FEW docids."""
    if len(data) % _DOCID_BYTES or len(data) > FEW * _DOCID_BYTES:
        return None
    docids = sorted({*_FORMATS[len(data) // _DOCID_BYTES].unpack(data), *added})
    return _FORMATS[len(docids)].pack(*docids) if len(docids) <= FEW else None


def _padded(stored: bytes) -> bytes:
    return stored if len(stored) % _DOCID_BYTES else stored + b"\0"


def containers_of(docids: DocIds) -> list[tuple[int, StoredContainer]]:
    """Split a set at each 65,536 docids: (number of the range, its stored container) for each range with docids, ascending."""
    return stored_containers(_canonical(docids)) if docids else []


def bytes_of_containers(containers: Sequence[tuple[int, StoredContainer]]) -> bytes:
    """Return the stored form of a set. containers: from containers_of(), of one or several sets, ascending by their ranges."""
    stored = joined([high for high, _ in containers], [container for _, container in containers])
    return to_bytes(DocIds.deserialize(stored)) if sum(count for _, (count, _, _) in containers) <= FEW else _padded(stored)


def from_bytes(data: bytes | memoryview) -> DocIds:
    """Return the stored set. Raises ValueError for bytes that store no set; some damage cannot be detected."""
    count, more = divmod(len(data), _DOCID_BYTES)
    if more:
        if _PYROARING:
            docids = DocIds.deserialize(data)
            size = docids.__sizeof__()  # of the bytes of the set
        else:
            docids, size = plain_bitmaps.with_size(data)
        if size != len(data) and (size % _DOCID_BYTES or len(data) - size != 1 or data[-1]):
            raise ValueError(f"{len(data)} bytes of a set of documents, expected {size}")
        return docids
    if not count:
        return EMPTY
    if count > FEW:
        raise ValueError(f"{len(data)} bytes of a set of documents: expected up to {FEW} docids")
    listed = _FORMATS[count].unpack(data)
    if count > 1 and not all(map(lt, listed, listed[1:])):
        raise ValueError(f"docids of a set of documents are not ascending: {listed}")
    return DocIds(listed)


def _canonical(docids: DocIds) -> bytes:
    """Return the roaring format of a set, each container in its smallest form.

    pyroaring looks for runs when it serializes, and replaces containers of the set, while an iterator may read them: so a copy is
    serialized. It keeps runs that take as many bytes as the list of docids; a set made of single docids gets the list.
    """
    if not _PYROARING:
        return docids.serialize()
    stored = DocIds(docids).serialize()
    return DocIds(docids.to_array()).serialize() if has_needless_runs(stored) else stored


# Arrays of numbers on disk: little-endian on every machine

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


# Operations that are faster than methods of the class

def first(docids: DocIds, count: int) -> list[int]:
    """Return the `count` smallest docids, ascending; all if the set has fewer."""
    return list(islice(docids, count))


def union_of(sets: Iterable[DocIds]) -> DocIds:
    """Return the union of none to hundreds of sets."""
    several = list(sets)
    if len(several) < 2:
        return several[0] if several else EMPTY
    return DocIds.union(*several)


_OVERHEAD = 64  # bytes that a set of pyroaring, and each of its containers, takes in addition to the docids: malloc, counts


def memory_bytes(docids: DocIds) -> int:
    """Estimate the memory in bytes of a set that was made from docids, bytes or another set, not by an operator."""
    if not _PYROARING:
        return sys.getsizeof(docids)
    if not docids:
        return docids.__sizeof__() + _OVERHEAD
    last = docids.max() >> 16
    containers = min(len(docids), last - (docids.min() >> 16) + 1) if last else 1
    return docids.__sizeof__() + _OVERHEAD * (containers + 1)


def membership_bytes(docids: DocIds) -> bytes:
    """Return one byte for each docid from 0 to the largest: 1 if it is in the set, else 0. For itertools.compress()."""
    if not docids:
        return b""
    top = docids.max()
    if len(docids) * THICK > top:
        plain = plain_bitmaps.DocIds.deserialize(docids.serialize()) if _PYROARING else docids
        return plain_bitmaps.membership_bytes(plain)
    members = bytearray(top + 1)
    for docid in docids:
        members[docid] = 1
    return bytes(members)


# Up to 4,096 of 65,536 docids are stored as a list, which is made from positions in half the time. The share varies within a set.
_LISTED = 14


def from_bytes_equal(values: bytes, value: int) -> DocIds:
    """Return the set of the offsets at which `values` has the byte `value`."""
    if values.count(value) * _LISTED < len(values):
        return DocIds([match.start() for match in re.finditer(re.escape(bytes([value])), values)])
    plain = plain_bitmaps.from_bytes_equal(values, value)
    return DocIds.deserialize(plain.serialize()) if _PYROARING else plain
