"""From the text of a filter to its tree (grammar: relevance.md 5.2).

Knows which forms a condition has, in the order in which they are tried, and how AND, OR, NOT and parentheses join
them; refuses to know fields, settings and features. One pass from left to right: what follows a value decides
which form it is the beginning of. The depth that a filter may have bounds the recursion.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from svcd.filters import lexer, prescan
from svcd.filters.errors import FilterError, NoValue, fail, piece, quoted, rest, unclosed
from svcd.filters.geo_conditions import read_geo_condition
from svcd.filters.lexer import value
from svcd.filters.tree import (
    BETWEEN,
    CONTAINS,
    EXISTS,
    IS_EMPTY,
    IS_NULL,
    STARTS_WITH,
    And,
    Comparison,
    Condition,
    Foreign,
    In,
    Not,
    Or,
    Token,
)
from svcd.filters.vector_conditions import read_vector_condition
from svcd.schema.field_values import WHITE_SPACE

# Or, and, not and what stands alone count one level each.
MOST_DEPTH = 150
_SIMPLE_DEPTH = 3

_NO_CONDITION = (
    "Was expecting an operation `=`, `!=`, `>=`, `>`, `<=`, `<`, `IN`, `NOT IN`, `TO`, `EXISTS`, `NOT EXISTS`, "
    "`IS NULL`, `IS NOT NULL`, `IS EMPTY`, `IS NOT EMPTY`, `CONTAINS`, `NOT CONTAINS`, `STARTS WITH`, "
    "`NOT STARTS WITH`, `_geoRadius`, `_geoBoundingBox` or `_geoPolygon` {tail}")
_LEFT_OVER = ("Found unexpected characters at the end of the filter: `{text}`. "
              "You probably forgot an `OR` or an `AND` rule.")
_TOO_DEEP = ("The filter exceeded the maximum depth limit. "
             "Try rewriting the filter so that it contains fewer nested conditions.")
_NO_BRACKET = "Expected `[` after `IN` keyword."
_OPEN_LIST = "Expected matching `]` after the list of field names given to `IN[`"
_IN_LIST = "Expected only comma-separated field names inside `IN[..]` but instead found `{text}`."
_FOREIGN = "Was expecting a field name and an condition inside `_foreign(..)` filter but instead found `{text}`."

_NOT, _JOINT = lexer.keyword("NOT").match, lexer.keyword("(AND|OR)").match
_IN = re.compile(rf"(NOT(?![{lexer.WORD_SET}]){lexer.BLANKS})?IN(?![{lexer.WORD_SET}]){lexer.BLANKS}").match
_OPERATOR = re.compile("<=|>=|!=|<|>|=").match
_STATE = re.compile(r"IS[ \t\r\n]+(NOT[ \t\r\n]+)?(NULL|EMPTY)").match
_EXISTS = re.compile(r"(NOT[ \t\r\n]+)?EXISTS").match
_TO = re.compile(r"TO[ \t\r\n]+").match
_WITH_TEXT = re.compile(r"(NOT[ \t\r\n]+)?(CONTAINS|STARTS WITH)").match
_FOREIGN_NAME = re.compile(rf"{lexer.BLANKS}(_foreign)(?![{lexer.WORD_SET}])").match
_OPENING = re.compile(rf"{lexer.BLANKS}\({lexer.BLANKS}").match
_CLOSING = re.compile(rf"{lexer.BLANKS}\){lexer.BLANKS}").match
_COMMA = re.compile(rf"{lexer.BLANKS},{lexer.BLANKS}").match
_END_OF_LIST = re.compile(rf"{lexer.BLANKS}\]{lexer.BLANKS}").match

# What most filters are made of, read at one go: a field, an operator, a value, and the AND or OR behind it.
_SIMPLE = re.compile(  # type: ignore[attr-defined]  # each pattern has a scanner, but its stubs do not
    rf"{lexer.BLANKS}([{lexer.WORD_SET}]++){lexer.BLANKS}(<=|>=|!=|<|>|=){lexer.BLANKS}"
    rf"(?:([{lexer.WORD_SET}]++)|\"([^\"\\]*)\"|'([^'\\]*)'){lexer.BLANKS}"
    rf"(?:(AND|OR)(?![{lexer.WORD_SET}]){lexer.BLANKS})?").scanner
_PLAIN_LIST = re.compile(
    rf"\[{lexer.BLANKS}(?:{lexer.PLAIN_VALUE}{lexer.BLANKS},{lexer.BLANKS})*+(?:{lexer.PLAIN_VALUE}{lexer.BLANKS})?\]"
    rf"{lexer.BLANKS}").match
_PLAIN_VALUES = re.compile(lexer.PLAIN_VALUE).findall


def parse(source: str) -> Condition | None:
    """The tree of a filter; None when it is blank. Raises FilterError."""
    if not source.strip(WHITE_SPACE):
        return None
    return _Parser(source).whole()


class _Parser:
    """Each method reads from a place and gives what it read with the place behind it."""

    def __init__(self, source: str) -> None:
        self.source = source

    def whole(self) -> Condition:
        """The filter from its beginning to its end."""
        self._skim(0, 0, self._end)
        condition, at = self._any_of(0, 0)
        self._end(at)
        return condition

    def _end(self, at: int) -> int:
        if at < len(self.source):
            fail(_LEFT_OVER.format(text=quoted(self.source[at:])), rest(self.source, at))
        return at

    def _skim(self, at: int, depth: int, end: Callable[[int], int]) -> None:
        """Meet a mistake behind many sound conditions before a tree is made of these.

        end: reads what must follow on the conditions.
        """
        behind = prescan.end_of_valid_conditions(self.source, at) if depth + prescan.DEPTH <= MOST_DEPTH else None
        if behind is not None:
            end(self._any_of(behind, depth)[1])

    # AND, OR, NOT

    def _any_of(self, at: int, depth: int) -> tuple[Condition, int]:
        """One or more conjunctions with OR between them, each of one or more parts with AND between them."""
        self._check_depth(at, depth + 2)  # of what stands alone: the conjunction and the disjunction begin here too
        alternatives: list[Condition] = []
        parts: list[Condition] = []  # of the conjunction that is being read
        may_be_simple = depth + _SIMPLE_DEPTH <= MOST_DEPTH
        while True:
            at, joint = self._simple_run(at, alternatives, parts) if may_be_simple else (at, "")
            if joint is None:
                break
            part, at, joint = self._part(at, depth)
            parts.append(part)
            if joint == "OR":
                _close(alternatives, parts)
            elif joint is None:
                break
        _close(alternatives, parts)
        return (alternatives[0] if len(alternatives) == 1 else Or(alternatives)), at

    def _simple_run(self, at: int, alternatives: list[Condition], parts: list[Condition]) -> tuple[int, str | None]:
        """Read comparisons that hold no surprise, as many as stand here.

        Gives the place behind them, and "" when something must follow, else None.
        """
        source, joint = self.source, ""
        for found in iter(_SIMPLE(source, at).match, None):
            name, operator, word, double, single, joint = found.groups()
            if name in lexer.UNQUOTED or word in lexer.UNQUOTED:
                return at, ""
            start, at = found.start(1), found.end()
            field = Token(name, source, start, start + len(name))
            parts.append(Comparison(field, operator, (word or double or single or "",)))
            if joint == "OR":
                _close(alternatives, parts)
            elif joint is None:
                break
        return at, None if joint is None else ""

    def _part(self, at: int, depth: int) -> tuple[Condition, int, str | None]:
        part, at = self._negation(at, depth + 2)
        joint = _JOINT(self.source, at)
        return (part, at, None) if joint is None else (part, joint.end(), joint[1])

    def _negation(self, at: int, depth: int) -> tuple[Condition, int]:
        is_negated = False
        while True:
            self._check_depth(at, depth)
            found = _NOT(self.source, at)
            if found is None:
                break
            at, depth, is_negated = found.end(), depth + 1, not is_negated
        part, at = self._alone(at, depth + 1)
        if not is_negated:
            return part, at
        return (part.part if isinstance(part, Not) else Not(part)), at

    def _check_depth(self, at: int, depth: int) -> None:
        if depth > MOST_DEPTH:
            fail(_TOO_DEEP, rest(self.source, at))

    # What stands alone

    def _alone(self, at: int, depth: int) -> tuple[Condition, int]:
        self._check_depth(at, depth)
        opening = _OPENING(self.source, at)
        if opening is not None:
            return self._in_parentheses(at, opening.end(), depth)
        return read_geo_condition(self.source, at) or self._of_value(at, depth)

    def _in_parentheses(self, start: int, at: int, depth: int) -> tuple[Condition, int]:
        def end(at: int) -> int:
            closing = _CLOSING(self.source, at)
            if closing is None:
                raise unclosed(self.source, start, ")")
            return closing.end()

        self._skim(at, depth + 1, end)
        condition, at = self._any_of(at, depth + 1)
        return condition, end(at)

    def _of_value(self, start: int, depth: int) -> tuple[Condition, int]:
        """A form that begins with a value, mostly the name of a field."""
        try:
            field, at = value(self.source, start)
        except NoValue as error:
            if error.is_keyword:
                raise
            raise self._no_condition(start) from None
        for form in self._FORMS:
            read = form(self, field, at)
            if read is not None:
                return read
        foreign = self._foreign(start, depth)
        if foreign is None:
            raise self._no_condition(start)
        return foreign

    def _no_condition(self, start: int) -> FilterError:
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

    def _state(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _STATE(self.source, at)
        if found is None:
            return None
        condition = Comparison(field, IS_NULL if found[2] == "NULL" else IS_EMPTY)
        return (Not(condition) if found[1] else condition), found.end()

    def _vectors(self, field: Token, at: int) -> tuple[Condition, int] | None:
        """Names of vectors may hold quotes, so they are read from where the value began."""
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

    def _with_text(self, field: Token, at: int) -> tuple[Condition, int] | None:
        found = _WITH_TEXT(self.source, at)
        if found is None:
            return None
        text, at = value(self.source, found.end())
        keyword = piece(self.source, *found.span(2))
        condition = (Comparison(field, CONTAINS, (text.text,), keyword) if found[2] == CONTAINS
                     else Comparison(field, STARTS_WITH, (text.text,)))
        return (Not(condition) if found[1] else condition), at

    # In the order in which they are tried.
    _FORMS: Sequence[Callable[[_Parser, Token, int], tuple[Condition, int] | None]] = (
        _in, _comparison, _state, _vectors, _exists, _between, _with_text)

    # Lists

    def _list(self, start: int) -> tuple[Sequence[str], int]:
        """The values between brackets, and the place behind them."""
        if not self.source.startswith("[", start):
            fail(_NO_BRACKET, rest(self.source, start))
        found = _PLAIN_LIST(self.source, start) if self.source.find("]", start) > 0 else None
        if found is not None:
            pieces = _PLAIN_VALUES(self.source, start + 1, found.end())
            if lexer.UNQUOTED.isdisjoint(pieces):
                return [text[1:-1] if text[0] in "\"'" else text for text in pieces], found.end()
        return self._odd_list(start + 1)

    def _odd_list(self, at: int) -> tuple[Sequence[str], int]:
        """A list with escapes, odd white space or mistakes, one value at a time."""
        behind = prescan.end_of_valid_values(self.source, at)
        if behind is not None:
            self._odd_list(behind)  # to meet a mistake there first
        values: list[str] = []
        try:
            element, at = value(self.source, at)
            values.append(element.text)
            while (comma := _COMMA(self.source, at)) is not None:
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

    # Joins

    def _foreign(self, start: int, depth: int) -> tuple[Condition, int] | None:
        found = _FOREIGN_NAME(self.source, start)
        if found is None:
            return None
        try:
            return self._join(found.start(1), found.end(), depth)
        except FilterError as error:
            error.since = error.since or found.start(1)
            raise

    def _join(self, start: int, at: int, depth: int) -> tuple[Condition, int]:
        at = self._needed("(", at)
        try:
            field, at = value(self.source, at)
        except NoValue as error:
            raise self._no_join(error.place.start if error.place else at) from None
        part, at = self._any_of(self._needed(",", at), depth + 1)
        return Foreign(field, part, start), self._needed(")", at)

    def _needed(self, character: str, at: int) -> int:
        if not self.source.startswith(character, at):
            raise self._no_join(at)
        return at + 1

    def _no_join(self, at: int) -> FilterError:
        place = rest(self.source, at)
        return FilterError(_FOREIGN.format(text=quoted(place.text)), place)


def _close(alternatives: list[Condition], parts: list[Condition]) -> None:
    """Make one alternative of the parts of a conjunction, and leave the list empty for those of the next."""
    alternatives.append(parts[0] if len(parts) == 1 else And([*parts]))
    parts.clear()
