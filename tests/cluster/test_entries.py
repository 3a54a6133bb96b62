"""What must hold of entries as bytes, and of payloads:

1. What is encoded is decoded as it was, small or large; only a large entry has pieces beside the log.
2. A payload comes out as it went in, whatever its size, packed or not; an empty one too.
3. A piece that is damaged or missing is noticed.
4. The names of pieces that belong to an entry are known, to be dropped with it.
"""
from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from svcd.cluster.entries import MOST_INLINE_BYTES, MOST_SMALL_BYTES, Damaged, decode, encode, payloads_of, put_payload, read_payload
from svcd.cluster.log import MOST_ENTRY_BYTES, MOST_PIECE_BYTES, MissingPiece
from tests.support.memory_log import MemoryServers

NOISE = random.Random(17).randbytes(3 * MOST_PIECE_BYTES)


@pytest.mark.parametrize("length", [0, 1000, MOST_INLINE_BYTES - 100, MOST_INLINE_BYTES, 3_000_000])
def test_1_an_entry_comes_out_as_it_went_in(servers: MemoryServers, length: int) -> None:
    entry = {"kind": "rows", "text": "ä" * (length // 2)}
    body = encode(servers.log(), "one", entry)
    assert len(body) <= MOST_INLINE_BYTES
    decoded = dict(decode(servers.log(), body))
    assert decoded.pop("identity") == "one" and bool(decoded.pop("stored", None)) == bool(servers.pieces)
    assert decoded == entry and bool(servers.pieces) == (length >= MOST_INLINE_BYTES)


def test_1_a_large_entry_that_does_not_pack_has_several_pieces(servers: MemoryServers) -> None:
    entry = {"kind": "rows", "text": NOISE.hex()}
    body = encode(servers.log(), "one", entry)
    assert len(servers.pieces) > 2 and all(len(piece) <= MOST_PIECE_BYTES for piece in servers.pieces.values())
    assert decode(servers.log(), body)["text"] == entry["text"]


@pytest.mark.parametrize("content", [
    b"", b"{}\n", b"a" * MOST_SMALL_BYTES, b"a" * (MOST_SMALL_BYTES + 1), b"a" * 5_000_000, NOISE[:MOST_SMALL_BYTES],
    NOISE[:MOST_PIECE_BYTES - 1], NOISE[:MOST_PIECE_BYTES], NOISE,
], ids=len)
def test_2_a_payload_comes_out_as_it_went_in(servers: MemoryServers, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "payload"
    path.write_bytes(content)
    payload = put_payload(servers.log(), path)
    assert payload["name"] == "payload" and b"".join(read_payload(servers.log(), payload)) == content
    assert bool(servers.pieces) == (len(content) > MOST_SMALL_BYTES) == bool(payload.get("pieces"))
    assert all(len(piece) <= MOST_PIECE_BYTES for piece in servers.pieces.values())
    assert len(json.dumps(payload)) < MOST_INLINE_BYTES < MOST_ENTRY_BYTES


def test_2_what_packs_takes_less(servers: MemoryServers, tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(b'{"title": "Alien"}\n' * 100_000)
    put_payload(servers.log(), path)
    assert sum(map(len, servers.pieces.values())) < path.stat().st_size / 20


def test_3_a_damaged_piece_of_a_payload_is_noticed(servers: MemoryServers, tmp_path: Path) -> None:
    path = tmp_path / "payload"
    path.write_bytes(NOISE)
    payload = put_payload(servers.log(), path)
    servers.pieces["payload", 1] = b"=" + servers.pieces["payload", 1][2:] + b"x"
    with pytest.raises(Damaged, match="payload payload has another SHA-256"):
        list(read_payload(servers.log(), payload))
    del servers.pieces["payload", 2]
    with pytest.raises(MissingPiece):
        list(read_payload(servers.log(), payload))


def test_3_a_damaged_piece_of_an_entry_is_noticed(servers: MemoryServers) -> None:
    body = encode(servers.log(), "one", {"kind": "rows", "text": "a" * 1_000_000})
    servers.pieces["one-entry", 0] += b"x"
    with pytest.raises(Damaged, match=r"the pieces of one-entry have another SHA-256"):
        decode(servers.log(), body)
    servers.pieces.clear()
    with pytest.raises(MissingPiece):
        decode(servers.log(), body)


def test_4_the_pieces_of_an_entry_are_known(servers: MemoryServers, tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"{}")
    (tmp_path / "large").write_bytes(NOISE)
    log = servers.log()
    small, large = (put_payload(log, tmp_path / name) for name in ("small", "large"))
    bodies = [encode(log, "one", {"kind": "task", "payload": payload}) for payload in (None, small, large)]
    assert [list(payloads_of(body)) for body in bodies] == [[], [], ["large"]]
    assert list(payloads_of(encode(log, "two", {"kind": "rows", "text": "a" * 1_000_000}))) == ["two-entry"]


def test_4_the_pieces_of_a_large_entry_with_a_large_payload_are_known(servers: MemoryServers, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(NOISE)
    log = servers.log()
    body = encode(log, "one", {"kind": "task", "payload": put_payload(log, tmp_path / "large"), "text": "a" * 1_000_000})
    assert set(payloads_of(body)) == {"one-entry", "large"} == {name for name, _ in servers.pieces}
