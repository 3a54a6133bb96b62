"""Text without spaces by pairs of characters (docs/text-analysis.md#pairs-of-characters).

What must hold:
1. any part of a run of two characters or more is found, in order; single characters are found where they begin a pair or end a run;
2. tokens cover the text, and a match covers the typed characters;
3. full-width and half-width forms are one only with `foldWidth`.
"""
from __future__ import annotations

import random

import pytest

from svcd.text.analyzer import Analyzer
from svcd.text.character_pairs import folded_width, pairs
from tests.support.searching import found_ids, hits, titled

TEXTS = ("東京都庁へ行きました", "京都の東京タワー", "한국어 검색 엔진", "국어사전", "ภาษาไทยง่าย", "ພາສາລາວ", "မြန်မာဘာသာစကား", "ភាសាខ្មែរ", "中文信息检索", "Python で検索")


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_cover_the_text(text: str) -> None:
    tokens = Analyzer(has_pairs=True, folds_width=True).tokens(text)
    assert "".join(token.text for token in tokens) == text
    assert [token.start for token in tokens[1:]] == [token.end for token in tokens[:-1]]


def test_pairs_of_a_run() -> None:
    assert [(pair.text, pair.lemma, pair.has_next) for pair in pairs("東京都", str)] == [
        ("東", "東京", True), ("京", "京都", True), ("都", "都", False)]


@pytest.mark.parametrize("seed", range(3))
def test_every_part_is_found_and_only_where_it_is(seed: int) -> None:
    chosen = random.Random(seed)
    titles = ["".join(chosen.choices("東京都庁大阪府日本語検索かなカナ한국어검색중문信息", k=chosen.randint(2, 30))) for _ in range(120)]
    reader = titled(*titles, cjk="bigrams")
    for _ in range(60):
        title = chosen.choice(titles)
        length = chosen.randint(2, min(8, len(title)))
        start = chosen.randint(0, len(title) - length)
        part = title[start:start + length]
        assert set(found_ids(reader, part)) == {number for number, each in enumerate(titles, 1) if part in each}, (seed, part)


def test_a_single_character_finds_what_has_it() -> None:
    assert sorted(found_ids(titled("東京都", "大都市", "大阪", cjk="bigrams"), "都")) == [1, 2]


def test_a_match_covers_the_typed_characters() -> None:
    def formatted(title: str, q: str, **asked: object) -> str:
        (hit,) = hits(titled(title, cjk="bigrams"), q, attributes_to_highlight=["*"], **asked)
        shown: str = hit["_formatted"]["title"]
        return shown

    assert formatted("今日は東京都庁へ", "東京都") == "今日は<em>東京都</em>庁へ"
    assert formatted("今日は東京都庁へ", "京都") == "今日は東<em>京都</em>庁へ"
    assert formatted("今日は東京都庁へ", "都") == "今日は東京<em>都</em>庁へ"
    assert "<em>東京</em>" in formatted("今日は東京都庁へ", "東京の", matching_strategy="bm25")


def test_a_question_in_one_run_finds_parts_of_it_with_bm25() -> None:
    reader = titled("東京都庁の場所", "大阪城の歴史", "天気", cjk="bigrams")
    assert found_ids(reader, "東京都庁はどこですか", matching_strategy="bm25") == [1]
    assert found_ids(reader, "東京都庁はどこですか") == []


def test_excluded_runs_exclude() -> None:
    assert found_ids(titled("東京 駅", "京都 駅", cjk="bigrams"), "駅 -京都") == [1]


def test_width_is_folded_on_request() -> None:
    assert folded_width("ＡＢｃ１！　ｶﾞ") == "ABc1! カ\u3099"
    assert found_ids(titled("ＡＢＣ１２３", foldWidth=True), "abc123") == [1]
    assert found_ids(titled("ＡＢＣ１２３"), "abc123") == []
    assert found_ids(titled("ガラス", foldWidth=True, cjk="bigrams"), "ｶﾞﾗｽ") == [1]


def test_words_are_found_by_any_part_where_the_setting_says_so() -> None:
    reader = titled("Batman Returns", "Superman", "The Mandalorian", "Turn", infixSearch=["title"])
    assert sorted(found_ids(reader, "man ")) == [1, 2, 3]
    assert sorted(found_ids(reader, "turn ")) == [1, 4]
    assert found_ids(reader, "turn ")[0] == 4
    assert found_ids(reader, "an ") == []
    assert found_ids(titled("Superman", infixSearch=["text"]), "man ") == []
    assert sorted(found_ids(reader, "man ", matching_strategy="bm25")) == [1, 2, 3]
