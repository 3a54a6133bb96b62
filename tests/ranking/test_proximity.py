"""The rule `proximity`.

What must hold:
1. Neighbours cost nothing, each word between one, three or more and other fields three.
2. Words in the wrong order count as one further apart.
3. The smallest distance in any field counts.
4. Across a hard separator of the query, and from a dropped word on, any distance will do.
5. A hard separator of the text is as far as words can be.
6. A phrase stands at the distance of its nearer end; nothing is near its wrong side.
7. Two words found as one cost the gap they do not have.
8. A cached prefix is near where one of its words is; before the other word only as a word itself.
9. By attribute all words of one field are near, others far; the first answer for a pair counts for later buckets.
10. Position gaps keep words apart, in documents and in phrases.
"""
from __future__ import annotations

import pytest

from tests.support.dict_reader import DictReader
from tests.support.searching import details_of, titled

pytestmark = pytest.mark.usefixtures("both_evaluators")


def proximities(reader: DictReader, q: str, most: int = 4) -> dict[int, int]:
    """id -> cost, of a query whose highest cost is `most` - 1."""
    shown = details_of(reader, q, matching_strategy="all")
    return {hit: round(most - view["proximity"]["score"] * most) for hit, view in shown.items()}


@pytest.mark.parametrize(
    ("title", "cost"),
    [
        ("dark sky", 0), ("dark x sky", 1), ("dark x x sky", 2), ("dark x x x sky", 3),
        ("sky dark", 1), ("sky x dark", 2), ("sky x x dark", 3),
        ("dark. sky", 3), ("dark x sky x dark sky", 0),
    ],
)
def test_cost_of_two_words(title: str, cost: int) -> None:
    assert proximities(titled(title), "dark sky ") == {1: cost}


def test_nearest_field_counts() -> None:
    reader = DictReader([{"id": 1, "title": "dark x sky", "body": "dark sky"}, {"id": 2, "title": "dark", "body": "sky"}])
    assert proximities(reader, "dark sky ") == {1: 0, 2: 3}


def test_hard_separators_of_the_query_ask_no_distance() -> None:
    assert proximities(titled("dark x x x sky"), "dark. sky ", most=1) == {1: 0}


def test_costs_add_up() -> None:
    reader = titled("a b c", "a b x c", "a x b x c", "c b a")
    assert proximities(reader, "a b c ", most=7) == {1: 0, 2: 1, 3: 2, 4: 2}


def test_phrases_have_a_nearer_end() -> None:
    reader = titled("the dark sky", "dark sky the", "the x dark sky")
    assert proximities(reader, 'the "dark sky"') == {1: 0, 3: 1, 2: 3}


def test_joined_words_cost_their_gap() -> None:
    reader = titled("bluesky", "blue sky", rankingRules=["proximity"])
    assert proximities(reader, "blue sky ") == {2: 0, 1: 1}


def test_cached_prefix() -> None:
    titles = [f"dark s{number:03}" for number in range(120)]
    reader = titled("dark s", "s dark", "s000 dark", *titles)
    found = proximities(reader, "dark s")
    assert (found[1], found[2], found[3], found[4]) == (0, 1, 3, 0)


def test_a_phrase_is_never_near_a_cached_prefix_in_the_wrong_order() -> None:
    titles = [f"the dark s{number:03}" for number in range(120)]
    reader = titled("s the dark", "the dark s", *titles)
    found = proximities(reader, '"the dark" s')
    assert (found[1], found[2], found[3]) == (3, 0, 0)


def test_position_gaps_keep_words_apart() -> None:
    """Stop words of documents take their positions; those of a phrase keep its ends where they are."""
    reader = titled("dark of sky", "dark sky", "dark of the sky", stopWords=["of", "the"])
    assert proximities(reader, "dark sky ") == {2: 0, 1: 1, 3: 2}
    reader = titled("king lord of rings", "lord of rings king", "lord of rings x king", stopWords=["of"])
    assert proximities(reader, 'king "lord of rings"') == {1: 0, 2: 3, 3: 3}
    assert proximities(reader, '"lord of rings" king ') == {2: 0, 3: 1, 1: 3}


def test_words_around_a_stop_word_of_the_query_are_no_neighbours() -> None:
    assert proximities(titled("dark x x x sky", stopWords=["of"]), "dark of sky ", most=1) == {1: 0}


def test_by_attribute_the_first_answer_for_a_pair_counts_for_later_buckets() -> None:
    """The pair of the typo word is asked for within the first bucket; the second one finds it in the other order."""
    reader = DictReader(
        [{"id": 1, "title": "night sky", "n": 1}, {"id": 2, "title": "night sky", "n": 2}],
        {"proximityPrecision": "byAttribute", "rankingRules": ["words", "n:asc", "proximity"], "sortableAttributes": ["n"],
         "searchableAttributes": ["title"]},
    )
    assert proximities(reader, "nigth sky ") == {1: 0, 2: 1}


def test_by_attribute_words_of_one_field_are_near() -> None:
    reader = DictReader(
        [{"id": 1, "title": "sky x x x x dark"}, {"id": 2, "title": "dark", "body": "sky"}],
        {"proximityPrecision": "byAttribute"},
    )
    assert proximities(reader, "dark sky ") == {1: 0, 2: 3}
