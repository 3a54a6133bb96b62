"""Which events are wanted: a level for all, or one for each part of svcd that logs.

Knows the text of targets: `info`, or `svcd.http=off,svcd.tasks=debug`, of which the longest beginning counts; a name
alone wants everything of it. Refuses to know what is logged. Source: the recordings of `/logs/stream`, openapi.json.
"""
from __future__ import annotations

from typing import NamedTuple

OFF, ERROR, WARN, INFO, DEBUG, TRACE = range(6)
LEVELS: dict[str, int] = {
    "OFF": OFF, "ERROR": ERROR, "WARN": WARN, "INFO": INFO, "DEBUG": DEBUG, "TRACE": TRACE,
}
# What clients of the interface call the parts; `svc` is the beginning of all of ours anyway.
_OTHER_NAMES = {"actix_web": "svcd.http", "index_scheduler": "svcd.tasks", "milli": "svcd.engine"}


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
