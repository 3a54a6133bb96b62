"""Finds how near two sides of words are in a document, in the text of its forward index row.

It is as fast as pure Python allows: str.split() finds the terms, and only the words beside them are examined.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import compress, count, pairwise

from svcd.index.fts_encoding import SEPARATOR_MARK

# Terms farther apart than this are not near.
NEAR = 3
FAR = NEAR + 1
# Replaces seven gaps, and the end of a field: terms on both sides are far apart.
_APART = " " * FAR
# Up to this many terms are searched one by one; with more terms, one pass over the text is quicker.
_FEW = 4


def nearest(rows: Iterable[tuple[int, str]], lefts: Collection[str], rights: Collection[str], prefix: str | None = None,
            are_rights_sought: bool = False) -> tuple[list[int], ...]:
    """Return the documents in which a left and a right term are near, by their smallest distance (1 to 3) in one field.

    Terms in the wrong order have a distance one larger. rows: (docid, forward index row). prefix: terms that start with it are
    right terms as well, but only in the right order. are_rights_sought: search for right terms and examine the words beside
    them; it changes only the speed, and is ignored with a prefix.
    """
    distance_in = _side_by_side(frozenset(lefts), frozenset(rights), prefix, are_rights_sought and prefix is None)
    found: tuple[list[int], ...] = tuple([] for _ in range(FAR + 1))
    for docid, forward in rows:
        text = forward.replace(SEPARATOR_MARK, _APART).replace("\n", _APART).replace("\t", _APART)
        found[distance_in(text + _APART)].append(docid)
    return found[1:FAR]


def _side_by_side(lefts: frozenset[str], rights: frozenset[str], prefix: str | None,
                  are_rights_sought: bool) -> Callable[[str], int]:
    """Return a function that finds the smallest distance in a text of terms separated by spaces; FAR when none is near."""
    sought, others = (rights, lefts) if are_rights_sought else (lefts, rights)
    # The least distance to a following term, and to a preceding one.
    after_it, before_it = (2, 1) if are_rights_sought else (1, 2)

    def is_other(spelled: str) -> bool:
        return spelled in others or (prefix is not None and spelled.startswith(prefix))

    def among_all(text: str) -> int:
        terms = text.split(" ")
        least = FAR
        for index in compress(count(), map(sought.__contains__, terms)):
            for distance, spelled in enumerate(terms[index + 1:index + 1 + least - after_it], after_it):
                if is_other(spelled):
                    least = distance
                    break
            for distance in range(before_it, least):
                if terms[index - 1 - distance + before_it] in others:
                    least = distance
                    break
            if least == 1:
                break
        return least

    separators = [(f" {spelled} ", f"{spelled} ") for spelled in sought]
    most_after, most_before = FAR - after_it, FAR - before_it

    def one_by_one(text: str) -> int:
        least = FAR
        for separator, start in separators:
            for before, after in pairwise(text.split(separator)):
                if after.startswith(start):  # the term occurs twice in a row, so split() missed the second occurrence
                    return among_all(text)
                beside = after.split(" ", most_after)[:most_after]
                if prefix is not None or not others.isdisjoint(beside):
                    for distance, spelled in enumerate(beside, after_it):
                        if distance < least and (spelled in others or prefix is not None and spelled.startswith(prefix)):
                            least = distance
                            break
                beside = before.rsplit(" ", most_before)[-most_before:]
                if not others.isdisjoint(beside):
                    for distance, spelled in enumerate(reversed(beside), before_it):
                        if distance < least and spelled in others:
                            least = distance
                            break
                if least == 1:
                    return least
        return least

    # A term on both sides is near to itself, which splitting does not show.
    is_on_both = any(map(is_other, sought))
    return among_all if len(sought) > _FEW or is_on_both else one_by_one
