"""Content codings: br, gzip and deflate, unpacked and packed piece by piece in bounded memory (docs/http.md#content-codings).

The reader of the pieces limits the size: it stops reading when it has got too many bytes.
"""
from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

# Unpacked pieces are about this large (brotli: up to one and a half times), however well they were compressed.
UNPACKED_PIECE = 65536
# Clients send one coding; a careless proxy may add a second one.
MAX_CODINGS = 3

GZIP_WINDOW = 31  # zlib's way to say: 15 bits of window, gzip header and trailer
ZLIB_WINDOW = 15
RAW_WINDOW = -15  # neither header nor trailer
EMPTY_LAST_BLOCK = b"\x03\0"  # of deflate (RFC 1951): the end

# A client waits while its response is packed, so these levels cost about as little as the fastest one. On a response of 4.4 kB:
# br 2 takes 20 us and gives 1,912 bytes (br 5: 49 us, 1,719); gzip 3 takes 19 us and gives 1,948 bytes (gzip 6: 25 us, 1,901).
ZLIB_LEVEL = 3
BROTLI_QUALITY = 2
BROTLI_WINDOW = 18  # 256 kB: memory per response matters more than the last per cent of compression


class BrokenCoding(Exception):
    """Compressed bytes that are cut off or damaged."""


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """gzip: one or more members, as `cat a.gz b.gz` produces them; zeros between and after them are padding."""
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
    """deflate, the HTTP name of the zlib format; nothing may follow the end."""
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
    """Return (unpacked bytes, the part of the piece that remains to be unpacked)."""
    try:
        unpacked = inflater.decompress(piece, UNPACKED_PIECE)
    except zlib.error as broken:
        raise BrokenCoding(str(broken)) from broken
    return unpacked, inflater.unused_data if inflater.eof else inflater.unconsumed_tail


def _rest(inflater: zlib._Decompress) -> Iterator[bytes]:
    """Yield the bytes that are still inside the inflater. Raises BrokenCoding if the end is missing."""
    while not inflater.eof:
        unpacked, _ = _inflate(inflater, b"")
        if not unpacked and not inflater.eof:
            raise BrokenCoding("cut off")
        if unpacked:
            yield unpacked


@cache
def _brotli_module() -> Any:
    """Return the module brotli; None if it is missing, or older than 1.2, which cannot unpack in bounded memory.

    Imported late: many daemons never see a br body or a client that asks for br.
    """
    try:
        import brotli
    except ImportError:
        return None
    return brotli if hasattr(brotli.Decompressor, "can_accept_more_data") else None


def is_available(coding: str) -> bool:
    """Return whether this installation can pack and unpack a coding of PACKERS or UNPACKERS; only br may be missing."""
    return coding != "br" or _brotli_module() is not None


def _unbrotli(pieces: Iterator[bytes]) -> Iterator[bytes]:
    brotli = _brotli_module()
    unpacker = None
    try:
        for piece in pieces:
            unpacker = unpacker or brotli.Decompressor()
            unpacked = unpacker.process(piece, output_buffer_limit=UNPACKED_PIECE)
            # can_accept_more_data() may be true while output is still pending: only an empty result is the end.
            while unpacked or not unpacker.can_accept_more_data():
                if unpacked:
                    yield unpacked
                unpacked = unpacker.process(b"", output_buffer_limit=UNPACKED_PIECE)
    except brotli.error as broken:
        raise BrokenCoding(str(broken)) from broken
    if unpacker is not None and not unpacker.is_finished():
        raise BrokenCoding("cut off")


# An empty body unpacks to nothing. They raise BrokenCoding. x-gzip is the same coding as gzip (RFC 9110 8.4.1.3).
UNPACKERS: dict[str, Callable[[Iterator[bytes]], Iterator[bytes]]] = {
    "br": _unbrotli, "gzip": _gunzip, "x-gzip": _gunzip, "deflate": _inflate_zlib,
}


class Packer(NamedTuple):
    """A compressor of one response."""

    pack: Callable[[bytes], bytes]
    flush: Callable[[], bytes]
    finish: Callable[[], bytes]


def _zlib(window: int) -> Packer:
    deflater = zlib.compressobj(ZLIB_LEVEL, zlib.DEFLATED, window)
    return Packer(deflater.compress, lambda: deflater.flush(zlib.Z_SYNC_FLUSH), deflater.flush)


def _brotli() -> Packer:
    compressor = _brotli_module().Compressor(quality=BROTLI_QUALITY, lgwin=BROTLI_WINDOW)
    return Packer(compressor.process, compressor.flush, compressor.finish)


PACKERS: dict[str, Callable[[], Packer]] = {  # in our order of preference
    "br": _brotli, "gzip": lambda: _zlib(GZIP_WINDOW), "deflate": lambda: _zlib(ZLIB_WINDOW),
}
# Around raw deflate: (header, checksum, its first value, trailer from checksum and size).
# gzip (RFC 1952): header without name and time, for an unknown system; trailer with CRC and length.
# deflate (RFC 1950): header for a window of 32 kB; trailer with Adler-32.
WRAPPERS: dict[str, tuple[bytes, Callable[[bytes, int], int], int, Callable[[int, int], bytes]]] = {
    "gzip": (b"\x1f\x8b\x08\0\0\0\0\0\0\xff", zlib.crc32, 0, lambda crc, size: struct.pack("<LL", crc, size & 0xFFFFFFFF)),
    "deflate": (b"\x78\x01", zlib.adler32, 1, lambda adler, size: struct.pack(">L", adler)),
}


def pack(coding: str, body: bytes) -> bytes:
    """Pack a whole body in a coding of PACKERS."""
    packer = PACKERS[coding]()
    return packer.pack(body) + packer.finish()


def pack_portions(coding: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pack each portion of a large response, holding next to no memory between portions: hundreds may be in progress.

    gzip and deflate give one stream in which no piece refers to earlier ones, so the 256 kB of a deflater are held for the
    time of one piece only.
    """
    if coding not in WRAPPERS:
        yield from pack_stream(coding, pieces)
        return
    head, checksum, total, trailer = WRAPPERS[coding]
    size = 0
    for piece in pieces:
        total, size = checksum(piece, total), size + len(piece)
        deflater = zlib.compressobj(ZLIB_LEVEL, zlib.DEFLATED, RAW_WINDOW)
        yield head + deflater.compress(piece) + deflater.flush(zlib.Z_FULL_FLUSH)
        head = b""
    yield head + EMPTY_LAST_BLOCK + trailer(total, size)


def pack_stream(coding: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pack and flush each piece, so that every event of a stream arrives at once."""
    packer = PACKERS[coding]()
    for piece in pieces:
        yield packer.pack(piece) + packer.flush() if piece else b""
    yield packer.finish()
