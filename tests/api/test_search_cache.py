"""What must hold of answers that are kept:

1. The same search of the same state of an index is made once; another one, another rule or another state anew.
2. Nothing is kept of a search that ran out of time, nor of one that looks into other indexes.
3. An answer that would push out many others is not kept.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.api import admission as answers_module
from svcd.api import search as search_module
from svcd.api.admission import SearchCache
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.instance.data_folder import IndexRow
from svcd.search import search as engine


@pytest.fixture
def makes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the searches that the engine was asked for."""
    asked: list[str] = []
    whole = engine.search

    def search(readers: Any, queries: Any, *args: Any) -> Any:
        asked.append(queries[0].query.q)
        return whole(readers, queries, *args)

    monkeypatch.setattr(engine, "search", search)
    return asked


def write(instance: Any, uid: str, docid: int) -> None:
    """A document `{"id": docid}` comes into an index, made when absent."""
    row = instance.index(uid)
    if row is None:
        row = IndexRow(uid, f"uuid-of-{uid}", 1, 1, "id")
        with instance.queue.finishing() as connection:
            instance.create_index(connection, row)
    writer = IndexWriter(instance.index_path(row.uuid))
    with writer.transaction():
        writer.register(["id"])
        writer.write([DocumentChange(docid, str(docid), f'{{"id":{docid}}}', {"id": [str(docid)]})])
    writer.close()


@pytest.fixture
def films(instance: Any, client: Any) -> Any:
    write(instance, "films", 1)
    return client


def ids(got: Any) -> list[int]:
    return [hit["id"] for hit in got.value["hits"]]


def test_the_same_search_is_made_once(films: Any, makes: list[str]) -> None:
    first, second = (films.json("POST", "/indexes/films/search", {"q": "1"}) for _ in range(2))
    assert makes == ["1"]
    assert first.value.pop("requestUid") != second.value.pop("requestUid")
    assert {**first.value, "processingTimeMs": 0, "requestUid": 0} == {**second.value, "processingTimeMs": 0, "requestUid": 0}
    films.get("/indexes/films/search?q=2")
    films.json("POST", "/indexes/films/search", {"q": "1", "limit": 1})
    assert makes == ["1", "2", "1"]


def test_after_a_write_it_is_made_anew(films: Any, makes: list[str], instance: Any) -> None:
    assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1]
    write(instance, "films", 2)
    assert ids(films.json("POST", "/indexes/films/search", {"q": ""})) == [1, 2]
    write(instance, "other", 3)
    assert ids(films.json("POST", "/indexes/other/search", {"q": ""})) == [3]
    assert len(makes) == 3


def test_a_search_that_ran_out_of_time_is_not_kept(films: Any, makes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Over(search_module.Timer):
        def __call__(self, milliseconds: int) -> Any:
            return super().__call__(-1)

    monkeypatch.setattr(search_module, "Timer", Over)
    for _ in range(2):
        films.json("POST", "/indexes/films/search", {"q": "1", "showRankingScore": True})
    assert makes == ["1", "1"]


def test_state_and_question_tell_answers_apart() -> None:
    answers, made = SearchCache(), []

    def make(text: str, is_whole: bool = True) -> Any:
        return lambda: (made.append(text), ((text.encode(),), is_whole))[1]

    for state, asked in (("a", "x"), ("a", "y"), ("b", "x")):
        for _ in range(2):
            assert answers.get(state, asked, make(state + asked)) == ((state + asked).encode(),)
    assert made == ["ax", "ay", "bx"]
    for _ in range(2):
        answers.get("a", "partial", make("p", False))
    assert made[3:] == ["p", "p"]


def test_a_large_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "_MAX_BYTES", 3)
    answers, made = SearchCache(), []
    for text in ("abc", "abc", "abcd", "abcd"):
        answers.get("state", text, lambda text=text: (made.append(text), ((text.encode(),), True))[1])
    assert made == ["abc", "abcd", "abcd"]
