"""Interpreter: the state of one run of a function on one document, and how functions are called and chains are walked in it.

It charges operations, copies and calls against the limits in `values`. Variables and elements never share arrays or
object maps: values are copied when they are stored, passed or returned.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from svcd.rhai import containers, scalars, values
from svcd.rhai.containers import ARRAY_BUILTINS, MAP_BUILTINS
from svcd.rhai.operators import OPERATORS
from svcd.rhai.scalars import NUMBER_BUILTINS, STRING_BUILTINS
from svcd.rhai.values import ANY, Builtin, Char, FnPointer, FunctionError, Position, Value, mismatch, pieces, type_name

# All builtins by (name, types of the arguments).
LIBRARY: dict[tuple[str, tuple[type, ...]], Builtin] = {
    (builtin.name, builtin.kinds): builtin
    for builtin in (*OPERATORS, *NUMBER_BUILTINS, *STRING_BUILTINS, *ARRAY_BUILTINS, *MAP_BUILTINS)
}
# Builtins that can be read as properties: `text.len` is `text.len()`. Members of object maps take precedence.
PROPERTIES: frozenset[tuple[type, str]] = frozenset(
    (kind, name) for module in (containers, scalars)
    for kind, names in module.PROPERTIES.items() for name in names
)


class Cell:
    """The storage of one variable; closures share the cells of captured variables."""

    __slots__ = ("is_constant", "value")

    def __init__(self, value: Value, is_constant: bool = False) -> None:
        self.value = value
        self.is_constant = is_constant


Frame = list[Any]  # the cells of one call, by slot; None for a variable that is not declared yet
Body = Callable[[Frame], Value]


class ReturnSignal(Exception):
    """Unwinds to the call at `return`."""

    def __init__(self, value: Value) -> None:
        self.value = value


class ExitSignal(Exception):
    """Unwinds the whole run at exit()."""


class ScriptFunction:
    """A function defined in the script, or a closure (name ""). Slot 0 of its frame is `this`, the parameters follow."""

    __slots__ = ("body", "name", "parameters", "slots")

    def __init__(self, name: str, parameters: int) -> None:
        self.name = name
        self.parameters = parameters
        self.slots = 0
        self.body: Body = lambda frame: None


class Interpreter:
    """Counts the work of a run. function: the functions of the text, by name and number of parameters."""

    def __init__(self) -> None:
        self.script_functions: Mapping[tuple[str, int], ScriptFunction] = {}
        self._taken = 0
        self._depth = 0
        self._found: dict[tuple[str, tuple[type, ...]], Builtin | None] = {}

    def reset(self) -> None:
        """Start with the next document: reset the counters."""
        self._taken = self._depth = 0

    # Limits

    def step(self, position: Position | None = None) -> None:
        """Charge one operation. Raises FunctionError (is_limit) beyond the limit."""
        self._taken += 1
        if self._taken > values.OPERATIONS:
            raise FunctionError("Too many operations", position, is_limit=True)

    def charge(self, operations: int) -> None:
        """Charge several operations at once."""
        self._taken += operations
        if self._taken > values.OPERATIONS:
            raise FunctionError("Too many operations", is_limit=True)

    def new_text(self, text: str) -> str:
        """Charge a new string by its length; returns it."""
        length = len(text)
        if length >> values.CHARACTERS_SHIFT:
            self.check_text_length(length)
            self.charge(length >> values.CHARACTERS_SHIFT)
        return text

    def to_text(self, value: Value, *, is_bare: bool = True) -> str:
        """A value as text (see values.pieces), charged by its length and number of elements."""
        if is_bare and type(value) is str:
            return self.new_text(value)
        bits = list(pieces(value, is_bare=is_bare))
        self.charge(len(bits) >> 1)
        return self.new_text("".join(bits))

    def scanned(self, text: str) -> str:
        """Charge a scan of a string by its length; returns it."""
        if len(text) >> values.CHARACTERS_SHIFT:
            self.charge(len(text) >> values.CHARACTERS_SHIFT)
        return text

    def check_text_length(self, length: int) -> None:
        """Raise FunctionError before a string beyond the limit is made."""
        if length > values.STRING_LENGTH:
            raise FunctionError("Length of string too large", is_limit=True)

    def check_array_length(self, length: int) -> None:
        """Raise FunctionError before an array beyond the limit is made."""
        if length > values.ARRAY_LENGTH:
            raise FunctionError("Size of array too large", is_limit=True)

    def check_map_length(self, length: int) -> None:
        """Raise FunctionError before an object map beyond the limit is made."""
        if length > values.MAP_LENGTH:
            raise FunctionError("Size of object map too large", is_limit=True)

    def new_array(self, array: list[Value]) -> list[Value]:
        """Charge a new array by its length; returns it."""
        self.check_array_length(len(array))
        self.charge(len(array) >> values.ELEMENTS_SHIFT)
        return array

    def copied(self, value: Value, depth: int = 0) -> Value:
        """A deep copy of a value, charged by its size."""
        kind = type(value)
        if kind is list:
            self._charge_copy(len(value) >> values.ELEMENTS_SHIFT, depth)
            array = value.copy()
            for at, element in enumerate(array):
                if type(element) is list or type(element) is dict:
                    array[at] = self.copied(element, depth + 1)
            return array
        if kind is dict:
            self._charge_copy(len(value), depth)
            members = value.copy()
            for name, member in members.items():
                if type(member) is list or type(member) is dict:
                    members[name] = self.copied(member, depth + 1)
            return members
        return value

    def _charge_copy(self, size: int, depth: int) -> None:
        self.charge(size + 1)
        if depth == values.VALUE_DEPTH:
            raise FunctionError("Depth of value too large", is_limit=True)

    # Calls

    def builtin(self, name: str, arguments: Sequence[Value]) -> Builtin:
        """Return the builtin for arguments of these types. Raises FunctionError if none exists."""
        kinds = tuple(map(type, arguments))
        key = (name, kinds)
        if key not in self._found:
            # Exact types are preferred to ANY, from the left.
            masks = (tuple(ANY if mask >> (len(kinds) - 1 - at) & 1 else kind for at, kind in enumerate(kinds))
                     for mask in range(1 << len(kinds)))
            self._found[key] = next((found for wanted in masks if (found := LIBRARY.get((name, wanted)))), None)
        builtin = self._found[key]
        if builtin is None:
            raise not_found(name, arguments)
        return builtin

    def call(self, name: str, arguments: Sequence[Value]) -> Value:
        """Call a builtin on copies: the result shares nothing with the arguments, and changes to them are discarded."""
        builtin = self.builtin(name, arguments)
        if builtin.changes:
            arguments = [self.copied(arguments[0]), *arguments[1:]]
        answer = builtin.run(self, *arguments)
        return self.copied(answer[1] if builtin.replaces else answer)

    def call_function(self, function: ScriptFunction, arguments: Sequence[Value], this: Cell | None,
                      position: Position | None) -> Value:
        """Call a function of the script. this: the cell of the value it is called on, if any."""
        if self._depth == values.CALL_DEPTH:
            raise FunctionError("Stack overflow", position, is_limit=True)
        frame: Frame = [this, *[Cell(self.copied(each)) for each in arguments]]
        frame += [None] * (function.slots - len(frame))
        self.charge(len(arguments) + 1)
        self._depth += 1
        try:
            return self.copied(function.body(frame))
        except ReturnSignal as returned:
            return self.copied(returned.value)
        except FunctionError as error:
            call = f"in call to function '{function.name}'" if function.name else "in closure call"
            raise error.through(call, position) from None
        except RecursionError:
            raise FunctionError("Stack overflow", position, is_limit=True) from None
        finally:
            self._depth -= 1

    def call_pointer(self, pointer: Value, arguments: Sequence[Value], this: Cell | None = None,
                     position: Position | None = None) -> Value:
        """Call a function pointer."""
        if type(pointer) is not FnPointer:
            raise mismatch(pointer, "Fn")
        self.step(position)
        given = [*pointer.curried, *arguments]
        function = pointer.run or self.script_functions.get((pointer.name, len(given)))
        if function is None:
            return self.call(pointer.name, [this.value, *given] if this else given)
        if function.parameters != len(given):
            raise not_found(pointer.name, given)
        return self.call_function(function, given, this, position)

    def callback(self, pointer: FnPointer, *arguments: Value) -> Value:
        """Call a function that was passed to a builtin with as many of the arguments as it has parameters.

        One without parameters gets the first argument as `this`.
        """
        wanted = pointer.parameters
        if wanted is None:
            return self.call_pointer(pointer, arguments[:1] if len(arguments) < 3 else arguments[:2])
        wanted -= len(pointer.curried)
        if wanted == 0 and arguments:
            return self.call_pointer(pointer, (), Cell(self.copied(arguments[0])))
        return self.call_pointer(pointer, arguments[:wanted])

    def update_element(self, pointer: FnPointer, element: Value, at: int) -> Value:
        """An element after for_each() called a function on it; only one without parameters can change it, through `this`."""
        if pointer.parameters != len(pointer.curried):
            self.callback(pointer, element, at)
            return element
        this = Cell(element)
        self.call_pointer(pointer, (), this)
        return this.value

    def matches(self, pointer: FnPointer, *arguments: Value) -> bool:
        """Return whether a callback returns true. Any other value counts as false."""
        return self.callback(pointer, *arguments) is True


def not_found(name: str, arguments: Sequence[Value]) -> FunctionError:
    """The error for a call of a function that does not exist for these argument types."""
    kinds = ", ".join("&str | ImmutableString | String" if type(each) is str else type_name(each) for each in arguments)
    return FunctionError(f"Function not found: {name} ({kinds})")


# Chains: member access, indexing and method calls (`doc.list[0].trim()`), and assignment through them.
#
# A Place says where a value was read from: its container, its key there, and the variable at the root of the chain. A value
# without a place is a temporary, which nobody else can see.

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
    """Return whether the chain begins at a constant."""
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
        key = last.key(frame)
        kind = type(target)
        if kind is dict:
            _name(key, last.position)
            if key not in target:
                runtime.check_map_length(len(target) + 1)
        elif kind is list:
            _number(key, len(target), last.position)
        elif kind is str and type(key) is int:
            number = _number(key, len(target), last.position, is_text=True) % len(target)
            if type(value) is not Char:
                raise mismatch(value, "char").at(last.position)
            store(place, runtime.new_text(target[:number] + value + target[number + 1:]))
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

    return run
