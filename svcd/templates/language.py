"""Adapt the library python-liquid, which parses the language Liquid, and implement the parts where svcd differs.

1. A variable that does not exist is an error, except as a whole condition (`{% if doc.title %}`), where it is false.
2. `and` binds more strongly than `or`, and both evaluate their right side only if it matters.
3. svcd.templates.values writes and compares values.
4. Tags work within a text: no tag reads other templates (`include`, `render`).
5. Work is charged against svcd.templates.limits.
6. Errors name the tags in which they happened: `from: {% for field in fields  %}`.

Only svcd.templates.template imports this module, and only for a template that needs it: the library takes 15 MB.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import ge, gt, le, lt
from typing import Any

from liquid import Environment
from liquid.ast import BlockNode, Node, ParseTree
from liquid.builtin.statement import StatementNode
from liquid.builtin.tags.case_tag import CaseNode
from liquid.builtin.tags.cycle_tag import CycleNode
from liquid.builtin.tags.for_tag import ForNode
from liquid.builtin.tags.if_tag import IfNode
from liquid.builtin.tags.tablerow_tag import TablerowNode
from liquid.builtin.tags.unless_tag import UnlessNode
from liquid.context import Context, ReadOnlyChainMap
from liquid.exceptions import BreakLoop, ContinueLoop, Error, LiquidInterrupt, LiquidSyntaxError
from liquid.expression import (
    BLANK, CONTINUE, EMPTY, BooleanExpression, Expression, FilteredExpression, Identifier, InfixExpression, Literal,
    LoopExpression, Nil, RangeLiteral,
)
from liquid.limits import to_int
from liquid.parse import get_parser
from liquid.stream import TokenStream
from liquid.token import TOKEN_EOF, Token

from svcd.templates import limits, values
from svcd.templates.filters import FILTERS
from svcd.templates.limits import Render, TemplateError
from svcd.templates.scanner import Part, located, readable, readable_part, scan
from svcd.templates.values import MISSING, find, source_of, text_of, unknown_variable

TAGS = frozenset({
    "assign", "break", "capture", "case", "comment", "continue", "cycle", "decrement", "for", "if", "ifchanged", "increment",
    "tablerow", "unless",
})
_PSEUDO_TAGS = frozenset({"literal", "statement", "illegal"})  # the library's names for text, outputs and everything else
_ROUND = 3  # steps of a round of a loop, in addition to the steps of its block
_AFTER_TAGS = frozenset({"else", "elsif", "when", "raw"})


def parse(text: str) -> Render:
    """Return a function that renders this template. Both raise TemplateError."""
    parts = scan(text)
    try:
        nodes = _environment().parse(readable(text, parts)).statements
        weights = {id(node): _weight(node) for node in nodes}
    except Error as error:
        # The library knows the line; the mark is put to the first part of this line that it does not understand.
        on_line = [part for part in parts if text.count("\n", 0, part.start) + 1 == (error.linenum or 1)]
        part = next(filter(_is_wrong, on_line), None) or next(iter(on_line or parts), None)
        raise located(text, part.start if part else 0, str(error.message)) from None
    except RecursionError:
        raise TemplateError("liquid: Template is nested too deeply\n") from None

    def render(variables: Mapping[str, Any], budget: limits.Budget) -> str:
        context = _Context(variables, budget)
        buffer = _Buffer(context)
        try:
            for node in nodes:
                context.charge(weights[id(node)])
                node.render(context, buffer)  # type: ignore[arg-type]  # the library only calls write()
        except LiquidInterrupt:
            pass  # `break` outside of a loop ends the template
        except RecursionError:
            raise TemplateError("liquid: Template is nested too deeply\n") from None
        except Error as error:
            raise TemplateError(f"liquid: {error.message}\n") from None
        return buffer.getvalue()

    return render


def _is_wrong(part: Part) -> bool:
    if part.name:
        return part.name not in TAGS | _AFTER_TAGS and not part.name.startswith("end")
    try:
        _environment().parse_filtered_expression_value(readable_part(part.text), 1)
    except Error:
        return True
    return False


# The cost of a rendering


class _Context(Context):
    """The variables of one rendering, and its cost so far."""

    def __init__(self, variables: Mapping[str, Any], budget: limits.Budget) -> None:
        super().__init__(_environment(), globals=variables)
        # Without the library's own `now` and `today`.
        self.scope = ReadOnlyChainMap(self.locals, variables, self.counters)
        self.charge = budget.charge

    def get(self, path: Any, default: object = None) -> object:
        """Return the value at a path of names and indexes. Raises TemplateError for a missing value."""
        self.charge(1)
        path = [path] if isinstance(path, str) else path
        name = text_of(path[0], self.charge)
        try:
            root = self.scope[name]
        except KeyError:
            raise unknown_variable(name) from None
        for index in path[1:]:
            if not values.is_scalar(index):
                raise TemplateError(f"liquid: Expected scalar, found `{source_of(index)}`\n")
        return find(root, path)

    def resolve(self, name: str, default: object = None) -> Any:
        """Return the value of a variable."""
        return self.get(name)

    def assign(self, key: str, val: Any) -> None:
        """Set a variable; its value has been charged when it was made."""
        self.locals[key] = val

    def cycle(self, group_name: str, args: Sequence[object]) -> object:
        """Return the next of the texts."""
        self.charge(len(args))
        return super().cycle(group_name, [text_of(arg, self.charge) for arg in args])

    def get_buffer(self, buf: Any = None) -> Any:
        """Return the buffer of a block whose output may be dropped."""
        return _Buffer(self)


class _Buffer:
    """Text being written; each part is charged."""

    def __init__(self, context: _Context) -> None:
        self._parts: list[str] = []
        self._context = context

    def write(self, text: str) -> int:
        """Append a text."""
        self._context.charge(1, len(text))
        self._parts.append(text)
        return len(text)

    def getvalue(self) -> str:
        """Return the text written so far."""
        return "".join(self._parts)


def _weight(node: Node) -> int:
    """Count the nodes of a tree: the maximum cost of a round of a loop, without its inner loops."""
    if type(node).children is Node.children:  # a leaf: the base class raises
        return 1
    return 1 + sum(_weight(child.node) for child in node.children() if child.node is not None)


# Expressions


def _source(expression: Any) -> str:
    """Return the text of an expression for messages."""
    if isinstance(expression, Identifier):
        first, *indexes = expression.path
        return _part_source(first).strip('"') + "".join(f"[{_part_source(index)}]" for index in indexes)
    if isinstance(expression, Nil):
        return "nil"
    if isinstance(expression, Literal):
        return source_of(expression.value)
    if isinstance(expression, RangeLiteral):
        return f"({_source(expression.start)}..{_source(expression.stop)})"
    if isinstance(expression, InfixExpression):
        return f"{_source(expression.left)} {expression.operator} {_source(expression.right)}"
    return str(expression)


def _part_source(part: Any) -> str:
    return _source(part) if isinstance(part, Identifier) else source_of(part.value)


def _evaluated(expression: Expression, context: Any) -> Any:
    """Return the value of an expression, with the `empty` and `blank` of svcd.templates.values.

    Raises TemplateError for a range that is too long or does not end at a number.
    """
    if isinstance(expression, RangeLiteral):
        start, stop = (_whole_number(end.evaluate(context)) for end in (expression.start, expression.stop))
        value: Any = range(start, stop + 1) if start <= stop else range(0)
    elif isinstance(expression, InfixExpression):  # a nested comparison
        value = _holds(expression, context)
    else:
        value = expression.evaluate(context)
    if isinstance(value, range) and value.stop - value.start > limits.ELEMENTS:
        raise TemplateError(f"liquid: Range has more than {limits.ELEMENTS} elements\n")
    if value is EMPTY:
        return values.EMPTY
    return values.BLANK if value is BLANK else value


def _whole_number(value: Any) -> int:
    """Return the end of a range, or a number of columns; other texts count as 0. Raises TemplateError for other types."""
    try:
        return to_int(value)
    except ValueError:
        return 0
    except (TypeError, OverflowError):  # infinity overflows
        raise TemplateError(f"liquid: Expected whole number, found `{values.type_name(value)}`\n") from None


def _require_indexes(expression: Expression) -> None:
    """Raise Error for brackets without an index, which the library takes for a path without a first name."""
    unseen = [expression]
    while unseen:
        each = unseen.pop()
        if isinstance(each, Identifier) and not each.path:
            raise Error("expected an index between the brackets")
        unseen += each.children()


class _Condition(BooleanExpression):
    """A condition. groups: one of these lists must hold, with all of its terms."""

    __slots__ = ("groups",)

    def __init__(self, parsed: BooleanExpression) -> None:
        _require_indexes(parsed)
        super().__init__(parsed.expression)
        self.groups: list[list[Expression]] = [[]]
        term = parsed.expression
        while isinstance(term, InfixExpression) and term.operator in ("and", "or"):
            self.groups[-1].append(term.left)
            if term.operator == "or":
                self.groups.append([])
            term = term.right
        self.groups[-1].append(term)

    def evaluate(self, context: Any) -> bool:
        """Return whether the condition holds."""
        return any(all(_holds(term, context) for term in group) for group in self.groups)


def _holds(term: Expression, context: Any) -> bool:
    context.charge(1)
    if not isinstance(term, InfixExpression):
        return _exists(term, context)
    left, right = _evaluated(term.left, context), _evaluated(term.right, context)
    if term.operator == "contains":
        return values.contains(left, right, context.charge)
    if term.operator in ("==", "!=", "<>"):
        return values.equal(left, right, context.charge) is (term.operator == "==")
    order = values.order(left, right)
    return order is not None and _ORDERS[term.operator](order, 0)


_ORDERS: dict[str, Callable[[int, int], bool]] = {"<": lt, ">": gt, "<=": le, ">=": ge}


def _exists(term: Expression, context: _Context) -> bool:
    """Return whether a variable exists and is neither nil nor false."""
    if not isinstance(term, Identifier):
        return values.is_truthy(_evaluated(term, context))
    context.charge(len(term.path))
    path = [part.value if not isinstance(part, Identifier) else part.evaluate(context) if _exists(part, context) else MISSING
            for part in term.path]  # MISSING: `[variable]` with an unknown variable
    value: Any = context.scope.get(path[0], MISSING) if isinstance(path[0], str) else MISSING
    for index in path[1:]:
        value = values.get(value, index) if values.is_scalar(index) and value is not MISSING else MISSING
    return value is not MISSING and values.is_truthy(value)


class _Loop(LoopExpression):
    """The elements of a loop. weight: the cost of a round, set by its node."""

    __slots__ = ("weight",)

    def __init__(self, parsed: LoopExpression) -> None:
        _require_indexes(parsed)
        super().__init__(parsed.name, parsed.iterable, parsed.limit, parsed.offset, parsed.cols, parsed.reversed)
        self.weight = 1

    @property
    def source(self) -> str:
        """Return the text of the loop for messages, with two spaces at its end if it lacks parameters."""
        named = (("limit", self.limit), ("offset", self.offset))
        parameters = [f"{name}:{_source(value)}" for name, value in named if not isinstance(value, Nil)]
        iterable = _source(self.iterable)
        return f"{{% for {self.name} in {iterable} {', '.join(parameters + ['reversed'] * self.reversed)} %}}"

    def evaluate(self, context: Any) -> tuple[Iterator[Any], int]:
        """Return the elements and their number. Raises TemplateError for a value other than an array, and beyond ELEMENTS."""
        elements = _elements(_evaluated(self.iterable, context), context.charge)
        key = f"{self.name}-{self.iterable}"
        start = context.stopindex(key) if self.offset == CONTINUE else self._number(self.offset, context, 0)
        limit = self._number(self.limit, context, len(elements))
        chosen = elements[start:start + limit]
        context.stopindex(key, start + len(chosen))
        if len(chosen) > limits.ELEMENTS:
            raise TemplateError(f"liquid: Loop has more than {limits.ELEMENTS} rounds\n")
        context.charge(len(chosen) // 16)
        return self._rounds(chosen[::-1] if self.reversed else chosen, context), len(chosen)

    def _rounds(self, elements: Sequence[Any], context: Any) -> Iterator[Any]:
        for element in elements:
            context.charge(self.weight)
            yield element

    @staticmethod
    def _number(expression: Expression, context: Any, default: int) -> int:
        if isinstance(expression, Nil):
            return default
        value = expression.evaluate(context)
        if not isinstance(value, int) or isinstance(value, bool):
            raise TemplateError(f"liquid: Expected whole number, found `{values.type_name(value)}`\n")
        return max(value, 0)


def _elements(value: Any, charge: limits.Charge) -> Sequence[Any]:
    if values.is_array(value):
        return value
    if isinstance(value, Mapping):
        charge(len(value))
        return [list(member) for member in value.items()]
    if value is None or isinstance(value, values.State):
        return ()
    raise TemplateError(f"liquid: Expected array, found `{values.type_name(value)}`\n")


class _Filtered(FilteredExpression):
    """A value with filters. Construction with an unknown filter raises Error."""

    __slots__ = ()

    def __init__(self, parsed: FilteredExpression) -> None:
        _require_indexes(parsed)
        super().__init__(parsed.expression, parsed.filters)
        for call in self.filters:
            if call.name not in FILTERS:
                raise Error(f"Unknown filter `{call.name}`, expected one of: {', '.join(sorted(FILTERS))}")

    def evaluate(self, context: Any) -> Any:
        """Return the value after all filters."""
        value = _evaluated(self.expression, context)
        for call in self.filters:
            args = [_evaluated(arg, context) for arg in call.args]
            named = {name: _evaluated(arg, context) for name, arg in call.kwargs.items()}
            context.charge(1 + len(args) + len(named))
            try:
                value = FILTERS[call.name](context.charge, value, *args, **named)
            except TemplateError as error:
                words = ", ".join([*map(_source, call.args), *(f"{name}: {_source(arg)}" for name, arg in call.kwargs.items())])
                raise _from(error, "Filter error", filter=f"{call.name}: {words}" if words else call.name,
                            input=source_of(value)) from None
        return value


# Tags


def _from(error: TemplateError, where: str, **details: object) -> TemplateError:
    """Return the same error with the enclosing tag."""
    shown = "".join(f"    {name}={value}\n" for name, value in details.items())
    return TemplateError(f"{error.message}from: {where}\n" + (f"  with:\n{shown}" if shown else ""))


def _render_conditional(node: Any, context: Any, buffer: Any, expected: bool) -> bool:
    """Render the first block of `if` or `unless` with a true condition."""
    try:
        if node.condition.evaluate(context) is expected:
            node.consequence.render(context, buffer)
        elif not any(block.render(context, buffer) for block in node.conditional_alternatives) and node.alternative:
            node.alternative.render(context, buffer)
    except TemplateError as error:
        raise _from(error, f"{{% if {_source(node.condition.expression)} %}}") from None
    return True


class _If(IfNode):
    def render_to_output(self, context: Any, buffer: Any) -> bool:
        return _render_conditional(self, context, buffer, True)


class _Unless(UnlessNode):
    def render_to_output(self, context: Any, buffer: Any) -> bool:
        return _render_conditional(self, context, buffer, False)


class _Case(CaseNode):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        for when in self.whens:
            if isinstance(when.condition, BooleanExpression):
                when.condition = _Condition(when.condition)


class _Cycle(CycleNode):
    def __init__(self, tok: Token, group: Expression | None, args: list[Expression]) -> None:
        super().__init__(tok, group, args)
        for expression in (group, *args):
            if expression is not None:
                _require_indexes(expression)

    def render_to_output(self, context: Any, buffer: Any) -> None:
        group = "" if self.group is None else str(_evaluated(self.group, context))
        buffer.write(context.cycle(group, [_evaluated(arg, context) for arg in self.args]))


class _Tablerow(TablerowNode):
    def __init__(self, tok: Any, expression: Any, block: BlockNode) -> None:
        super().__init__(tok, expression, block)
        expression.weight = _ROUND + _weight(block)

    def _int_or_zero(self, arg: object) -> int:
        return _whole_number(arg)


class _For(ForNode):
    def __init__(self, tok: Any, expression: Any, block: BlockNode, default: BlockNode | None = None) -> None:
        super().__init__(tok, expression, block, default)
        expression.weight = _ROUND + _weight(block)

    def render_to_output(self, context: Any, buffer: Any) -> bool:
        try:
            elements, length = self.expression.evaluate(context)
        except TemplateError as error:
            raise _from(error, self.expression.source) from None  # type: ignore[attr-defined]  # it is a _Loop
        if not length:
            return bool(self.default and self.default.render(context, buffer))
        parent = context.loops[-1] if context.loops else None
        namespace: dict[str, Any] = {}
        context.scope.push(namespace)
        context.loops.append(None)
        try:
            for place, element in enumerate(elements):
                context.loops[-1] = namespace["forloop"] = {
                    "length": length, "parentloop": parent, "index0": place, "index": place + 1, "rindex0": length - place - 1,
                    "rindex": length - place, "first": place == 0, "last": place == length - 1}
                namespace[self.expression.name] = element
                try:
                    self.block.render(context, buffer)
                except ContinueLoop:
                    pass
                except TemplateError as error:
                    where = self.expression.source  # type: ignore[attr-defined]  # it is a _Loop
                    raise _from(error, where, index=place + 1) from None
        except BreakLoop:
            pass
        finally:
            context.loops.pop()
            context.scope.pop()
        return True


class _Output(StatementNode):
    def render_to_output(self, context: Any, buffer: Any) -> None:
        buffer.write(text_of(self.expression.evaluate(context), context.charge))


# The nodes of tags; "statement" is the library's name for an output.
_NODES = {"if": _If, "unless": _Unless, "case": _Case, "for": _For, "tablerow": _Tablerow, "cycle": _Cycle, "statement": _Output}


class _Tokens(TokenStream):
    """The tokens of a template. Raises LiquidSyntaxError when a tag reads past the end, as `case` does if only text follows."""

    _MOST_ENDS = limits.NESTING + 10  # each block may read the end once
    _ends = 0

    def __next__(self) -> Token:
        if self.current.type == TOKEN_EOF:
            self._ends += 1
            if self._ends > self._MOST_ENDS:
                raise LiquidSyntaxError("expected tag with value 'endcase', found eof with value ''", linenum=1)
        return super().__next__()


class _Environment(Environment):
    render_whitespace_only_blocks = True
    context_depth_limit = limits.NESTING + 10

    def __init__(self) -> None:
        super().__init__(cache_size=0)
        for name in self.tags.keys() - TAGS - _PSEUDO_TAGS:
            del self.tags[name]  # in place: the parser uses the same dictionary
        for name, node in _NODES.items():
            self.tags[name].node_class = node  # type: ignore[attr-defined]  # the classes of these tags have it
        parse_condition, parse_loop = self.parse_boolean_expression_value, self.parse_loop_expression_value
        parse_filtered = self.parse_filtered_expression_value
        self.parse_boolean_expression_value = _changed(parse_condition, _Condition)
        self.parse_loop_expression_value = _changed(parse_loop, _Loop)
        self.parse_filtered_expression_value = _changed(parse_filtered, _Filtered)

    def parse(self, source: str) -> ParseTree:
        """Return the tree of a template. Raises Error."""
        return get_parser(self).parse(_Tokens(self.tokenizer()(source)))


def _changed(parse_expression: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the library's parser with its result converted by `change`."""
    def parsed(text: str, line: int = 1) -> Any:
        try:
            return change(parse_expression(text, line))
        except Error as error:
            error.linenum = error.linenum or line
            raise

    return parsed


@cache
def _environment() -> _Environment:
    return _Environment()
