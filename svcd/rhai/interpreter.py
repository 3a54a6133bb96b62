"""Interpreter: the state of one run of a function on one document, and how functions are called in it.

It charges operations, copies and calls against the limits in `values`. Variables and elements never share arrays or
object maps: values are copied when they are stored, passed or returned.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svcd.rhai import containers, scalars, values
from svcd.rhai.containers import ARRAY_BUILTINS, MAP_BUILTINS
from svcd.rhai.operators import OPERATORS
from svcd.rhai.scalars import NUMBER_BUILTINS, STRING_BUILTINS
from svcd.rhai.values import ANY, Builtin, FnPointer, FunctionError, Position, Value, mismatch, pieces, type_name

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

    def call_text(self) -> str:
        """How the call trace of an error names a call of it."""
        return f"in call to function '{self.name}'" if self.name else "in closure call"


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

    def charge_scan(self, *texts: str) -> None:
        """Charge a scan of strings by their length."""
        length = sum(map(len, texts))
        if length >> values.CHARACTERS_SHIFT:
            self.charge(length >> values.CHARACTERS_SHIFT)

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
            self._found[key] = _search(name, kinds)
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
            raise error.through(function.call_text(), position) from None
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


def _search(name: str, kinds: tuple[type, ...]) -> Builtin | None:
    """The declaration for these types; exact types are preferred to ANY, from the left."""
    for mask in range(1 << len(kinds)):
        wanted = tuple(ANY if mask >> (len(kinds) - 1 - at) & 1 else kind for at, kind in enumerate(kinds))
        if found := LIBRARY.get((name, wanted)):
            return found
    return None
