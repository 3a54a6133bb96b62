"""How near two sides of words stand to each other in a document, found in the text of its forward index row.

As quick as Python gets: terms are looked for with str.split(), and only what stands beside them is looked at.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import compress, count, pairwise

from svcd.index.fts_encoding import SEPARATOR_MARK

# Terms further apart than this are not near.
NEAR = 3
FAR = NEAR + 1
# Stands for seven gaps, and for what is between two fields: terms on both sides of it are far apart.
_APART = " " * FAR
# So many terms are looked for one by one; with more it is quicker to look at each term of the text.
_FEW = 4


def nearest(rows: Iterable[tuple[int, str]], lefts: Collection[str], rights: Collection[str], prefix: str | None = None,
            are_rights_sought: bool = False) -> tuple[list[int], ...]:
    """The documents in which a left and a right term are near, by their smallest distance (1 to 3) in one field.

    From a left term to a right one after it the distance counts as it is, in the wrong order as one more. rows: (docid,
    forward index row). prefix: terms that start with it are right ones as well, but in the right order only.
    are_rights_sought: look for right terms, with left ones beside them; has no effect on what is found, nor with a prefix.
    """
    distance_in = _side_by_side(frozenset(lefts), frozenset(rights), prefix, are_rights_sought and prefix is None)
    found: tuple[list[int], ...] = tuple([] for _ in range(FAR + 1))
    for docid, forward in rows:
        text = forward.replace(SEPARATOR_MARK, _APART).replace("\n", _APART).replace("\t", _APART)
        found[distance_in(text + _APART)].append(docid)
    return found[1:FAR]


def _side_by_side(lefts: frozenset[str], rights: frozenset[str], prefix: str | None,
                  are_rights_sought: bool) -> Callable[[str], int]:
    """A function that finds the smallest distance in a text of terms with a space between; FAR when there is none."""
    sought, others = (rights, lefts) if are_rights_sought else (lefts, rights)
    # The distance to the next term after, and to the one before.
    after_it, before_it = (2, 1) if are_rights_sought else (1, 2)

    def is_other(spelled: str) -> bool:
        return spelled in others or (prefix is not None and spelled.startswith(prefix))

    def among_all(text: str) -> int:
        terms = text.split(" ")
        least = FAR
        for place in compress(count(), map(sought.__contains__, terms)):
            for distance, spelled in enumerate(terms[place + 1:place + 1 + least - after_it], after_it):
                if is_other(spelled):
                    least = distance
                    break
            for distance in range(before_it, least):
                if terms[place - 1 - distance + before_it] in others:
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
                if after.startswith(start):  # it stands there twice, and the second one is no separator
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

    # A term of both sides is near to itself, which splitting does not show.
    is_on_both = any(map(is_other, sought))
    return among_all if len(sought) > _FEW or is_on_both else one_by_one
