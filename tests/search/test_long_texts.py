"""Long texts of hits, and the limits on formatting (docs/search.md#long-texts). What must hold:

1. A text read in pieces gives the same marks, match positions and crops as when it is read whole.
2. Of a long text only the surroundings of matches are read, also to crop it.
3. After the time limit texts are returned as in the document, and texts to crop are cropped at their start.
4. Hits of usual size are formatted even after the time limit.
5. Tags and markers, however long, add no more than is allowed.
"""
from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from svcd.search import formatting, long_texts
from svcd.search.formatting import Formatted, Formatter
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.request import GUARANTEED_CHARACTERS, MAX_ADDED_BYTES, FormattingBudget, SearchQuery
from svcd.text.analyzer import Analyzer, Token

WORDS = MatchFinder([
    LocatedTerm((0, 0), False, 3, ("sun",)),
    LocatedTerm((1, 2), False, 0, (), (("new", "york", "bay"), ("c", "a"))),
    LocatedTerm((3, 3), True, 2, ("se", "œu", "oeuv")),
    LocatedTerm((4, 4), False, 1, ("é", "e", "x1")),
])
MILLION = 1_000_000


def hit(text: str, budget: FormattingBudget | None = None, analyzer: Analyzer | None = None, words: MatchFinder = WORDS,
        **options: Any) -> Formatted:
    formatter = Formatter(SearchQuery(**options), fields=["t"], displayed=None, analyzer=analyzer or Analyzer(),
                          locales_of=lambda name: None, words=words, budget=budget)
    return formatter.hit({"t": text})


def shown(text: str, budget: FormattingBudget | None = None, **options: Any) -> str:
    found = hit(text, budget, **options).formatted
    assert found is not None
    return str(found["t"])


def always_expired() -> bool:
    return True


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """in_pieces(True): texts are read in pieces of a few characters; in_pieces(False): whole."""
    for name, value in (("CHUNK", 7), ("MIN_PIECE", 1), ("MAX_PIECE", 9)):
        monkeypatch.setattr(long_texts, name, value)
    yield lambda wanted: monkeypatch.setattr(formatting, "LONG_TEXT", 0 if wanted else 1 << 30)


PARTS = st.sampled_from([
    "sun", "Sun", "SUN\x01", "s\x02un", "new", "York", "bay", "sea", "Sesame", "Œuvre", "œ", "é", "E", "e\u0301", "x1", "c", "a",
    " ", " ", " ", ". ", ", ", "-", "/", "'", "’", "\n", "c++", "J. R.", "Straße", "новый", "12", "…", "😀", "\u00a0", ".", "☃"])
OPTIONS = [
    {"attributes_to_highlight": ["*"]}, {"show_matches_position": True},
    {"attributes_to_highlight": ["*"], "attributes_to_crop": ["t:1"]}, {"attributes_to_crop": ["t:2"]},
    {"attributes_to_crop": ["t:5"], "attributes_to_highlight": ["t"]}, {"attributes_to_crop": ["t:30"]},
    {"attributes_to_crop": ["t:3"], "show_matches_position": True},
]
ANALYZERS = [Analyzer(), Analyzer(dictionary=["J. R.", "c++"], separator_tokens=["☃", "York bay"]),
             Analyzer(non_separator_tokens=[" ", "-"])]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.lists(PARTS, max_size=60).map("".join), st.sampled_from(OPTIONS), st.sampled_from(ANALYZERS))
@example("sun.  новый", {"attributes_to_crop": ["t:2"]}, ANALYZERS[2])  # the space belongs to the group before it
def test_a_text_read_in_pieces_is_formatted_as_a_whole_one(in_pieces: Any, text: str, options: dict[str, Any], analyzer: Analyzer) -> None:
    in_pieces(False)
    expected = hit(text, analyzer=analyzer, **options)
    in_pieces(True)
    assert hit(text, analyzer=analyzer, **options) == expected


def test_a_long_text_is_read_as_a_short_one() -> None:
    text = ("Words, words. " * 10_000 + "the SUN of New-York, bay " + "és œuvres " * 20) * 2
    assert len(text) > long_texts.LONG_TEXT
    marked = shown(text, attributes_to_highlight=["*"])
    assert marked.replace("<em>", "").replace("</em>", "") == text and marked.count("<em>") == 2 * 22
    assert "the <em>SUN</em> of <em>New-York, bay</em> és <em>œ</em>uvres" in marked
    assert shown(text, attributes_to_crop=["t:4"]) == "…of New-York, bay…"


class Counting(Analyzer):
    """Counts the characters that are tokenized."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def tokens(self, text: str, *others: Any, **options: Any) -> list[Token]:
        self.characters += len(text)
        return super().tokens(text, *others, **options)

    def tokens_of_part(self, part: str, *others: Any) -> list[Token]:
        self.characters += len(part)
        return super().tokens_of_part(part, *others)


@pytest.mark.parametrize("options", [
    {"attributes_to_highlight": ["*"]}, {"show_matches_position": True}, {"attributes_to_crop": ["*"]},
    {"attributes_to_crop": ["*"], "attributes_to_highlight": ["*"], "show_matches_position": True}])
@pytest.mark.parametrize("is_matched", [True, False])
def test_only_pieces_near_matches_are_tokenized(options: dict[str, Any], is_matched: bool) -> None:
    text = "".join(f"word of that man {number}, " for number in range(50_000))
    analyzer = Counting()
    hit(text + " sun " * is_matched + text, analyzer=analyzer, **options)
    assert is_matched <= analyzer.characters < 20_000 < len(text)


def test_after_the_cutoff_texts_are_shown_unformatted() -> None:
    text = "sun " * MILLION
    marked = shown(text, FormattingBudget(always_expired), attributes_to_highlight=["*"])
    assert marked.startswith("<em>sun</em> <em>sun</em>") and marked.endswith(" sun sun ")
    assert marked.replace("<em>", "").replace("</em>", "") == text
    positions = hit(text, FormattingBudget(always_expired), show_matches_position=True).matches_position
    assert positions is not None and 1 < len(positions["t"]) < MILLION // 10
    assert positions["t"][1] == {"start": 4, "length": 3}


def test_after_the_cutoff_texts_are_cropped_at_their_beginning() -> None:
    budget = FormattingBudget(always_expired)
    assert not all(budget.allows(GUARANTEED_CHARACTERS) for _ in range(2))
    assert shown("moon " * 300 + "sun", budget, attributes_to_crop=["t:2"]) == "moon moon…"
    assert shown("moon " * MILLION + "sun", budget, attributes_to_crop=["t:2"]) == "moon moon…"
    assert shown("moon sun", budget, attributes_to_crop=["t:1"]) == "moon sun"


def test_hits_of_usual_size_are_formatted_after_the_cutoff() -> None:
    formatter = Formatter(SearchQuery(attributes_to_highlight=["*"], attributes_to_crop=["t"]), fields=["t"], displayed=None,
                          analyzer=Analyzer(), locales_of=lambda name: None, words=WORDS, budget=FormattingBudget(always_expired))
    for _ in range(20):
        found = formatter.hit({"t": "a long day under the sun " * 100}).formatted
        assert found == {"t": "…under the <em>sun</em> a long day under the <em>sun</em> a…"}


def test_tags_add_no_more_than_is_allowed() -> None:
    text, tag = "sun moon " * 1_000, "<" + "x" * 100_000 + ">"
    marked = shown(text, attributes_to_highlight=["*"], highlight_pre_tag=tag, highlight_post_tag="")
    assert len(text) < len(marked) <= len(text) + MAX_ADDED_BYTES
    formatter = Formatter(SearchQuery(attributes_to_crop=["t:1"], crop_marker=tag), fields=["t"], displayed=None,
                          analyzer=Analyzer(), locales_of=lambda name: None, words=WORDS)
    found = formatter.hit({"t": [text] * 1_000}).formatted
    assert found is not None and sum(map(len, found["t"])) <= 1_000 * 5 + MAX_ADDED_BYTES


def test_a_very_long_word_is_one_word() -> None:
    """No word begins where the text is cut inside it."""
    text = "sun " + "sunx1" * 100_000 + " sun"
    assert shown(text, attributes_to_highlight=["*"]) == "<em>sun</em> " + "sunx1" * 100_000 + " <em>sun</em>"


def test_many_short_texts_do_not_stay_in_memory() -> None:
    formatter = Formatter(SearchQuery(attributes_to_highlight=["*"]), fields=["t"], displayed=None, analyzer=Analyzer(),
                          locales_of=lambda name: None, words=WORDS)
    document = {"t": [f"{number} moons" for number in range(15_000)]}  # 13 MB if all were kept
    tracemalloc.start()
    try:
        formatter.hit(document)
        held, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 8 << 20


def test_all_portions_of_a_page_share_what_tags_may_add() -> None:
    budget, tag, length = FormattingBudget(always_expired), "\x01" * 100_000, 0
    for _ in range(100):
        budget.renew()
        marked = shown("sun moon", budget, attributes_to_highlight=["*"], highlight_pre_tag=tag, highlight_post_tag="")
        assert marked.endswith("sun moon")
        length += len(json.dumps(marked)) - len('"sun moon"')
    assert MAX_ADDED_BYTES - 600_000 < length <= MAX_ADDED_BYTES
