"""The log. What must hold:

1. An event is printed if its level is high enough, and costs nothing otherwise.
2. An event is one line whatever its fields contain, or one JSON object.
3. No key is printed, and no query string.
4. Threads do not mix their lines; a broken stream stops nothing.
"""
from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator

import pytest

from svcd.base import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What is logged lands here."""
    buffer = io.StringIO()
    logs.configure("TRACE", "HUMAN", buffer)
    yield buffer
    logs.configure()


NAMES = ("error", "warn", "info", "debug", "trace")


@pytest.mark.parametrize("level", logs.LEVELS)
def test_a_level_shows_itself_and_what_is_graver(level: str, stream: io.StringIO) -> None:
    logs.configure(level, "HUMAN", stream)
    for name in NAMES:
        getattr(logs, name)(name)
    shown = [line.split()[-1] for line in stream.getvalue().splitlines()]
    assert shown == list(NAMES[:logs.LEVELS[level]])


def test_a_line_has_time_level_event_and_fields(stream: io.StringIO) -> None:
    logs.info("opened", index="movies", documents=3, note="two words", left=None)
    assert re.fullmatch(
        r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z  INFO opened index=movies documents=3 note="two words"\n',
        stream.getvalue())


def test_json_is_one_object_a_line(stream: io.StringIO) -> None:
    logs.configure("INFO", "JSON", stream)
    logs.info("opened", index="mo\nvies\udcff", left=None)
    line = json.loads(stream.getvalue())
    assert stream.getvalue().count("\n") == 1
    assert (line["level"], line["event"], line["index"], line["left"]) == ("INFO", "opened", "mo\nvies\udcff", None)
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("text", ["a\nb", "a\r\x1b[2Jb", "a\u2028b", "\x85", 'say "x" status=200', "back\\slash", ""])
def test_no_field_can_break_a_line_or_end_its_value(text: str, stream: io.StringIO) -> None:
    logs.warn("odd", path=text)
    line = stream.getvalue()
    assert len(line.splitlines()) == 1
    assert re.search(r'path="(?:[^"\\]|\\.)*"$', line.rstrip("\n"))


@pytest.mark.parametrize(("path", "shown"), [
    ("/keys/secret-key", "/keys/***"), ("//keys//secret-key/x", "//keys//***/x"), ("/keys", "/keys"),
    ("/indexes/keys/documents", "/indexes/keys/documents"),
])
def test_a_key_in_a_path_is_not_printed(path: str, shown: str, stream: io.StringIO) -> None:
    logs.request("GET", path, 200, 0.0125, 42, "127.0.0.1")
    assert f"INFO request method=GET path={shown} status=200 ms=12.5 bytes=42 client=127.0.0.1" in stream.getvalue()


@pytest.mark.parametrize(("status", "level"), [(200, "INFO"), (413, "INFO"), (501, "INFO"), (503, "WARN"), (500, "ERROR")])
def test_a_request_is_an_error_in_the_log_if_the_daemon_failed(status: int, level: str, stream: io.StringIO) -> None:
    logs.request("GET", "/health", status, 0.1, 2, "::1")
    assert f" {level} request" in stream.getvalue()


def test_a_request_below_the_level_is_not_printed(stream: io.StringIO) -> None:
    logs.configure("ERROR", "HUMAN", stream)
    logs.request("GET", "/health", 200, 0.1, 2, "::1")
    assert stream.getvalue() == ""


def test_a_batch_is_one_line(stream: io.StringIO) -> None:
    logs.batch(3, kind="documentAdditionOrUpdate", index_uid="movies", tasks=2, failed=0, seconds=1.23456, documents=9)
    assert stream.getvalue().endswith(
        " INFO batch uid=3 kind=documentAdditionOrUpdate index=movies tasks=2 failed=0 seconds=1.235 documents=9\n")


def test_a_bug_brings_its_traceback(stream: io.StringIO) -> None:
    try:
        raise KeyError("x")
    except KeyError as bug:
        logs.failure("internal", bug)
        logs.configure("ERROR", "JSON", stream)
        logs.failure("internal", bug)
    *text, line = stream.getvalue().splitlines()
    assert text[0].endswith("ERROR internal \n".rstrip("\n").rstrip()) or "ERROR internal" in text[0]
    assert any("KeyError" in row and row.startswith("  ") for row in text)
    assert "KeyError" in json.loads(line)["details"]


def test_announce_is_shown_at_every_level_but_off(stream: io.StringIO) -> None:
    logs.configure("ERROR", "HUMAN", stream)
    logs.announce("svcd", {"address": "x", "key": "none"})
    assert stream.getvalue() == "svcd\n  address  x\n  key      none\n"
    logs.configure("OFF", "HUMAN", stream)
    logs.announce("svcd", {"address": "x"})
    assert stream.getvalue().count("svcd") == 1


def test_announce_in_json_is_one_line(stream: io.StringIO) -> None:
    logs.configure("WARN", "JSON", stream)
    logs.announce("svcd", {"address": "x"})
    assert json.loads(stream.getvalue())["address"] == "x"


def test_threads_do_not_mix_their_lines(stream: io.StringIO) -> None:
    def chatter(name: str) -> None:
        for _ in range(200):
            logs.info(name, text=name * 20)

    threads = [threading.Thread(target=chatter, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 800
    assert all(re.search(r"INFO (\w) text=\1{20}$", line) for line in lines)


class _Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


def test_a_broken_stream_does_not_stop_others() -> None:
    logs.configure("INFO", "HUMAN", _Broken())
    try:
        logs.info("unheard")
    finally:
        logs.configure()
