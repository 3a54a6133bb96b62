"""What must hold of embeddings that are kept until a batch is committed:

1. What was kept is found, to the bit, also by a later process; what was not is not.
2. Keys are those of the embedder and the input alone.
3. A damaged file, and a disk without room, are no error: the embedder is asked again.
"""
from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from svcd.index import kept_embeddings
from svcd.index.kept_embeddings import KeptEmbeddings, embedding_key

KEYS = [embedding_key("e", f"text{number}") for number in range(700)]
VECTORS = [array("f", [number, -0.1]) for number in range(700)]


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    path = tmp_path / "i.sqlite"
    assert KeptEmbeddings(path).find(KEYS) == {}
    assert not list(tmp_path.iterdir())
    kept = KeptEmbeddings(path)
    kept.keep(KEYS[:600], VECTORS[:600])
    kept.keep(KEYS[599:650], VECTORS[599:650])
    assert KeptEmbeddings(path).find(KEYS) == dict(zip(KEYS[:650], VECTORS))
    kept.discard()
    assert not list(tmp_path.iterdir())
    assert kept.find(KEYS) == {}


@pytest.mark.parametrize("other", [("e", "texT"), ("f", "text"), ("e", ["text"]), ("e", {"text": 1}), ("e", None)])
def test_keys_tell_embedders_and_inputs_apart(other: tuple[str, Any]) -> None:
    assert embedding_key(*other) != embedding_key("e", "text")
    assert embedding_key("e", {"a": 1, "b": "\ud800"}) == embedding_key("e", {"b": "\ud800", "a": 1})


def test_a_damaged_file_is_thrown_away(tmp_path: Path) -> None:
    file = tmp_path / f"i.sqlite{kept_embeddings.SUFFIXES[0]}"
    file.write_bytes(b"no database" * 1000)
    kept = KeptEmbeddings(tmp_path / "i.sqlite")
    assert kept.find(KEYS) == {}
    assert not file.exists()
    file.write_bytes(b"no database" * 1000)
    kept.keep(KEYS[:1], VECTORS[:1])
    kept.keep(KEYS[:1], VECTORS[:1])
    assert kept.find(KEYS) == {KEYS[0]: VECTORS[0]}


def test_without_room_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = KeptEmbeddings(tmp_path / "i.sqlite")
    kept.keep(KEYS[:1], VECTORS[:1])
    monkeypatch.setattr(kept_embeddings, "_PREPARE", (*kept_embeddings._PREPARE, "PRAGMA max_page_count = 5"))
    kept.keep(KEYS[1:], VECTORS[1:])
    assert kept.find(KEYS) == {KEYS[0]: VECTORS[0]}
