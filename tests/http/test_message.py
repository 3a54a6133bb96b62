"""Requests, their headers and their bodies.

1. The limit holds for the bytes on the wire and for each stage of unpacking, and stops a bomb early.
2. Codings are undone in reverse order; unknown ones are rejected.
3. Nothing is read before it is asked for.
4. Only spaces and tabs around values of headers are blank; every other character of Latin-1 is part of a name.
5. svcd.http uses nothing else: what str.strip() and str.split() remove by themselves is more.
"""
from __future__ import annotations

import ast
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd import http
from svcd.base.errors import ApiError
from svcd.http.message import Body, Headers, HttpError, NoBody, Request, elements, media_type, trimmed


class Pieces:
    """A body on the wire; counts what was read."""

    def __init__(self, *pieces: bytes, length: int | None = None) -> None:
        self.pieces = pieces
        self.length = length
        self.read = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            self.read += len(piece)
            yield piece


def request(path: str) -> Request:
    return Request("GET", path, "", Headers({}), Body(NoBody()), "")


@pytest.mark.parametrize(("path", "segments"), [
    ("/", ()), ("/a", ("a",)), ("/a/", ("a",)), ("//a//b", ("a", "b")), ("/a%2Fb/c", ("a/b", "c")),
    ("/caf%C3%A9", ("caf\u00e9",)), ("/caf\u00c3\u00a9", ("caf\u00e9",)), ("/%zz/%", ("%zz", "%")), ("/%ff", ("\ufffd",)),
    ("/a+b", ("a+b",)), ("*", ("*",)),
])
def test_segments_are_split_before_they_are_decoded(path: str, segments: tuple[str, ...]) -> None:
    assert request(path).segments == segments


def test_head_is_get_without_a_body() -> None:
    head = Request("HEAD", "/", "", Headers({}), Body(NoBody()), "")
    assert (head.method, head.verb) == ("GET", "HEAD")


def test_a_body_comes_in_pieces_of_the_size_asked_for() -> None:
    body = Body(Pieces(b"abcde", b"f", b"ghij"))
    assert list(body.chunks(2)) == [b"ab", b"cd", b"e", b"f", b"gh", b"ij"]
    assert Body(NoBody()).read() == b""


def test_nothing_is_read_before_it_is_asked_for() -> None:
    wire = Pieces(b"a" * 10, b"b" * 10)
    chunks = Body(wire).chunks()
    assert wire.read == 0
    next(chunks)
    assert wire.read == 10


@pytest.mark.parametrize("encoding", ["gzip, br", "GZIP,identity , br", "x-gzip,br"])
def test_codings_are_undone_in_reverse_order(encoding: str) -> None:
    assert Body(Pieces(brotli.compress(gzip.compress(b"kefir"))), encoding).read() == b"kefir"


@pytest.mark.parametrize("encoding", ["", "identity", "identity, identity", ","])
def test_identity_is_no_coding(encoding: str) -> None:
    assert Body(Pieces(b"kefir"), encoding).read() == b"kefir"


@pytest.mark.parametrize("encoding", ["zstd", "gzip, compress", "gzip" + ", gzip" * 3, "gzip\xa0", "\x85gzip"])
def test_other_codings_are_refused_before_anything_is_read(encoding: str) -> None:
    wire = Pieces(b"kefir")
    with pytest.raises(ApiError) as fault:
        Body(wire, encoding).read()
    assert (fault.value.code, fault.value.status, wire.read) == ("unsupported_media_type", 415, 0)


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate"])
def test_broken_codings_are_reported_as_by_the_interface(encoding: str) -> None:
    with pytest.raises(HttpError) as fault:
        Body(Pieces(b'"kefir"'), encoding).read()
    assert fault.value.as_json()["message"] == "The provided payload is incomplete and cannot be parsed"
    assert (fault.value.code, fault.value.status) == ("bad_request", 400)


def refused_size(body: Body) -> str:
    with pytest.raises(ApiError) as fault:
        for _ in body.chunks():
            pass
    assert (fault.value.code, fault.value.status) == ("payload_too_large", 413)
    return fault.value.message


def test_an_announced_length_above_the_limit_is_refused_before_anything_is_read() -> None:
    wire = Pieces(b"a" * 11, length=11)
    assert refused_size(Body(wire, None, 10)).endswith("The maximum accepted payload size is 10 B.")
    assert wire.read == 0


def test_the_limit_itself_is_allowed() -> None:
    assert len(Body(Pieces(b"a" * 10, length=10), None, 10).read()) == 10


def test_the_wire_has_the_limit_when_no_length_was_announced() -> None:
    wire = Pieces(*[b"a" * 10] * 10)
    refused_size(Body(wire, None, 25))
    assert wire.read == 30


BOMB = b"\0" * 50_000_000


@pytest.mark.parametrize(("encoding", "bomb"), [
    ("gzip", gzip.compress(BOMB, 1)), ("deflate", zlib.compress(BOMB, 1)), ("br", brotli.compress(BOMB, quality=1)),
    ("gzip, gzip", gzip.compress(gzip.compress(BOMB, 1))),
    # Nothing comes out at the end, but much comes by in the middle.
    ("gzip, br", brotli.compress(gzip.compress(b"") * 1_000_000, quality=1)),
])
def test_a_bomb_is_stopped_at_the_limit(encoding: str, bomb: bytes) -> None:
    refused_size(Body(Pieces(bomb), encoding, 1 << 20))


def test_a_bomb_that_is_read_whole_is_stopped_long_before_the_limit() -> None:
    for encoding, bomb in (("gzip", gzip.compress(BOMB)), ("br", brotli.compress(BOMB, quality=1))):
        with pytest.raises(ApiError, match="unpacks to more than 100 times its size") as refusal:
            Body(Pieces(bomb), encoding, 100 << 20).read()
        assert refusal.value.code == "payload_too_large"
        assert sum(map(len, Body(Pieces(bomb), encoding, 100 << 20).chunks())) == len(BOMB)  # as it comes it takes no memory


def test_what_is_packed_well_is_no_bomb() -> None:
    documents = b"\n".join(b'{"id":%d,"title":"the same film again and again"}' % number for number in range(200_000))
    for encoding, packed in (("gzip", gzip.compress(documents)), ("br", brotli.compress(documents, quality=5))):
        assert len(Body(Pieces(packed), encoding, 100 << 20).read()) == len(documents) > 10_000_000


# Values of headers

LATIN_1 = "".join(map(chr, range(256)))
OTHERS = LATIN_1.replace(" ", "").replace("\t", "")
TAKING_MORE = {"strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "isspace"}


@pytest.mark.parametrize("blank", [" ", "\t", " \t\t "])
def test_spaces_and_tabs_are_trimmed(blank: str) -> None:
    assert trimmed(f"{blank}a{blank}b{blank}") == f"a{blank}b"
    assert elements(f"{blank}Close{blank},{blank}TE") == ["close", "te"]
    assert media_type(f"{blank}Text/CSV{blank};{blank}charset=utf-8") == "text/csv"


def test_nothing_else_is_trimmed() -> None:
    for character in OTHERS:
        assert trimmed(f"{character}a{character}") == f"{character}a{character}"


@given(st.text(LATIN_1))
def test_elements_are_those_of_the_grammar(value: str) -> None:
    """Against the grammar on bytes, where no character has a meaning by itself."""
    expected = [re.sub(rb"\A[ \t]+|[ \t]+\Z", b"", part) for part in value.lower().encode("latin-1").split(b",")]
    assert [element.encode("latin-1") for element in elements(value)] == expected


@pytest.mark.parametrize("module", sorted(Path(http.__path__[0]).glob("*.py")), ids=lambda path: path.stem)
def test_no_module_leaves_it_to_python_what_is_blank(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            assert node.func.attr not in TAKING_MORE, f"line {node.lineno}"
