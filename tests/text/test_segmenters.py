"""What must hold of segmenters and word lists (docs/text-analysis.md#segmentation-with-word-lists):

1. A list agrees with a dictionary on the frequency of a word and on whether it is a prefix of others.
2. A repeated line counts once.
3. Lists are read from the packages that contain them, which are not imported; none is required.
4. The packaged list of German parts cuts common compounds and no other words.
5. Chinese is cut into the most likely words, Thai at the longest word, as an exhaustive search finds them.
"""
from __future__ import annotations

import sys
from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.text import segmenters
from svcd.text.segmenters import Chinese, LongestWords, WordList

# More words than between two lines that bisection finds, of few letters, so that many are prefixes of others.
LETTERS = "aZ\tน人𠀀"
WORDS = st.dictionaries(
    st.text(LETTERS.replace("\t", ""), min_size=1, max_size=3), st.integers(1, 999), max_size=4 * segmenters.STRIDE
)


@given(WORDS, st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=20))
def test_a_list_agrees_with_a_dictionary(listed: dict[str, int], others: list[str]) -> None:
    words = WordList.of(listed)
    assert words.total == sum(listed.values())
    for text in [*listed, *others]:
        frequency, goes_on = words.look(text)
        assert frequency == listed.get(text, 0)
        if "\t" not in text:  # a text with a tab is never looked up as a prefix
            assert goes_on == any(word != text and word.startswith(text) for word in listed)


def test_an_empty_list_has_no_word() -> None:
    assert (WordList(()).total, WordList(()).look("人")) == (0, (0, False))


def test_a_repeated_line_counts_once() -> None:
    assert WordList([b"B\t3", b"A\t2", b"B\t3"]).total == 5


def package(folder: Path, name: str, file: str, content: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise AssertionError('this package is never imported')")
    (folder / name / file).write_text(content, encoding="utf-8")


def test_lists_are_read_from_packages_that_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "jieba", "dict.txt", "你好 50 l\n世界 60 n\n")
    package(tmp_path, "newmm_tokenizer", "words_th.txt", "ครับ\r\nๆ ๆ\r\n\r\nดี")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    chinese, thai = segmenters.load_word_list("cmn"), segmenters.load_word_list("tha")
    assert chinese and thai and not segmenters.missing()
    assert [chinese.look(word) for word in ("你好", "你", "世")] == [(50, False), (0, True), (0, True)]
    assert [thai.look(word)[0] for word in ("ครับ", "ๆ ๆ", "ๆ", "ดี")] == [1, 1, 0, 1]


def test_no_list_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert segmenters.missing() == ["Chinese", "Thai"]
    assert [segmenters.load_word_list(language) for language in ("cmn", "tha", "khm")] == [None] * 3


def test_a_package_without_its_list_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, "jieba", "other.txt", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "Chinese" in segmenters.missing()


def german(text: str) -> str:
    words = segmenters.load_word_list("deu")
    assert words
    return " ".join("|".join(LongestWords(words, joins_others=True)(word)) for word in text.split())


@pytest.mark.parametrize("compounds", [
    "Wissens|organisation Inter|kulturalität Krankenversicherungs|beitrag Bundes|länder Donau|dampf|schifffahrts|gesellschafts|kapitän",
    "Kinder|wagen Geburtstags|geschenk Sonnen|brille Winter|reifen Garten|möbel Wohnzimmer|tisch Handy|hülle Tier|heim",
    "staats|gebiet arbeits|plätze straßenbahn|fahrer",
])
def test_german_compounds_are_cut_into_their_parts(compounds: str) -> None:
    assert german(compounds.replace("|", "")) == compounds


@pytest.mark.parametrize("text", [
    "kulturalität organisation Kultur Traum Winter hinter Information Zeitung Antwort Schwein Wissenschaft Landschaft Umwelt",
    "bringen springen gehen arbeiten bunter weiter normal Plattform Quartier international interessant versprechen Computer",
])
def test_words_that_only_look_like_compounds_are_not_cut(text: str) -> None:
    assert german(text) == text


def test_a_part_with_a_capital_occurs_only_at_the_beginning_of_a_word(tmp_path: Path) -> None:
    file = tmp_path / "parts.txt"
    file.write_text("land/es Ring/e\n", encoding="utf-8")
    lines = [line.decode().partition("\t")[0] for line in segmenters.read_compound_parts(file)]
    assert sorted(lines) == ["Land", "Landes", "Ring", "Ringe", "land", "landes"]


LISTED = st.dictionaries(st.text("人山海a", min_size=1, max_size=4), st.integers(1, 50), max_size=20)
RUNS = st.text("人山海a", max_size=9)


@given(LISTED, RUNS)
def test_chinese_is_cut_into_the_words_that_an_exhaustive_search_finds(listed: dict[str, int], run: str) -> None:
    log_total = log(sum(listed.values()) or 1)

    def best(start: int) -> tuple[float, list[str]]:
        paths = [(0.0, start, [])] if start == len(run) else []
        for end in range(start + 1, len(run) + 1):
            word = run[start:end]
            if end == start + 1 or word in listed:
                sum_after, after = best(end)
                paths.append((log(listed.get(word, 1)) - log_total + sum_after, end, [word, *after]))
        total, _, found = max(paths, key=lambda path: path[:2])
        return total, found

    assert list(Chinese(WordList.of(listed)).likeliest_words(run)) == best(0)[1]


@given(LISTED, RUNS)
def test_the_longest_listed_word_is_cut_at_each_place(listed: dict[str, int], run: str) -> None:
    found, rest = [], run
    while rest:
        word = max((word for word in listed if rest.startswith(word)), key=len, default=rest[0])
        found.append(word)
        rest = rest.removeprefix(word)
    assert list(LongestWords(WordList.of(listed), joins_others=False)(run)) == found
