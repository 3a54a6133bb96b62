"""The rule `words`, and which documents are in play at all.

What must hold:
1. Documents with all words come first, then those with ever fewer, the last words being missed first.
2. The first word is never missed; with the strategy `all` none is.
3. With `frequency` the most frequent words are missed first.
4. A phrase is always there; each of its words counts as one to match, its position gaps do not.
5. Words and phrases that must not be there exclude documents, whatever else these have.
6. A word is found as the beginning of a longer one only when it is the last.
7. Words written as one find the words together, and the other way round.
8. Synonyms count as the word itself, one way only; a key of two words is found through its 2-gram.
9. A phrase needs its words near each other, in a window of three.
10. A cached prefix finds what its words find.
11. `attributesToSearchOn` restricts words, not what a pair or a position is.
"""
from __future__ import annotations

import pytest

from svcd.base.errors import ApiError
from tests.support.dict_reader import DictReader
from tests.support.searching import answer, details_of, found_ids, titled

SKY = ("the dark blue sky", "the dark sky", "the dark", "the", "dark blue sky", "blue sky")


def words_matched(reader: DictReader, q: str, **asked: str) -> dict[int, tuple[int, int]]:
    """id -> (words matched, words to match)."""
    shown = details_of(reader, q, **asked)
    return {hit: (view["words"]["matchingWords"], view["words"]["maxMatchingWords"]) for hit, view in shown.items()}


def test_last_words_are_missed_first() -> None:
    found = words_matched(titled(*SKY), "the dark blue sky ")
    assert found == {1: (4, 4), 2: (2, 4), 3: (2, 4), 4: (1, 4)}
    assert (list(found)[0], list(found)[-1]) == (1, 4)


def test_strategy_all_misses_none() -> None:
    assert found_ids(titled(*SKY), "the dark blue sky ", matching_strategy="all") == [1]
    assert "words" not in details_of(titled(*SKY), "dark sky", matching_strategy="all")[1]


def test_strategy_frequency_misses_frequent_words_first() -> None:
    found = words_matched(titled(*SKY), "the dark blue sky ", matching_strategy="frequency")
    assert found[1] == (4, 4)
    assert found[5] == (3, 4)


def test_phrases_are_always_there() -> None:
    reader = titled("dark sky", "dark blue sky", "sky", "the dark sky")
    assert words_matched(reader, 'the "dark sky"') == {4: (3, 3), 1: (2, 3)}
    assert words_matched(reader, '"dark sky"') == {1: (2, 2), 4: (2, 2)}


def test_position_gaps_of_phrases_are_no_words_to_match() -> None:
    reader = titled("lord of rings", "lord x rings", stopWords=["of"])
    assert words_matched(reader, '"lord of rings" lord') == {1: (3, 3), 2: (3, 3)}


def test_an_ngram_is_missed_with_the_last_of_its_words() -> None:
    reader = titled("sunday x night", "sunday x", "night", "x night")
    assert words_matched(reader, "sun day night ") == {1: (3, 3), 2: (2, 3)}
    assert words_matched(reader, "sun day night ", matching_strategy="frequency") == {1: (2, 2), 2: (1, 2)}


def test_negative_words_and_phrases_exclude() -> None:
    reader = titled(*SKY)
    assert sorted(found_ids(reader, "sky -the")) == [5, 6]
    assert found_ids(reader, 'sky -"blue sky"') == [2]
    assert found_ids(reader, "-the") == [5, 6]
    assert sorted(found_ids(reader, "the -d")) == [1, 2, 3, 4]


def test_only_the_last_word_is_a_beginning() -> None:
    reader = titled("starlight wars", "star war")
    assert found_ids(reader, "star") == [2, 1]
    assert found_ids(reader, "star ") == [2]
    assert found_ids(reader, "star wa") == [2]
    assert found_ids(titled("starlight", prefixSearch="disabled"), "star") == []


def test_words_are_joined_and_parted() -> None:
    reader = titled("news paper", "newspaper", "paper")
    assert found_ids(reader, "newspaper ") == [2, 1]
    assert found_ids(reader, "news paper ", matching_strategy="all") == [1, 2]
    assert found_ids(reader, "news. paper ", matching_strategy="all") == [1]


def test_synonyms() -> None:
    reader = titled("new york", "nyc", synonyms={"nyc": ["new york"], "new york": ["gotham"]})
    assert sorted(found_ids(reader, "nyc ")) == [1, 2]
    assert found_ids(reader, "new york ") == [1]
    reader = titled("gotham", "new york", synonyms={"new york": ["gotham"]})
    assert sorted(found_ids(reader, "new york ")) == [1, 2]


def test_synonyms_need_no_word_as_typed() -> None:
    """They match whatever number of typos a rule has narrowed the word to."""
    reader = titled("gotham x", "nwe york", synonyms={"new": ["gotham"]})
    assert sorted(found_ids(reader, "new ")) == [1]
    reader = titled("gotham", "a b", synonyms={"a b c": ["gotham"], "a b c d": ["a"]})
    assert found_ids(reader, "a b c ", matching_strategy="all") == [1]


def test_phrase_words_are_near_each_other() -> None:
    reader = titled("a b c d", "a b d c", "a x b c", "b a")
    assert found_ids(reader, '"a b c"') == [1]
    assert found_ids(reader, '"a b"') == [1, 2]


def test_position_gaps_of_a_phrase_match_any_word() -> None:
    reader = titled("lord of rings", "lord x rings", "lord rings", "lord of the rings", stopWords=["of", "the"])
    assert sorted(found_ids(reader, '"lord of rings"')) == [1, 2, 3]
    assert sorted(found_ids(reader, '"lord of the rings"')) == [1, 2, 3, 4]


def test_cached_prefix_finds_what_its_words_find() -> None:
    titles = [f"sun{number:03}" for number in range(120)]
    reader = titled("sun", "sum", *titles)
    assert found_ids(reader, "sun") == [1, *range(3, 123)]
    assert len(found_ids(reader, "su")) == 122


def test_restricted_fields() -> None:
    reader = DictReader([{"id": 1, "title": "star", "body": "wars"}, {"id": 2, "title": "wars", "b": {"c": "star"}}])
    assert found_ids(reader, "star ", attributes_to_search_on=["title"]) == [1]
    assert found_ids(reader, "star ", attributes_to_search_on=["b"]) == []
    assert found_ids(reader, "star ", attributes_to_search_on=["b.*"]) == [2]
    assert found_ids(reader, "star ", attributes_to_search_on=["nowhere"]) == []
    assert found_ids(reader, "star ", attributes_to_search_on=["title", "*"]) == [1, 2]
    assert found_ids(reader, "", attributes_to_search_on=[]) == [1, 2]


def test_unsearchable_field_is_an_error() -> None:
    reader = titled("star", searchableAttributes=["title", "never"], displayedAttributes=["id"])
    assert found_ids(reader, "star", attributes_to_search_on=["never"]) == []
    with pytest.raises(ApiError) as refused:
        answer(reader, "star", attributes_to_search_on=["nowhere"])
    assert refused.value.code == "invalid_search_attributes_to_search_on"
    assert refused.value.message == (
        "Index `films`: Attribute `nowhere` is not searchable."
        " Available searchable attributes are: `, <..hidden-attributes>`."
    )
