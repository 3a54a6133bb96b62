"""The entries of the log as bytes: JSON, with larger content as pieces beside the log.

An entry has the member `kind` and the members of its kind, which svcd.cluster.applier lists. `at` is the moment at which a node
wrote it, in nanoseconds.
"""
from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from svcd.base.json_text import loads_wrapped
from svcd.cluster.log import MOST_PIECE_BYTES, Log
from svcd.validation.answers import MISFITS

Entry = Mapping[str, Any]

# Larger entries go into pieces: every node reads the log often, and few entries are large.
MOST_INLINE_BYTES = 64 << 10
MOST_SMALL_BYTES = 32 << 10  # a payload up to this size is part of the entry itself
_READ_BYTES = MOST_PIECE_BYTES - 1  # a piece begins with a mark
_PACKED, _PLAIN = b"z", b"="
_SUFFIX = "-entry"


class Damaged(Exception):
    """The content of the log differs from the content that a node put there."""


def encode(log: Log, identity: str, entry: Entry) -> bytes:
    """Return the bytes to append; puts the pieces of a large entry into the log first. Raises Unavailable."""
    body = json.dumps({**entry, "identity": identity}, ensure_ascii=False, separators=(",", ":")).encode()
    if len(body) <= MOST_INLINE_BYTES:
        return body
    packed = zlib.compress(body, 1)
    pieces = [packed[at:at + MOST_PIECE_BYTES] for at in range(0, len(packed), MOST_PIECE_BYTES)]
    for place, piece in enumerate(pieces):
        log.put_piece(identity + _SUFFIX, place, piece)
    digest = hashlib.sha256(packed).hexdigest()
    stored = {"stored": identity + _SUFFIX, "pieces": len(pieces), "sha256": digest}
    payload = entry.get("payload") or {}
    if "pieces" in payload:  # named outside the pieces too, so that trimming finds and drops them
        stored["payload"] = {name: payload[name] for name in ("name", "pieces")}
    return json.dumps(stored).encode()


def decode(log: Log, body: bytes) -> Entry:
    """Return the entry that encode() made into bytes. Raises Unavailable, MissingPiece, Damaged."""
    try:
        entry: dict[str, Any] = loads_wrapped(body)
        if "stored" not in entry:
            return {**entry}
        packed = b"".join(log.get_piece(entry["stored"], place) for place in range(entry["pieces"]))
        if hashlib.sha256(packed).hexdigest() != entry["sha256"]:
            raise Damaged(f"the pieces of {entry['stored']} have another SHA-256 than the entry says")
        return {**loads_wrapped(zlib.decompress(packed)), "stored": entry["stored"]}
    except (*MISFITS, zlib.error) as misfit:
        raise Damaged(f"an entry of the log cannot be read: {type(misfit).__name__}") from None


def payloads_of(body: bytes) -> Iterator[str]:
    """Yield the names of the pieces that belong to an entry."""
    entry = loads_wrapped(body)
    if "stored" in entry:
        yield entry["stored"]
    if "pieces" in (entry.get("payload") or ()):
        yield entry["payload"]["name"]


# Payloads: the uploaded documents of a task, which every node keeps as a file until the task has ended


def put_payload(log: Log, path: Path) -> dict[str, Any]:
    """Return the member `payload` of an entry for a file; puts a large file into the log in pieces. Raises Unavailable."""
    if path.stat().st_size <= MOST_SMALL_BYTES:
        return {"name": path.name, "content": base64.b64encode(zlib.compress(path.read_bytes(), 1)).decode()}
    digest, pieces = hashlib.sha256(), 0
    with path.open("rb") as file:
        for pieces, piece in enumerate(iter(lambda: file.read(_READ_BYTES), b""), 1):
            packed = zlib.compress(piece, 1)
            log.put_piece(path.name, pieces - 1, _PACKED + packed if len(packed) < len(piece) else _PLAIN + piece)
            digest.update(piece)
    return {"name": path.name, "pieces": pieces, "sha256": digest.hexdigest()}


def read_payload(log: Log, payload: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the content of a payload in pieces. Raises Unavailable, MissingPiece, and at the end Damaged."""
    if "content" in payload:
        yield zlib.decompress(base64.b64decode(payload["content"]))
        return
    digest = hashlib.sha256()
    for place in range(payload["pieces"]):
        packed = log.get_piece(payload["name"], place)
        piece = zlib.decompress(packed[1:]) if packed[:1] == _PACKED else packed[1:]
        digest.update(piece)
        yield piece
    if digest.hexdigest() != payload["sha256"]:
        raise Damaged(f"payload {payload['name']} has another SHA-256 than the entry of its task says")
