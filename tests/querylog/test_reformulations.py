"""What people type after a search without hits. What must hold:

1. A search that continues the text of the one before is typing, within ten seconds.
2. Words that replace a query without hits make a pair; words typed on replace the pair; letters deleted make none.
3. Clients and indexes are apart, and a pause ends the subject.
4. A pair suggests a spelling or a synonym of the words in which it differs.
"""
from __future__ import annotations

import pytest

from svcd.querylog.reformulations import MISSPELLING, SYNONYM, Sessions, Typed, suggestion

FOUND = {"couch", "co", "cou", "sofa", "table", "red sofa"}


def pairs_of(*texts: str, pause_ms: int = 1000, clients: str = "a") -> set[tuple[str, str]]:
    """The pairs after these searches of clients in turn. A number instead of a text is a pause in seconds."""
    sessions, pairs, at, names = Sessions(), dict[int, tuple[str, str]](), 0, {hash(text): text for text in texts}
    for number, text in enumerate(texts):
        if text.isdigit():
            at += int(text) * 1000
            continue
        at += pause_ms
        step = sessions.step((clients[number % len(clients)], "films"), Typed(number, at, text, hash(text), text in FOUND))
        pairs.pop(-1 if step.undone is None else step.undone, None)
        if step.pair is not None:
            pairs[number] = (names[step.pair[0]], names[step.pair[1]])
    return set(pairs.values())


@pytest.mark.parametrize(("texts", "pairs"), [
    (["settee", "sofa"], {("settee", "sofa")}),
    (["s", "se", "settee", "sofa"], {("settee", "sofa")}),
    (["cuch", "cuc", "cu", "co", "cou", "couch"], {("cuch", "couch")}),
    (["cuch", "cou", "coush", "couch"], {("coush", "couch")}),
    (["settee", "sofa", "table"], {("settee", "sofa")}),
    (["settee", "61", "sofa"], set()),
    (["sofa", "table"], set()),
    (["sofa red", "sofa"], set()),
    (["xy", "sofa"], set()),
])
def test_words_that_replace_a_query_without_hits_make_a_pair(texts: list[str], pairs: set[tuple[str, str]]) -> None:
    assert pairs_of(*texts) == pairs


def test_clients_are_apart() -> None:
    assert pairs_of("settee", "sofa", clients="ab") == set()


def test_typing_is_told_from_other_searches() -> None:
    sessions = Sessions()

    def typed_on(number: int, at: int, text: str) -> int | None:
        return sessions.step(("a", "films"), Typed(number, at, text, number, True)).typed_on

    assert typed_on(1, 0, "s") is None and typed_on(2, 200, "st") == 1 and typed_on(3, 9000, "star") == 2
    assert typed_on(4, 9100, "star") is None and typed_on(5, 9200, "sta") is None and typed_on(6, 30_000, "stark") is None


@pytest.mark.parametrize(("before", "after", "expected"), [
    ("cuch", "couch", (MISSPELLING, "cuch", "couch")),
    ("red settee", "red sofa", (SYNONYM, "settee", "sofa")),
    ("tv", "television set", (SYNONYM, "tv", "television set")),
    ("red sofa", "sofa", None),
    ("sofa", "red sofa", None),
])
def test_pairs_suggest_spellings_and_synonyms(before: str, after: str, expected: tuple[str, str, str] | None) -> None:
    assert suggestion(before, after) == expected
