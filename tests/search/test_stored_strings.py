"""Long strings of hits, replaced by placeholders until the response is sent (svcd.search.hits). What must hold:

1. With placeholders a hit is, in the end, the same as without them, whatever parts and formats are requested.
2. It is written in pieces of limited size; its text with placeholders is short.
3. A long string never becomes one `str`, and is copied at most once, to remove its escapes.
4. Documents that are too short to have a long string are not searched for one.
5. The language of a text is detected at its start.
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
from svcd.search import formatting, hits, long_texts, search
from svcd.search.formatting import Formatter
from svcd.search.hits import LONG_BYTES, PIECE_BYTES, LongStrings
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.request import SearchQuery
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
def test_placeholders_do_not_change_a_hit(monkeypatch: pytest.MonkeyPatch, texts: list[str], asked: dict[str, Any]) -> None:
    reader = titled(*(f"sun {text}" for text in texts))
    expected = list(answer(reader, "sun", **asked).hits)
    with monkeypatch.context() as patched:
        for module, name, value in ((search, "LONG_BYTES", 8), (hits, "LONG_BYTES", 8), (hits, "PIECE_BYTES", 5),
                                    (formatting, "PIECE_BYTES", 5), (formatting, "LONG_TEXT", 0), (long_texts, "CHUNK", 7),
                                    (long_texts, "MIN_PIECE", 1), (long_texts, "MAX_PIECE", 9),
                                    (json_text, "_PIECE", 3), (json_text, "_LEAST_PIECE", 2)):
            patched.setattr(module, name, value)
        found = answer(reader, "sun", **asked)
        assert list(found.hits) == expected
        assert [found.hits[place] for place in range(len(texts))] == expected


@given(st.text(), st.integers(1, 9))
def test_a_string_literal_is_unescaped_and_escaped_again(text: str, size: int) -> None:
    source = dumps({text: [text, {"a": text}]}).encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_text, "_PIECE", size)
        patched.setattr(json_text, "_LEAST_PIECE", size)
        found = [json_text.unescaped(source, literal) for literal in json_text.long_literals(source, 0)]
    assert [each.text.decode() for each in found] == [text, text]
    assert all(json.loads(b'"%b"' % each.escaped(0, len(each.text))) == text for each in found)


def test_a_long_page_may_have_long_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = titled(*(f"sun number {number} " + "é" * 50 for number in range(20)))
    expected = list(answer(reader, "sun", attributes_to_highlight=["*"]).hits)
    for module, name, value in ((search, "MAX_PAGE_BYTES", 100), (hits, "PORTION_BYTES", 500), (hits, "LONG_BYTES", 50),
                                (hits, "LONG_BYTES", 50), (formatting, "LONG_TEXT", 0)):
        monkeypatch.setattr(module, name, value)
    found = answer(reader, "sun", attributes_to_highlight=["*"]).hits
    assert isinstance(found, hits.LongPage)
    texts = []
    for portion in found.portions():
        assert len(portion) < 20
        texts += [b"".join(found.long_strings.pieces(each)).decode() for each in portion]
    assert texts == expected


def formatter(kept: LongStrings, analyzer: Analyzer | None = None) -> Formatter:
    return Formatter(SearchQuery(attributes_to_highlight=["*"]), fields=["t"], displayed=None, analyzer=analyzer or Analyzer(),
                     locales_of=lambda name: None, words=MatchFinder([LocatedTerm((0, 0), False, 3, ("sun",))]),
                     long_strings=kept)


@pytest.mark.parametrize("beginning", ["", "😀 ", "é\n"])
def test_long_strings_come_in_pieces_and_are_not_copied(beginning: str) -> None:
    source = dumps({"t": beginning + "a long day under the sun " * 10 + "some other words of that long day " * 150_000}).encode()
    assert len(source) > 5_000_000
    tracemalloc.start()
    try:
        kept = LongStrings()
        document = loads(kept.extract(source))
        hit = dumps({**document, "_formatted": formatter(kept).hit(document).formatted})
        size = 0
        for piece in kept.pieces(hit):
            assert len(piece) <= 2 * PIECE_BYTES
            size += len(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(hit) < 200 and kept.size(hit) == pytest.approx(2 * len(source), rel=0.01)
    assert size == 2 * len(source) + 10 * len("<em></em>") + len('"_formatted":,')
    assert peak < 2.5 * len(source)


def test_only_long_documents_are_searched_for_long_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def extract(self: LongStrings, source: bytes) -> str:
        searched.append(len(source))
        return source.decode()

    monkeypatch.setattr(LongStrings, "extract", extract)
    assert len(list(answer(titled("sun", "sun " + "x" * LONG_BYTES), "sun").hits)) == 2
    assert len(searched) == 1 and searched[0] > LONG_BYTES


def test_a_placeholder_is_not_used_twice() -> None:
    kept = LongStrings()
    first = kept.extract(dumps({"t": "x" * LONG_BYTES}).encode())
    kept.clear()
    assert kept.extract(dumps({"t": "x" * LONG_BYTES}).encode()) != first


def test_a_language_is_detected_at_the_start_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    characters = 0

    def counted(text: str) -> list[Any]:
        nonlocal characters
        characters += len(text)
        return groups(text)

    groups = long_texts.groups
    monkeypatch.setattr(long_texts, "groups", counted)
    monkeypatch.setattr(long_texts, "MAX_SAMPLE_OFFSET", 50_000)
    kept = LongStrings()
    formatter(kept).hit(loads(kept.extract(dumps({"t": "новый " * 50_000}).encode())))
    assert 0 < characters < 60_000
