"""Content codings: br, gzip and deflate, unpacked and packed piece by piece in bounded memory (docs/http.md#content-codings).

Sizes are limited by the reader of the pieces, which stops when there are too many.
"""
from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Protocol

# Unpacked pieces are about this large (brotli: up to one and a half times), however well they were compressed.
UNPACKED_PIECE = 65536
# Clients send one coding; a careless proxy may add a second.
MAX_CODINGS = 3

GZIP_WINDOW = 31  # zlib's way to say: 15 bits of window, gzip header and trailer
ZLIB_WINDOW = 15
RAW_WINDOW = -15  # neither header nor trailer
EMPTY_LAST_BLOCK = b"\x03\0"  # of deflate (RFC 1951): the end

# A client waits while an answer is packed, so these are the levels that still cost about what the fastest costs. On a 4.4 kB
# answer: br 2 20 us and 1,912 bytes (br 5: 49 us, 1,719), gzip 3 19 us and 1,948 bytes (gzip 6: 25 us, 1,901).
ZLIB_LEVEL = 3
BROTLI_QUALITY = 2
BROTLI_WINDOW = 18  # 256 kB: memory per answer matters more than the last per cent of compression


class BrokenCoding(Exception):
    """Compressed bytes that are cut off or damaged."""


class Packer(Protocol):
    """A compressor at work on one answer."""

    def pack(self, piece: bytes) -> bytes: ...

    def flush(self) -> bytes: ...

    def finish(self) -> bytes: ...


class _Unbrotli(Protocol):
    """brotli.Decompressor, as far as it is used."""

    def process(self, piece: bytes, *, output_buffer_limit: int) -> bytes: ...

    def can_accept_more_data(self) -> bool: ...


def unpack(coding: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The unpacked bytes of a coding of UNPACKERS; no bytes at all unpack to none. Raises BrokenCoding."""
    return UNPACKERS[coding](pieces)


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """gzip: one or more members, as `cat a.gz b.gz` makes them; zeros between and after them are padding."""
    inflater = None
    for piece in pieces:
        while piece:
            if inflater is None:
                piece = piece.lstrip(b"\0")
                inflater = zlib.decompressobj(GZIP_WINDOW) if piece else None
                continue
            unpacked, piece = _inflate(inflater, piece)
            if unpacked:
                yield unpacked
            if inflater.eof:
                inflater = None
    if inflater is not None:
        yield from _rest(inflater)


def _inflate_zlib(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """deflate: what HTTP calls so is the zlib format; nothing may follow it."""
    inflater = None
    for piece in pieces:
        inflater = inflater or zlib.decompressobj(ZLIB_WINDOW)
        while piece:
            if inflater.eof:
                raise BrokenCoding("bytes after the end")
            unpacked, piece = _inflate(inflater, piece)
            if unpacked:
                yield unpacked
    if inflater is not None:
        yield from _rest(inflater)


def _inflate(inflater: zlib._Decompress, piece: bytes) -> tuple[bytes, bytes]:
    """(unpacked, the part of the piece that is still to be unpacked)"""
    try:
        unpacked = inflater.decompress(piece, UNPACKED_PIECE)
    except zlib.error as broken:
        raise BrokenCoding(str(broken)) from broken
    return unpacked, inflater.unused_data if inflater.eof else inflater.unconsumed_tail


def _rest(inflater: zlib._Decompress) -> Iterator[bytes]:
    """The rest that is still inside the inflater; raises BrokenCoding if the end is missing."""
    while not inflater.eof:
        unpacked, _ = _inflate(inflater, b"")
        if not unpacked and not inflater.eof:
            raise BrokenCoding("cut off")
        if unpacked:
            yield unpacked


@cache
def _brotli_module() -> Any:
    """The module brotli; None if it is not installed, or older than 1.2, which cannot unpack in bounded memory.

    Imported lazily: many daemons never see a br body, nor a client that asks for one.
    """
    try:
        import brotli
    except ImportError:
        return None
    return brotli if hasattr(brotli.Decompressor, "can_accept_more_data") else None


def is_available(coding: str) -> bool:
    """Can this installation pack and unpack a coding of PACKERS or UNPACKERS? All but br always."""
    return coding != "br" or _brotli_module() is not None


def _unbrotli(pieces: Iterator[bytes]) -> Iterator[bytes]:
    brotli = _brotli_module()
    unpacker = None
    try:
        for piece in pieces:
            unpacker = unpacker or brotli.Decompressor()
            yield from _unbrotli_piece(unpacker, piece)
    except brotli.error as broken:
        raise BrokenCoding(str(broken)) from broken
    if unpacker is not None and not unpacker.is_finished():
        raise BrokenCoding("cut off")


def _unbrotli_piece(unpacker: _Unbrotli, piece: bytes) -> Iterator[bytes]:
    unpacked = unpacker.process(piece, output_buffer_limit=UNPACKED_PIECE)
    # can_accept_more_data() may be true while bytes still wait to come out: only an empty answer is the end.
    while unpacked or not unpacker.can_accept_more_data():
        if unpacked:
            yield unpacked
        unpacked = unpacker.process(b"", output_buffer_limit=UNPACKED_PIECE)


UNPACKERS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    "br": _unbrotli,
    "gzip": _gunzip,
    "x-gzip": _gunzip,  # the same, says RFC 9110 8.4.1.3
    "deflate": _inflate_zlib,
}


class _Zlib:
    """gzip or deflate."""

    def __init__(self, window: int) -> None:
        deflater = zlib.compressobj(ZLIB_LEVEL, zlib.DEFLATED, window)
        self.pack = deflater.compress
        self.flush = lambda: deflater.flush(zlib.Z_SYNC_FLUSH)
        self.finish = deflater.flush


class _Brotli:
    def __init__(self) -> None:
        compressor = _brotli_module().Compressor(quality=BROTLI_QUALITY, lgwin=BROTLI_WINDOW)
        self.pack = compressor.process
        self.flush = compressor.flush
        self.finish = compressor.finish


PACKERS: dict[str, Callable[[], Packer]] = {  # in our order of preference
    "br": _Brotli,
    "gzip": lambda: _Zlib(GZIP_WINDOW),
    "deflate": lambda: _Zlib(ZLIB_WINDOW),
}


def pack(coding: str, body: bytes) -> bytes:
    """The whole body in a coding of PACKERS."""
    packer = PACKERS[coding]()
    return packer.pack(body) + packer.finish()


def pack_portions(coding: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Each portion of a large answer packed, with next to no memory held between two of them: there may be hundreds."""
    if coding in WRAPPERS:
        return _pack_apart(WRAPPERS[coding](), pieces)
    return pack_stream(coding, pieces)


def _pack_apart(wrapper: Wrapper, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """One deflate stream in which no piece refers to earlier ones: the 256 kB of a deflater are held for one piece only."""
    head = wrapper.head
    for piece in pieces:
        wrapper.add(piece)
        deflater = zlib.compressobj(ZLIB_LEVEL, zlib.DEFLATED, RAW_WINDOW)
        yield head + deflater.compress(piece) + deflater.flush(zlib.Z_FULL_FLUSH)
        head = b""
    yield head + EMPTY_LAST_BLOCK + wrapper.tail()


class Wrapper(Protocol):
    """Header and trailer around raw deflate."""

    head: bytes

    def add(self, piece: bytes) -> None: ...

    def tail(self) -> bytes: ...


class _Gzip:
    """RFC 1952: no name, no time, of an unknown system; the trailer has CRC and length."""

    head = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"

    def __init__(self) -> None:
        self._sum = self._size = 0

    def add(self, piece: bytes) -> None:
        self._sum, self._size = zlib.crc32(piece, self._sum), self._size + len(piece)

    def tail(self) -> bytes:
        return struct.pack("<LL", self._sum, self._size & 0xFFFFFFFF)


class _Zlib1950:
    """RFC 1950: a window of 32 kB; the trailer has the Adler-32."""

    head = b"\x78\x01"

    def __init__(self) -> None:
        self._sum = zlib.adler32(b"")

    def add(self, piece: bytes) -> None:
        self._sum = zlib.adler32(piece, self._sum)

    def tail(self) -> bytes:
        return struct.pack(">L", self._sum)


WRAPPERS: dict[str, Callable[[], Wrapper]] = {"gzip": _Gzip, "deflate": _Zlib1950}


def pack_stream(coding: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Each piece packed and flushed, so that every event of a stream arrives at once."""
    packer = PACKERS[coding]()
    for piece in pieces:
        yield packer.pack(piece) + packer.flush() if piece else b""
    yield packer.finish()
