"""Chains in a run: from a variable or value through members, indexes and methods, and back to store.

A place is where a value was found: the container, the key in it, and the variable at the root; what has no place is
a value of its own that nobody else sees. Knows which error stands where; refuses to know statements.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.interpreter import PROPERTIES, Body, Cell, Frame, Machine, not_found
from svcd.rhai.values import Char, Pointer, Value, mismatch, type_name

Place = tuple[Any, Any, Cell | None] | None  # container (a Cell with key None), key, root
Found = tuple[Value, Place]
Root = Callable[[Frame], Found]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain in a run. is_safe: `()` ends the chain before it."""

    position: Position
    is_safe: bool
    walk: Callable[[Frame, Value, Place], Found]
    key: Callable[[Frame], Value] | None = None  # of a member or index, which alone can be stored to


def store(place: Place, value: Value) -> None:
    """Put a value where another was found; one that was found nowhere is gone."""
    if place is None:
        return
    container, key, _ = place
    if type(container) is Cell:
        container.value = value
    else:
        container[key] = value


def is_constant(place: Place) -> bool:
    return place is not None and place[2] is not None and place[2].is_constant


def read(root: Root, steps: Sequence[Step], machine: Machine) -> Body:
    """A chain as an expression."""
    operations = 1 + (len(steps) >> 2)

    def run(frame: Frame) -> Value:
        machine.charge(operations)
        value, place = root(frame)
        for step in steps:
            if value is None and step.is_safe:
                return None
            value, place = step.walk(frame, value, place)
        return value

    return run


def member(position: Position, is_safe: bool, name: str, machine: Machine) -> Step:
    """`.name`: `()` when an object map does not have it."""

    def walk(frame: Frame, value: Value, place: Place) -> Found:
        if type(value) is dict:
            return value.get(name), (value, name, place[2] if place else None)
        if (type(value), name) in PROPERTIES:
            return machine.call(name, [value]), None
        told = f"Unknown property '{name}' - a getter is not registered for type '{type_name(value)}'"
        raise FunctionError(told, position)

    return Step(position, is_safe, walk, lambda frame: name)


def index(position: Position, is_safe: bool, key: Body, machine: Machine) -> Step:
    """`[key]`"""

    def walk(frame: Frame, value: Value, place: Place) -> Found:
        at = key(frame)
        machine.step(position)
        kind = type(value)
        if kind is dict:
            return value.get(_name(at, position)), (value, at, place[2] if place else None)
        if kind is list:
            return value[_number(at, len(value), position)], (value, at, place[2] if place else None)
        if kind is str:
            return Char(value[_number(at, len(value), position, is_text=True)]), None
        raise FunctionError(f"Indexer unavailable: {type_name(value)} [{type_name(at)}]", position)

    return Step(position, is_safe, walk, key)


def _name(key: Value, position: Position) -> str:
    if type(key) is not str:
        raise mismatch(key, "string").at(position)
    return key


def _number(key: Value, length: int, position: Position, *, is_text: bool = False) -> int:
    if type(key) is not int:
        raise mismatch(key, "i64").at(position)
    if -length <= key < length:
        return key
    where, what = ("String", "character") if is_text else ("Array", "element")
    holder = where.lower()
    has = f"{holder} is empty" if not length else f"only {length} {what}{'s' * (length != 1)} in {holder}"
    raise FunctionError(f"{where} index {key} out of bounds: {has}", position)


def method(position: Position, is_safe: bool, name: str, arguments: Sequence[Body], machine: Machine) -> Step:
    """`.name(arguments)`"""

    def walk(frame: Frame, value: Value, place: Place) -> Found:
        given = [argument(frame) for argument in arguments]
        machine.step(position)
        try:
            return _call(machine, name, value, place, given, position), None
        except FunctionError as error:
            raise error.at(position) from None

    return Step(position, is_safe, walk)


def _call(machine: Machine, name: str, value: Value, place: Place, given: list[Value], position: Position) -> Value:
    """A method: a member that is a function, one of the text, of the language, or of function values."""
    inner = value.get(name) if type(value) is dict else None
    if type(inner) is Pointer:
        return _on_this(machine, inner, given, value, place, position)
    scripted = machine.scripted.get((name, len(given)))
    if scripted:
        return _on_this(machine, Pointer(name, scripted, len(given)), given, value, place, position)
    if name in _SPECIAL and (type(value) is Pointer or name == "type_of" or name == "call" and given):
        return _SPECIAL[name](machine, value, place, given, position)
    return native(machine, name, value, place, given)


def native(machine: Machine, name: str, value: Value, place: Place, given: Sequence[Value]) -> Value:
    """A function of the language as a method: what it makes of its first argument goes back to its place."""
    found = machine.native(name, [value, *given])
    if found.changes and is_constant(place):
        raise FunctionError(f"Non-pure method '{name}' cannot be called on constant")
    answer = found.run(machine, value, *given)
    if found.replaces:
        after, answer = answer
        store(place, after)
    return machine.own(answer)


def _on_this(machine: Machine, pointer: Pointer, given: Sequence[Value], value: Value, place: Place,
             position: Position) -> Value:
    """A function whose `this` is a value: what it makes of it goes back to its place."""
    this = Cell(value, is_constant(place))
    answer = machine.call_pointer(pointer, given, this, position)
    if this.value is not value:
        store(place, this.value)
    return answer


def _type_of(machine: Machine, value: Value, place: Place, given: Sequence[Value], position: Position) -> Value:
    if given:
        raise not_found("type_of", [value, *given])
    return type_name(value)


def _called(machine: Machine, value: Value, place: Place, given: list[Value], position: Position) -> Value:
    """`pointer.call(arguments)`, or `value.call(pointer, arguments)` with `this`."""
    if type(value) is Pointer:
        return machine.call_pointer(value, given, None, position)
    if type(given[0]) is not Pointer:
        raise mismatch(given[0], "Fn")
    return _on_this(machine, given[0], given[1:], value, place, position)


def _curried(machine: Machine, value: Value, place: Place, given: list[Value], position: Position) -> Value:
    return curry(machine, value, given)


def curry(machine: Machine, pointer: Pointer, given: Sequence[Value]) -> Pointer:
    """A function with its first arguments fixed."""
    return Pointer(pointer.name, pointer.run, pointer.parameters, (*pointer.curried, *map(machine.own, given)))


_SPECIAL: dict[str, Callable[..., Value]] = {"type_of": _type_of, "call": _called, "curry": _curried}


# Assignment


def assign(name: str, at: Position, root: Root, steps: Sequence[Step],
           machine: Machine) -> Callable[[Frame, Value, Any], None]:
    """`chain = value`: called with the frame, the value, and None or what joins the held value with it."""
    *before, last = steps

    def run(frame: Frame, value: Value, join: Callable[[Value, Place, Value], Value] | None) -> None:
        target, place = root(frame)
        if is_constant(place):
            raise FunctionError(f"Cannot modify constant {name}", at)
        for step in before:
            if target is None and step.is_safe:
                return
            target, place = step.walk(frame, target, place)
        if target is None and last.is_safe:
            return
        assert last.key
        _assign_last(machine, last, target, place, last.key(frame), value, join)

    return run


def _assign_last(machine: Machine, last: Step, target: Value, place: Place, key: Value, value: Value,
                 join: Callable[[Value, Place, Value], Value] | None) -> None:
    kind = type(target)
    if kind is dict:
        _name(key, last.position)
        if key not in target:
            machine.room_for_members(len(target) + 1)
    elif kind is list:
        _number(key, len(target), last.position)
    elif kind is str and type(key) is int:
        _assign_character(machine, target, place, key, value, last.position)
        return
    elif type(key) is str:
        raise FunctionError(f"No writable property '{key}' - a setter is not registered for type '{type_name(target)}' "
                            f"to handle '{type_name(value)}'", last.position)
    else:
        told = f"Indexer unavailable: {type_name(target)} [{type_name(key)}] = {type_name(value)}"
        raise FunctionError(told, last.position)
    if join is None:
        target[key] = value
    else:
        held = target.get(key) if kind is dict else target[key]
        target[key] = join(held, (target, key, None), value)


def _assign_character(machine: Machine, text: str, place: Place, key: int, value: Value,
                      position: Position) -> None:
    at = _number(key, len(text), position, is_text=True) % len(text)
    if type(value) is not Char:
        raise mismatch(value, "char").at(position)
    store(place, machine.text(text[:at] + value + text[at + 1:]))


