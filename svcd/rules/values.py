"""Which rules a filter meets: their own values are looked up by field and value (docs/search-rules.md#filter).

Sets of rules are integers, with the bit of each rule's number.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import comb
from typing import Any

from svcd.base.quantities import number_of
from svcd.filters.tree import (
    BETWEEN,
    EQUAL,
    EXISTS,
    GREATER,
    GREATER_OR_EQUAL,
    IS_EMPTY,
    IS_NULL,
    LESS,
    LESS_OR_EQUAL,
    NOT_EQUAL,
    Condition,
)
from svcd.query.reader import Value
from svcd.rules.branches import Branch, Leaf, branches
from svcd.rules.limits import Limits
from svcd.rules.stored import count_values
from svcd.schema.field_values import GEO, field_values, normal_form

Rules = int  # a set of rules


class ValueTable:
    """The values by which rules want to be found."""

    def __init__(self, values: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """values: (number of a rule, `filter.values` of its conditions); rules without values need not be named."""
        self._by_field: dict[str, dict[Value, Rules]] = {}
        self._by_count: dict[int, Rules] = {}  # number of values -> the rules that have so many
        self.all: Rules = 0
        for number, held in values:
            if count := count_values(held):
                self._add(1 << number, count, held)

    def _add(self, rule: Rules, count: int, held: Mapping[str, Any]) -> None:
        self.all |= rule
        self._by_count[count] = self._by_count.get(count, 0) | rule
        for field, found in field_values(held, lambda name: name != GEO).items():
            by_value = self._by_field.setdefault(field, {})
            for value in found.each():
                by_value[value] = by_value.get(value, 0) | rule

    def met(self, condition: Condition | None, limits: Limits) -> Rules:
        """The rules in force with a filter: in some alternative they meet as many fields as they have values, or more."""
        if condition is None or not self.all:
            return 0
        expanded = branches(condition, limits)
        if len(expanded) > limits.filter_fuel:  # each alternative takes a unit at least
            return 0
        alternatives = [_by_field(branch) for branch in expanded]
        most = _most_values([len(fields) for fields in alternatives], limits.filter_fuel)
        found: Rules = 0
        known: dict[Leaf, Rules] = {}  # condition -> the rules that meet it: it may be in many alternatives
        for fields in alternatives if most else ():
            found |= self._met_by(fields, known)
        return sum(found & rules for count, rules in self._by_count.items() if count <= most)

    def _met_by(self, fields: Mapping[str, list[Leaf]], known: dict[Leaf, Rules]) -> Rules:
        """The rules of which as many fields are met as they have values. known: filled with what each condition meets."""
        at_least = [self.all]  # rules of which so many fields or more are met
        for leaves in fields.values():
            rules = self.all
            for leaf in leaves:
                if leaf not in known:
                    known[leaf] = self._meeting(leaf)
                rules &= known[leaf]
            at_least.append(0)
            for count in range(len(at_least) - 1, 0, -1):
                at_least[count] |= at_least[count - 1] & rules
        return sum(at_least[count] & rules for count, rules in self._by_count.items() if count < len(at_least))

    def _meeting(self, leaf: Leaf) -> Rules:
        """The rules whose values meet a condition on one field."""
        if leaf.operator is None or leaf.operator not in _OPERATORS:
            return 0
        rules = _OPERATORS[leaf.operator](self, leaf.field, *leaf.values)
        return self.all & ~rules if leaf.is_negated else rules

    def _equal(self, field: str, text: str) -> Rules:
        held, number = self._by_field.get(field, {}), number_of(text)
        return held.get(normal_form(text), 0) | (0 if number is None else held.get(number, 0))

    def _where(self, field: str, is_met: Callable[[Value], bool]) -> Rules:
        found: Rules = 0
        for value, rules in self._by_field.get(field, {}).items():
            if is_met(value):
                found |= rules
        return found

    def _compared(self, field: str, text: str, is_met: Callable[[Any, Any], bool]) -> Rules:
        bounds: dict[type, Value | None] = {str: normal_form(text), float: number_of(text)}

        def is_within(value: Value) -> bool:
            bound = bounds[type(value)]
            return bound is not None and is_met(value, bound)

        return self._where(field, is_within)


_OPERATORS: Mapping[str, Callable[..., Rules]] = {  # (table, field, values ...); the others are never met
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


def _most_values(fields: list[int], fuel: int) -> int:
    """Rules of how many values can be tried: each combination of so many fields, of each alternative, takes one unit.

    fields: how many each alternative has.
    """
    for size in range(1, max(fields, default=0) + 1):
        fuel -= sum(comb(count, size) for count in fields)
        if fuel < 0:
            return size - 1
    return max(fields, default=0)
