"""What must hold of bodies that are made to cost much.

1. Bombs of every coding, JSON nested 100,000 deep, and numbers of 100,000 digits are answered with 4xx within a second.
2. Memory stays flat meanwhile.
3. A document of 60,000 attributes is within the limit of an index (65,535) and is indexed; one of 70,000 fails its task. Neither takes
   more memory than an upload may.

tests/system/test_bad_input.py holds the same of bodies that are merely wrong.
"""
from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator

import brotli
import pytest

from tests.support.daemon import Daemon, memory_watched
from tests.support.pace import is_within

SOON_S = 1.0
FLAT_MB, WIDE_MB = 16.0, 200.0
DEEP = 100_000
MB = bytes(1 << 20)
JSON, NDJSON = "application/json", "application/x-ndjson"
DOCUMENTS, SETTINGS, SEARCH = ("POST", "/indexes/films/documents"), ("PATCH", "/indexes/films/settings"), ("POST", "/indexes/films/search")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def films(daemon: Daemon) -> None:
    """An index with a film."""
    assert daemon.done(daemon.post(DOCUMENTS[1], [{"id": 1, "title": "Star Wars"}]))["status"] == "succeeded"


def gzipped(piece: bytes, count: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()


def brotlied(piece: bytes, count: int) -> bytes:
    packer = brotli.Compressor(quality=5)
    return b"".join(packer.process(piece) for _ in range(count)) + packer.finish()


def bombs(megabytes: int) -> Iterator[tuple[str, str, bytes]]:
    """What it is, its codings, and bytes that unpack to so many megabytes."""
    blanks, film = b" " * len(MB), b'{"id":1,"title":"x"}\n' * (len(MB) // 21)
    yield "blanks", "gzip", gzipped(blanks, megabytes)
    yield "blanks", "br", brotlied(blanks, megabytes)
    yield "blanks twice", "gzip, gzip", gzipped(gzipped(blanks, megabytes), 1)
    yield "the same film", "br", brotlied(film, megabytes)
    yield "one text", "gzip", gzipped(b'[{"id":1,"title":"' + b"x" * len(MB), megabytes)


def test_bombs_are_refused_at_once(daemon: Daemon, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    megabytes, slowest = amount(101, 1000), 0.0
    with memory_watched(daemon, 0.005) as memory:
        for name, coding, body in bombs(megabytes):
            # Documents go to the disk as they come, up to the limit: what repeats itself may be an upload like any other.
            uploads = ((DOCUMENTS, JSON), (DOCUMENTS, NDJSON)) if name.startswith("blanks") and megabytes > 100 else ()
            for (method, path), kind in (*uploads, (SETTINGS, JSON), (SEARCH, JSON)):
                reply = daemon.call(method, path, body, {"content-type": kind, "content-encoding": coding})
                assert reply.status in (400, 413), (name, coding, path, reply.body[:200])
                slowest = max(slowest, reply.seconds)
    figure(f"bombs of {megabytes} MB: the slowest refusal", slowest, "s", limit="under 1 s")
    figure(f"bombs of {megabytes} MB: memory", memory[1] - memory[0], "MB more", limit="under 16 MB")
    assert is_within(slowest, SOON_S) and memory[1] - memory[0] < FLAT_MB


def test_depth_and_digits_are_refused_at_once(daemon: Daemon, figure: Callable[..., None]) -> None:
    digits = "9" * DEEP
    bodies = {
        "lists": "[" * DEEP + "]" * DEEP, "objects": '{"a":' * DEEP + "1" + "}" * DEEP, "inside": '[{"id":2,"a":' + "[" * DEEP + "]" * DEEP + "}]",
        "never closed": "[" * DEEP, "an integer": f'[{{"id":2,"a":{digits}}}]', "an exponent": f'[{{"id":2,"a":1e{digits}}}]',
        "zeros": f'[{{"id":2,"a":{"0" * DEEP}}}]', "a filter": json.dumps({"filter": "(" * DEEP + "a=1" + ")" * DEEP}),
        "negations": json.dumps({"filter": "NOT " * DEEP + "a=1"}), "a limit": f'{{"limit":{digits}}}',
        "a number in a filter": json.dumps({"filter": f"a = {digits}"}),
    }
    slowest = 0.0
    with memory_watched(daemon, 0.005) as memory:
        for name, body in bodies.items():
            for method, path in (DOCUMENTS, SETTINGS, SEARCH, ("POST", "/multi-search")):
                if path == DOCUMENTS[1] and name in ("a filter", "negations", "a number in a filter"):
                    continue  # a text as any other
                reply = daemon.call(method, path, body)
                assert 400 <= reply.status < 500, (name, path, reply.body[:200])
                slowest = max(slowest, reply.seconds)
    figure("JSON 100,000 deep, numbers of 100,000 digits: the slowest refusal", slowest, "s", limit="under 1 s")
    figure("JSON 100,000 deep, numbers of 100,000 digits: memory", memory[1] - memory[0], "MB more", limit="under 16 MB")
    assert is_within(slowest, SOON_S) and memory[1] - memory[0] < FLAT_MB


def test_very_many_attributes(daemon: Daemon, amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    with memory_watched(daemon) as memory:
        for count, status in ((amount(5000, 60_000), "succeeded"), (70_000, "failed")):
            reply = daemon.post(f"/indexes/wide{count}/documents", [{"id": 1, **{f"a{number}": number for number in range(count)}}])
            task = daemon.done(reply)
            assert task["status"] == status, task["error"]
    assert task["error"]["code"] == "max_fields_limit_exceeded"
    figure("documents of 60,000 and 70,000 attributes: memory", memory[1], "MB", limit="under 200 MB")
    assert memory[1] < WIDE_MB
