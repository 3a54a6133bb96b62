"""The smallest distance of two sides of words in forward index rows.

What must hold:
1. It is that of the words of each field by position, however many words there are and whichever side is looked for.
2. A search for phrases of both sides finds the documents of distance 1, and no others.
"""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from svcd.index import fts
from svcd.index.pair_reader import Sides, nearest

WORDS = ["a", "b", "c", "ab", "abc", "x y", "|", "A", "1", "\x07"]
ROWS = st.lists(st.lists(st.sampled_from([*WORDS, "", "", "e", "f"]) | st.just(""), min_size=1, max_size=24), max_size=2)
SIDE = st.lists(st.sampled_from(WORDS), min_size=1, max_size=7, unique=True)


def expected(rows: list[list[str]], lefts: list[str], rights: list[str], prefix: str | None) -> int | None:
    distances = []
    for row in rows:
        for n, m in ((n, m) for n in range(len(row)) for m in range(len(row)) if row[n] in lefts and row[m] and n != m):
            if n < m and (row[m] in rights or (prefix is not None and row[m].startswith(prefix))):
                distances.append(m - n)
            if m < n and row[m] in rights:
                distances.append(n - m + 1)
    return min((distance for distance in distances if distance <= 3), default=None)


@given(st.lists(ROWS, min_size=1, max_size=4), SIDE, SIDE, st.none() | st.sampled_from(["a", "ab", "x", "1"]), st.booleans())
def test_the_smallest_distance_is_found(documents: list[list[list[str]]], lefts: list[str], rights: list[str], prefix: str | None,
                                        are_rights_sought: bool) -> None:
    rows = [(docid, fts.forward_text({n: fts.row_text(row) for n, row in enumerate(fields)}))
            for docid, fields in enumerate(documents)]
    terms = fts.term_of_word
    found = nearest(rows, [*map(terms, lefts)], [*map(terms, rights)], prefix and terms(prefix), are_rights_sought)
    by_docid = {docid: distance for distance, docids in enumerate(found, 1) for docid in docids}
    assert by_docid == {docid: distance for docid, fields in enumerate(documents)
                        if (distance := expected(fields, lefts, rights, prefix))}


@given(st.lists(ROWS, min_size=1, max_size=4), SIDE, SIDE, st.none() | st.sampled_from(["a", "ab", "x", "1"]))
def test_phrases_find_the_documents_of_distance_1(documents: list[list[list[str]]], lefts: list[str], rights: list[str],
                                                  prefix: str | None) -> None:
    phrases = Sides.of(lefts, rights, prefix).phrases()
    for fields in documents:
        forward = fts.forward_text({n: fts.row_text(row) for n, row in enumerate(fields)})
        assert fts.has_any_phrase(forward, phrases) == (expected(fields, lefts, rights, prefix) == 1)
