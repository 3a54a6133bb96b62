"""Log lines on stderr: one event a line, for people (HUMAN) or for machines (JSON); and for one who follows them.

Knows levels, how a line is written, and that a line never holds a secret or breaks in two; refuses to
know who logs what, but for the module's name. Nothing here raises: a daemon outlives the reader of its log.

Threads: any thread may log. `_lock` guards the stream, so that lines never mix, and who sets up; the set-up is one
immutable object that is replaced as a whole.
"""
from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TextIO

# Which events are wanted: a level for all, or one for each part of svcd that logs.
#
# Knows the text of targets: `info`, or `svcd.http=off,svcd.tasks=debug`, of which the longest beginning counts; a name
# alone wants everything of it. Refuses to know what is logged. Source: the recordings of `/logs/stream`, openapi.json.


OFF, ERROR, WARN, INFO, DEBUG, TRACE = range(6)
LEVELS: dict[str, int] = {
    "OFF": OFF, "ERROR": ERROR, "WARN": WARN, "INFO": INFO, "DEBUG": DEBUG, "TRACE": TRACE,
}
# What clients of the interface call the parts; `svc` is the beginning of all of ours anyway.
_OTHER_NAMES = {"actix_web": "svcd.http", "index_scheduler": "svcd.tasks", "milli": "svcd.search"}


class Targets(NamedTuple):
    """rules: (beginning of the name of a part, level), the longest first; "" is the beginning of all.

    most: the least grave level that any of them wants.
    """

    rules: tuple[tuple[str, int], ...]
    most: int

    def __str__(self) -> str:
        """As parse() reads it."""
        return ",".join(f"{beginning}={level}" if beginning else str(level) for beginning, level in self.rules) or "0"

    def wants(self, level: int, part: str) -> bool:
        """True when an event of this level, and of this part, is wanted. What no rule speaks of is not."""
        return level <= next((most for beginning, most in self.rules if part.startswith(beginning)), OFF)


def of_level(level: int) -> Targets:
    """All parts alike."""
    return Targets((("", level),), level)


def parse(text: str) -> Targets:
    """Raises ValueError with what is wrong."""
    rules = dict(_rule(directive) for directive in text.split(",") if directive.strip())
    ordered = sorted(rules.items(), key=lambda rule: -len(rule[0]))
    return Targets(tuple(ordered), max(rules.values(), default=OFF))


def _rule(directive: str) -> tuple[str, int]:
    name, *levels = (part.strip() for part in directive.split("="))
    if len(levels) > 1:
        raise ValueError("invalid filter directive: too many '=' in filter directive, expected 0 or 1")
    if not levels:
        level = _level(name)
        return ("", level) if level is not None else (_known(name), TRACE)
    level = _level(levels[0]) if levels[0] else ERROR  # `svcd=`, as the reference engine has it
    if level is None:
        raise ValueError('error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", '
                         "or a number 0-5")
    return _known(name), level


def _level(text: str) -> int | None:
    if text in ("0", "1", "2", "3", "4", "5"):
        return int(text)
    return LEVELS.get(text.upper())


def _known(name: str) -> str:
    """The name in our spelling: parts of parts are set off by `::`, too, and some have other names."""
    first, *rest = name.replace("::", ".").split(".")
    return ".".join((_OTHER_NAMES.get(first, first), *rest))


MODES = ("HUMAN", "JSON")
_NAMES = tuple(LEVELS)

# `GET /keys/{key}` carries an API key in its path.
_KEY_IN_PATH = re.compile(r"^(/+keys/+)[^/]+")
# Of the 5xx, those that speak of what the client sent: a coding or a version that HTTP has no other word for.
_CLIENT_FAULTS = frozenset((501, 505))
# What needs no quotes in `name=value`: nothing that could end the value early.
_NEEDS_QUOTES = re.compile(r'[\s"=\\]')


class Event(NamedTuple):
    """What happened. moment: nanoseconds since 1970; part: of svcd, as targets name it; details: lines of a traceback."""

    moment: int
    level: int
    part: str
    name: str
    fields: Mapping[str, Any]
    details: str = ""


LogFollower = Callable[[Event], None]


class _SetUp(NamedTuple):
    """What is printed, how, and where, and who hears what besides. stream None: the stderr of the moment.

    most: the least grave level that anybody wants.
    """

    printed: Targets = of_level(INFO)
    as_json: bool = False
    stream: TextIO | None = None
    heard: Targets = of_level(OFF)
    hear: LogFollower | None = None
    most: int = INFO


_set_up = _SetUp()
_lock = threading.RLock()


def _renew_lock() -> None:
    """A child made by fork must not inherit a lock that another thread holds."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _change(**parts: Any) -> None:
    global _set_up
    with _lock:
        changed = _set_up._replace(**parts)
        _set_up = changed._replace(most=max(changed.printed.most, changed.heard.most))


def configure(level: str = "INFO", mode: str = "HUMAN", stream: TextIO | None = None) -> None:
    """Print events of this level and graver ones. level: a name of LEVELS; mode: one of MODES."""
    _change(printed=of_level(LEVELS[level.upper()]), as_json=mode.upper() == "JSON", stream=stream)


def set_targets(printed: Targets) -> None:
    """Print what these want, from now on."""
    _change(printed=printed)


def follow(heard: Targets, hear: LogFollower) -> bool:
    """Tell events that are wanted to another listener, too, which must be quick; False when somebody listens already."""
    with _lock:
        if _set_up.hear is not None:
            return False
        _change(heard=heard, hear=hear)
        return True


def unfollow(hear: LogFollower) -> None:
    """Tell it no more."""
    with _lock:
        if _set_up.hear == hear:
            _change(heard=of_level(OFF), hear=None)


def is_enabled(level: int) -> bool:
    """True when somebody may want an event of this level. Ask before computing costly fields."""
    return level <= _set_up.most


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
    _log(level, "request", part="svcd.http", fields={
        "method": method, "path": without_key(path), "status": status,
        "ms": round(seconds * 1000, 2), "bytes": size, "client": client,
    })


def batch(uid: int, *, kind: str, index_uid: str | None, tasks: int, failed: int, seconds: float,
          **fields: Any) -> None:
    """The line of one batch that ended. kind: of its tasks; failed: how many of them did."""
    if not is_enabled(INFO):
        return
    _log(INFO, "batch", part="svcd.tasks", fields={
        "uid": uid, "kind": kind, "index": index_uid, "tasks": tasks, "failed": failed,
        "seconds": round(seconds, 3), **fields,
    })


def announce(title: str, fields: Mapping[str, Any]) -> None:
    """What a start must show whatever the level, OFF excepted: a small table, or one line of JSON."""
    if _set_up.printed.most == OFF:
        return
    if _set_up.as_json:
        _write(as_json(Event(time.time_ns(), INFO, "svcd", title, fields)))
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


def _log(level: int, event: str, fields: Mapping[str, Any], details: str = "", part: str = "") -> None:
    """part: by default the module that called the function which calls this one."""
    set_up = _set_up
    if level > set_up.most:
        return
    told = Event(time.time_ns(), level, part or sys._getframe(2).f_globals.get("__name__", ""), event, fields, details)
    if set_up.printed.wants(level, told.part):
        _write(as_json(told) if set_up.as_json else as_text(told))
    if set_up.hear is not None and set_up.heard.wants(level, told.part):
        set_up.hear(told)


def as_json(event: Event) -> str:
    """The event as one object, on one line."""
    line = {"timestamp": timestamp(event.moment), "level": _NAMES[event.level], "event": event.name, **event.fields}
    if event.details:
        line["details"] = event.details
    return json.dumps(line, default=str)


def as_text(event: Event) -> str:
    """The event on one line for people, and its details, indented, on lines of their own."""
    words = [f"{timestamp(event.moment)} {_NAMES[event.level]:>5} {_printable(event.name)}"]
    words += [f"{name}={_quoted(value)}" for name, value in event.fields.items() if value is not None]
    if event.details:
        words += ["\n  " + "\n  ".join(map(_printable, event.details.splitlines()))]
    return " ".join(words)


def timestamp(moment: int) -> str:
    """RFC 3339, UTC, to the microsecond."""
    seconds, nanoseconds = divmod(moment, 1_000_000_000)
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
