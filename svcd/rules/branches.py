"""The filter of a query in disjunctive form: alternatives, each a conjunction of conditions on fields.

Search rules compare their values with these alternatives (docs/search-rules.md#filter). A filter may have many more alternatives
than operators, so limits bound the expansion; conditions beyond the limits count as never met.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from svcd.filters.tree import EQUAL, And, Comparison, Condition, In, Not, Or
from svcd.rules.limits import Limits


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
