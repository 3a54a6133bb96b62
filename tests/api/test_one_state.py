"""Requests that read several indexes while their list changes. What must hold:

1. All queries of a request, merged or not, see one state of the list: a swap is seen whole or not at all.
2. An index that is deleted in between is still read; one that was deleted before it could be opened is looked up again.
3. So it is with the indexes into which filters and foreign keys lead.
4. What is written to a file under another name, because of a swap before it was opened, is not seen.
5. Of many indexes not all are held open.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.index.connections import ReadPool
from svcd.index.reader import IndexReader
from svcd.instance import data_folder
from svcd.instance.instance import Instance

SWAP = [{"indexes": ["films", "people"]}]
QUERIES = [{"indexUid": "films"}, {"indexUid": "people"}, {"indexUid": "films", "q": "star"}]
FOREIGN_KEYS = [{"fieldName": "by", "foreignIndexUid": "people"}]


@pytest.fixture
def built(client: Any, work: Callable[[], None]) -> Any:
    """A client of two indexes, the documents of which say where they are."""
    client.instance.force_feature("foreignKeys")
    for index_uid in ("films", "people"):
        client.json("POST", f"/indexes/{index_uid}/documents", [{"id": 1, "in": index_uid, "by": 1, "t": "star"}])
        client.json("PATCH", f"/indexes/{index_uid}/settings", {"filterableAttributes": ["in", "by"]})
    client.json("PATCH", "/indexes/films/settings", {"foreignKeys": FOREIGN_KEYS})
    work()
    return client


@pytest.fixture
def meanwhile(built: Any, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """meanwhile(method, path, body): is done as soon as the next request has read something of its first index."""

    def schedule(method: str, path: str, body: Any = None) -> None:
        read_all = IndexReader.all_docids

        def all_docids(reader: IndexReader) -> Any:
            monkeypatch.setattr(IndexReader, "all_docids", read_all)
            assert built.json(method, path, body).status == 202
            work()
            return read_all(reader)

        monkeypatch.setattr(IndexReader, "all_docids", all_docids)

    return schedule


def places(client: Any, federation: Any = None) -> list[str]:
    """Where the hits of the queries are; merged ones in the order of their indexes."""
    got = client.json("POST", "/multi-search", {"queries": QUERIES, "federation": federation})
    assert got.status == 200, got.text
    if federation is not None:
        return sorted(f"{hit['_federation']['indexUid']}: {hit['in']}" for hit in got.value["hits"])
    return [hit["in"] for result in got.value["results"] for hit in result["hits"]]


def test_a_swap_in_between_is_not_seen(built: Any, meanwhile: Callable[..., None]) -> None:
    before = places(built)
    assert before == ["films", "people", "films"]
    built.instance.use_features({})  # hits without joined documents
    meanwhile("POST", "/swap-indexes", SWAP)
    assert places(built) == before
    assert places(built) == ["people", "films", "people"]


def test_nor_by_merged_queries(built: Any, meanwhile: Callable[..., None]) -> None:
    meanwhile("POST", "/swap-indexes", SWAP)
    assert places(built, {}) == ["films: films", "people: people"]
    assert places(built, {}) == ["films: people", "people: films"]


@pytest.mark.parametrize("federation", [None, {}])
def test_a_deletion_in_between_is_not_seen(built: Any, meanwhile: Callable[..., None], federation: Any) -> None:
    before = places(built, federation)
    meanwhile("DELETE", "/indexes/people")
    assert places(built, federation) == before
    got = built.json("POST", "/multi-search", {"queries": QUERIES, "federation": federation})
    assert got.fault[:2] == (400, "index_not_found") and got.fault[2].endswith(": Index `people` not found.")


@pytest.mark.parametrize(("method", "path"), [("POST", "/swap-indexes"), ("DELETE", "/indexes/people")])
def test_nor_is_it_by_what_is_joined(built: Any, meanwhile: Callable[..., None], method: str, path: str) -> None:
    meanwhile(method, path, SWAP if method == "POST" else None)
    (hit,) = built.json("POST", "/indexes/films/search", {}).value["hits"]
    assert hit["in"] == "films" and hit["by"]["in"] == "people"


def test_a_file_that_went_before_it_was_opened_is_looked_up_again(
        built: Any, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = data_folder.uuids_of

    def look_up_and_lose(*asked: Any) -> dict[str, str]:
        found = look_up(*asked)
        monkeypatch.undo()
        built.json("DELETE", "/indexes/people", None)
        built.json("POST", "/indexes/people/documents", [{"id": 1, "in": "people again", "t": "star"}])
        work()
        return found

    monkeypatch.setattr(data_folder, "uuids_of", look_up_and_lose)
    assert places(built)[1] == "people again"


@pytest.mark.parametrize("path", ["/indexes/films/search", "/multi-search"])
def test_what_is_written_under_another_name_before_the_file_is_opened_is_not_seen(
        built: Any, work: Callable[[], None], monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    begin = ReadPool.begin
    file = str(built.instance.index_path(built.instance.file_uuid("films")))

    def begin_late(pool: ReadPool, asked: Any) -> Any:
        if str(asked) == file:
            monkeypatch.undo()
            built.json("POST", "/swap-indexes", SWAP)
            built.json("POST", "/indexes/people/documents", [{"id": 2, "in": "people alone", "t": "star"}])
            work()
        return begin(pool, asked)

    monkeypatch.setattr(ReadPool, "begin", begin_late)
    got = built.json("POST", path, {"queries": QUERIES[:2]} if path == "/multi-search" else {}).value
    assert [hit["in"] for hit in (got["results"][0] if "results" in got else got)["hits"]] == ["people"]


def test_of_many_indexes_not_all_are_held(built: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "MAX_OPEN_INDEXES", 1)
    assert places(built) == ["films", "people", "films"]
    opened: Instance = built.instance
    with opened.read_together(["films", "people", "nowhere"]) as together:
        with together.read("films") as one, together.read("films") as again:
            assert one is again, "the first one is held open"
        with together.read("people") as one, together.read("people") as again:
            assert one is not again and one.number_of_documents == 1
        for gone in ("nowhere", "unasked"):
            with pytest.raises(ApiError, match=f"Index `{gone}` not found."), together.read(gone):
                pass
    assert data_folder.MAX_OPEN_INDEXES < 100
