"""Content codings.

1. What is packed unpacks to the same, whole or cut anywhere; a stream too.
2. Several gzip members are one body; padding with zeros is none.
3. Cut off or damaged bytes are errors, and so are bytes after the end.
4. A bomb comes out in small pieces, as they are asked for.
5. Without brotli the other codings are used, and br bodies are rejected.
"""
from __future__ import annotations

import gzip
import itertools
import sys
import zlib
from collections.abc import Iterator
from types import SimpleNamespace

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.errors import ApiError
from svcd.http import content_coding, delivery
from svcd.http.content_coding import UNPACKERS, BrokenCoding, pack, pack_stream
from svcd.http.message import content_codings

TEXT = b'{"id": 1, "title": "Star Wars"}\n' * 200
# Unlike ours: written by the libraries' own one-call functions.
FOREIGN = {"br": brotli.compress, "gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress}


def whole(name: str, *pieces: bytes) -> bytes:
    return b"".join(UNPACKERS[name](iter(pieces)))


@pytest.mark.parametrize("name", content_coding.PACKERS)
@given(body=st.binary(max_size=300), cut=st.integers(1, 7))
def test_what_goes_in_comes_out(name: str, body: bytes, cut: int) -> None:
    packed = pack(name, body)
    assert whole(name, packed) == body
    assert whole(name, *(packed[i:i + cut] for i in range(0, len(packed), cut))) == body


@pytest.mark.parametrize("name", content_coding.UNPACKERS)
def test_the_libraries_and_we_understand_each_other(name: str) -> None:
    assert whole(name, FOREIGN[name](TEXT)) == TEXT
    assert whole(name) == b""


@pytest.mark.parametrize("name", content_coding.PACKERS)
def test_each_piece_of_a_stream_can_be_read_at_once(name: str) -> None:
    packed = pack_stream(name, iter([b"first", b"", b"second"]))
    unpacked = UNPACKERS[name](packed)
    assert next(unpacked) == b"first"
    assert next(unpacked) == b"second"
    assert list(unpacked) == []


def test_gzip_members_are_one_body_and_zeros_are_padding() -> None:
    members = gzip.compress(b"one ") + b"\0" * 5 + gzip.compress(b"two") + b"\0" * 512
    assert whole("gzip", members) == b"one two"
    assert whole("gzip", *(bytes([byte]) for byte in members)) == b"one two"


@pytest.mark.parametrize("name", content_coding.UNPACKERS)
@pytest.mark.parametrize("cut", [1, 5, -9, -1])
def test_bytes_cut_off_are_broken(name: str, cut: int) -> None:
    with pytest.raises(BrokenCoding):
        whole(name, FOREIGN[name](TEXT)[:cut])


@pytest.mark.parametrize("name", content_coding.UNPACKERS)
@pytest.mark.parametrize("wrong", [b'"kefir"', b"\xff" * 50, b"{}"])
def test_other_bytes_are_broken(name: str, wrong: bytes) -> None:
    with pytest.raises(BrokenCoding):
        whole(name, wrong)


@pytest.mark.parametrize("name", content_coding.UNPACKERS)
@pytest.mark.parametrize("is_apart", [True, False])
def test_bytes_after_the_end_are_broken(name: str, is_apart: bool) -> None:
    packed = FOREIGN[name](TEXT)
    with pytest.raises(BrokenCoding):
        whole(name, packed, b"more") if is_apart else whole(name, packed + b"more")


@pytest.mark.parametrize("name", content_coding.UNPACKERS)
def test_a_bomb_comes_out_in_small_pieces(name: str) -> None:
    bomb = b"".join(pack_stream("gzip" if name == "x-gzip" else name, itertools.repeat(b"\0" * 1_000_000, 20)))
    assert len(bomb) < 120_000
    sizes = [len(piece) for piece in UNPACKERS[name](iter([bomb]))]
    assert sum(sizes) == 20_000_000 and max(sizes) <= 2 * content_coding.UNPACKED_PIECE


# -- Without brotli


@pytest.fixture(params=["none", "old"])
def without_brotli(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """brotli is not installed, or older than 1.2."""
    old = SimpleNamespace(Decompressor=object)
    monkeypatch.setitem(sys.modules, "brotli", None if request.param == "none" else old)
    content_coding._brotli_module.cache_clear()
    delivery._choose_coding.cache_clear()
    yield
    monkeypatch.undo()
    content_coding._brotli_module.cache_clear()
    delivery._choose_coding.cache_clear()


@pytest.mark.usefixtures("without_brotli")
def test_without_brotli_the_other_codings_are_used() -> None:
    assert delivery.choose_coding("br") == ""
    assert delivery.choose_coding("gzip, deflate, br") == "gzip"
    assert content_codings("gzip") == ["gzip"]
    with pytest.raises(ApiError, match=r"`br` is not supported: expected at most 3 of `gzip`, `deflate`, `identity`\.") as refused:
        content_codings("br")
    assert refused.value.headers == (("Accept-Encoding", "gzip, deflate"),)


def test_with_brotli_it_is_preferred() -> None:
    assert delivery.choose_coding("gzip, deflate, br") == "br"
    assert content_codings("br") == ["br"]
