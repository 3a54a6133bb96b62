"""The syntax tree of a function, and the scopes that map its variable names to frame slots.

Every node is an expression; statements have the value `()`. Each node holds its position, for errors at run time. The nodes are
a table: one blank line between two rows.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from svcd.rhai import values
from svcd.rhai.tokens import THIS
from svcd.rhai.values import FunctionError, Position, Range, Value


@dataclass(frozen=True, slots=True)
class Node:
    """A syntax node. position: the one that run-time errors about its value report."""
    position: Position


# Expressions

@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A number, string, character, boolean or `()`."""
    value: Value

@dataclass(frozen=True, slots=True)
class Interpolated(Node):
    """A back-tick string: literals and `${}` blocks."""
    parts: Sequence[Node]

@dataclass(frozen=True, slots=True)
class Variable(Node):
    """A variable, or `this`."""
    name: str

@dataclass(frozen=True, slots=True)
class ArrayLiteral(Node):
    """`[a, b]`"""
    elements: Sequence[Node]

@dataclass(frozen=True, slots=True)
class MapLiteral(Node):
    """`#{name: value}`"""
    members: Sequence[tuple[str, Node]]

@dataclass(frozen=True, slots=True)
class Operation(Node):
    """A call of an operator with one or two operands."""
    operator: str
    operands: Sequence[Node]

@dataclass(frozen=True, slots=True)
class Logic(Node):
    """`&&`, `||` and `??`, which evaluate their right side only when needed."""
    operator: str
    left: Node
    right: Node

@dataclass(frozen=True, slots=True)
class Call(Node):
    """`name(arguments)`"""
    name: str
    arguments: Sequence[Node]

@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chain; is_safe: `?.` and `?[`, where `()` ends the chain."""
    position: Position
    is_safe: bool

@dataclass(frozen=True, slots=True)
class Member(Link):
    """`.name`"""
    name: str

@dataclass(frozen=True, slots=True)
class Index(Link):
    """`[index]`"""
    index: Node

@dataclass(frozen=True, slots=True)
class Method(Link):
    """`.name(arguments)`"""
    name: str
    arguments: Sequence[Node]

@dataclass(frozen=True, slots=True)
class Chain(Node):
    """A value followed by member accesses, indexes and method calls: `doc.list[0].len()`."""
    root: Node
    links: Sequence[Link]

@dataclass(frozen=True, slots=True)
class Closure(Node):
    """`|parameters| body`"""
    parameters: Sequence[str]
    body: Node


# Statements, which are expressions as well

@dataclass(frozen=True, slots=True)
class Block(Node):
    """Statements with their own scope; the block has the value of the last statement."""
    statements: Sequence[Node]

@dataclass(frozen=True, slots=True)
class If(Node):
    """branches: conditions and their blocks, in order; otherwise: None or a block."""
    branches: Sequence[tuple[Node, Node]]
    otherwise: Node | None

@dataclass(frozen=True, slots=True)
class Case:
    """One arm of a switch. matches: alternative values or integer ranges; empty for the default arm."""
    matches: Sequence[Value | Range]
    condition: Node | None
    body: Node
    is_default: bool = False

@dataclass(frozen=True, slots=True)
class Switch(Node):
    """`switch value { matches => body }`"""
    value: Node
    cases: Sequence[Case]

@dataclass(frozen=True, slots=True)
class While(Node):
    """`while`, or `loop` without a condition."""
    condition: Node | None
    body: Node

@dataclass(frozen=True, slots=True)
class Do(Node):
    """`do { } while condition`, or `until` (is_until)."""
    body: Node
    condition: Node
    is_until: bool

@dataclass(frozen=True, slots=True)
class For(Node):
    """`for (name, counter) in values { }`"""
    name: str
    counter: str | None
    values: Node
    body: Node

@dataclass(frozen=True, slots=True)
class Let(Node):
    """`let name = value`, or `const`."""
    name: str
    value: Node | None
    is_constant: bool

@dataclass(frozen=True, slots=True)
class Assignment(Node):
    """`target = value`. operator: `+` for `+=`, None for `=`. position: the assignment sign."""
    target: Variable | Chain
    operator: str | None
    value: Node

@dataclass(frozen=True, slots=True)
class Break(Node):
    """`break value`"""
    value: Node | None

@dataclass(frozen=True, slots=True)
class Continue(Node):
    """`continue`"""

@dataclass(frozen=True, slots=True)
class Return(Node):
    """`return value`"""
    value: Node | None

@dataclass(frozen=True, slots=True)
class Throw(Node):
    """`throw value`"""
    value: Node | None

@dataclass(frozen=True, slots=True)
class Try(Node):
    """`try { } catch (name) { }`"""
    body: Node
    name: str | None
    handler: Node


# A whole text

@dataclass(frozen=True, slots=True)
class Definition:
    """`fn name(parameters) { body }`"""
    position: Position
    name: str
    parameters: Sequence[str]
    body: Node

@dataclass(slots=True)
class Script:
    """A parsed text: its statements, and the functions it defines, by (name, number of parameters)."""
    statements: list[Node] = field(default_factory=list)
    definitions: dict[tuple[str, int], Definition] = field(default_factory=dict)


# Scopes: names are resolved to slots of the call frame once, at compile time.


class Scope:
    """The variables of one function, closure or top-level text, by frame slot. Slot 0 is `this`.

    Blocks shadow outer names; a named function sees only its parameters, a closure also captures variables of the
    functions around it. captures: (slot in the enclosing frame, own slot, name, position).
    """

    def __init__(self, parameters: Sequence[str], outer: Scope | None = None) -> None:
        self._outer = outer
        self._names: list[tuple[str, int, bool]] = [(THIS, 0, False)]
        self._captured: dict[str, int] = {}
        self.slots = 1
        self.captures: list[tuple[int, int, str, Position]] = []
        for name in parameters:
            self._add(name, False)

    def declare(self, name: str, position: Position, *, is_constant: bool = False) -> int:
        """Allocate the slot of a new variable, which shadows others of its name up to the end of the block."""
        if len(self._names) > values.VARIABLES:
            raise FunctionError("Too many variables defined", position)
        return self._add(name, is_constant)

    def _add(self, name: str, is_constant: bool) -> int:
        self._names.append((name, self.slots, is_constant))
        self.slots += 1
        return self.slots - 1

    @contextmanager
    def block(self) -> Iterator[None]:
        """A block: names declared in it are removed at its end."""
        count = len(self._names)
        yield
        del self._names[count:]

    def find(self, name: str, position: Position) -> int | None:
        """The slot of a variable, captured from an enclosing function if need be; None for an unknown name."""
        for known, slot, _ in reversed(self._names):
            if known == name:
                return slot
        if name not in self._captured and self._outer:
            outer = self._outer.find(name, position)
            if outer is not None:
                self._captured[name] = self.slots
                self.captures.append((outer, self.slots, name, position))
                self.slots += 1
        return self._captured.get(name)

    def is_constant(self, name: str) -> bool:
        """Return whether the variable was declared with `const`."""
        return next((is_constant for known, _, is_constant in reversed(self._names) if known == name), False)

    def visible(self) -> dict[str, int]:
        """Name -> slot of the variables visible here."""
        return {**self._captured, **{name: slot for name, slot, _ in self._names}}

    def slots_of(self, name: str) -> list[int]:
        """The slots of all variables of a name, shadowed ones included, newest first."""
        return [slot for known, slot, _ in reversed(self._names) if known == name]
