"""Log lines on stderr: one event a line, for people (HUMAN) or for machines (JSON).

Knows levels, how a line is written, and that a line never holds a secret or breaks in two; refuses to
know who logs what. Nothing here raises: a daemon outlives the reader of its log.

Threads: any thread may log. `_lock` guards the stream, so that lines never mix; the set-up is one
immutable object that is replaced as a whole.
"""
from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

OFF, ERROR, WARN, INFO, DEBUG, TRACE = range(6)
LEVELS: dict[str, int] = {
    "OFF": OFF, "ERROR": ERROR, "WARN": WARN, "INFO": INFO, "DEBUG": DEBUG, "TRACE": TRACE,
}
MODES = ("HUMAN", "JSON")
_NAMES = tuple(LEVELS)

# `GET /keys/{key}` carries an API key in its path.
_KEY_IN_PATH = re.compile(r"^(/+keys/+)[^/]+")
# Of the 5xx, those that speak of what the client sent: a coding or a version that HTTP has no other word for.
_CLIENT_FAULTS = frozenset((501, 505))
# What needs no quotes in `name=value`: nothing that could end the value early.
_NEEDS_QUOTES = re.compile(r'[\s"=\\]')


class _SetUp(NamedTuple):
    """What is printed, how, and where. stream None: the stderr of the moment."""

    level: int = INFO
    as_json: bool = False
    stream: TextIO | None = None


_set_up = _SetUp()
_lock = threading.Lock()


def _renew_lock() -> None:
    """A child made by fork must not inherit a lock that another thread holds."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def configure(level: str = "INFO", mode: str = "HUMAN", stream: TextIO | None = None) -> None:
    """Print events of this level and graver ones. level: a name of LEVELS; mode: one of MODES."""
    global _set_up
    _set_up = _SetUp(LEVELS[level.upper()], mode.upper() == "JSON", stream)


def is_enabled(level: int) -> bool:
    """True when an event of this level is printed. Ask before computing costly fields."""
    return level <= _set_up.level


def error(event: str, **fields: Any) -> None:
    """Something failed that should not have."""
    _log(ERROR, event, fields)


def warn(event: str, **fields: Any) -> None:
    """Something the operator may want to change."""
    _log(WARN, event, fields)


def info(event: str, **fields: Any) -> None:
    """One step of the normal work."""
    _log(INFO, event, fields)


def debug(event: str, **fields: Any) -> None:
    """What helps to find a fault."""
    _log(DEBUG, event, fields)


def trace(event: str, **fields: Any) -> None:
    """Everything else."""
    _log(TRACE, event, fields)


def failure(event: str, bug: BaseException | str, **fields: Any) -> None:
    """A bug, with its traceback (or the text of one): in the same object of JSON, or indented under the line."""
    if not is_enabled(ERROR):
        return
    import traceback  # needed only here, and not by a daemon in good health

    lines = bug if isinstance(bug, str) else "".join(traceback.format_exception(bug))
    _log(ERROR, event, fields, details=lines.rstrip())


def without_key(path: str) -> str:
    """A decoded path as it may be printed."""
    return _KEY_IN_PATH.sub(r"\1***", path)


def request(method: str, path: str, status: int, seconds: float, size: int, client: str) -> None:
    """The line of one HTTP request.

    path: decoded, without its query (which may hold what users typed); size: bytes of the answer's body.
    """
    level = ERROR if status >= 500 and status not in _CLIENT_FAULTS else INFO
    if not is_enabled(level):
        return
    _log(level, "request", {
        "method": method, "path": without_key(path), "status": status,
        "ms": round(seconds * 1000, 2), "bytes": size, "client": client,
    })


def batch(uid: int, *, kind: str, index_uid: str | None, tasks: int, failed: int, seconds: float,
          **fields: Any) -> None:
    """The line of one batch that ended. kind: of its tasks; failed: how many of them did."""
    if not is_enabled(INFO):
        return
    _log(INFO, "batch", {
        "uid": uid, "kind": kind, "index": index_uid, "tasks": tasks, "failed": failed,
        "seconds": round(seconds, 3), **fields,
    })


def announce(title: str, fields: Mapping[str, Any]) -> None:
    """What a start must show whatever the level, OFF excepted: a small table, or one line of JSON."""
    if _set_up.level == OFF:
        return
    if _set_up.as_json:
        _write(_as_json(INFO, title, fields, ""))
        return
    width = max(map(len, fields), default=0)
    rows = [f"  {name:<{width}}  {_printable(str(value))}" for name, value in fields.items()]
    _write("\n".join([_printable(title), *rows]))


def _write(text: str) -> None:
    stream = _set_up.stream or sys.stderr
    try:
        with _lock:
            stream.write(text + "\n")
            stream.flush()
    except (OSError, ValueError, AttributeError):
        pass  # full disk, closed pipe, or no stderr at all: there is no other place to say so


def _log(level: int, event: str, fields: Mapping[str, Any], details: str = "") -> None:
    set_up = _set_up
    if level > set_up.level:
        return
    if set_up.as_json:
        _write(_as_json(level, event, fields, details))
    else:
        _write(_as_text(level, event, fields, details))


def _as_json(level: int, event: str, fields: Mapping[str, Any], details: str) -> str:
    line = {"timestamp": _timestamp(), "level": _NAMES[level], "event": event, **fields}
    if details:
        line["details"] = details
    return json.dumps(line, default=str)


def _as_text(level: int, event: str, fields: Mapping[str, Any], details: str) -> str:
    words = [f"{_timestamp()} {_NAMES[level]:>5} {_printable(event)}"]
    words += [f"{name}={_quoted(value)}" for name, value in fields.items() if value is not None]
    if details:
        words += ["\n  " + "\n  ".join(map(_printable, details.splitlines()))]
    return " ".join(words)


def _timestamp() -> str:
    """Now, RFC 3339, UTC, to the microsecond."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06}Z"


def _printable(text: str) -> str:
    """The text on one line, with control characters, which could repaint a terminal, escaped."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if not text or _NEEDS_QUOTES.search(text) or not text.isprintable():
        return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    return text
