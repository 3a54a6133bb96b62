"""In which order the values of a field are shown (relevance.md 6.2).

Knows `alpha` and `count` with their ties; refuses to know limits and how counts are found.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from svcd.engine.facets.counting import Counting, Entry

# A tree stands over the values of a field: groups of four, groups of four groups and so on, as long as there are
# twenty on the level beneath.
GROUP = 4
LEAST = 20


def by_count(counting: Counting, most: int) -> Iterator[Entry]:
    """By count, the highest first; of equal ones the largest value first, but for what the tree makes of it.

    most: see Counting.by_count.

    The reference opens the tree from above: always what counts most, of equals what is on the lowest level, there the
    largest value. A value is met when the groups around it are open, and a group that counts no more than the value
    is opened when nothing of this count is left on the levels beneath. So of equal values come first those whose
    groups all count more, then those whose group on the first level counts no more, then those of which the second
    level says so.
    """
    for together in counting.by_count(most):
        yield from _met(counting, iter(together))


def _met(counting: Counting, together: Iterator[Entry]) -> Iterator[Entry]:
    """Entries of equal count, which come descending, in the order in which they are met; asks no more than needed."""
    first = list(islice(together, 2))
    waiting: Iterable[Entry] = chain(first, together)
    if len(first) > 1:
        for width in _group_widths(counting.values_of_field()):
            equal: list[Entry] = []
            for entry in waiting:
                if counting.is_alone(entry, width):
                    equal.append(entry)
                else:
                    yield entry
            waiting = equal
    yield from waiting


def _group_widths(values: int) -> Iterator[int]:
    """How many values a group holds, level by level upwards."""
    width = 1
    while values >= LEAST:
        values = -(-values // GROUP)
        width *= GROUP
        yield width
