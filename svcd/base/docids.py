"""Sets of documents: which class they have, their bytes on disk, and what is fastest done otherwise than by its methods.

The only module that knows whether DocIds is the compiled class of pyroaring or the one in plain Python; others import it from
here. SVCD_PLAIN_BITMAPS in the environment, set to anything, asks for the second.

DocIds is immutable: operators and methods give new sets. The results of operators may hold several times the memory that they
need; DocIds(result) is a copy without, for a set that is kept.

On disk a set has one sequence of bytes, whichever class wrote it and however the set came about:

    none                      no bytes
    1 to 8 docids             each in 4 bytes, little-endian, ascending
    more                      the portable roaring format (https://github.com/RoaringBitmap/RoaringFormatSpec), each container in
                              the smallest form, runs only where they are smaller than both others; then a zero byte if the
                              length were a multiple of 4

So the length alone tells the forms apart. Most values of an index have one to four documents, which the roaring format would
store in 18 to 48 bytes.
"""
from __future__ import annotations

import importlib
import os
import re
import struct
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any

from svcd.base import plain_bitmaps
from svcd.base.integer_bitmaps import THICK
from svcd.base.roaring_format import StoredContainer, has_needless_runs, joined, stored_containers

# The first that tells damaged bytes and those of a memoryview from good ones; before 1.0.2 they could end the process.
_OLDEST = (1, 0, 3)


def _compiled() -> Any:
    """The module pyroaring, or None if it is not wanted, not installed or too old."""
    if os.environ.get("SVCD_PLAIN_BITMAPS"):
        return None
    try:
        pyroaring = importlib.import_module("pyroaring")
    except ImportError:
        return None
    return pyroaring if tuple(map(int, re.findall(r"\d+", pyroaring.__version__)[:3])) >= _OLDEST else None


_PYROARING = _compiled()
# The class and its version, for logs.
IMPLEMENTATION = f"pyroaring {_PYROARING.__version__}" if _PYROARING else "plain Python"

if TYPE_CHECKING:
    from svcd.base.plain_bitmaps import DocIds
else:
    DocIds = _PYROARING.FrozenBitMap if _PYROARING else plain_bitmaps.DocIds

EMPTY = DocIds()


# On disk

FEW = 8  # with up to so many docids 4 bytes for each are never more than the roaring format takes, save for one long run
_DOCID_BYTES = 4
_FORMATS = [struct.Struct(f"<{count}I") for count in range(FEW + 1)]


def to_bytes(docids: DocIds) -> bytes:
    """The set as it is stored."""
    count = len(docids)
    return _FORMATS[count].pack(*docids) if count <= FEW else _padded(_canonical(docids))


def few_with(data: bytes, added: Iterable[int]) -> bytes | None:
    """What is stored for a small set with some docids more; None where either has more than FEW."""
    if len(data) % _DOCID_BYTES or len(data) > FEW * _DOCID_BYTES:
        return None
    docids = sorted({*_FORMATS[len(data) // _DOCID_BYTES].unpack(data), *added})
    return _FORMATS[len(docids)].pack(*docids) if len(docids) <= FEW else None


def _padded(stored: bytes) -> bytes:
    return stored if len(stored) % _DOCID_BYTES else stored + b"\0"


def containers_of(docids: DocIds) -> list[tuple[int, StoredContainer]]:
    """For each 65,536 docids of which any is in the set, ascending: (number of the range, these docids as they are stored)."""
    return stored_containers(_canonical(docids)) if docids else []


def bytes_of_containers(containers: Sequence[tuple[int, StoredContainer]]) -> bytes:
    """A set as it is stored. containers: of this set or of others as containers_of() gives them, ascending by their ranges."""
    stored = joined([high for high, _ in containers], [container for _, container in containers])
    return to_bytes(DocIds.deserialize(stored)) if sum(count for _, (count, _, _) in containers) <= FEW else _padded(stored)


def from_bytes(data: bytes | memoryview) -> DocIds:
    """The set that was stored. Raises ValueError if the bytes are those of no set; not all damage can be seen."""
    count, more = divmod(len(data), _DOCID_BYTES)
    if more:
        return _from_roaring(data)
    if not count:
        return EMPTY
    if count > FEW:
        raise ValueError(f"{len(data)} bytes of a set of documents: expected up to {FEW} docids")
    listed = _FORMATS[count].unpack(data)
    if count > 1 and not all(map(lt, listed, listed[1:])):
        raise ValueError(f"docids of a set of documents are not ascending: {listed}")
    return DocIds(listed)


def _from_roaring(data: bytes | memoryview) -> DocIds:
    if _PYROARING:
        docids = DocIds.deserialize(data)
        size = docids.__sizeof__()  # that of its bytes
    else:
        docids, size = plain_bitmaps.with_size(data)
    if size != len(data) and (size % _DOCID_BYTES or len(data) - size != 1 or data[-1]):
        raise ValueError(f"{len(data)} bytes of a set of documents, expected {size}")
    return docids


def _canonical(docids: DocIds) -> bytes:
    """The roaring format of a set, each container in its smallest form.

    pyroaring: of a copy, as looking for runs replaces containers of a set, which an iterator may be in. A container of which the
    runs take as much as the list of docids keeps the form that it has; made of docids one by one it is the list.
    """
    if not _PYROARING:
        return docids.serialize()
    stored = DocIds(docids).serialize()
    return DocIds(docids.to_array()).serialize() if has_needless_runs(stored) else stored


# What is fastest done otherwise than by methods


def first(docids: DocIds, count: int) -> list[int]:
    """The `count` smallest docids, ascending; all if there are fewer."""
    return list(islice(docids, count))


def union_of(sets: Iterable[DocIds]) -> DocIds:
    """The docids of any of the sets, of which there may be none or hundreds."""
    several = list(sets)
    if len(several) < 2:
        return several[0] if several else EMPTY
    return DocIds.union(*several)


_OVERHEAD = 64  # bytes that a set of pyroaring takes beyond its docids, and those that each container of it does: malloc, counts


def memory_bytes(docids: DocIds) -> int:
    """About how many bytes of memory a set takes that was made of docids, of bytes or of another set, not by an operator."""
    if not _PYROARING:
        return sys.getsizeof(docids)
    containers = min(len(docids), (docids.max() >> 16) - (docids.min() >> 16) + 1) if docids else 0
    return docids.__sizeof__() + _OVERHEAD * (containers + 1)


def membership_bytes(docids: DocIds) -> bytes:
    """One byte for each docid from 0 to the largest: 1 if it is in the set, else 0. For itertools.compress()."""
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


def from_bytes_equal(values: bytes, value: int) -> DocIds:
    """The set of the offsets at which `values` has the byte `value`."""
    if values.count(value) * THICK < len(values):
        return DocIds([match.start() for match in re.finditer(re.escape(bytes([value])), values)])
    plain = plain_bitmaps.from_bytes_equal(values, value)
    return DocIds.deserialize(plain.serialize()) if _PYROARING else plain
