"""Foreign documents in hits (docs/search.md#joins). What must hold:

1. Every scalar at or below a foreign key that can identify a document is replaced, in the document and in `_formatted`.
2. Elements of arrays are replaced one by one, at any depth; a scalar that cannot identify a document stays.
3. A document shows its displayed attributes; `{}` stands for a missing one. Foreign keys in foreign documents stay.
4. Members that the search added to a hit are not touched, and a hit without foreign keys is unchanged.
5. Each other index is opened once, and only if a hit refers to it.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.schema.index_settings import IndexSettings
from svcd.search.joins import hydrate
from tests.support.dict_reader import DictReader

ANN, BOB = {"id": "a", "name": "Ann", "friend": "b"}, {"id": 7, "name": "Bob"}
INDEXES = {
    "people": DictReader([ANN, BOB]),
    "places": DictReader([{"key": "a", "secret": 1, "at": {"x": 1, "y": 2}}],
                         {"displayedAttributes": ["at.x", "key"]}, primary_key="key"),
    "vectors": DictReader([{"id": 1, "_vectors": {"e": [0.5]}}]),
}


class Opened:
    """Opens the indexes; `uids` are those that were opened."""

    def __init__(self) -> None:
        self.uids: list[str] = []

    @contextmanager
    def __call__(self, index_uid: str) -> Iterator[DictReader]:
        self.uids.append(index_uid)
        if index_uid not in INDEXES:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        yield INDEXES[index_uid]


def shown(hit: Mapping[str, Any], **keys: str) -> Any:
    """A hit after its keys, `__` standing for a dot, are replaced."""
    named = {name.replace("__", "."): uid for name, uid in keys.items()}
    (text,) = hydrate([json.dumps(hit)], lambda _hit: named, Opened())
    return json.loads(text)


@pytest.mark.parametrize(("hit", "expected"), [
    ({"by": "a"}, {"by": ANN}),
    ({"by": 7}, {"by": BOB}),
    ({"by": "7", "_formatted": {"by": "7", "title": "a"}}, {"by": BOB, "_formatted": {"by": BOB, "title": "a"}}),
    ({"by": ["a", ["a", 7], {"x": "a"}]}, {"by": [ANN, [ANN, BOB], {"x": ANN}]}),
    ({"by": {"first": "a", "others": [7, "a"]}}, {"by": {"first": ANN, "others": [BOB, ANN]}}),
    ({"by.first": "a", "bye": "a"}, {"by.first": ANN, "bye": "a"}),
])
def test_scalars_at_and_beneath_a_key_are_replaced(hit: Any, expected: Any) -> None:
    assert shown(hit, by="people") == expected


def test_a_key_may_lie_beneath() -> None:
    hit = {"book": [{"by": "a", "n": "a"}, {"by": ["a", 7]}], "by": "a", "book.by": 7}
    assert shown(hit, book__by="people") == {
        "book": [{"by": ANN, "n": "a"}, {"by": [ANN, BOB]}], "by": "a", "book.by": BOB}


@pytest.mark.parametrize("value", [None, True, 1.5, 7.0, "", "<em>a</em>", "a b", "x" * 512, [], {}])
def test_what_can_identify_nothing_stays(value: Any) -> None:
    assert shown({"by": value}, by="people") == {"by": value}


def test_a_document_that_is_not_there_is_empty() -> None:
    assert shown({"by": ["z", "a", 8]}, by="people") == {"by": [{}, ANN, {}]}


def test_displayed_attributes_are_shown() -> None:
    assert shown({"at": "a"}, at="places") == {"at": {"key": "a", "at": {"x": 1}}}
    assert shown({"at": 1}, at="vectors") == {"at": {"id": 1}}


def test_what_the_search_added_is_not_touched() -> None:
    hit = {"_federation": {"queriesPosition": 7}, "_matchesPosition": {"by": [{"start": 7, "length": 7}]}, "_geoDistance": 7,
           "_rankingScoreDetails": {"words": {"order": 7}}}
    assert shown(hit, **dict.fromkeys(hit, "people")) == hit


def test_hits_without_keys_are_as_they_were() -> None:
    texts = ['{"by": 1.50}', '{"by":"a"}']
    assert hydrate(texts, lambda _hit: {}, Opened()) == texts


def test_each_hit_has_its_own_keys_and_each_index_is_opened_once() -> None:
    opened = Opened()
    hits = [json.dumps({"n": number, "by": "a", "at": "a"}) for number in range(3)]
    got = hydrate(hits, lambda hit: {"by": "people"} if hit["n"] else {"by": "places", "at": "people"}, opened)
    first, *others = map(json.loads, got)
    assert (first["by"]["key"], first["at"]) == ("a", ANN)
    assert others == [{"n": number, "by": ANN, "at": "a"} for number in (1, 2)]
    assert sorted(opened.uids) == ["people", "places"]


def test_an_index_is_not_opened_for_nothing() -> None:
    assert shown({"by": None, "title": "a"}, by="nowhere") == {"by": None, "title": "a"}
    with pytest.raises(ApiError) as refused:
        shown({"by": "a"}, by="nowhere")
    assert refused.value.code == "index_not_found"


def test_of_several_keys_of_one_attribute_the_first_counts() -> None:
    named = [{"fieldName": "by", "foreignIndexUid": uid} for uid in ("people", "places")]
    assert IndexSettings.of({"foreignKeys": named}).foreign_keys == {"by": "people"}
    assert IndexSettings.of({}).foreign_keys == IndexSettings.of({"foreignKeys": None}).foreign_keys == {}
    assert shown({"a": {"b": "a"}}, a="people", a__b="places") == {"a": {"b": ANN}}
