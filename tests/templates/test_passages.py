"""What must hold of passages:

1. Together they cover the text, in order; each has at most the wanted words, and repeats the last ones of the passage before.
2. A passage ends with a sentence or a paragraph where one ends near.
3. Characters of scripts without spaces count as words.
4. Of a text with very many passages, the first ones are made.
"""
from __future__ import annotations

from hypothesis import given, settings, strategies as st

from svcd.templates.passages import MOST_PASSAGES, passages

WORDS = st.lists(st.sampled_from(["a", "bb", "c.", "dd!", "e,"]), max_size=60)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(WORDS, st.integers(1, 20), st.data())
def test_passages_cover_the_text_and_overlap(listed: list[str], most: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, most // 2))
    numbered = [f"{number}{word}" for number, word in enumerate(listed)]  # so that each word occurs once
    found = [passage.split() for passage in passages(" ".join(numbered), most, overlap)]
    assert all(len(passage) <= most for passage in found) or len(found) == 1
    assert [word for place, passage in enumerate(found) for word in passage[overlap if place else 0:]] == numbered
    for before, passage in zip(found, found[1:]):
        assert passage[:overlap] == (before[-overlap:] if overlap else [])
        assert len(before) == most or before[-1][-1] in ".!"
        assert len(before) >= most - most // 4


def test_a_passage_ends_with_a_sentence_or_paragraph() -> None:
    text = "one two three four five six 'seven.' eight nine ten eleven twelve"
    assert passages(text, 8, 2) == ["one two three four five six 'seven.'", "six 'seven.' eight nine ten eleven twelve"]
    assert passages(text.replace("'seven.'", "seven\n\n"), 8, 0) == ["one two three four five six seven", "eight nine ten eleven twelve"]
    assert passages(text.replace("'seven.'", "seven"), 8, 0) == ["one two three four five six seven eight", "nine ten eleven twelve"]


def test_a_short_text_stays_as_it_is() -> None:
    assert passages("  one two\n", 2, 1) == ["  one two\n"] and passages("", 5, 1) == [""]


def test_scripts_without_spaces() -> None:
    assert passages("日本語です。次の文もある", 8, 2) == ["日本語です。", "す。次の文もある"]
    assert passages("ภาษาไทย", 4, 0) == ["ภาษา", "ไทย"]


def test_very_long_texts_are_cut() -> None:
    found = passages("word " * 10_000, 10, 5)
    assert len(found) == MOST_PASSAGES and set(found) == {("word " * 10).strip()}
