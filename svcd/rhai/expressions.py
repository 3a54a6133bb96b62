"""Tokens put together: expressions by precedence, chains, literals, closures.

Knows precedence and the words of each fault; statements are in `parser`. Refuses to know what anything does.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from svcd.rhai import errors, syntax
from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.syntax import Node
from svcd.rhai.tokens import (
    CHAR,
    END,
    FAULT,
    KEYWORD_FUNCTIONS,
    NAME,
    NUMBER,
    RESERVED,
    SYMBOL,
    TEXT,
    TEXT_PART,
    THIS,
    WORD,
    Token,
)
from svcd.rhai.values import MAX_INT

# A higher one binds tighter; `**` alone binds to the right.
PRECEDENCE = {
    **dict.fromkeys(("||", "|", "^"), 30), **dict.fromkeys(("&&", "&"), 60), **dict.fromkeys(("==", "!="), 90),
    "in": 110, "!in": 110, **dict.fromkeys((">", ">=", "<", "<="), 130), "??": 135,
    **dict.fromkeys(("..", "..="), 140), **dict.fromkeys(("+", "-"), 150), **dict.fromkeys(("*", "/", "%"), 180),
    "**": 190, **dict.fromkeys(("<<", ">>"), 210),
}
_LOGIC = frozenset({"&&", "||", "??"})
# Statements that may stand where a value is asked for.
_VALUED = frozenset({"if", "switch", "while", "loop", "do", "for"})


class Expressions(ABC):
    """The half of the parser that is below statements. parsed: what has been found so far."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._functions = 0
        self._is_in_function = False
        self.is_self_ended = False
        self.is_in_loop = False
        self.parsed = syntax.Script()

    @abstractmethod
    def block(self) -> syntax.Block:
        """Statements in braces."""

    @abstractmethod
    def statement(self) -> Node:
        """One statement, without what ends it."""

    # Tokens

    def peek(self) -> Token:
        """The next token. Raises the fault of a text that can't be cut further."""
        token = self._tokens[self._at]
        if token.kind == FAULT:
            raise token.value
        return token

    def advance(self) -> Token:
        token = self.peek()
        if token.kind != END:
            self._at += 1
        return token

    def is_at_end(self) -> bool:
        return self.peek().kind == END

    def is_next(self, symbol: str) -> bool:
        token = self.peek()
        return token.kind == SYMBOL and token.value == symbol

    def taken(self, symbol: str) -> bool:
        """Step over a symbol when it is next."""
        if self.is_next(symbol):
            self._at += 1
            return True
        return False

    def is_next_word(self, word: str) -> bool:
        token = self.peek()
        return token.kind == WORD and token.value == word

    def taken_word(self, word: str) -> bool:
        if self.is_next_word(word):
            self._at += 1
            return True
        return False

    def expect(self, symbol: str, purpose: str) -> Position:
        """Step over a symbol that must be next; where it stands."""
        position = self.peek().position
        if not self.taken(symbol):
            raise self.missing(symbol, purpose)
        return position

    def missing(self, token: str, purpose: str) -> FunctionError:
        return FunctionError(f"Expecting '{token}' {purpose}", self.peek().position)

    def variable_name(self) -> str:
        token = self.advance()
        if token.kind == RESERVED:
            raise FunctionError(f"'{token.value}' is a reserved keyword", token.position)
        if token.kind != NAME:
            raise FunctionError("Expecting name of a variable", token.position)
        return str(token.value)

    # What is around

    @contextmanager
    def nested(self, position: Position) -> Iterator[None]:
        """One level deeper. Raises when that is too deep."""
        self._depth += 1
        if self._depth > errors.NESTING:
            raise FunctionError("Expression exceeds maximum complexity", position)
        yield
        self._depth -= 1

    @contextmanager
    def in_loop(self, is_in_loop: bool = True) -> Iterator[None]:
        before, self.is_in_loop = self.is_in_loop, is_in_loop
        yield
        self.is_in_loop = before

    @contextmanager
    def in_function(self) -> Iterator[None]:
        before, self._is_in_function = self._is_in_function, True
        with self.in_loop(False):
            yield
        self._is_in_function = before

    def count_function(self, position: Position) -> None:
        """One function or closure more."""
        self._functions += 1
        if self._functions > errors.FUNCTIONS:
            raise FunctionError("Number of functions defined exceeds maximum limit", position)

    # Operators

    def expression(self) -> Node:
        """One expression."""
        with self.nested(self.peek().position):
            return self.binary(self.unary(), 1)

    def _operator(self) -> tuple[str, int] | None:
        """The operator that is next, and how many tokens it has."""
        token = self.peek()
        if token.kind == WORD and token.value == "in":
            return "in", 1
        if token.kind != SYMBOL:
            return None
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        if token.value == "!" and following.kind == WORD and following.value == "in":
            return "!in", 2
        return (token.value, 1) if token.value in PRECEDENCE else None

    def binary(self, left: Node, least: int) -> Node:
        """An expression that begins with `left`, of operators of a precedence of at least `least`."""
        levels = self._depth
        while (found := self._operator()) and PRECEDENCE[found[0]] >= least:
            operator, length = found
            position = self.peek().position
            self._at += length
            self._deepen(position)
            precedence = PRECEDENCE[operator]
            right = self.binary(self.unary(), precedence if operator == "**" else precedence + 1)
            left = _joined(operator, left, right, position)
        self._depth = levels
        return left

    def _deepen(self, position: Position) -> None:
        """Operators in a row nest their operands: each counts as a level."""
        self._depth += 1
        if self._depth > errors.NESTING:
            raise FunctionError("Expression exceeds maximum complexity", position)

    def unary(self) -> Node:
        token = self.peek()
        if token.kind == END:
            raise FunctionError("Script is incomplete", token.position)
        if token.kind != SYMBOL or token.value not in ("-", "+", "!"):
            return self._postfix(self._primary())
        self._at += 1
        with self.nested(token.position):
            operand = self.unary()
        if token.value != "!" and isinstance(operand, syntax.Literal) and type(operand.value) in (int, float):
            value = operand.value if token.value == "+" else -operand.value
            return syntax.Literal(operand.position, value if type(value) is float or value <= MAX_INT else float(value))
        return syntax.Operation(token.position, token.value, [operand])

    # Chains

    def _postfix(self, root: Node) -> Node:
        """A value with what leads on from it."""
        links: list[syntax.Link] = []
        first = self.peek().position
        while link := self._link(root if not links else None):
            links.append(link)
        return syntax.Chain(first, root, links) if links else root

    def _link(self, root: Node | None) -> syntax.Link | None:
        token = self.peek()
        if token.kind != SYMBOL:
            return None
        if token.value in (".", "?."):
            self._at += 1
            return self._member(token.value == "?.")
        if token.value in ("[", "?["):
            if isinstance(root, (syntax.If, syntax.Switch, syntax.Block, syntax.Closure)):
                return None
            self._at += 1
            return self._index(token.value == "?[", root)
        return None

    def _member(self, is_safe: bool) -> syntax.Link:
        token = self.advance()
        if token.kind == RESERVED and token.value not in KEYWORD_FUNCTIONS:
            raise FunctionError(f"'{token.value}' is a reserved keyword", token.position)
        if token.kind not in (NAME, RESERVED):
            raise FunctionError("Expecting name of a property", token.position)
        if self.taken("("):
            return syntax.Method(token.position, is_safe, token.value, self._arguments(token.value))
        if token.kind == RESERVED:
            raise FunctionError("Expecting name of a property", token.position)
        return syntax.Member(token.position, is_safe, token.value)

    def _index(self, is_safe: bool, root: Node | None) -> syntax.Link:
        position = self.peek().position
        index = self.expression()
        if isinstance(root, syntax.Literal) and not isinstance(root.value, str):
            raise FunctionError("Only arrays, object maps and strings can be indexed", root.position)
        if isinstance(index, syntax.Literal) and type(index.value) in _NO_INDEX:
            article = _NO_INDEX[type(index.value)]
            raise FunctionError(f"Array access expects integer index, not {article}", index.position)
        self.expect("]", "for a matching [ in this index expression")
        return syntax.Index(position, is_safe, index)

    def _arguments(self, name: str) -> Sequence[Node]:
        arguments: list[Node] = []
        while not self.taken(")"):
            if self.is_at_end():
                raise self.missing(")", f"to close the arguments list of this function call '{name}'")
            arguments.append(self.expression())
            if not self.is_next(")"):
                if self.is_at_end():
                    raise self.missing(")", f"to close the arguments list of this function call '{name}'")
                self.expect(",", f"to separate the arguments to function call '{name}'")
        return arguments

    # Primaries

    def _primary(self) -> Node:
        token = self.advance()
        if token.kind in (NUMBER, TEXT, CHAR):
            return syntax.Literal(token.position, token.value)
        if token.kind == NAME:
            return self._named(token)
        if token.kind == TEXT_PART:
            return self._interpolated(token)
        if token.kind == RESERVED:
            return self._reserved(token)
        if token.kind == WORD and token.value in ("true", "false"):
            return syntax.Literal(token.position, token.value == "true")
        self._at -= token.kind != END
        if token.kind == WORD and token.value in _VALUED or self.is_next("{"):
            node = self.statement()
            self.is_self_ended = False
            return node
        return self._bracketed(token)

    def _bracketed(self, token: Token) -> Node:
        self.advance()
        if token.kind == SYMBOL and token.value == "(":
            return self._parenthesized(token)
        if token.kind == SYMBOL and token.value == "[":
            return self._array(token)
        if token.kind == SYMBOL and token.value == "#{":
            return self._map(token)
        if token.kind == SYMBOL and token.value in ("|", "||"):
            return self._closure(token)
        if token.kind == END:
            raise FunctionError("Script is incomplete", token.position)
        raise FunctionError(f"Unexpected '{token.value}'", token.position)

    def _named(self, token: Token) -> Node:
        if self.taken("("):
            return syntax.Call(token.position, token.value, self._arguments(token.value))
        return syntax.Variable(token.position, token.value)

    def _reserved(self, token: Token) -> Node:
        if token.value == THIS:
            if self._is_in_function:
                return syntax.Variable(token.position, THIS)
            raise FunctionError("'this' can only be used in functions", token.position)
        if token.value in KEYWORD_FUNCTIONS and self.taken("("):
            return syntax.Call(token.position, token.value, self._arguments(token.value))
        raise FunctionError(f"'{token.value}' is a reserved keyword", token.position)

    def _interpolated(self, token: Token) -> Node:
        parts: list[Node] = [syntax.Literal(token.position, token.value)] if token.value else []
        while token.kind == TEXT_PART:
            parts.append(self.block())
            token = self.advance()
            if token.value:
                parts.append(syntax.Literal(token.position, token.value))
        return syntax.Interpolated(parts[0].position if parts else token.position, parts)

    def _parenthesized(self, token: Token) -> Node:
        if self.taken(")"):
            return syntax.Literal(token.position, None)
        inner = self.expression()
        if not self.taken(")"):
            raise self.missing(")", "for a matching ( in this expression")
        return inner

    def _array(self, token: Token) -> Node:
        elements: list[Node] = []
        while not self.taken("]"):
            if self.is_at_end():
                raise self.missing("]", "to end this array literal")
            if len(elements) == errors.ARRAY_LENGTH:
                raise _literal_too_large("Size of array literal", errors.ARRAY_LENGTH, self.peek().position)
            elements.append(self.expression())
            if not self.is_next("]"):
                if self.is_at_end():
                    raise self.missing("]", "to end this array literal")
                self.expect(",", "to separate the items of this array literal")
        return syntax.ArrayLiteral(token.position, elements)

    def _map(self, token: Token) -> Node:
        members: list[tuple[str, Node]] = []
        names: set[str] = set()
        while not self.taken("}"):
            name = self._property_name(names)
            names.add(name)
            self.expect(":", f"to follow the property '{name}' in this object map literal")
            if len(members) == errors.MAP_LENGTH:
                what = "Number of properties in object map literal"
                raise _literal_too_large(what, errors.MAP_LENGTH, self.peek().position)
            members.append((name, self.expression()))
            if not self.is_next("}"):
                if self.peek().kind not in (NAME, SYMBOL) or not self.is_next(",") and self.peek().kind == SYMBOL:
                    raise self.missing("}", "to end this object map literal")
                self.expect(",", "to separate the items of this object map literal")
        return syntax.MapLiteral(token.position, members)

    def _property_name(self, names: set[str]) -> str:
        token = self.advance()
        if token.kind in (NAME, TEXT):
            if token.value in names:
                raise FunctionError(f"Duplicated property for object map literal: {token.value}", token.position)
            return str(token.value)
        if token.kind == RESERVED:
            raise FunctionError(f"'{token.value}' is a reserved keyword", token.position)
        if token.kind == END or not names and token.kind != TEXT_PART:
            raise FunctionError("Expecting '}' to end this object map literal", token.position)
        raise FunctionError("Expecting name of a property", token.position)

    # Closures

    def _closure(self, token: Token) -> Node:
        parameters = [] if token.value == "||" else self.parameters("|", "", "anonymous function")
        self.count_function(token.position)
        with self.in_function(), self.nested(token.position):
            body = self.statement()
        self.is_self_ended = False
        return syntax.Closure(token.position, parameters, body)

    def parameters(self, closer: str, name: str, owner: str) -> Sequence[str]:
        """The names up to `closer`; owner: whose they are, in words."""
        names: list[str] = []
        while not self.taken(closer):
            token = self.peek()
            if token.kind != NAME:
                raise self.missing(closer, f"to close the parameters list of {owner}")
            if token.value in names:
                raise FunctionError(f"Duplicated parameter {token.value} for function {name}", token.position)
            names.append(self.variable_name())
            if not self.is_next(closer):
                self.expect(",", f"to separate the parameters of {owner}")
        return names


def _joined(operator: str, left: Node, right: Node, position: Position) -> Node:
    if operator in _LOGIC:
        return syntax.Logic(position, operator, left, right)
    if operator == "in":
        return syntax.Operation(position, "contains", [right, left])
    if operator == "!in":
        return syntax.Operation(position, "!", [syntax.Operation(position, "contains", [right, left])])
    return syntax.Operation(position, operator, [left, right])


def _literal_too_large(what: str, limit: int, position: Position) -> FunctionError:
    return FunctionError(f"{what} exceeds the maximum limit ({limit})", position)


_NO_INDEX = {float: "a float", type(None): "()", bool: "a boolean"}
