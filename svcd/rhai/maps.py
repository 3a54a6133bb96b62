"""What the language can do with object maps and ranges.

Members are seen in the order of their names. Knows the rows alone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from svcd.base import json_text
from svcd.rhai.builtins import ANY, Builtin, Taker, changing, pure
from svcd.rhai.values import Pointer, Range, Value, as_json

Map = dict[str, Value]


def _set(machine: Taker, members: Map, name: str, value: Value) -> None:
    machine.room_for_members(len(members) + 1)
    members[name] = machine.own(value)


def _mix_in(machine: Taker, members: Map, others: Map) -> None:
    """The members of the second go into the first, whose own of these names are lost."""
    members.update(machine.own(others))
    machine.room_for_members(len(members))


def _fill(machine: Taker, members: Map, others: Map) -> None:
    """The members of the second that the first does not have go into it."""
    for name, value in machine.own(others).items():
        members.setdefault(name, value)
    machine.room_for_members(len(members))


def _keys(machine: Taker, members: Map) -> list[Value]:
    machine.charge(len(members))
    return machine.elements(sorted(members))


def _values(machine: Taker, members: Map) -> list[Value]:
    return [members[name] for name in _keys(machine, members)]


def _chosen(machine: Taker, members: Map, chooses: Pointer) -> Map:
    return {name: members[name] for name in _keys(machine, members)
            if name in members and machine.is_true(chooses, name, members[name])}


def _keep(is_kept: bool) -> Callable[[Taker, Map, Pointer], Map]:
    """Take members out of an object map: those that are chosen, or (is_kept) the others; what was taken."""

    def cut(machine: Taker, members: Map, chooses: Pointer) -> Map:
        chosen = _chosen(machine, members, chooses)
        taken = {name: members[name] for name in members if (name in chosen) is not is_kept}
        for name in taken:
            del members[name]
        return taken

    return cut


def _to_json(machine: Taker, members: Map) -> str:
    text = json_text.dumps(as_json(members))
    machine.charge(len(text) >> 3)
    return machine.text(text)


def _rows() -> Iterator[Builtin]:
    yield pure("len", (dict,), lambda machine, members: len(members))
    yield pure("is_empty", (dict,), lambda machine, members: not members)
    yield pure("get", (dict, str), lambda machine, members, name: members.get(name))
    yield changing("set", (dict, str, ANY), _set)
    yield changing("remove", (dict, str), lambda machine, members, name: members.pop(name, None))
    yield changing("clear", (dict,), lambda machine, members: members.clear())
    yield changing("mixin", (dict, dict), _mix_in)
    yield changing("+=", (dict, dict), _mix_in)
    yield changing("fill_with", (dict, dict), _fill)
    yield pure("keys", (dict,), _keys)
    yield pure("values", (dict,), _values)
    yield pure("filter", (dict, Pointer), _chosen)
    yield changing("drain", (dict, Pointer), _keep(False))
    yield changing("retain", (dict, Pointer), _keep(True))
    yield pure("to_json", (dict,), _to_json)


def _range_rows() -> Iterator[Builtin]:
    yield pure("start", (Range,), lambda machine, numbers: numbers.start)
    yield pure("end", (Range,), lambda machine, numbers: numbers.end)
    yield pure("is_inclusive", (Range,), lambda machine, numbers: numbers.is_inclusive)
    yield pure("is_exclusive", (Range,), lambda machine, numbers: not numbers.is_inclusive)
    yield pure("is_empty", (Range,), lambda machine, numbers: not numbers.values())


MAP_BUILTINS = (*_rows(), *_range_rows())
PROPERTIES = {Range: ("start", "end", "is_inclusive", "is_exclusive", "is_empty")}
