"""Find the search rules whose values meet the filter of a query, within limits on the work (docs/search-rules.md#filter).

The filter is expanded to its disjunctive form: alternatives, each a conjunction of conditions on fields. A filter may have many
more alternatives than operators, so limits bound the expansion; conditions beyond the limits count as never met. A set of rules
is an integer with one bit for each number of a rule.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from math import comb
from typing import Any, NamedTuple

from svcd.base.quantities import number_of
from svcd.filters.tree import (BETWEEN, EQUAL, EXISTS, GREATER, GREATER_OR_EQUAL, IS_EMPTY, IS_NULL, LESS, LESS_OR_EQUAL,
                               NOT_EQUAL, And, Comparison, Condition, In, Not, Or)
from svcd.query.reader import Value
from svcd.rules.stored import count_values
from svcd.schema.field_values import GEO, field_values, normal_form

# Limits, set by environment variables (docs/search-rules.md#limits)

_PREFIX = "SVC_EXPERIMENTAL_DSR_FUEL_"
_LARGEST = 2**64 - 1
_MOST_WORDS = 255  # highest value of the variable
_COUNTED_WORDS = 30  # maximum number of counted words; a higher value of the variable has the same effect


class Limits(NamedTuple):
    """The maximum work of a search for rules.

    counted_words: words of a query to look up. active_rules: rules in force. pin_actions: pinned documents.
    word_fuel, filter_fuel: combinations of words, and of filtered fields, to try.
    filter_or_fuel, filter_and_fuel: operands of a filter to expand. filter_depth_fuel: depth of nesting.
    """

    counted_words: int = 10
    active_rules: int = 1000
    pin_actions: int = 100
    word_fuel: int = 4096
    filter_fuel: int = 4096
    filter_or_fuel: int = 100
    filter_and_fuel: int = 100
    filter_depth_fuel: int = 25


# Variable without _PREFIX -> field.
_FIELDS = {
    "MAX_COUNTED_WORDS": "counted_words",
    "MAX_ACTIVE_RULES": "active_rules",
    "MAX_PIN_ACTIONS": "pin_actions",
    "WORD_FUEL": "word_fuel",
    "FILTER_FUEL": "filter_fuel",
    "FILTER_OR_FUEL": "filter_or_fuel",
    "FILTER_AND_FUEL": "filter_and_fuel",
    "FILTER_DEPTH_FUEL": "filter_depth_fuel",
}
VARIABLES = tuple(_PREFIX + name for name in _FIELDS)


def limits_of(environ: Mapping[str, str]) -> Limits:
    """Return the limits that environment variables set. Raises ValueError, with a message, for an invalid value."""
    given: dict[str, int] = {}
    for variable, field in zip(VARIABLES, _FIELDS.values()):
        text = environ.get(variable)
        if text is None:
            continue
        most = _MOST_WORDS if field == "counted_words" else _LARGEST
        digits = text.removeprefix("+")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(_LARGEST)) and int(digits) <= most):
            raise ValueError(f"{variable} is `{text}`, expected a whole number from 0 to {most}")
        given[field] = int(digits)
    limits = Limits(**given)
    return limits._replace(counted_words=min(limits.counted_words, _COUNTED_WORDS))


Rules = int  # a set of rules


class ValueTable:
    """The values of the filters of rules, by field."""

    def __init__(self, values: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """values: (number of a rule, `filter.values` of its conditions); rules without values may be omitted."""
        self._by_field: dict[str, dict[Value, Rules]] = {}
        self._by_count: dict[int, Rules] = {}  # number of values -> rules with this number
        self.all: Rules = 0
        for number, held in values:
            count, rule = count_values(held), 1 << number
            if not count:
                continue
            self.all |= rule
            self._by_count[count] = self._by_count.get(count, 0) | rule
            for field, found in field_values(held, lambda name: name != GEO).items():
                by_value = self._by_field.setdefault(field, {})
                for value in found.each():
                    by_value[value] = by_value.get(value, 0) | rule

    def met(self, condition: Condition | None, limits: Limits) -> Rules:
        """Return the rules in force with a filter: some alternative meets at least as many fields as the rule has values."""
        if condition is None or not self.all:
            return 0
        expanded = branches(condition, limits)
        if len(expanded) > limits.filter_fuel:  # each alternative takes at least one unit
            return 0
        alternatives = [_by_field(branch) for branch in expanded]
        # The largest number of values of a rule that the fuel allows: each combination of fields of a size takes one unit.
        counts = [len(fields) for fields in alternatives]
        fuel, most = limits.filter_fuel, 0
        while most < max(counts, default=0) and (fuel := fuel - sum(comb(count, most + 1) for count in counts)) >= 0:
            most += 1
        found: Rules = 0
        known: dict[Leaf, Rules] = {}  # condition -> the rules that meet it; many alternatives may have the same condition
        for fields in alternatives if most else ():
            found |= self._met_by(fields, known)
        return sum(found & rules for count, rules in self._by_count.items() if count <= most)

    def _met_by(self, fields: Mapping[str, list[Leaf]], known: dict[Leaf, Rules]) -> Rules:
        """Return the rules with at least as many met fields as values. known: cache of the rules that meet each condition."""
        at_least = [self.all]  # by number of fields: rules with at least this number of met fields
        for leaves in fields.values():
            rules = self.all
            for leaf in leaves:
                if leaf not in known:
                    operator = _OPERATORS.get(leaf.operator or "")
                    found = operator(self, leaf.field, *leaf.values) if operator else 0
                    known[leaf] = self.all & ~found if operator and leaf.is_negated else found
                rules &= known[leaf]
            at_least.append(0)
            for count in range(len(at_least) - 1, 0, -1):
                at_least[count] |= at_least[count - 1] & rules
        return sum(at_least[count] & rules for count, rules in self._by_count.items() if count < len(at_least))

    def _equal(self, field: str, text: str) -> Rules:
        held, number = self._by_field.get(field, {}), number_of(text)
        return held.get(normal_form(text), 0) | (0 if number is None else held.get(number, 0))

    def _compared(self, field: str, text: str, is_met: Callable[[Any, Any], bool]) -> Rules:
        bounds: dict[type, Value | None] = {str: normal_form(text), float: number_of(text)}
        found: Rules = 0
        for value, rules in self._by_field.get(field, {}).items():
            bound = bounds[type(value)]
            if bound is not None and is_met(value, bound):
                found |= rules
        return found


_OPERATORS: Mapping[str, Callable[..., Rules]] = {  # (table, field, values ...); rules never meet other operators
    EQUAL: ValueTable._equal,
    NOT_EQUAL: lambda table, field, text: table.all & ~table._equal(field, text),
    LESS: lambda table, field, text: table._compared(field, text, lambda value, bound: value < bound),
    LESS_OR_EQUAL: lambda table, field, text: table._compared(field, text, lambda value, bound: value <= bound),
    GREATER: lambda table, field, text: table._compared(field, text, lambda value, bound: value > bound),
    GREATER_OR_EQUAL: lambda table, field, text: table._compared(field, text, lambda value, bound: value >= bound),
    BETWEEN: lambda table, field, low, high: (table._compared(field, low, lambda value, bound: value >= bound)
                                              & table._compared(field, high, lambda value, bound: value <= bound)),
    EXISTS: lambda table, field: table.all,
    IS_NULL: lambda table, field: 0,
    IS_EMPTY: lambda table, field: 0,
}


def _by_field(branch: Branch) -> dict[str, list[Leaf]]:
    fields: dict[str, list[Leaf]] = {}
    for leaf in branch:
        fields.setdefault(leaf.field, []).append(leaf)
    return fields


# Alternatives of a filter

class Leaf(NamedTuple):
    """A condition on one field. is_negated: whether NOT precedes it. operator: None for a condition that no rule can meet."""

    field: str
    operator: str | None
    values: tuple[str, ...] = ()
    is_negated: bool = False


Branch = tuple[Leaf, ...]

_NEVER: Branch = (Leaf("", None),)  # for geo, vectors and other indexes: no field of a rule can meet these conditions


def branches(condition: Condition, limits: Limits) -> list[Branch]:
    """Return the alternatives of a filter, at most limits.filter_fuel + 1."""
    return list(islice(_Expansion(limits).of(condition, False, 0), limits.filter_fuel + 1))


class _Expansion:
    """Expand one filter. The limits on operands apply to the whole filter, from left to right."""

    def __init__(self, limits: Limits) -> None:
        self._ors, self._ands, self._deepest = limits.filter_or_fuel, limits.filter_and_fuel, limits.filter_depth_fuel

    def of(self, condition: Condition, is_negated: bool, depth: int) -> Iterator[Branch]:
        """Return the alternatives of a condition; if is_negated, of its opposite."""
        if depth > self._deepest:
            return iter((_NEVER,))
        if isinstance(condition, Not):
            return self.of(condition.part, not is_negated, depth + 1)
        if isinstance(condition, (And, Or)):
            parts: list[Callable[[], Iterator[Branch]]] = [
                partial(self.of, part, is_negated, depth + 1) for part in condition.parts]
            return self._all(parts) if isinstance(condition, And) is not is_negated else self._any(parts)
        if isinstance(condition, In):
            branch_of = [(Leaf(condition.field.text, EQUAL, (value,), is_negated),) for value in condition.values]
            leaves: list[Callable[[], Iterator[Branch]]] = [partial(iter, (branch,)) for branch in branch_of]
            return self._all(leaves) if is_negated else self._any(leaves)
        if isinstance(condition, Comparison):
            return iter(((Leaf(condition.field.text, condition.operator, condition.values, is_negated),),))
        return iter((_NEVER,))

    def _any(self, parts: Sequence[Callable[[], Iterator[Branch]]]) -> Iterator[Branch]:
        looked_at = parts[:self._ors]
        self._ors -= len(looked_at)
        # Never empty: the other parts of a conjunction count even if this part had no fuel.
        return chain.from_iterable(part() for part in looked_at) if looked_at else iter((_NEVER,))

    def _all(self, parts: Sequence[Callable[[], Iterator[Branch]]]) -> Iterator[Branch]:
        looked_at = parts[:self._ands]
        self._ands -= len(looked_at)
        # Each part is expanded once: its use of the limits must not depend on the number of alternatives before it.
        expanded = [_Replayed(part()) for part in looked_at]
        return _product(expanded, 0)


class _Replayed:
    """The values of an iterator, for repeated iteration; the iterator is read only as far as needed."""

    def __init__(self, branches: Iterator[Branch]) -> None:
        self._source, self._read = branches, list[Branch]()

    def __iter__(self) -> Iterator[Branch]:
        place = 0
        while True:
            if place == len(self._read):
                found = next(self._source, None)
                if found is None:
                    return
                self._read.append(found)
            yield self._read[place]
            place += 1


def _product(parts: Sequence[_Replayed], first: int) -> Iterator[Branch]:
    if first == len(parts):
        yield ()
        return
    for branch in parts[first]:
        for rest in _product(parts, first + 1):
            yield (*branch, *rest)
