"""Highlighting, cropping, match positions, retrieved attributes (docs/search.md#formatting). What must hold:

1. `_formatted` exists only when a known, displayed attribute is highlighted or cropped, and never empty.
2. Options reach what lies beneath an attribute and what it lies beneath.
3. Numbers become strings, other values stay as they are.
4. A prefix marks only the characters that gave it; a phrase skips separators and never matches across a stop-word gap.
5. Words of terms that are no prefix are tried first, wide terms before narrow ones.
6. A crop shows at most its words, clipped matches stay marked, the marker stands at each cut.
7. `_matchesPosition` counts bytes, names array indices, and keeps the last element that matched.
8. Without the tags and markers, the highlighted text is the text.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.schema.documents import attribute_names
from svcd.schema.index_settings import IndexSettings
from svcd.search.formatting import Formatted, Formatter
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.request import SearchQuery
from svcd.text.analyzer import WORD, Analyzer
from tests.support.contract import table
from tests.support.shared_material import needs_oracle, oracle

SUN = MatchFinder([LocatedTerm((0, 0), True, 3, ("sun",))])
ALL = ("*",)


def formatted(
    document: dict[str, Any],
    words: MatchFinder = SUN,
    *,
    displayed: Sequence[str] | None = None,
    analyzer: Analyzer | None = None,
    **options: Any,
) -> Formatted:
    formatter = Formatter(
        SearchQuery(**options),
        fields=list(dict.fromkeys(attribute_names(document))),
        displayed=displayed,
        analyzer=analyzer or Analyzer(),
        locales_of=lambda name: None,
        words=words,
    )
    return formatter.hit(document)


def highlighted(text: str, *terms: LocatedTerm) -> str:
    hit = formatted({"t": text}, MatchFinder(terms), attributes_to_highlight=ALL)
    assert hit.formatted is not None
    return hit.formatted["t"]


def word(*words: str, at: tuple[int, int] = (0, 0), length: int = 0) -> LocatedTerm:
    return LocatedTerm(at, bool(length), length or len(words[0]), words)


def test_nothing_is_formatted_when_nothing_is_asked() -> None:
    assert formatted({"t": "sun"}) == ({"t": "sun"}, None, None)
    assert formatted({"t": "sun"}, attributes_to_highlight=["u"], attributes_to_crop=["v"]).formatted is None
    others = Formatter(SearchQuery(attributes_to_highlight=["t"], attributes_to_retrieve=["t"]), fields=["t", "u"],
                       displayed=None, analyzer=Analyzer(), locales_of=lambda name: None, words=SUN)
    assert [others.hit(document).formatted for document in ({"u": "sun"}, {"t": "sun"})] == [None, {"t": "<em>sun</em>"}]


def test_hidden_attributes_are_neither_shown_nor_formatted() -> None:
    hit = formatted(
        {"t": "sun", "o": {"x": "sun"}, "h": "sun"},
        displayed=["o", "t"],
        attributes_to_highlight=["h", "o.x", "t"],
        attributes_to_retrieve=["o", "h"],
        show_matches_position=True,
    )
    assert hit.document == {"o": {"x": "sun"}}
    assert hit.formatted == {"t": "<em>sun</em>", "o": {"x": "sun"}}
    assert list(hit.matches_position or ()) == ["o.x", "t"]


def test_an_empty_list_retrieves_nothing() -> None:
    assert formatted({"t": 1}, attributes_to_retrieve=[]).document == {}
    assert formatted({"t": 1}, attributes_to_retrieve=["u", "*"]).document == {"t": 1}


def test_options_reach_members_and_parents() -> None:
    document = {"o": {"x": "sun a b", "y": "sun a b"}}
    hit = formatted(document, attributes_to_highlight=["o.x"], attributes_to_crop=["o:1"])
    assert hit.formatted == {"o": {"x": "<em>sun</em>…", "y": "sun…"}}


def test_numbers_become_strings() -> None:
    hit = formatted({"i": 12, "f": 1.0, "b": True, "n": None, "l": [1]}, attributes_to_highlight=["b"])
    assert hit.formatted == {"i": "12", "f": "1.0", "b": True, "n": None, "l": ["1"]}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [("t", "sun a…"), ("t:1", "sun…"), ("t:+1", "sun…"), ("t:x", "sun a…"), ("*:1", "sun…"), ("t:0", "sun a b"),
     ("t:" + "9" * 30, "sun a…")],
)  # fmt: skip
def test_crop_lengths(entry: str, expected: str) -> None:
    assert formatted({"t": "sun a b"}, attributes_to_crop=[entry], crop_length=2).formatted == {"t": expected}


def test_later_crop_entries_overwrite() -> None:
    hit = formatted({"t": "sun a b"}, attributes_to_crop=["t:1", "t:2"], crop_marker="[…]")
    assert hit.formatted == {"t": "sun a[…]"}


def test_a_prefix_marks_the_characters_that_gave_it() -> None:
    assert highlighted("Sunflower", word("sun", length=3)) == "<em>Sun</em>flower"
    assert highlighted("Œuvre", word("oe", length=1)) == "<em>Œ</em>uvre"
    # A typo word longer than what was typed marks no more than was typed.
    assert highlighted("sunflowers", word("sunflower", length=4)) == "<em>sunf</em>lowers"


def test_words_that_are_no_prefix_are_tried_first() -> None:
    assert highlighted("woods", word("wood", length=4), word("woods", at=(1, 1))) == "<em>woods</em>"


def test_the_first_word_of_a_prefix_term_measures_the_match() -> None:
    assert highlighted("woods", word("wood", "woods", length=5)) == "<em>wood</em>s"
    assert highlighted("woods", word("woods", "wood", length=5)) == "<em>woods</em>"


def test_wide_terms_come_before_narrow_ones() -> None:
    narrow = LocatedTerm((1, 1), True, 3, ("sun",))
    wide = LocatedTerm((0, 1), True, 6, ("sunflo",))
    assert highlighted("sunflower", narrow, wide) == "<em>sunflo</em>wer"


def test_phrases_skip_separators_and_come_first() -> None:
    phrase = LocatedTerm((0, 1), False, 0, (), (("new", "york"),))
    assert highlighted("New, York and new-york new", phrase, word("new")) == (
        "<em>New, York</em> and <em>new-york</em> <em>new</em>"
    )


def test_a_phrase_with_a_hole_never_matches() -> None:
    assert highlighted("man of steel", LocatedTerm((0, 2), False, 0, (), (("man", None, "steel"),))) == "man of steel"


def test_matches_across_the_border_of_a_crop_are_clipped() -> None:
    phrase = MatchFinder([LocatedTerm((0, 2), False, 0, (), (("a", "b", "c"),))])
    hit = formatted({"t": "a b c d"}, phrase, attributes_to_highlight=ALL, attributes_to_crop=["t:2"])
    assert hit.formatted == {"t": "<em>a b</em>…"}


def test_a_text_that_ends_with_a_phrase_too_long_is_still_shown() -> None:
    phrase = MatchFinder([LocatedTerm((0, 2), False, 0, (), (("a", "b", "c"),))])
    hit = formatted({"t": "x a b c"}, phrase, attributes_to_crop=["t:2"])
    assert hit.formatted is not None and hit.formatted["t"].endswith("…")


def test_the_window_lies_around_the_best_matches() -> None:
    words = MatchFinder([word("a"), word("b", at=(1, 1))])
    hit = formatted({"t": "a 1 2 3 4. 5 a b 6 7 8"}, words, attributes_to_crop=["t:4"])
    assert hit.formatted == {"t": "…5 a b 6…"}


def test_positions_count_bytes_and_name_the_last_matching_element() -> None:
    hit = formatted({"t": "été sun", "l": ["sun", ["x", "a sun"], "y"], "n": 1}, show_matches_position=True)
    assert hit.matches_position == {
        "l": [{"start": 2, "length": 3, "indices": [1, 1]}],
        "t": [{"start": 6, "length": 3}],
    }
    assert list(hit.matches_position) == ["l", "t"]


def test_no_words_match_nothing() -> None:
    hit = formatted({"t": "sun"}, MatchFinder(), attributes_to_highlight=ALL, show_matches_position=True)
    assert (hit.formatted, hit.matches_position) == ({"t": "sun"}, {})


def test_stop_words_are_highlighted() -> None:
    hit = formatted({"t": "sun"}, analyzer=Analyzer(stop_words=["sun"]), attributes_to_highlight=ALL)
    assert hit.formatted == {"t": "<em>sun</em>"}


def test_the_document_is_left_alone() -> None:
    document = {"o": {"x": ["sun", 1]}}
    formatted(document, attributes_to_highlight=ALL, attributes_to_crop=ALL, show_matches_position=True)
    assert document == {"o": {"x": ["sun", 1]}}


lemmas = st.sampled_from(["a", "b", "c", "ab", "é", "sun"])
separators = st.sampled_from([" ", ", ", ". ", "-", "!"])
sentences = st.lists(st.tuples(lemmas, separators), max_size=20).map(lambda pairs: "".join(map("".join, pairs)))
terms = st.builds(
    LocatedTerm,
    st.integers(0, 4).map(lambda first: (first, first)),
    st.booleans(),
    st.integers(1, 3),
    st.lists(lemmas, max_size=2).map(tuple),
    st.lists(st.lists(lemmas, min_size=1, max_size=4).map(tuple), max_size=2),
)


@given(sentences, st.lists(terms, max_size=4))
def test_without_tags_the_highlighted_text_is_the_text(text: str, located: list[LocatedTerm]) -> None:
    assert highlighted(text, *located).replace("<em>", "").replace("</em>", "") == text


@given(sentences, st.lists(terms, max_size=3), st.integers(1, 8))
def test_a_crop_is_a_part_of_the_text_and_shows_at_most_its_words(
    text: str, located: list[LocatedTerm], size: int
) -> None:
    is_short = all(len(phrase) <= size for term in located for phrase in term.phrases)
    hit = formatted({"t": text}, MatchFinder(located), attributes_to_crop=[f"t:{size}"], crop_marker="|")
    assert hit.formatted is not None
    shown = hit.formatted["t"].strip("|")
    assert shown in text
    if is_short:
        assert sum(token.kind == WORD for token in Analyzer().tokens(shown)) <= size


def test_recorded_formats() -> None:
    cases = table("format-cases")
    wire = {
        "attributesToRetrieve": "attributes_to_retrieve",
        "attributesToHighlight": "attributes_to_highlight",
        "attributesToCrop": "attributes_to_crop",
        "cropLength": "crop_length",
    }
    for displayed, parameters, expected in cases["cases"]:
        options = {wire[name]: value for name, value in parameters.items()}
        shown = formatted(cases["document"], displayed=displayed, **options).formatted
        assert shown == expected
        assert list(shown or ()) == list(expected or ())


def _oracle_words(index: Any, query: str) -> tuple[list[dict[str, Any]], MatchFinder]:
    """What the oracle's search derives from a query, plain and as matching words."""
    located = oracle("formatting").located_words(index, oracle("ranking").search(index, query)[3])
    terms = [LocatedTerm(t["pos"], t["prefix"], t["L"], t["words"], t["phr"]) for t in located]
    return located, MatchFinder(terms)


@needs_oracle
@pytest.mark.usefixtures("no_word_lists")
def test_recorded_crops() -> None:
    for case in table("crop-cases")["cases"]:
        index = oracle("ranking").Index(case["settings"], [case["document"]])
        for query, crop_length, expected, positions in case["searches"]:
            hit = formatted(
                case["document"],
                _oracle_words(index, query)[1],
                analyzer=IndexSettings.of(case["settings"]).analyzer,
                attributes_to_highlight=ALL,
                attributes_to_crop=ALL,
                crop_length=crop_length,
                show_matches_position=True,
            )
            assert hit.formatted is not None
            shown = {name: value for name, value in hit.formatted.items() if name != "id"}
            assert (query, shown, hit.matches_position) == (query, expected, positions)


@needs_oracle
@pytest.mark.usefixtures("no_word_lists")
@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 6))
def test_texts_are_formatted_as_by_the_oracle(random: Any, crop_length: int) -> None:
    generators = oracle("generators")
    choices, documents = generators.settings(random, 1), generators.docs(random, 2)
    index = oracle("ranking").Index(choices, documents)
    located, words = _oracle_words(index, generators.query(random))
    for document in documents:
        text = document["title"]
        try:
            expected = oracle("formatting").format_text(index, located, text, True, crop_length)
        except IndexError:  # the reference fails there too
            continue
        hit = formatted(
            {"t": text}, words, analyzer=IndexSettings.of(choices).analyzer, attributes_to_highlight=ALL,
            attributes_to_crop=[f"t:{crop_length}"],
        )  # fmt: skip
        assert hit.formatted == {"t": expected}
