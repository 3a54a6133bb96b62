"""Find the rules whose values meet the filter of a query (docs/search-rules.md#filter).

A set of rules is an integer with one bit for each number of a rule.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import comb
from typing import Any

from svcd.base.quantities import number_of
from svcd.filters.tree import (
    BETWEEN, EQUAL, EXISTS, GREATER, GREATER_OR_EQUAL, IS_EMPTY, IS_NULL, LESS, LESS_OR_EQUAL, NOT_EQUAL, Condition,
)
from svcd.query.reader import Value
from svcd.rules.branches import Branch, Leaf, branches
from svcd.rules.limits import Limits
from svcd.rules.stored import count_values
from svcd.schema.field_values import GEO, field_values, normal_form

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
