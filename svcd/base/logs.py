"""Log lines on stderr, one event per line: for people (HUMAN) or for machines (JSON), and for one follower.

The follower also gets the events of other processes (pass_on).

A line never contains a secret nor a line break. Nothing here raises: a daemon must survive the reader of its log.

Threads: any may log. `_lock` guards the stream, so that lines never mix, and changes of the configuration, which is one immutable
object that is replaced as a whole.
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

# Targets: which events are wanted. As text: a level for all (`info`), or a level per module (`svcd.http=off,svcd.tasks=debug`),
# where the longest prefix of the module's name counts and a name alone wants all its events.

OFF, ERROR, WARN, INFO, DEBUG, TRACE = range(6)
LEVELS: dict[str, int] = {"OFF": OFF, "ERROR": ERROR, "WARN": WARN, "INFO": INFO, "DEBUG": DEBUG, "TRACE": TRACE}
# Names by which clients of the interface know modules. (A prefix such as `svc` means all of ours.)
_OTHER_NAMES = {"actix_web": "svcd.http", "index_scheduler": "svcd.tasks", "milli": "svcd.search"}


class Targets(NamedTuple):
    """Which events are wanted. rules: (prefix of a module's name, level), longest prefix first; "" is a prefix of all.

    most: the most verbose level of all rules.
    """

    rules: tuple[tuple[str, int], ...]
    most: int

    def __str__(self) -> str:
        """The text from which parse() makes these targets."""
        return ",".join(f"{beginning}={level}" if beginning else str(level) for beginning, level in self.rules) or "0"

    def wants(self, level: int, part: str) -> bool:
        """True when an event of this level and module is wanted; False for a module without a rule."""
        for beginning, most in self.rules:
            if part.startswith(beginning):
                return level <= most
        return level <= OFF


def of_level(level: int) -> Targets:
    """The same level for all modules."""
    return Targets((("", level),), level)


def parse(text: str) -> Targets:
    """Return the targets of a text. Raises ValueError with a message that names the fault."""
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
    return int(text) if text in ("0", "1", "2", "3", "4", "5") else LEVELS.get(text.upper())


def _known(name: str) -> str:
    """Our name of a module: `::` is accepted as separator, and some modules have another name in the interface."""
    first, *rest = name.replace("::", ".").split(".")
    return ".".join((_OTHER_NAMES.get(first, first), *rest))


MODES = ("HUMAN", "JSON")
_NAMES = tuple(LEVELS)

# `GET /keys/{key}` carries an API key in its path.
_KEY_IN_PATH = re.compile(r"^(/+keys/+)[^/]+")
# Status codes from 500 on that are about the request: a coding, or a version of HTTP, that is not supported.
_CLIENT_FAULTS = frozenset((501, 505))
# A value with one of these is quoted in `name=value`.
_NEEDS_QUOTES = re.compile(r'[\s"=\\]')


class Event(NamedTuple):
    """One event. moment: nanoseconds since 1970; part: the module, as targets name it; details: lines of a traceback."""

    moment: int
    level: int
    part: str
    name: str
    fields: Mapping[str, Any]
    details: str = ""


LogFollower = Callable[[Event], None]


class _SetUp(NamedTuple):
    """The configuration: which events are printed, how and where, and which events the follower receives.

    stream: None for the current sys.stderr. most: the most verbose level of both.
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
    """Print events of this level and more severe ones. level: a name of LEVELS; mode: one of MODES."""
    _change(printed=of_level(LEVELS[level.upper()]), as_json=mode.upper() == "JSON", stream=stream)


def set_targets(printed: Targets) -> None:
    """Print the events that these targets want, from now on."""
    _change(printed=printed)


def follow(heard: Targets, hear: LogFollower) -> bool:
    """Also pass wanted events to a function, which must be fast. False when there is a follower already."""
    with _lock:
        if _set_up.hear is not None:
            return False
        _change(heard=heard, hear=hear)
        return True


def unfollow(hear: LogFollower) -> bool:
    """Stop passing events to this function; False when they were not passed to it."""
    with _lock:
        if _set_up.hear != hear:
            return False
        _change(heard=of_level(OFF), hear=None)
        return True


def pass_on(event: Event) -> None:
    """Pass an event of another process, which has printed it, to the follower."""
    set_up = _set_up
    if set_up.hear is not None and set_up.heard.wants(event.level, event.part):
        set_up.hear(event)


def is_enabled(level: int) -> bool:
    """True when an event of this level may be wanted. Ask before computing expensive fields."""
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
    """Something that helps to find a fault."""
    _log(DEBUG, event, fields)


def trace(event: str, **fields: Any) -> None:
    """Anything else."""
    _log(TRACE, event, fields)


def failure(event: str, bug: BaseException | str, **fields: Any) -> None:
    """Log a bug with its traceback (or the text of one): in the JSON object, or indented after the line."""
    if not is_enabled(ERROR):
        return
    import traceback  # imported here because a daemon without bugs does not need it

    lines = bug if isinstance(bug, str) else "".join(traceback.format_exception(bug))
    _log(ERROR, event, fields, details=lines.rstrip())


def without_key(path: str) -> str:
    """A decoded path with API keys masked."""
    return _KEY_IN_PATH.sub(r"\1***", path)


def request(method: str, path: str, status: int, seconds: float, size: int, client: str) -> None:
    """Log one HTTP request.

    path: decoded, without the query string, which may contain what users typed; size: bytes of the response's body.
    Status 503 is a warning: the daemon refuses work by its limits, or waits for another service.
    """
    level = INFO if status < 500 or status in _CLIENT_FAULTS else WARN if status == 503 else ERROR
    if level <= _set_up.most:
        _log(level, "request", part="svcd.http", fields={"method": method, "path": without_key(path), "status": status,
                                                         "ms": round(seconds * 1000, 2), "bytes": size, "client": client})


def batch(uid: int, *, kind: str, index_uid: str | None, tasks: int, failed: int, seconds: float, **fields: Any) -> None:
    """Log one batch that ended. kind: of its tasks; failed: how many of them failed."""
    _log(INFO, "batch", part="svcd.tasks", fields={"uid": uid, "kind": kind, "index": index_uid, "tasks": tasks, "failed": failed,
                                                   "seconds": round(seconds, 3), **fields})


def announce(title: str, fields: Mapping[str, Any]) -> None:
    """Print the facts of a start at any level but OFF: a small table, or one line of JSON."""
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
        pass  # full disk, closed pipe, or no stderr: there is nowhere else to report it


def _log(level: int, event: str, fields: Mapping[str, Any], details: str = "", part: str = "") -> None:
    """part: by default the module that called the caller of this function."""
    set_up = _set_up
    if level > set_up.most:
        return
    logged = Event(time.time_ns(), level, part or sys._getframe(2).f_globals.get("__name__", ""), event, fields, details)
    if set_up.printed.wants(level, logged.part):
        _write(as_json(logged) if set_up.as_json else as_text(logged))
    if set_up.hear is not None and set_up.heard.wants(level, logged.part):
        set_up.hear(logged)


def as_json(event: Event) -> str:
    """The event as a JSON object on one line."""
    line = {"timestamp": timestamp(event.moment), "level": _NAMES[event.level], "event": event.name, **event.fields}
    if event.details:
        line["details"] = event.details
    return json.dumps(line, default=str)


def as_text(event: Event) -> str:
    """The event as one line for people; its details follow on indented lines."""
    words = [f"{timestamp(event.moment)} {_NAMES[event.level]:>5} {_printable(event.name)}"]
    words += [f"{name}={_quoted(value)}" for name, value in event.fields.items() if value is not None]
    if event.details:
        words += ["\n  " + "\n  ".join(map(_printable, event.details.splitlines()))]
    return " ".join(words)


def timestamp(moment: int) -> str:
    """A moment as RFC 3339 in UTC, with microseconds."""
    seconds, nanoseconds = divmod(moment, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{nanoseconds // 1000:06}Z"


def _printable(text: str) -> str:
    """The text on one line, its control characters escaped: they could change the terminal."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def _quoted(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if not text or _NEEDS_QUOTES.search(text) or not text.isprintable():
        return '"' + _printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'
    return text
