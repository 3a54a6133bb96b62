"""Parser: turns the tokens of a function into its syntax tree (`syntax`), by recursive descent with operator precedence.

Syntax errors have the wording and position of Rhai's own parser.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from svcd.rhai import syntax, values
from svcd.rhai.syntax import Node
from svcd.rhai.tokens import (
    CHAR, END, ERROR, KEYWORD_FUNCTIONS, NAME, NUMBER, RESERVED, SYMBOL, TEXT, TEXT_PART, THIS, WORD, Token, tokens,
)
from svcd.rhai.values import MAX_INT, FunctionError, Position, Range, Value

# Higher binds tighter; only `**` is right-associative.
PRECEDENCE = {
    **dict.fromkeys(("||", "|", "^"), 30), **dict.fromkeys(("&&", "&"), 60), **dict.fromkeys(("==", "!="), 90),
    "in": 110, "!in": 110, **dict.fromkeys((">", ">=", "<", "<="), 130), "??": 135,
    **dict.fromkeys(("..", "..="), 140), **dict.fromkeys(("+", "-"), 150), **dict.fromkeys(("*", "/", "%"), 180),
    "**": 190, **dict.fromkeys(("<<", ">>"), 210),
}
_LOGIC = frozenset({"&&", "||", "??"})
# Statements that may be used as expressions.
_VALUED = frozenset({"if", "switch", "while", "loop", "do", "for"})
_NO_INDEX = {float: "a float", type(None): "()", bool: "a boolean"}
_JOINING = ("+", "-", "*", "/", "%", "**", "<<", ">>", "&", "|", "^")
_ASSIGNMENTS = {"=": None, **{f"{operator}=": operator for operator in _JOINING}}
# Statements that end with a block need no semicolon.
_SELF_ENDED = (syntax.If, syntax.Switch, syntax.While, syntax.For, syntax.Block, syntax.Try)

_TYPO = "Possibly a typo of '=='?"
_NO_ASSIGNMENT = "Expecting a boolean expression, not an assignment"


def parse(text: str) -> syntax.Script:
    """Parse a text. Raises FunctionError with the position of the first error."""
    if len(text) > values.TEXT_LENGTH:
        raise FunctionError(f"Length of function exceeds the maximum limit ({values.TEXT_LENGTH})")
    try:
        return _Parser(tokens(text)).script()
    except RecursionError:
        raise FunctionError("Expression exceeds maximum complexity") from None


class _Parser:
    """A recursive-descent parser over the tokens of one text. parsed: the result so far."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._functions = 0
        self._is_in_function = False
        self.is_self_ended = False
        self.is_in_loop = False
        self.parsed = syntax.Script()

    # Tokens

    def peek(self) -> Token:
        """Return the next token without consuming it. Raises a lexical error that comes next."""
        token = self._tokens[self._at]
        if token.kind == ERROR:
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
        """Consume a symbol if it is next; whether it was."""
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
        """Consume a symbol that must be next; its position."""
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

    # Context

    @contextmanager
    def nested(self, position: Position) -> Iterator[None]:
        """One nesting level. Raises FunctionError beyond the limit."""
        self._depth += 1
        if self._depth > values.NESTING:
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
        """Count a function or closure against the limit."""
        self._functions += 1
        if self._functions > values.FUNCTIONS:
            raise FunctionError("Number of functions defined exceeds maximum limit", position)

    # Operators

    def expression(self) -> Node:
        """Parse one expression."""
        with self.nested(self.peek().position):
            return self.binary(self.unary(), 1)

    def _operator(self) -> tuple[str, int] | None:
        """The operator that is next, and its number of tokens; None if none is."""
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
        """Parse the rest of an expression that begins with `left`, up to an operator of a precedence below `least`."""
        levels = self._depth
        while (found := self._operator()) and PRECEDENCE[found[0]] >= least:
            operator, length = found
            position = self.peek().position
            self._at += length
            self._depth += 1  # operators in a row nest their operands in the tree
            if self._depth > values.NESTING:
                raise FunctionError("Expression exceeds maximum complexity", position)
            precedence = PRECEDENCE[operator]
            right = self.binary(self.unary(), precedence if operator == "**" else precedence + 1)
            if operator in _LOGIC:
                left = syntax.Logic(position, operator, left, right)
            elif operator in ("in", "!in"):
                left = syntax.Operation(position, "contains", [right, left])
                left = syntax.Operation(position, "!", [left]) if operator == "!in" else left
            else:
                left = syntax.Operation(position, operator, [left, right])
        self._depth = levels
        return left

    def unary(self) -> Node:
        token = self.peek()
        if token.kind == END:
            raise FunctionError("Script is incomplete", token.position)
        if token.kind != SYMBOL or token.value not in ("-", "+", "!"):
            root = self._primary()
            links: list[syntax.Link] = []
            first = self.peek().position
            while (token := self.peek()).kind == SYMBOL:
                if token.value in (".", "?."):
                    self._at += 1
                    links.append(self._member(token.value == "?."))
                    continue
                if token.value not in ("[", "?[") or not links and isinstance(
                        root, (syntax.If, syntax.Switch, syntax.Block, syntax.Closure)):
                    break
                self._at += 1
                position, index = self.peek().position, self.expression()
                if not links and isinstance(root, syntax.Literal) and not isinstance(root.value, str):
                    raise FunctionError("Only arrays, object maps and strings can be indexed", root.position)
                if isinstance(index, syntax.Literal) and type(index.value) in _NO_INDEX:
                    raise FunctionError(f"Array access expects integer index, not {_NO_INDEX[type(index.value)]}", index.position)
                self.expect("]", "for a matching [ in this index expression")
                links.append(syntax.Index(position, token.value == "?[", index))
            return syntax.Chain(first, root, links) if links else root
        self._at += 1
        with self.nested(token.position):
            operand = self.unary()
        if token.value != "!" and isinstance(operand, syntax.Literal) and type(operand.value) in (int, float):
            value = operand.value if token.value == "+" else -operand.value
            return syntax.Literal(operand.position, value if type(value) is float or value <= MAX_INT else float(value))
        return syntax.Operation(token.position, token.value, [operand])

    # Chains

    def _member(self, is_safe: bool) -> syntax.Link:
        token = self.advance()
        if token.kind == RESERVED and token.value not in KEYWORD_FUNCTIONS:
            raise FunctionError(f"'{token.value}' is a reserved keyword", token.position)
        if token.kind in (NAME, RESERVED) and self.taken("("):
            return syntax.Method(token.position, is_safe, token.value, self._arguments(token.value))
        if token.kind != NAME:
            raise FunctionError("Expecting name of a property", token.position)
        return syntax.Member(token.position, is_safe, token.value)

    def _list(self, closer: str, ending: str, separating: str, limit: Callable[[int], None] = lambda length: None) -> list[Node]:
        """Parse expressions separated by commas, up to `closer`. ending, separating: purposes of closer and comma, for errors.

        limit: called with the number of expressions before each one; raises FunctionError.
        """
        elements: list[Node] = []
        while not self.taken(closer):
            if self.is_at_end():
                raise self.missing(closer, ending)
            limit(len(elements))
            elements.append(self.expression())
            if not self.is_next(closer):
                if self.is_at_end():
                    raise self.missing(closer, ending)
                self.expect(",", separating)
        return elements

    def _arguments(self, name: str) -> Sequence[Node]:
        return self._list(")", f"to close the arguments list of this function call '{name}'",
                          f"to separate the arguments to function call '{name}'")

    # Primaries

    def _primary(self) -> Node:
        token = self.advance()
        if token.kind in (NUMBER, TEXT, CHAR):
            return syntax.Literal(token.position, token.value)
        if token.kind in _PRIMARIES:
            return _PRIMARIES[token.kind](self, token)
        if token.kind == WORD and token.value in ("true", "false"):
            return syntax.Literal(token.position, token.value == "true")
        self._at -= token.kind != END
        if token.kind == WORD and token.value in _VALUED or self.is_next("{"):
            node = self.statement()
            self.is_self_ended = False
            return node
        self.advance()
        if token.kind == SYMBOL and token.value in _BRACKETS:
            return _BRACKETS[token.value](self, token)
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
        self.expect(")", "for a matching ( in this expression")
        return inner

    def _array(self, token: Token) -> Node:
        def check_length(length: int) -> None:
            if length == values.ARRAY_LENGTH:
                raise FunctionError(f"Size of array literal exceeds the maximum limit ({length})", self.peek().position)

        return syntax.ArrayLiteral(token.position, self._list(
            "]", "to end this array literal", "to separate the items of this array literal", check_length))

    def _map(self, token: Token) -> Node:
        members: dict[str, Node] = {}
        while not self.taken("}"):
            at = self.advance()
            if at.kind == RESERVED:
                raise FunctionError(f"'{at.value}' is a reserved keyword", at.position)
            if at.kind == END or not members and at.kind not in (NAME, TEXT, TEXT_PART):
                raise FunctionError("Expecting '}' to end this object map literal", at.position)
            if at.kind not in (NAME, TEXT):
                raise FunctionError("Expecting name of a property", at.position)
            name = str(at.value)
            if name in members:
                raise FunctionError(f"Duplicated property for object map literal: {name}", at.position)
            self.expect(":", f"to follow the property '{name}' in this object map literal")
            if len(members) == values.MAP_LENGTH:
                raise FunctionError("Number of properties in object map literal exceeds the maximum limit "
                                    f"({values.MAP_LENGTH})", self.peek().position)
            members[name] = self.expression()
            if not self.is_next("}"):
                if self.peek().kind not in (NAME, SYMBOL) or not self.is_next(",") and self.peek().kind == SYMBOL:
                    raise self.missing("}", "to end this object map literal")
                self.expect(",", "to separate the items of this object map literal")
        return syntax.MapLiteral(token.position, list(members.items()))

    # Closures

    def _closure(self, token: Token) -> Node:
        parameters = [] if token.value == "||" else self.parameters("|", "", "anonymous function")
        self.count_function(token.position)
        with self.in_function(), self.nested(token.position):
            body = self.statement()
        self.is_self_ended = False
        return syntax.Closure(token.position, parameters, body)

    def parameters(self, closer: str, name: str, owner: str) -> Sequence[str]:
        """Parse parameter names up to `closer`. name, owner: of the function, for errors."""
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

    # Statements

    def script(self) -> syntax.Script:
        """Parse the whole text."""
        while not self.is_at_end():
            if self.peek().value in ("fn", "private") and self.peek().kind == WORD:
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
                key = (name, len(parameters))
                if key in self.parsed.definitions:
                    counted = {0: "no parameters", 1: "1 parameter"}.get(len(parameters), f"{len(parameters)} parameters")
                    raise FunctionError(f"Function {name} with {counted} already exists", start)
                self.count_function(start)
                self.parsed.definitions[key] = syntax.Definition(start, name, parameters, body)
            elif not self.taken(";"):
                self.parsed.statements.append(self.statement())
                self._end_statement(END)
        return self.parsed

    def _end_statement(self, closer: str) -> None:
        """Consume the semicolon after a statement, unless it ends with a block or is the last one."""
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
        if isinstance(node, syntax.Chain):
            if isinstance(node.links[-1], syntax.Method):
                raise FunctionError("Expression cannot be assigned to", node.links[-1].position)
            if not isinstance(node.root, syntax.Variable):
                raise FunctionError("Expression cannot be assigned to", node.root.position)
        elif isinstance(node, syntax.Literal):
            raise FunctionError("Cannot assign to a constant value", node.position)
        elif isinstance(node, syntax.Logic):
            raise FunctionError(_TYPO, token.position)
        elif not isinstance(node, syntax.Variable):
            raise FunctionError("Expression cannot be assigned to", node.position)
        return syntax.Assignment(token.position, node, _ASSIGNMENTS[token.value], self.expression())

    # Choices

    def condition(self) -> Node:
        """Parse the expression before a block, which must not be an assignment."""
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
        """Parse `if` with its `else if` and `else`."""
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
        """Parse `switch`; the default case must be the last."""
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
        matches: list[Value] = []
        while not is_default:  # literals separated by `|`
            matches.append(_literal_value(self.binary(self.unary(), PRECEDENCE["|"] + 1)))
            if not self.taken("|"):
                break
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

    # Loops

    def while_loop(self) -> Node:
        token = self.advance()
        return syntax.While(token.position, None if token.value == "loop" else self.condition(), self._loop_body())

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
    """The value that a case of a switch matches. Raises FunctionError unless it is a constant expression."""
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


_PRIMARIES: dict[str, Callable[[_Parser, Token], Node]] = {  # by kind of token
    NAME: _Parser._named, TEXT_PART: _Parser._interpolated, RESERVED: _Parser._reserved,
}
_BRACKETS: dict[str, Callable[[_Parser, Token], Node]] = {
    "(": _Parser._parenthesized, "[": _Parser._array, "#{": _Parser._map, "|": _Parser._closure, "||": _Parser._closure,
}
_STATEMENTS: dict[str, Callable[[_Parser], Node]] = {
    "let": _Parser.let, "const": _Parser.let, "while": _Parser.while_loop, "loop": _Parser.while_loop,
    "do": _Parser.do_loop, "for": _Parser.for_loop, "break": _Parser.leave_loop, "continue": _Parser.leave_loop,
    "return": _Parser.leave, "throw": _Parser.leave, "try": _Parser.try_block, "if": _Parser.if_expression,
    "switch": _Parser.switch,
}
