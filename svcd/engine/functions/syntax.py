"""The parts that a function is made of, as the parser finds them.

Every part has a value: statements have `()`. Each knows where it stands, for the errors of its run. Knows
nothing of how parts are found and what they do.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from svcd.engine.functions.faults import Position
from svcd.engine.functions.values import Range, Value


@dataclass(frozen=True, slots=True)
class Node:
    """One part; position: the one that errors about its value name."""

    position: Position


# Expressions


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A number, text, character, boolean or `()`."""

    value: Value


@dataclass(frozen=True, slots=True)
class Interpolated(Node):
    """A text in back-ticks, of texts and blocks."""

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
    """`&&`, `||` and `??`, which look at their right side only when it matters."""

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
    """A value and the steps that lead from it: `doc.list[0].len()`."""

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
    """Statements with a scope of their own; the value is that of the last."""

    statements: Sequence[Node]


@dataclass(frozen=True, slots=True)
class If(Node):
    """branches: conditions and their blocks, in order; otherwise: None or a block."""

    branches: Sequence[tuple[Node, Node]]
    otherwise: Node | None


@dataclass(frozen=True, slots=True)
class Case:
    """One arm of a switch: values or ranges of integers, of which one must match; none at all match anything."""

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
    """`while`, and `loop` when there is no condition."""

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
    """`target = value`; operator: `+` of `+=`, or None. position: that of the sign."""

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


# A whole function


@dataclass(frozen=True, slots=True)
class Definition:
    """`fn name(parameters) { body }`"""

    position: Position
    name: str
    parameters: Sequence[str]
    body: Node


@dataclass(slots=True)
class Script:
    """What a text says: its statements, and the functions it defines by name and number of parameters."""

    statements: list[Node] = field(default_factory=list)
    definitions: dict[tuple[str, int], Definition] = field(default_factory=dict)
