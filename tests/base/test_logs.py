"""What must hold of the targets of log lines:

1. A level alone is for all modules; a name with a level is for modules with this prefix, and the longest prefix counts.
2. A name alone wants all its events; events of a module without rule are not wanted.
3. A text that cannot be parsed is rejected with a message; printed targets parse back.
4. Printing and the follower have targets of their own.
"""
from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from svcd.base import logs
from svcd.base.logs import DEBUG, ERROR, INFO, OFF, TRACE, WARN, parse

TOO_MANY = "invalid filter directive: too many '=' in filter directive, expected 0 or 1"
NO_LEVEL = 'error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5'


def most(text: str, part: str) -> int:
    wanted = parse(text)
    return max((level for level in range(1, 6) if wanted.wants(level, part)), default=OFF)


@pytest.mark.parametrize(("text", "part", "level"), [
    ("info", "svcd.http", INFO), ("INFO", "svcd.cli.daemon", INFO), ("off", "svcd.http", OFF), ("4", "svcd.http", DEBUG),
    ("svcd.http=warn", "svcd.http", WARN), ("svcd.http=warn", "svcd.tasks", OFF), ("svcd.http", "svcd.http", TRACE),
    ("svcd=error,svcd.http=debug", "svcd.http.server", DEBUG), ("svcd.http=debug,svcd=error", "svcd.tasks", ERROR),
    ("info,svcd.http=off", "svcd.http", OFF), ("info,svcd.http=off", "svcd.tasks", INFO), ("svc=info", "svcd.http", INFO),
    ("index_scheduler=debug", "svcd.tasks", DEBUG), ("actix_web=off,info", "svcd.http", OFF),
    ("milli::search=trace", "svcd.search.search", TRACE), ("warn,info", "svcd", INFO), (" info , svcd = off ", "x", INFO),
    (",", "svcd", OFF), ("svcd=", "svcd.http", ERROR), ("=", "svcd", ERROR),
])
def test_the_longest_beginning_counts(text: str, part: str, level: int) -> None:
    assert most(text, part) == level
    assert most(str(parse(text)), part) == level
    assert parse(text).most >= level


@pytest.mark.parametrize(("text", "reason"), [
    ("==", TOO_MANY), ("a=b=c", TOO_MANY), ("info,a==", TOO_MANY), ("svcd=loud", NO_LEVEL), ("svcd=6", NO_LEVEL),
])
def test_what_cannot_be_understood_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert str(refused.value) == reason


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    buffer = io.StringIO()
    logs.configure("INFO", "HUMAN", buffer)
    yield buffer
    logs.configure()


def test_an_event_is_of_the_module_that_logs_it(stream: io.StringIO) -> None:
    heard: list[logs.Event] = []
    assert logs.follow(parse("trace"), heard.append)
    try:
        logs.trace("here", a=1)
        logs.failure("broken", "lines")
        logs.request("GET", "/", 200, 0.1, 2, "::1")
        logs.batch(1, kind="k", index_uid=None, tasks=1, failed=0, seconds=1.0)
    finally:
        logs.unfollow(heard.append)
    # A bound method is equal to itself, so this was the listener.
    assert [(event.part, event.name) for event in heard] == [
        (__name__, "here"), (__name__, "broken"), ("svcd.http", "request"), ("svcd.tasks", "batch")]
    assert "here" not in stream.getvalue() and "broken" in stream.getvalue()


def test_what_is_printed_can_be_directed(stream: io.StringIO) -> None:
    logs.set_targets(parse("debug,svcd.http=off"))
    logs.debug("shown")
    logs.request("GET", "/", 500, 0.1, 2, "::1")
    assert "shown" in stream.getvalue() and "request" not in stream.getvalue()
    logs.set_targets(parse("off"))
    logs.error("not shown")
    assert not logs.is_enabled(logs.ERROR) and "not shown" not in stream.getvalue()


def test_one_listens_at_a_time(stream: io.StringIO) -> None:
    first: list[logs.Event] = []
    second: list[logs.Event] = []
    assert logs.follow(parse("info"), first.append) and not logs.follow(parse("info"), second.append)
    logs.info("one")
    logs.unfollow(print)
    logs.unfollow(first.append)
    logs.info("two")
    assert [event.name for event in first] == ["one"] and second == []
    assert stream.getvalue().count("\n") == 2
