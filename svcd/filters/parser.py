"""Parse the text of a filter into a condition tree.

The parser descends recursively, in one pass from left to right: the text after a value decides which kind of condition it begins.
The depth limit of filters bounds the recursion. Source: docs/filters-and-facets.md#grammar.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from svcd.filters import lexer
from svcd.filters.geo_conditions import read_geo_condition
from svcd.filters.lexer import FilterError, NoValue, fail, piece, quoted, rest, unclosed, value
from svcd.filters.requirements import COST_BY_OPERATOR, LISTED, ORDINARY, Cost, cost_of
from svcd.filters.tree import (BETWEEN, CONTAINS, EXISTS, IS_EMPTY, IS_NULL, STARTS_WITH, And, Comparison, Condition, Foreign, In,
                               Not, Or, Token)
from svcd.filters.vector_conditions import read_vector_condition
from svcd.schema.field_values import WHITE_SPACE

# Levels of the grammar: each disjunction, conjunction, negation and primary is a level.
MOST_DEPTH = 150
# The levels that a comparison in a disjunction takes: conjunction, negation and primary.
_SIMPLE_DEPTH = 3

_NO_CONDITION = (
    "Was expecting an operation `=`, `!=`, `>=`, `>`, `<=`, `<`, `IN`, `NOT IN`, `TO`, `EXISTS`, `NOT EXISTS`, "
    "`IS NULL`, `IS NOT NULL`, `IS EMPTY`, `IS NOT EMPTY`, `CONTAINS`, `NOT CONTAINS`, `STARTS WITH`, "
    "`NOT STARTS WITH`, `_geoRadius`, `_geoBoundingBox` or `_geoPolygon` {tail}")
_TRAILING = ("Found unexpected characters at the end of the filter: `{text}`. "
              "You probably forgot an `OR` or an `AND` rule.")
_TOO_DEEP = ("The filter exceeded the maximum depth limit. "
             "Try rewriting the filter so that it contains fewer nested conditions.")
_NO_BRACKET = "Expected `[` after `IN` keyword."
_OPEN_LIST = "Expected matching `]` after the list of field names given to `IN[`"
_IN_LIST = "Expected only comma-separated field names inside `IN[..]` but instead found `{text}`."
_FOREIGN = "Was expecting a field name and an condition inside `_foreign(..)` filter but instead found `{text}`."

_NOT, _CONNECTIVE = lexer.keyword("NOT").match, lexer.keyword("(AND|OR)").match
_IN = re.compile(rf"(NOT(?![{lexer.WORD_SET}]){lexer.BLANKS})?IN(?![{lexer.WORD_SET}]){lexer.BLANKS}").match
_OPERATOR = re.compile("<=|>=|!=|<|>|=").match
_NULL_OR_EMPTY = re.compile(r"IS[ \t\r\n]+(NOT[ \t\r\n]+)?(NULL|EMPTY)").match
_EXISTS = re.compile(r"(NOT[ \t\r\n]+)?EXISTS").match
_TO = re.compile(r"TO[ \t\r\n]+").match
_TEXT_OPERATOR = re.compile(r"(NOT[ \t\r\n]+)?(CONTAINS|STARTS WITH)").match
_FOREIGN_NAME = re.compile(rf"{lexer.BLANKS}(_foreign)(?![{lexer.WORD_SET}])").match
_OPENING = re.compile(rf"{lexer.BLANKS}\({lexer.BLANKS}").match
_CLOSING = re.compile(rf"{lexer.BLANKS}\){lexer.BLANKS}").match
_COMMA = re.compile(rf"{lexer.BLANKS},{lexer.BLANKS}").match
_END_OF_LIST = re.compile(rf"{lexer.BLANKS}\]{lexer.BLANKS}").match

# The most frequent condition, read by one match: a field, an operator, a value, and the following AND or OR.
FAST_COMPARISON = re.compile(  # type: ignore[attr-defined]  # each pattern has a scanner, but its stubs do not
    rf"{lexer.BLANKS}([{lexer.WORD_SET}]++){lexer.BLANKS}(<=|>=|!=|<|>|=){lexer.BLANKS}"
    rf"(?:([{lexer.WORD_SET}]++)|\"([^\"\\]*)\"|'([^'\\]*)'){lexer.BLANKS}"
    rf"(?:(AND|OR)(?![{lexer.WORD_SET}]){lexer.BLANKS})?").scanner
FAST_LIST = re.compile(
    rf"\[{lexer.BLANKS}(?:{lexer.PLAIN_VALUE}{lexer.BLANKS},{lexer.BLANKS})*+(?:{lexer.PLAIN_VALUE}{lexer.BLANKS})?\]"
    rf"{lexer.BLANKS}").match
_PLAIN_VALUES = re.compile(lexer.PLAIN_VALUE).findall


def parse(source: str, cost: Cost | None = None) -> Condition | None:
    """Return the condition tree of a filter; None when it is blank. Raises FilterError.

    cost: adds up the costs of several texts of one filter.
    """
    if not source.strip(WHITE_SPACE):
        return None
    condition, at = _Parser(source, cost or Cost()).disjunction(0, 0)
    if at < len(source):
        fail(_TRAILING.format(text=quoted(source[at:])), rest(source, at))
    return condition


class _Parser:
    """Methods read from an index (`at`) of the source, and return the result with the index after it.

    depth: the level of the grammar that the caller has reached.
    """

    def __init__(self, source: str, cost: Cost) -> None:
        self.source = source
        self._cost = cost

    # AND, OR, NOT

    def disjunction(self, at: int, depth: int) -> tuple[Condition, int]:
        """Read conjunctions separated by OR, each of parts separated by AND."""
        self._check_depth(at, depth + 2)  # of the first negation: disjunction and conjunction begin here too
        alternatives: list[Condition] = []
        parts: list[Condition] = []  # of the current conjunction
        may_be_simple = depth + _SIMPLE_DEPTH <= MOST_DEPTH
        while True:
            at, connective = self._comparisons(at, alternatives, parts) if may_be_simple else (at, "")
            if connective is None:
                break
            part, at = self._negation(at, depth + 2)
            parts.append(part)
            found = _CONNECTIVE(self.source, at)
            if found is None:
                break
            at = found.end()
            if found[1] == "OR":
                _end_conjunction(alternatives, parts)
        _end_conjunction(alternatives, parts)
        return (alternatives[0] if len(alternatives) == 1 else Or(alternatives)), at

    def _comparisons(self, at: int, alternatives: list[Condition], parts: list[Condition]) -> tuple[int, str | None]:
        """Read consecutive comparisons without escapes and keywords.

        Returns the index after them, and "" when another part must follow, else None.
        """
        source, connective = self.source, ""
        for found in iter(FAST_COMPARISON(source, at).match, None):
            name, operator, word, double, single, connective = found.groups()
            if name in lexer.UNQUOTED or word in lexer.UNQUOTED:
                return at, ""
            self._cost.add(COST_BY_OPERATOR.get(operator, ORDINARY))
            start, at = found.start(1), found.end()
            field = Token(name, source, start, start + len(name))
            parts.append(Comparison(field, operator, (word or double or single or "",)))
            if connective == "OR":
                _end_conjunction(alternatives, parts)
            elif connective is None:
                break
        return at, None if connective is None else ""

    def _negation(self, at: int, depth: int) -> tuple[Condition, int]:
        is_negated = False
        while True:
            self._check_depth(at, depth)
            found = _NOT(self.source, at)
            if found is None:
                break
            at, depth, is_negated = found.end(), depth + 1, not is_negated
        part, at = self._primary(at, depth + 1)
        if not is_negated:
            return part, at
        return (part.part if isinstance(part, Not) else Not(part)), at

    def _check_depth(self, at: int, depth: int) -> None:
        if depth > MOST_DEPTH:
            fail(_TOO_DEEP, rest(self.source, at))

    # Primaries

    def _primary(self, at: int, depth: int) -> tuple[Condition, int]:
        self._check_depth(at, depth)
        opening = _OPENING(self.source, at)
        if opening is not None:
            condition, after = self.disjunction(opening.end(), depth + 1)
            closing = _CLOSING(self.source, after)
            if closing is None:
                raise unclosed(self.source, at, ")")
            return condition, closing.end()
        condition, at = read_geo_condition(self.source, at) or self._condition_with_value(at, depth)
        self._cost.add(cost_of(condition))
        return condition, at

    def _condition_with_value(self, start: int, depth: int) -> tuple[Condition, int]:
        """Read a condition that begins with a value, usually the name of a field."""
        try:
            field, at = value(self.source, start)
        except NoValue as error:
            if error.is_keyword:
                raise
            raise self._condition_error(start) from None
        for read_condition in self._CONDITIONS:
            read = read_condition(self, field, at)
            if read is not None:
                return read
        foreign = self._foreign(start, depth)
        if foreign is None:
            raise self._condition_error(start)
        return foreign

    def _condition_error(self, start: int) -> FilterError:
        place = rest(self.source, start)
        tail = f"at `{quoted(place.text)}`." if place.text else "but instead got nothing."
        return FilterError(_NO_CONDITION.format(tail=tail), place)

    def _in(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _IN(self.source, at)
        if found is None:
            return None
        values, at = self._list(found.end())
        condition = In(field, values)
        return (Not(condition) if found[1] else condition), at

    def _comparison(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _OPERATOR(self.source, at)
        if found is None:
            return None
        right, at = value(self.source, found.end())
        return Comparison(field, found[0], (right.text,)), at

    def _null_or_empty(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _NULL_OR_EMPTY(self.source, at)
        if found is None:
            return None
        condition = Comparison(field, IS_NULL if found[2] == "NULL" else IS_EMPTY)
        return (Not(condition) if found[1] else condition), found.end()

    def _vectors(self, field: Token, at: int) -> tuple[Condition, int] | None:
        """Read a vector condition from the start of the value, because names of embedders may be quoted."""
        return read_vector_condition(self.source, field.start)

    def _exists(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _EXISTS(self.source, at)
        if found is None:
            return None
        condition = Comparison(field, EXISTS)
        return (Not(condition) if found[1] else condition), found.end()

    def _between(self, field: Token, at: int) -> tuple[Condition, int] | None:
        try:
            low, at = value(self.source, at)
        except NoValue:
            return None
        found = _TO(self.source, at)
        if found is None:
            return None
        high, at = value(self.source, found.end())
        return Comparison(field, BETWEEN, (low.text, high.text)), at

    def _text_condition(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _TEXT_OPERATOR(self.source, at)
        if found is None:
            return None
        text, at = value(self.source, found.end())
        keyword = piece(self.source, *found.span(2))
        condition = (Comparison(field, CONTAINS, (text.text,), keyword) if found[2] == CONTAINS
                     else Comparison(field, STARTS_WITH, (text.text,)))
        return (Not(condition) if found[1] else condition), at

    # In the order in which they are tried.
    _CONDITIONS: Sequence[Callable[[_Parser, Token, int], tuple[Condition, int] | None]] = (
        _in, _comparison, _null_or_empty, _vectors, _exists, _between, _text_condition)

    # Lists

    def _list(self, start: int) -> tuple[Sequence[str], int]:
        """Read the values in brackets, and return them with the index after the closing bracket."""
        if not self.source.startswith("[", start):
            fail(_NO_BRACKET, rest(self.source, start))
        found = FAST_LIST(self.source, start) if self.source.find("]", start) > 0 else None
        if found is not None and self.source.count(",", start, found.end()) < self._cost.left:
            pieces = _PLAIN_VALUES(self.source, start + 1, found.end())
            if lexer.UNQUOTED.isdisjoint(pieces):
                self._cost.add(LISTED * max(len(pieces) - 1, 0))  # the first value counts as the condition
                return [text[1:-1] if text[0] in "\"'" else text for text in pieces], found.end()
        values: list[str] = []  # with escapes, unusual white space or errors: read one value at a time
        at = start + 1
        try:
            element, at = value(self.source, at)
            values.append(element.text)
            while (comma := _COMMA(self.source, at)) is not None:
                self._cost.add(LISTED)
                at = comma.end()
                element, at = value(self.source, at)
                values.append(element.text)
        except NoValue:
            pass
        end = _END_OF_LIST(self.source, at)
        if end is None:
            place = rest(self.source, at)
            fail(_IN_LIST.format(text=quoted(place.text)) if place.text else _OPEN_LIST, place)
        return values, end.end()

    # Foreign filters

    def _foreign(self, start: int, depth: int) -> tuple[Condition, int] | None:
        found = _FOREIGN_NAME(self.source, start)
        if found is None:
            return None
        try:
            at = self._after_character("(", found.end())
            try:
                field, at = value(self.source, at)
            except NoValue as error:
                raise self._foreign_error(error.place.start if error.place else at) from None
            part, at = self.disjunction(self._after_character(",", at), depth + 1)
            return Foreign(field, part, found.start(1)), self._after_character(")", at)
        except FilterError as error:
            error.shown_from = error.shown_from or found.start(1)
            raise

    def _after_character(self, character: str, at: int) -> int:
        if not self.source.startswith(character, at):
            raise self._foreign_error(at)
        return at + 1

    def _foreign_error(self, at: int) -> FilterError:
        place = rest(self.source, at)
        return FilterError(_FOREIGN.format(text=quoted(place.text)), place)


def _end_conjunction(alternatives: list[Condition], parts: list[Condition]) -> None:
    """Add the conjunction of the parts to the alternatives, and empty the list of parts for the next one."""
    alternatives.append(parts[0] if len(parts) == 1 else And([*parts]))
    parts.clear()
