"""One run of a function on one document: what it has taken, and how functions are called.

Counts operations against `limits` and copies values, for each variable and each element is a value of its own.
Knows how arguments meet functions, those of the text and those of the language; refuses to know statements.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from svcd.rhai import containers, errors, numbers, strings
from svcd.rhai.builtins import ANY, Builtin
from svcd.rhai.containers import ARRAY_BUILTINS, MAP_BUILTINS
from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.numbers import NUMBER_BUILTINS
from svcd.rhai.operators import OPERATORS
from svcd.rhai.strings import STRING_BUILTINS
from svcd.rhai.values import Pointer, Value, mismatch, pieces, type_name


# All builtins by (name, types of the arguments).
LIBRARY: dict[tuple[str, tuple[type, ...]], Builtin] = {
    (native.name, native.kinds): native
    for native in (*OPERATORS, *NUMBER_BUILTINS, *STRING_BUILTINS, *ARRAY_BUILTINS, *MAP_BUILTINS)
}
# `text.len` is `text.len()`; the members of object maps come before any function.
PROPERTIES: frozenset[tuple[type, str]] = frozenset(
    (kind, name) for module in (containers, numbers, strings)
    for kind, names in module.PROPERTIES.items() for name in names
)


class Cell:
    """One variable. Closures share the cells that they see."""

    __slots__ = ("is_constant", "value")

    def __init__(self, value: Value, is_constant: bool = False) -> None:
        self.value = value
        self.is_constant = is_constant


Frame = list[Any]  # the cells of one call, by slot; None where a variable is not there yet
Body = Callable[[Frame], Value]


class Returned(Exception):
    """`return`: on its way to the call."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Exited(Exception):
    """exit(): on its way out of everything."""


class Scripted:
    """A function of the text, or a closure, which has no name. Slot 0 is `this`, the parameters follow."""

    __slots__ = ("body", "name", "parameters", "slots")

    def __init__(self, name: str, parameters: int) -> None:
        self.name = name
        self.parameters = parameters
        self.slots = 0
        self.body: Body = lambda frame: None

    def told(self) -> str:
        """The call of it, in an error."""
        return f"in call to function '{self.name}'" if self.name else "in closure call"


class Machine:
    """Counts what a run takes. scripted: the functions of the text, by name and number of parameters."""

    def __init__(self) -> None:
        self.scripted: Mapping[tuple[str, int], Scripted] = {}
        self._taken = 0
        self._depth = 0
        self._found: dict[tuple[str, tuple[type, ...]], Builtin | None] = {}

    def reset(self) -> None:
        """Begin the next document."""
        self._taken = self._depth = 0

    # What is taken

    def step(self, position: Position | None = None) -> None:
        """One operation. Raises when there were too many."""
        self._taken += 1
        if self._taken > errors.OPERATIONS:
            raise FunctionError("Too many operations", position, is_limit=True)

    def charge(self, operations: int) -> None:
        """Several operations at once."""
        self._taken += operations
        if self._taken > errors.OPERATIONS:
            raise FunctionError("Too many operations", is_limit=True)

    def text(self, text: str) -> str:
        """A text that was made: paid for by its length."""
        length = len(text)
        if length >> errors.CHARACTERS_SHIFT:
            self.room_for_text(length)
            self.charge(length >> errors.CHARACTERS_SHIFT)
        return text

    def shown(self, value: Value, *, is_bare: bool = True) -> str:
        """A value as text (see values.pieces): paid for by its length, and by what it holds."""
        if is_bare and type(value) is str:
            return self.text(value)
        bits = list(pieces(value, is_bare=is_bare))
        self.charge(len(bits) >> 1)
        return self.text("".join(bits))

    def read(self, *texts: str) -> None:
        """Texts that are looked through: paid for by their length."""
        length = sum(map(len, texts))
        if length >> errors.CHARACTERS_SHIFT:
            self.charge(length >> errors.CHARACTERS_SHIFT)

    def room_for_text(self, length: int) -> None:
        """Raise before a text is made that would be too long."""
        if length > errors.STRING_LENGTH:
            raise FunctionError("Length of string too large", is_limit=True)

    def room_for_elements(self, length: int) -> None:
        """Raise before an array is made that would be too long."""
        if length > errors.ARRAY_LENGTH:
            raise FunctionError("Size of array too large", is_limit=True)

    def room_for_members(self, length: int) -> None:
        """Raise before an object map is made that would be too large."""
        if length > errors.MAP_LENGTH:
            raise FunctionError("Size of object map too large", is_limit=True)

    def elements(self, array: list[Value]) -> list[Value]:
        """An array that was made: paid for by its length."""
        self.room_for_elements(len(array))
        self.charge(len(array) >> errors.ELEMENTS_SHIFT)
        return array

    def own(self, value: Value, depth: int = 0) -> Value:
        """A value that shares nothing with the one it is a copy of."""
        kind = type(value)
        if kind is list:
            self._copied(len(value) >> errors.ELEMENTS_SHIFT, depth)
            array = value.copy()
            for at, element in enumerate(array):
                if type(element) is list or type(element) is dict:
                    array[at] = self.own(element, depth + 1)
            return array
        if kind is dict:
            self._copied(len(value), depth)
            members = value.copy()
            for name, member in members.items():
                if type(member) is list or type(member) is dict:
                    members[name] = self.own(member, depth + 1)
            return members
        return value

    def _copied(self, size: int, depth: int) -> None:
        self.charge(size + 1)
        if depth == errors.VALUE_DEPTH:
            raise FunctionError("Depth of value too large", is_limit=True)

    # Calls

    def native(self, name: str, arguments: Sequence[Value]) -> Builtin:
        """The function of the language for arguments of these types. Raises when there is none."""
        kinds = tuple(map(type, arguments))
        key = (name, kinds)
        if key not in self._found:
            self._found[key] = _search(name, kinds)
        native = self._found[key]
        if native is None:
            raise not_found(name, arguments)
        return native

    def call(self, name: str, arguments: Sequence[Value]) -> Value:
        """What a function of the language answers; it shares nothing with the arguments, changes to them are lost."""
        native = self.native(name, arguments)
        if native.changes:
            arguments = [self.own(arguments[0]), *arguments[1:]]
        answer = native.run(self, *arguments)
        return self.own(answer[1] if native.replaces else answer)

    def call_scripted(self, scripted: Scripted, arguments: Sequence[Value], this: Cell | None,
                      position: Position | None) -> Value:
        """What a function of the text answers. this: the cell of the value it is a method of."""
        if self._depth == errors.CALL_DEPTH:
            raise FunctionError("Stack overflow", position, is_limit=True)
        frame: Frame = [this, *[Cell(self.own(each)) for each in arguments]]
        frame += [None] * (scripted.slots - len(frame))
        self.charge(len(arguments) + 1)
        self._depth += 1
        try:
            return self.own(scripted.body(frame))
        except Returned as returned:
            return self.own(returned.value)
        except FunctionError as error:
            raise error.through(scripted.told(), position) from None
        except RecursionError:
            raise FunctionError("Stack overflow", position, is_limit=True) from None
        finally:
            self._depth -= 1

    def call_pointer(self, pointer: Value, arguments: Sequence[Value], this: Cell | None = None,
                     position: Position | None = None) -> Value:
        """What a function that is a value answers."""
        if type(pointer) is not Pointer:
            raise mismatch(pointer, "Fn")
        self.step(position)
        given = [*pointer.curried, *arguments]
        scripted = pointer.run or self.scripted.get((pointer.name, len(given)))
        if scripted is None:
            return self.call(pointer.name, [this.value, *given] if this else given)
        if scripted.parameters != len(given):
            raise not_found(pointer.name, given)
        return self.call_scripted(scripted, given, this, position)

    def callback(self, pointer: Pointer, *arguments: Value) -> Value:
        """Ask a function that was given to another: with as many of the arguments as it takes, the most telling first.

        One without parameters sees the first argument as `this`.
        """
        wanted = pointer.parameters
        if wanted is None:
            return self.call_pointer(pointer, arguments[:1] if len(arguments) < 3 else arguments[:2])
        wanted -= len(pointer.curried)
        if wanted == 0 and arguments:
            return self.call_pointer(pointer, (), Cell(self.own(arguments[0])))
        return self.call_pointer(pointer, arguments[:wanted])

    def acted(self, pointer: Pointer, element: Value, at: int) -> Value:
        """What an element is after a callback; only one without parameters changes it."""
        if pointer.parameters != len(pointer.curried):
            self.callback(pointer, element, at)
            return element
        this = Cell(element)
        self.call_pointer(pointer, (), this)
        return this.value

    def is_true(self, pointer: Pointer, *arguments: Value) -> bool:
        """callback(), where anything but true counts as false."""
        return self.callback(pointer, *arguments) is True


def not_found(name: str, arguments: Sequence[Value]) -> FunctionError:
    """There is no function of that name for such arguments."""
    kinds = ", ".join("&str | ImmutableString | String" if type(each) is str else type_name(each) for each in arguments)
    return FunctionError(f"Function not found: {name} ({kinds})")


def _search(name: str, kinds: tuple[type, ...]) -> Builtin | None:
    """The row for these types: types that are named come before any type, from the left."""
    for mask in range(1 << len(kinds)):
        wanted = tuple(ANY if mask >> (len(kinds) - 1 - at) & 1 else kind for at, kind in enumerate(kinds))
        if found := LIBRARY.get((name, wanted)):
            return found
    return None
