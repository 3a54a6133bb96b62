"""Chains at run time: member access, indexing and method calls (`doc.list[0].trim()`), and assignment through them.

A Place says where a value was read from: its container, its key there, and the variable at the root of the chain. A
value without a place is a temporary, which nobody else can see.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.rhai.interpreter import PROPERTIES, Body, Cell, Frame, Interpreter, not_found
from svcd.rhai.values import Char, FnPointer, FunctionError, Position, Value, mismatch, type_name

Place = tuple[Any, Any, Cell | None] | None  # container (a Cell with key None), key, root
Found = tuple[Value, Place]
Root = Callable[[Frame], Found]


@dataclass(frozen=True, slots=True)
class Step:
    """One compiled step of a chain. is_safe: for `?.` and `?[`, where the chain ends with `()` if the value is `()`."""

    position: Position
    is_safe: bool
    walk: Callable[[Frame, Value, Place], Found]
    key: Callable[[Frame], Value] | None = None  # of a member or index; None for a method, which cannot be assigned to


def store(place: Place, value: Value) -> None:
    """Write a value to a place; without a place it is discarded."""
    if place is None:
        return
    container, key, _ = place
    if type(container) is Cell:
        container.value = value
    else:
        container[key] = value


def is_constant(place: Place) -> bool:
    return place is not None and place[2] is not None and place[2].is_constant


def read(root: Root, steps: Sequence[Step], runtime: Interpreter) -> Body:
    """Compile a chain that is read."""
    operations = 1 + (len(steps) >> 2)

    def run(frame: Frame) -> Value:
        runtime.charge(operations)
        value, place = root(frame)
        for step in steps:
            if value is None and step.is_safe:
                return None
            value, place = step.walk(frame, value, place)
        return value

    return run


def member(position: Position, is_safe: bool, name: str, runtime: Interpreter) -> Step:
    """Compile `.name`; an object map without that member gives `()`."""

    def walk(frame: Frame, value: Value, place: Place) -> Found:
        if type(value) is dict:
            return value.get(name), (value, name, place[2] if place else None)
        if (type(value), name) in PROPERTIES:
            return runtime.call(name, [value]), None
        message = f"Unknown property '{name}' - a getter is not registered for type '{type_name(value)}'"
        raise FunctionError(message, position)

    return Step(position, is_safe, walk, lambda frame: name)


def index(position: Position, is_safe: bool, key: Body, runtime: Interpreter) -> Step:
    """Compile `[key]`."""

    def walk(frame: Frame, value: Value, place: Place) -> Found:
        at = key(frame)
        runtime.step(position)
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


def method(position: Position, is_safe: bool, name: str, arguments: Sequence[Body], runtime: Interpreter) -> Step:
    """Compile `.name(arguments)`."""

    def walk(frame: Frame, value: Value, place: Place) -> Found:
        given = [argument(frame) for argument in arguments]
        runtime.step(position)
        try:
            return _call(runtime, name, value, place, given, position), None
        except FunctionError as error:
            raise error.at(position) from None

    return Step(position, is_safe, walk)


def _call(runtime: Interpreter, name: str, value: Value, place: Place, given: list[Value], position: Position) -> Value:
    """Call a method: a function held by a member, else a function of the script, else a builtin."""
    inner = value.get(name) if type(value) is dict else None
    if type(inner) is FnPointer:
        return _on_this(runtime, inner, given, value, place, position)
    function = runtime.script_functions.get((name, len(given)))
    if function:
        return _on_this(runtime, FnPointer(name, function, len(given)), given, value, place, position)
    if name in _SPECIAL and (type(value) is FnPointer or name == "type_of" or name == "call" and given):
        return _SPECIAL[name](runtime, value, place, given, position)
    return call_builtin(runtime, name, value, place, given)


def call_builtin(runtime: Interpreter, name: str, value: Value, place: Place, given: Sequence[Value]) -> Value:
    """Call a builtin as a method, and store its new first argument, if it has one, at the place of the value."""
    found = runtime.builtin(name, [value, *given])
    if found.changes and is_constant(place):
        raise FunctionError(f"Non-pure method '{name}' cannot be called on constant")
    answer = found.run(runtime, value, *given)
    if found.replaces:
        after, answer = answer
        store(place, after)
    return runtime.copied(answer)


def _on_this(runtime: Interpreter, pointer: FnPointer, given: Sequence[Value], value: Value, place: Place,
             position: Position) -> Value:
    """Call a function with a value as `this`, and store what `this` is afterwards at the place of the value."""
    this = Cell(value, is_constant(place))
    answer = runtime.call_pointer(pointer, given, this, position)
    if this.value is not value:
        store(place, this.value)
    return answer


def _type_of(runtime: Interpreter, value: Value, place: Place, given: Sequence[Value], position: Position) -> Value:
    if given:
        raise not_found("type_of", [value, *given])
    return type_name(value)


def _called(runtime: Interpreter, value: Value, place: Place, given: list[Value], position: Position) -> Value:
    """`pointer.call(arguments)`, or `value.call(pointer, arguments)`, where the value is `this`."""
    if type(value) is FnPointer:
        return runtime.call_pointer(value, given, None, position)
    if type(given[0]) is not FnPointer:
        raise mismatch(given[0], "Fn")
    return _on_this(runtime, given[0], given[1:], value, place, position)


def _curried(runtime: Interpreter, value: Value, place: Place, given: list[Value], position: Position) -> Value:
    return curry(runtime, value, given)


def curry(runtime: Interpreter, pointer: FnPointer, given: Sequence[Value]) -> FnPointer:
    """A copy of a function pointer with its first arguments bound."""
    return FnPointer(pointer.name, pointer.run, pointer.parameters, (*pointer.curried, *map(runtime.copied, given)))


_SPECIAL: dict[str, Callable[..., Value]] = {"type_of": _type_of, "call": _called, "curry": _curried}


# Assignment


def assign(name: str, at: Position, root: Root, steps: Sequence[Step],
           runtime: Interpreter) -> Callable[[Frame, Value, Any], None]:
    """Compile `chain = value`. The result takes the frame, the value, and the operator of `+=` and the like, or None."""
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
        _assign_last(runtime, last, target, place, last.key(frame), value, join)

    return run


def _assign_last(runtime: Interpreter, last: Step, target: Value, place: Place, key: Value, value: Value,
                 join: Callable[[Value, Place, Value], Value] | None) -> None:
    kind = type(target)
    if kind is dict:
        _name(key, last.position)
        if key not in target:
            runtime.check_map_length(len(target) + 1)
    elif kind is list:
        _number(key, len(target), last.position)
    elif kind is str and type(key) is int:
        at = _number(key, len(target), last.position, is_text=True) % len(target)
        if type(value) is not Char:
            raise mismatch(value, "char").at(last.position)
        store(place, runtime.new_text(target[:at] + value + target[at + 1:]))
        return
    elif type(key) is str:
        raise FunctionError(f"No writable property '{key}' - a setter is not registered for type '{type_name(target)}' "
                            f"to handle '{type_name(value)}'", last.position)
    else:
        message = f"Indexer unavailable: {type_name(target)} [{type_name(key)}] = {type_name(value)}"
        raise FunctionError(message, last.position)
    if join is None:
        target[key] = value
    else:
        held = target.get(key) if kind is dict else target[key]
        target[key] = join(held, (target, key, None), value)


