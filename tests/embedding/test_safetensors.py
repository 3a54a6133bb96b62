"""What must hold of files of tensors: numbers of each type are read, with and without numpy; cut and foreign files are errors."""
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from svcd.embedding.safetensors import BadModel, Tensors, write_tensors
from tests.support.tiny_model import encoded

NUMBERS = [0.0, 1.5, -2.25, 1024.0, -0.125, 3.0]
MADE = {"other": ((1,), [7.0]), "wanted": ((2, 3), NUMBERS)}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_numbers_of_each_type(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(encoded(MADE, kind))
    tensors = Tensors(path)
    assert list(tensors.shape("wanted")) == [2, 3] and "wanted" in tensors and "__metadata__" not in tensors
    assert list(tensors.numbers("wanted", 0, 6)) == NUMBERS and list(tensors.numbers("wanted", 3, 2)) == NUMBERS[3:5]
    with pytest.raises(BadModel, match="has no tensor `none`"):
        tensors.numbers("none", 0, 1)
    pytest.importorskip("numpy")
    assert tensors.get("wanted").tolist() == [NUMBERS[:3], NUMBERS[3:]] and tensors.get("other").tolist() == [7.0]


def test_written_files_read_back(tmp_path: Path) -> None:
    np, path = pytest.importorskip("numpy"), tmp_path / "x.safetensors"
    with path.open("wb") as file:
        write_tensors(file, {"a": np.array([[1.0, 2.0]]), "b": np.arange(3)})
    tensors = Tensors(path)
    assert tensors.get("a").tolist() == [[1.0, 2.0]] and tensors.get("b").tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("raw", [
    b"", b"{}", encoded(MADE)[:-1], struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"{x",
    *(encoded(MADE).replace(old, new) for old, new in (
        (b'"shape": [2, 3]', b'"shape": [2, 4]'), (b'"F32"', b'"F31"'), (b'"shape": [2, 3]', b'"shape": "2,3" '),
        (b'[4, 28]', b'[-8,16]')))])
def test_files_that_are_cut_or_foreign(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(BadModel, match="`model.safetensors` is not a file of tensors, or it is cut"):
        Tensors(path)
