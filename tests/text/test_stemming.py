"""Stems of words (docs/text-analysis.md#stems)."""
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from svcd.query.stems import words_with_stem
from svcd.text.stemming import ALGORITHMS, stems
from svcd.text.stop_words import stop_words
from tests.support.dict_reader import DictVocabulary
from tests.support.searching import details_of, found_ids, hits, titled


@pytest.mark.parametrize("language", ALGORITHMS)
def test_every_language_has_a_stemmer(language: str) -> None:
    assert stems("information", (language,))[0]


def test_stems_of_several_languages_are_listed_once() -> None:
    assert stems("running", ("eng",)) == ("run",)
    assert stems("running", ("eng", "deu")) == ("run", "running")
    assert stems("run", ("eng", "deu")) == ("run",)
    assert stems("running", ()) == ("running",)


def test_threads_may_share_the_stemmers() -> None:
    words = [f"{word}{number}s" for number in range(200) for word in ("wing", "flow", "pressure")]
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda word: stems(word, ("eng", "fra", "spa")), words * 3))
    assert found == [stems(word, ("eng", "fra", "spa")) for word in words * 3]


def test_words_with_a_stem_are_found_by_their_beginning() -> None:
    words = "run running runs runner happy happiness capability capable hope hoping sky skies flow".split()
    vocabulary = DictVocabulary(words)
    for word in words:
        expected = sorted(other for other in words if other != word and stems(other, ("eng",)) == stems(word, ("eng",)))
        assert words_with_stem(vocabulary, word, ("eng",)) == expected, word


def test_stop_words_are_lemmas() -> None:
    assert {"the", "of"} <= stop_words(["eng"]) and "wing" not in stop_words(["eng"])
    assert "etait" in stop_words(["fra"])
    assert stop_words(["tam"]) == frozenset() == stop_words([])


# Searches with the strategies of the interface


def test_inflected_words_find_each_other_exact_ones_first() -> None:
    reader = titled("running", "run", "runs", "ruin", stemming=["eng"])
    assert found_ids(reader, "run ") == [2, 1, 3]
    assert found_ids(reader, "running ") == [1, 2, 3]
    assert found_ids(titled("running", "run"), "run ") == [2]


def test_accents_are_folded_before_stemming() -> None:
    assert found_ids(titled("événement", stemming=["fra"]), "évènements ") == [1]


def test_stems_are_highlighted() -> None:
    for strategy in ("last", "bm25"):
        (hit,) = hits(titled("They run fast", stemming=["eng"]), "running ", attributes_to_highlight=["*"], matching_strategy=strategy)
        assert hit["_formatted"]["title"] == "They <em>run</em> fast"


def test_a_stem_counts_as_one_typo() -> None:
    details = details_of(titled("run", "running", stemming=["eng"]), "run ")
    assert [details[docid]["typo"]["typoCount"] for docid in (1, 2)] == [0, 1]


def test_stems_work_without_typos_with_typos_and_with_prefixes() -> None:
    assert found_ids(titled("run", stemming=["eng"], typoTolerance={"enabled": False}), "running ") == [1]
    assert sorted(found_ids(titled("pressures", "pressure", stemming=["eng"]), "presure ")) == [1, 2]
    assert found_ids(titled("runs", "runway", stemming=["eng"]), "running") == [1]


def test_rules_choose_languages_by_attribute() -> None:
    rule = {"attributePatterns": ["title"], "locales": ["eng"]}
    reader = titled("running", stemming=[rule])
    assert found_ids(reader, "run ", matching_strategy="bm25") == [1]
    other = titled("running", stemming=[{**rule, "attributePatterns": ["text"]}])
    assert other.settings.stemming.languages_of("title") == ()
    both = titled("running", stemming=["deu", rule])
    assert both.settings.stemming.languages_of("title") == ("eng",) and both.settings.stemming.languages_of("text") == ("deu",)
