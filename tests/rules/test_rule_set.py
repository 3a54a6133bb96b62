"""Which search rules are in force, and what they pin. What must hold:

1. An inactive rule is never in force. A rule is in force from its start to its end, both included, whatever the offset.
2. `isEmpty` asks whether the query has no word that documents must have; negated words do not count.
3. Every word of a rule is a whole word of the query, outside of phrases; no typos, no beginnings. A word that a rule names twice
   is never found twice.
4. Rules with values need a filter that asks for as many of their fields; those without are in force with any filter.
5. Rules come by precedence, then by docid; those without precedence last. The first that names a document pins it.
6. A rule pins documents of its index that the filter leaves, whatever the query says.
7. Words, rules, pins and combinations beyond the limits are ignored.
8. A rule that cannot be read is left out.
"""
from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.base.quantities import parse_rfc3339
from svcd.filters.evaluation import read_filter
from svcd.query.graph import parse_text
from svcd.rules.rule_set import RuleSet
from svcd.rules.values import Limits
from svcd.schema.index_settings import IndexSettings
from tests.support.dict_reader import DictReader

ANALYZER = IndexSettings.of({}).analyzer
NOON = parse_rfc3339("2026-01-02T12:00:00Z")
USUAL, ALL = Limits(), DocIds([0, 1, 2])
READER = DictReader([{"id": "a"}, {"id": "b"}, {"id": "c"}])


def rule(*ids: str, **members: Any) -> dict[str, Any]:
    """A rule that pins these documents at 0, 1, 2... Conditions by their names, other members too."""
    conditions = {name: members.pop(name) for name in ("time", "query", "filter") if name in members}
    index = {"indexUid": members.pop("index")} if "index" in members else {}
    actions = [{"selector": {**index, "id": each}, "action": {"type": "pin", "position": place}} for place, each in enumerate(ids)]
    return {"uid": "r", "active": True, "conditions": conditions, "actions": actions, **members}


def pins(rules: list[dict[str, Any]], q: str = "", *, condition: Any = None, now: int = NOON, limits: Limits = USUAL,
         docids: DocIds = ALL, index_uid: str = "films") -> dict[str, int]:
    """Document -> the position at which it is pinned, in the order of the rules."""
    found = RuleSet(enumerate(rules), ANALYZER, limits, (object(),)).of_query(index_uid, now)
    if found is None:
        return {}
    tree = read_filter(condition, "invalid_search_filter")
    return {"abc"[docid]: position for position, docid in found.pins(READER, parse_text(q, ANALYZER), tree, docids)}


def test_an_inactive_rule_is_never_in_force() -> None:
    assert pins([rule("a", active=False)]) == {}
    assert pins([rule("a")]) == {"a": 0}


def test_a_rule_without_the_member_counts_as_active_where_no_rule_has_it() -> None:
    bare = rule("a")
    del bare["active"]
    assert pins([bare]) == {"a": 0}
    assert pins([bare, rule("b")]) == {"b": 0}


@pytest.mark.parametrize("time, is_in_force", [
    ({"start": "2026-01-02T12:00:00Z"}, True),
    ({"start": "2026-01-02T12:00:00.000000001Z"}, False),
    ({"end": "2026-01-02T12:00:00Z"}, True),
    ({"end": "2026-01-02T11:59:59.999999999Z"}, False),
    ({"start": "2026-01-02T13:00:00+01:00", "end": "2026-01-02T13:00:00+01:00"}, True),
    ({"start": "2026-01-02T12:00:00-01:00"}, False),
])
def test_a_rule_is_in_force_from_its_start_to_its_end(time: Any, is_in_force: bool) -> None:
    assert bool(pins([rule("a", time=time)])) is is_in_force


@given(st.lists(st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)), min_size=1, max_size=4))
def test_within_an_interval_the_same_rules_are_in_force(times: list[tuple[int | None, int | None]]) -> None:
    def text(second: int) -> str:
        return f"2026-01-02T12:00:0{second}Z"

    rules = [rule("abc"[place % 3], time={name: text(moment) for name, moment in zip(("start", "end"), time) if moment is not None})
             for place, time in enumerate(times)]
    compiled = RuleSet(enumerate(rules), ANALYZER, Limits())
    by_interval: dict[int, Any] = {}
    for tenth in range(100):
        now = NOON + tenth * 100_000_000
        wanted = sum(1 << place for place, (start, end) in enumerate(times)
                     if (start is None or start * 10 <= tenth) and (end is None or tenth <= end * 10))
        found = compiled.of_query("films", now)
        assert (found.at_moment if found else 0) == wanted
        assert by_interval.setdefault(compiled.interval(now), wanted) == wanted


@pytest.mark.parametrize("q, is_empty", [("", True), ("-batman", True), ('-"bat man"', True), ("batman", False), ('"bat"', False)])
def test_an_empty_query_has_no_word_that_documents_must_have(q: str, is_empty: bool) -> None:
    assert pins([rule("a", query={"isEmpty": True}), rule("b", query={"isEmpty": False})], q) == {"a" if is_empty else "b": 0}


@pytest.mark.parametrize("words, q, is_in_force", [
    ("returns", "Batman Returns", True),
    ("Batman returns", "returns of batman", True),
    ("batman robin", "batman", False),
    ("Mario Mario", "mario mario", False),
    ("mario", "mario mario", True),
    ("returns", "return", False),
    ("return", "returns", False),
    ("returns", '"batman returns"', False),
    ("returns", "batman -returns", False),
    ("çafé", "CAFE", True),
    ("", "anything", True),
])
def test_the_words_of_a_rule_are_words_of_the_query(words: str, q: str, is_in_force: bool) -> None:
    assert bool(pins([rule("a", query={"words": words})], q)) is is_in_force


@given(st.lists(st.sampled_from("pqrst"), max_size=4), st.lists(st.sampled_from("pqrst"), max_size=4))
def test_rules_are_looked_up_by_word_as_if_each_was_compared(words: list[str], asked: list[str]) -> None:
    wanted = len(set(words)) == len(words) and set(words) <= set(asked)
    assert bool(pins([rule("a", query={"words": " ".join(words)})], " ".join(asked))) is wanted


def test_only_the_first_counted_words_are_looked_up() -> None:
    rules = [rule("a", query={"words": "bb"}), rule("b", query={"words": "cc"})]
    assert pins(rules, "cc bb aa", limits=Limits(counted_words=2)) == {"a": 0}


@pytest.mark.parametrize("fuel, found", [(1, ""), (2, "a"), (3, "ab")])
def test_rules_of_more_words_need_more_fuel(fuel: int, found: str) -> None:
    rules = [rule("a", query={"words": "one"}), rule("b", query={"words": "one two"})]
    assert "".join(pins(rules, "one two", limits=Limits(word_fuel=fuel))) == found


COLOURS = rule("a", filter={"values": {"colour": "Red"}})
BOTH = rule("b", filter={"values": {"colour": "Red", "size": 3}})


@pytest.mark.parametrize("condition, found", [
    (None, ""),
    ("colour = red", "a"),
    ("colour = blue", ""),
    ("colour = red AND size = 3", "ab"),
    ("colour = red AND size = 4", "a"),
    ("colour = red OR size = 3", "a"),
    ("(colour = red OR colour = blue) AND size = 3", "ab"),
    ("colour IN [blue, red]", "a"),
    ("NOT colour = red", ""),
    ("colour != blue", "a"),
    ("colour != red", ""),
    ("NOT (colour = blue OR size != 3)", "ab"),
    ("size > 2 AND colour = red", "ab"),
    ("size 2 TO 3 AND colour = red", "ab"),
    ("size < 3 AND colour = red", "a"),
    ("colour = red AND size EXISTS", "ab"),
    ("colour IS NULL", ""),
    ("colour IS EMPTY", ""),
    ("colour STARTS WITH re", ""),
    ("_geoRadius(1, 1, 1) OR colour = red", "a"),
    (["colour = red", "size = 3"], "ab"),
    ([["colour = red", "size = 3"]], "a"),
])
def test_a_filter_asks_for_the_values_of_a_rule(condition: Any, found: str) -> None:
    assert "".join(pins([COLOURS, BOTH], condition=condition)) == found


def test_a_rule_of_two_values_of_one_field_needs_two_fields() -> None:
    several = rule("a", filter={"values": {"colour": ["red", "blue"]}})
    assert pins([several], condition="colour = red AND colour = blue") == {}
    assert pins([several], condition="colour = red AND size EXISTS") == {"a": 0}


def test_nested_values_have_dotted_names_and_null_is_none() -> None:
    nested = rule("a", filter={"values": {"made": {"by": {"name": "Ann"}, "at": None}}})
    assert pins([nested], condition="made.by.name = ann") == {"a": 0}
    assert pins([rule("a", filter={"values": {"made": None}})]) == {"a": 0}
    assert pins([rule("a", filter={"values": {}})]) == {"a": 0}


VALUES = st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["1", "2"]), max_size=3)
FILTERS = st.recursive(
    st.tuples(st.sampled_from("xyz"), st.sampled_from(["=", "!="]), st.sampled_from(["1", "2"])).map(" ".join),
    lambda parts: st.tuples(parts, st.sampled_from(["AND", "OR"]), parts).map(lambda each: f"({' '.join(each)})")
    | parts.map(lambda part: f"NOT {part}"), max_leaves=5)


@given(VALUES, FILTERS)
def test_a_rule_of_one_value_per_field_is_in_force_as_the_definition_says(values: dict[str, str], text: str) -> None:
    """Brute force: NOT is pushed down by hand, alternatives are listed, fields are counted."""
    wanted = not values or any(
        sum(all((values.get(field) == value) is is_equal for field, is_equal, value in leaves)
            for _, leaves in itertools.groupby(sorted(branch), key=lambda leaf: leaf[0])
            for leaves in [list(leaves)]) >= len(values)
        for branch in _alternatives(read_filter(text, "x"), False))
    assert bool(pins([rule("a", filter={"values": values})], condition=text)) is wanted


def _alternatives(condition: Any, is_negated: bool) -> list[list[tuple[str, bool, str]]]:
    name = type(condition).__name__
    if name == "Not":
        return _alternatives(condition.part, not is_negated)
    if name == "Comparison":
        return [[(condition.field.text, (condition.operator == "=") is not is_negated, condition.values[0])]]
    parts = [_alternatives(part, is_negated) for part in condition.parts]
    if (name == "Or") is not is_negated:
        return [branch for part in parts for branch in part]
    return [[leaf for branch in chosen for leaf in branch] for chosen in itertools.product(*parts)]


@pytest.mark.parametrize("limits, found", [
    (Limits(), "ab"), (Limits(filter_fuel=1), ""), (Limits(filter_fuel=2), "a"), (Limits(filter_and_fuel=1), "a"),
    (Limits(filter_and_fuel=0), ""), (Limits(filter_depth_fuel=0), ""), (Limits(filter_depth_fuel=1), "ab"),
])
def test_a_filter_is_looked_at_up_to_limits(limits: Limits, found: str) -> None:
    assert "".join(pins([COLOURS, BOTH], condition="colour = red AND size = 3", limits=limits)) == found


def test_alternatives_beyond_the_limit_are_not_looked_at() -> None:
    condition = "colour = blue OR colour = red"
    assert pins([COLOURS], condition=condition, limits=Limits(filter_or_fuel=1)) == {}
    assert pins([COLOURS], condition=condition, limits=Limits(filter_or_fuel=2)) == {"a": 0}
    assert pins([COLOURS], condition="colour IN [blue, red]", limits=Limits(filter_or_fuel=1)) == {}


def test_a_filter_of_endless_alternatives_is_not_expanded() -> None:
    condition = " AND ".join(f"(f{number} = 1 OR g{number} = 2)" for number in range(60))
    assert pins([COLOURS], condition=condition) == {}


def test_rules_come_by_precedence_then_by_docid() -> None:
    rules = [rule("a"), rule("b", precedence=7), rule("c", precedence=2), rule("a", "b", "c", precedence=7)]
    assert list(pins(rules)) == ["c", "b", "a"]
    assert pins(rules)["b"] == 0  # the first rule that names it decides


def test_a_rule_pins_documents_of_its_index_that_the_filter_leaves() -> None:
    rules = [rule("a", "zzz", index="films"), rule("b", index="books"), rule("c")]
    assert list(pins(rules)) == ["a", "c"]
    assert list(pins(rules, docids=DocIds([0, 1]))) == ["a"]
    assert list(pins(rules, index_uid="books")) == ["b", "c"]
    assert pins([rules[1]]) == {}


def test_rules_and_pins_beyond_the_limits_are_ignored() -> None:
    rules = [rule("a"), rule("b"), rule("c", precedence=1)]
    assert list(pins(rules, limits=Limits(active_rules=2))) == ["c", "a"]
    assert list(pins(rules, limits=Limits(pin_actions=1))) == ["c"]
    assert pins(rules, limits=Limits(pin_actions=0)) == {}
    assert pins(rules, limits=Limits(active_rules=0)) == {}


@pytest.mark.parametrize("broken", [
    rule("a", time={"start": "yesterday"}), rule("a", query={"words": 3}), {"uid": "r", "active": True, "actions": [{}]},
    rule("a", time="now"),
])
def test_a_rule_that_cannot_be_read_is_left_out(broken: dict[str, Any]) -> None:
    assert pins([broken, rule("b")]) == {"b": 0}
