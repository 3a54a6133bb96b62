"""Tokens put together: the statements of a function, blocks, choices, loops, definitions.

Knows what a statement may look like and how each fault is worded and placed; expressions are in `expressions`.
Refuses to know what anything does. Source: the language's book; the words are those of its own parser.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from svcd.rhai import errors, syntax
from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.expressions import PRECEDENCE, Expressions
from svcd.rhai.syntax import Node
from svcd.rhai.tokens import END, NAME, RESERVED, SYMBOL, WORD, tokens
from svcd.rhai.values import Range, Value

_JOINING = ("+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^")
_ASSIGNMENTS = {"=": None, **{f"{operator}=": operator for operator in _JOINING}}
# Statements that end with their block need no semicolon.
_SELF_ENDED = (syntax.If, syntax.Switch, syntax.While, syntax.For, syntax.Block, syntax.Try)

_TYPO = "Possibly a typo of '=='?"
_NO_ASSIGNMENT = "Expecting a boolean expression, not an assignment"


def parse(text: str) -> syntax.Script:
    """The parts of a function. Raises FunctionError, which says where."""
    if len(text) > errors.TEXT_LENGTH:
        raise FunctionError(f"Length of function exceeds the maximum limit ({errors.TEXT_LENGTH})")
    try:
        return _Parser(tokens(text)).script()
    except RecursionError:
        raise FunctionError("Expression exceeds maximum complexity") from None


class _Parser(Expressions):
    """One walk over the tokens of one text."""

    def script(self) -> syntax.Script:
        """The whole text."""
        while not self.is_at_end():
            if self.peek().value in ("fn", "private") and self.peek().kind == WORD:
                self._definition()
            elif not self.taken(";"):
                self.parsed.statements.append(self.statement())
                self._end_statement(END)
        return self.parsed

    def _end_statement(self, closer: str) -> None:
        """What stands between a statement and the next: a semicolon, unless the statement ends by itself."""
        if self.is_self_ended or self.taken(";") or (self.is_at_end() if closer == END else self.is_next(closer)):
            return
        raise self.missing(";", "to terminate this statement")

    def block(self) -> syntax.Block:
        position = self.expect("{", "to start a statement block")
        statements: list[Node] = []
        with self.nested(position):
            while not self.taken("}"):
                if self.taken(";"):
                    continue
                if self.is_at_end():
                    raise self.missing("}", "to terminate this block")
                statements.append(self.statement())
                self._end_statement("}")
        self.is_self_ended = True
        return syntax.Block(position, statements)

    def statement(self) -> Node:
        token = self.peek()
        if token.kind == WORD and token.value in ("fn", "private"):
            raise FunctionError("Function definitions must be at global level and cannot be inside a block or another "
                                "function", token.position)
        with self.nested(token.position):
            if token.kind == WORD and token.value in _STATEMENTS:
                node = _STATEMENTS[token.value](self)
            elif self.is_next("{"):
                node = self.block()
            else:
                node = self._expression_statement()
        self.is_self_ended = isinstance(node, _SELF_ENDED)
        return node

    def _expression_statement(self) -> Node:
        node = self.expression()
        token = self.peek()
        if token.kind != SYMBOL or token.value not in _ASSIGNMENTS:
            return node
        self.advance()
        target = self._assignable(node, token.position)
        return syntax.Assignment(token.position, target, _ASSIGNMENTS[token.value], self.expression())

    def _assignable(self, node: Node, position: Position) -> syntax.Variable | syntax.Chain:
        if isinstance(node, syntax.Variable):
            return node
        if isinstance(node, syntax.Chain):
            called = next((link for link in node.links if isinstance(link, syntax.Method)), None)
            if called and node.links[-1] is called:
                raise FunctionError("Expression cannot be assigned to", called.position)
            if isinstance(node.root, syntax.Variable):
                return node
            raise FunctionError("Expression cannot be assigned to", node.root.position)
        if isinstance(node, syntax.Literal):
            raise FunctionError("Cannot assign to a constant value", node.position)
        if isinstance(node, syntax.Logic):
            raise FunctionError(_TYPO, position)
        raise FunctionError("Expression cannot be assigned to", node.position)

    # Definitions

    def _definition(self) -> None:
        self.taken_word("private")
        start = self.peek().position
        if not self.taken_word("fn"):
            raise self.missing("fn", "following 'private'")
        token = self.advance()
        if token.kind == RESERVED:
            raise FunctionError(f"'{token.value}' is a reserved keyword", token.position)
        if token.kind != NAME:
            raise FunctionError("Expecting function name in function declaration", token.position)
        name = token.value
        if not self.taken("("):
            raise FunctionError(f"Expecting parameters for function {name}", self.peek().position)
        parameters = self.parameters(")", name, f"function '{name}'")
        if not self.is_next("{"):
            raise FunctionError(f"Expecting body statement block for function {name}", self.peek().position)
        with self.in_function():
            body = self.block()
        self._define(start, name, parameters, body)

    def _define(self, start: Position, name: str, parameters: Sequence[str], body: Node) -> None:
        key = (name, len(parameters))
        if key in self.parsed.definitions:
            counted = {0: "no parameters", 1: "1 parameter"}.get(len(parameters), f"{len(parameters)} parameters")
            raise FunctionError(f"Function {name} with {counted} already exists", start)
        self.count_function(start)
        self.parsed.definitions[key] = syntax.Definition(start, name, parameters, body)

    # Choices

    def condition(self) -> Node:
        """An expression in front of a block."""
        self.refuse_block("a boolean")
        node = self.expression()
        token = self.peek()
        if token.kind == SYMBOL and token.value in _ASSIGNMENTS:
            raise FunctionError(_TYPO if token.value == "=" else _NO_ASSIGNMENT, token.position)
        return node

    def refuse_block(self, expected: str) -> None:
        if self.is_next("{") or self.is_at_end():
            raise FunctionError(f"Expecting {expected} expression", self.peek().position)

    def if_expression(self) -> Node:
        """`if`, with all its `else if`."""
        position = self.advance().position
        branches = [(self.condition(), self.block())]
        otherwise: Node | None = None
        while self.taken_word("else"):
            if not self.taken_word("if"):
                otherwise = self.block()
                break
            branches.append((self.condition(), self.block()))
        return syntax.If(position, branches, otherwise)

    def switch(self) -> Node:
        """`switch`, the default case last."""
        position = self.advance().position
        self.refuse_block("a switch")
        value = self.expression()
        self.expect("{", "to start a switch block")
        cases: list[syntax.Case] = []
        while not self.taken("}"):
            if self.is_at_end():
                raise self.missing("}", "to end this switch block")
            if cases and cases[-1].is_default:
                raise FunctionError("Default switch case must be the last", self.peek().position)
            cases.append(self._case())
        return syntax.Switch(position, value, cases)

    def _case(self) -> syntax.Case:
        is_default = self.taken("_")
        matches = [] if is_default else self._matches()
        if is_default and self.is_next_word("if"):
            raise FunctionError("This switch case cannot have a condition", self.peek().position)
        condition = self.condition() if self.taken_word("if") else None
        self.expect("=>", "in this switch case")
        body = self.statement()
        if not self.taken(",") and not self.is_next("}") and not self.is_self_ended:
            if self.is_at_end():
                raise self.missing("}", "to end this switch block")
            raise self.missing(",", "to separate the items in this switch block")
        return syntax.Case(matches, condition, body, is_default)

    def _matches(self) -> Sequence[Value]:
        """The literals of a case, which `|` parts."""
        matches = []
        while True:
            node = self.binary(self.unary(), PRECEDENCE["|"] + 1)
            matches.append(_literal_value(node))
            if not self.taken("|"):
                return matches

    # Loops

    def while_loop(self) -> Node:
        position = self.advance().position
        condition = self.condition()
        return syntax.While(position, condition, self._loop_body())

    def endless_loop(self) -> Node:
        return syntax.While(self.advance().position, None, self._loop_body())

    def do_loop(self) -> Node:
        position = self.advance().position
        body = self._loop_body()
        is_until = self.is_next_word("until")
        if not is_until and not self.is_next_word("while"):
            raise self.missing("while", "for the do statement")
        self.advance()
        return syntax.Do(position, body, self.condition(), is_until)

    def for_loop(self) -> Node:
        position = self.advance().position
        counter = None
        if self.taken("("):
            name = self.variable_name()
            self.expect(",", "after the iteration variable name")
            token = self.peek()
            counter = self.variable_name()
            if counter == name:
                raise FunctionError(f"Duplicated variable name: {name}", token.position)
            self.expect(")", "to close the iteration variable")
        else:
            name = self.variable_name()
        if not self.taken_word("in"):
            raise self.missing("in", "after the iteration variable")
        self.refuse_block("a boolean")
        values = self.expression()
        return syntax.For(position, name, counter, values, self._loop_body())

    def _loop_body(self) -> Node:
        with self.in_loop():
            return self.block()

    def leave_loop(self) -> Node:
        token = self.advance()
        if not self.is_in_loop:
            raise FunctionError("Break statement should only be used inside a loop", token.position)
        if token.value == "continue":
            return syntax.Continue(token.position)
        return syntax.Break(token.position, self._optional_value())

    # Others

    def let(self) -> Node:
        is_constant = self.advance().value == "const"
        position = self.peek().position
        name = self.variable_name()
        value = self.expression() if self.taken("=") else None
        return syntax.Let(position, name, value, is_constant)

    def leave(self) -> Node:
        token = self.advance()
        node = syntax.Return if token.value == "return" else syntax.Throw
        return node(token.position, self._optional_value())

    def _optional_value(self) -> Node | None:
        is_absent = self.is_at_end() or self.is_next(";") or self.is_next("}") or self.is_next(",")
        return None if is_absent else self.expression()

    def try_block(self) -> Node:
        position = self.advance().position
        body = self.block()
        if not self.taken_word("catch"):
            raise self.missing("catch", "for the 'try' statement")
        name = None
        if self.taken("("):
            name = self.variable_name()
            self.expect(")", "to enclose the catch variable")
        return syntax.Try(position, body, name, self.block())


def _literal_value(node: Node) -> Value:
    """What a case of a switch matches. Raises unless that is known before the run."""
    if isinstance(node, syntax.Literal):
        return node.value
    if isinstance(node, syntax.ArrayLiteral):
        return [_literal_value(element) for element in node.elements]
    if isinstance(node, syntax.MapLiteral):
        return {name: _literal_value(member) for name, member in node.members}
    if isinstance(node, syntax.Operation) and node.operator in ("..", "..="):
        start, end = map(_literal_value, node.operands)
        if type(start) is int and type(end) is int:
            return Range(start, end, node.operator == "..=")
    raise FunctionError("Expecting a literal expression", node.position)


_STATEMENTS: dict[str, Callable[[_Parser], Node]] = {
    "let": _Parser.let, "const": _Parser.let, "while": _Parser.while_loop, "loop": _Parser.endless_loop,
    "do": _Parser.do_loop, "for": _Parser.for_loop, "break": _Parser.leave_loop, "continue": _Parser.leave_loop,
    "return": _Parser.leave, "throw": _Parser.leave, "try": _Parser.try_block, "if": _Parser.if_expression,
    "switch": _Parser.switch,
}
