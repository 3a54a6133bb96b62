"""Places of pinned hits. What must hold:

1. A pin stands at its position if there are enough organic hits before it.
2. Pins that share a position, or come too late, follow one another in their order.
3. A pin that comes first but far down keeps the later ones waiting; by_position() prevents that.
4. When the organic hits run out, the remaining pins follow at once, in their order.
5. No more hits than asked for; no hit is lost below that, and the organic ones keep their order.
6. Pages joined are the whole list.
7. Details of a hit say whether a rule has pinned it; its score is 1, and it is counted.
"""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.ranking.scores import Pinned, Ranked
from svcd.search.keyword import by_position, placed, split_pins, with_pins

PINS = st.lists(st.tuples(st.integers(0, 12), st.text("xyz", min_size=1, max_size=3)), max_size=6)
ORGANIC = st.lists(st.text("abc", min_size=1, max_size=3), max_size=8)


def test_a_pin_stands_at_its_position():
    assert placed("abc", [(1, "X")], 10) == ["a", "X", "b", "c"]


def test_pins_of_one_position_follow_one_another():
    assert placed("abc", [(1, "X"), (1, "Y"), (0, "Z")], 10) == ["a", "X", "Y", "Z", "b", "c"]


def test_a_pin_far_down_keeps_later_ones_waiting():
    pins = [(3, "X"), (0, "Y")]
    assert placed("abcd", pins, 10) == ["a", "b", "c", "X", "Y", "d"]
    assert placed("abcd", by_position(pins), 10) == ["Y", "a", "b", "X", "c", "d"]


def test_pins_follow_when_the_organic_hits_run_out():
    assert placed("ab", [(10, "X"), (20, "Y")], 10) == ["a", "b", "X", "Y"]


def test_pins_beyond_the_end_are_left_out():
    assert placed("abc", [(3, "X")], 3) == ["a", "b", "c"]
    assert placed("", [(0, "X"), (7, "Y")], 1) == ["X"]


@given(ORGANIC, PINS, st.integers(0, 20))
def test_nothing_is_lost_and_the_organic_hits_keep_their_order(organic, pins, end):
    marked = [(position, f"!{name}{number}") for number, (position, name) in enumerate(pins)]
    found = placed(organic, marked, end)
    assert len(found) == min(end, len(organic) + len(pins))
    shown = [each for each in found if not each.startswith("!")]
    assert shown == organic[:len(shown)]
    assert [each for each in found if each.startswith("!")] == [name for _, name in marked][:len(found) - len(shown)]


@given(ORGANIC, PINS, st.integers(1, 4))
def test_pages_joined_are_the_whole_list(organic, pins, size):
    pins = by_position(pins)
    pages = [hit for end in range(0, 20, size) for hit in placed(organic, pins, end + size)[end:]]
    assert pages == placed(organic, pins, 100)


def test_details_say_which_hits_are_pinned():
    organic, pin = Hit(1, (Ranked("words", 1, 2),)), Hit(2, (Pinned(5),))
    assert split_pins([Hit(3, ())]) == ([Hit(3, ())], [])
    assert split_pins([organic, pin]) == ([organic], [(5, pin)])
    assert scores.score(pin.details) == 1.0
    assert scores.score_details(pin.details, False, lambda field: False) == {"pin": {"order": 0, "position": 5}}


def test_pinned_documents_are_counted():
    found = with_pins(Ranking(DocIds([1, 4]), [Hit(1, ()), Hit(4, ())]), [(1, Hit(9, (Pinned(1),)))], 2)
    assert [hit.docid for hit in found.hits] == [1, 9]
    assert list(found.counted) == [1, 4, 9]
