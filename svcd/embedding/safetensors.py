"""Files of tensors in the format safetensors, mapped into memory: processes share the pages, and only the used ones are read.

A file has the length of its header (8 bytes, little-endian), the header (JSON: name -> type, shape, and the range of its bytes),
and the bytes of the tensors.
"""
from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import IO, Any

from svcd.base.json_text import loads_wrapped
from svcd.vectors.nearest import numpy

WEIGHTS = "model.safetensors"  # the file of a model
_MOST_HEADER = 100_000_000
# Type in the header -> code of the module struct, which numpy has, too. BF16 is the upper half of a number of single precision.
_TYPES = {"F64": "d", "F32": "f", "F16": "e", "BF16": "H", "I64": "q", "I32": "i", "I8": "b", "U8": "B"}


class BadModel(Exception):
    """Files of a model are missing or invalid. str(): which and why, without the path of their folder."""


class Tensors:
    """The tensors of a file, by name."""

    def __init__(self, path: Path) -> None:
        """Raises BadModel, OSError."""
        self._name = path.name
        self._entries: dict[str, tuple[str, list[int], int]] = {}
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = file.read(size) if size < _MOST_HEADER else b""
            try:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                for name, entry in loads_wrapped(header).items():
                    if name != "__metadata__":
                        (start, end), kind, shape = entry["data_offsets"], entry["dtype"], entry["shape"]
                        length = prod(shape) * struct.calcsize(f"<{_TYPES[kind]}")
                        if end - start != length or not 0 <= start <= end <= len(self._map) - 8 - size:
                            raise ValueError
                        self._entries[name] = kind, shape, 8 + size + start
            except (ValueError, KeyError, TypeError, AttributeError):
                raise BadModel(f"`{path.name}` is not a file of tensors, or it is cut") from None

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def shape(self, name: str) -> Sequence[int]:
        """Return the lengths of a tensor. Raises BadModel."""
        return self._entry(name)[1]

    def numbers(self, name: str, start: int, count: int) -> Sequence[float]:
        """Return some consecutive numbers of a tensor, without numpy. Raises BadModel."""
        kind, _, position = self._entry(name)
        code = f"<{count}{_TYPES[kind]}"
        found = struct.unpack_from(code, self._map, position + start * struct.calcsize(f"<{_TYPES[kind]}"))
        if kind == "BF16":
            found = struct.unpack(f"<{count}f", struct.pack(f"<{count}I", *(half << 16 for half in found)))
        return found

    def get(self, name: str) -> Any:
        """Return a tensor as an array of numpy; floating-point ones in single precision. Raises BadModel."""
        np, (kind, shape, start) = numpy(), self._entry(name)
        found = np.frombuffer(self._map, f"<{_TYPES[kind]}", prod(shape), start).reshape(shape)
        if kind == "BF16":
            found = (found.astype("<u4") << 16).view("<f4")
        # Products of unaligned numbers would copy them each time.
        return np.require(found, np.float32 if "F" in kind else None, ["ALIGNED"])

    def _entry(self, name: str) -> tuple[str, list[int], int]:
        if name not in self._entries:
            raise BadModel(f"`{self._name}` has no tensor `{name}`")
        return self._entries[name]


def write_tensors(file: IO[bytes], tensors: Mapping[str, Any]) -> None:
    """Write arrays of numpy, as numbers of single precision."""
    header, raw, position = {}, [], 0
    for name, tensor in tensors.items():
        raw.append(tensor.astype("<f4").tobytes())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [position, position + len(raw[-1])]}
        position += len(raw[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    file.writelines(raw)
