"""What a batch shows of its tasks: their details joined, and counts of them. Pure functions (tasks.md 9)."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from svcd.store.records import Task
from svcd.tasks.kinds import KINDS


def joined(tasks: Iterable[Task]) -> dict[str, Any]:
    """The details of a batch's tasks as one object.

    Numbers are added, filters and swaps strung together, settings merged with the later task winning; of any
    other text the first stays. What is null in one task is left to the others; a text that is null in all is absent.
    """
    together: dict[str, Any] = {}
    for task in tasks:
        if task.kind == "settingsUpdate":
            _merge(together, task.details or {})
            continue
        for name, value in (task.details or {}).items():
            if value is None:
                if name in _COUNTERS:
                    together.setdefault(name, None)
                continue
            held = together.get(name)
            together[name] = value if held is None else _JOINS.get(name, _first)(held, value)
    return together


def _merge(together: dict[str, Any], settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        held = together.get(name)
        together[name] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value


def _first(held: Any, value: Any) -> Any:
    return held + value if isinstance(held, int) and isinstance(value, int) else held


_COUNTERS = {name for kind in KINDS.values() for name in kind.failed}
_JOINS: Mapping[str, Any] = {
    "originalFilter": lambda held, value: f"{held}&{value}",
    "swaps": lambda held, value: held + value,
    "upgradeTo": lambda held, value: value,
}


def stats(tasks: Sequence[Task], trace: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Counts of a batch's tasks; trace: step path -> nanoseconds, once the batch has ended."""
    counts: dict[str, Any] = {
        "totalNbTasks": len(tasks),
        "status": dict(Counter(task.status for task in tasks)),
        "types": dict(Counter(task.kind for task in tasks)),
        "indexUids": dict(Counter(task.index_uid for task in tasks if task.index_uid is not None)),
    }
    if trace is not None:
        counts["progressTrace"] = {path: duration_text(spent) for path, spent in trace.items()}
    return counts


_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "µs": 1_000, "ns": 1}  # the largest first


def duration_text(nanoseconds: int) -> str:
    """`1.23ms`, `4.56s`: the largest unit that leaves a whole part, two decimals."""
    for unit, size in _UNITS.items():
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f}{unit}"
    return f"{nanoseconds:.2f}ns"


def duration_of_text(text: str) -> int:
    """The nanoseconds of a duration_text(), as far as its decimals tell."""
    figure = text.rstrip("nµms")
    return round(float(figure) * _UNITS[text.removeprefix(figure)])
