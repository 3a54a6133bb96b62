"""Long strings of hits, apart from their JSON texts (svcd.search.stored_strings). What must hold:

1. A hit whose long strings are kept apart is, in the end, the hit that holds them, whatever is asked for of it.
2. It comes in pieces, none much larger than others; the text of the hit itself stays short.
3. What a long string holds is never made into one string, nor copied once more than its escapes ask for.
4. A language is looked for in the beginning of a text.
"""
from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.base import json_text
from svcd.base.json_text import dumps, loads
from svcd.search import formatting, hits, stored_strings
from svcd.search import long_texts as readings
from svcd.search.formatting import FormatOptions, Formatter
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.stored_strings import LONG_BYTES, PIECE, LongStrings
from svcd.text.analyzer import Analyzer
from tests.support.searching import answer, titled

PARTS = st.sampled_from(["sun", "Sun", "sünden", "é", "\n", '"', "\\", "\\n", "\x01", " ", " ", ". ", "😀", "moon", "<em>"])
TEXTS = st.lists(PARTS, max_size=15).map("".join)
ASKED: list[dict[str, Any]] = [
    {}, {"attributes_to_highlight": ["*"]}, {"show_matches_position": True},
    {"attributes_to_highlight": ["*"], "attributes_to_crop": ["title:2"], "crop_marker": '"…'},
    {"attributes_to_retrieve": ["id"], "attributes_to_highlight": ["title"], "highlight_pre_tag": '<"\n'},
    {"attributes_to_crop": ["title:40"], "show_ranking_score": True}, {"attributes_to_retrieve": ["title"]},
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(TEXTS, min_size=1, max_size=3), st.sampled_from(ASKED))
def test_kept_apart_or_not_a_hit_is_the_same(monkeypatch: pytest.MonkeyPatch, texts: list[str], asked: dict[str, Any]) -> None:
    reader = titled(*(f"sun {text}" for text in texts))
    expected = list(answer(reader, "sun", **asked).hits)
    with monkeypatch.context() as patched:
        for module, name, value in ((stored_strings, "LONG_BYTES", 8), (stored_strings, "PIECE", 5), (formatting, "LONG", 0),
                                    (readings, "_CHUNK", 7), (readings, "_LEAST_PIECE", 1), (readings, "_MOST_PIECE", 9),
                                    (json_text, "_PIECE", 3), (json_text, "_LEAST_PIECE", 2)):
            patched.setattr(module, name, value)
        found = answer(reader, "sun", **asked)
        assert list(found.hits) == expected
        assert [found.hits[place] for place in range(len(texts))] == expected


@given(st.text(), st.integers(1, 9))
def test_a_literal_says_what_it_was_made_of(text: str, size: int) -> None:
    source = dumps({text: [text, {"a": text}]}).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_text, "_PIECE", size)
        patched.setattr(json_text, "_LEAST_PIECE", size)
        found = [json_text.unescaped(source, literal) for literal in json_text.long_literals(source, 0)]
    assert [each.text.decode() for each in found] == [text, text]
    assert all(json.loads(b'"%b"' % each.escaped(0, len(each.text))) == text for each in found)


def test_a_long_page_holds_long_strings_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = titled(*(f"sun number {number} " + "é" * 50 for number in range(20)))
    expected = list(answer(reader, "sun", attributes_to_highlight=["*"]).hits)
    for module, name, value in ((hits, "MAX_PAGE_BYTES", 100), (hits, "PORTION_BYTES", 500), (stored_strings, "LONG_BYTES", 50),
                                (formatting, "LONG", 0)):
        monkeypatch.setattr(module, name, value)
    found = answer(reader, "sun", attributes_to_highlight=["*"]).hits
    assert isinstance(found, hits.LongPage)
    texts = []
    for portion in found.portions():
        assert len(portion) < 20
        texts += [b"".join(found.long_strings.pieces(each)).decode() for each in portion]
    assert texts == expected


def formatter(kept: LongStrings, analyzer: Analyzer | None = None) -> Formatter:
    return Formatter(FormatOptions(attributes_to_highlight=["*"]), fields=["t"], displayed=None, analyzer=analyzer or Analyzer(),
                     locales_of=lambda name: None, words=MatchFinder([LocatedTerm((0, 0), False, 3, ("sun",))]),
                     long_strings=kept)


@pytest.mark.parametrize("beginning", ["", "😀 ", "é\n"])
def test_long_strings_come_in_pieces_and_are_not_copied(beginning: str) -> None:
    source = dumps({"t": beginning + "a long day under the sun " * 10 + "some other words of that long day " * 150_000}).encode()
    assert len(source) > 5_000_000
    tracemalloc.start()
    try:
        kept = LongStrings()
        outline = kept.outline(source)
        formatted = formatter(kept).hit(loads(outline)).formatted
        hit = dumps({**loads(outline), "_formatted": formatted})
        size = 0
        for piece in kept.pieces(hit):
            assert len(piece) <= 2 * PIECE
            size += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(hit) < 200 and kept.size(hit) == pytest.approx(2 * len(source), rel=0.01)
    assert size == 2 * len(source) + 10 * len("<em></em>") + len('"_formatted":,')
    assert peak < 2.5 * len(source)


def test_short_documents_are_not_looked_through() -> None:
    kept = LongStrings()
    text = dumps({"t": "x" * (LONG_BYTES - 20)})
    assert kept.outline(text.encode()) == text and not kept


def test_a_language_is_looked_for_in_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_through = 0

    def counted(text: str) -> list[Any]:
        nonlocal looked_through
        looked_through += len(text)
        return groups(text)

    groups = readings.groups
    monkeypatch.setattr(readings, "groups", counted)
    monkeypatch.setattr(readings, "_FARTHEST_SAMPLE", 50_000)
    kept = LongStrings()
    formatter(kept).hit(loads(kept.outline(dumps({"t": "новый " * 50_000}).encode())))
    assert 0 < looked_through < 60_000
