"""The Python client of the interface works unchanged: what its documentation shows, against a daemon.

1. Indexes, documents, searches, settings, tasks and batches.
2. Keys and tenant tokens; a token finds what its rule lets it find.
3. Webhooks; a finished batch reaches one.
4. The errors that the client tells apart come as such.
5. A workspace of chats is made, and answers in chunks.
"""
from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.support.chat_source import DONE, Source, c, f
from tests.support.daemon import running

meilisearch = pytest.importorskip("meilisearch", reason="the client is an extra of development: `make test` installs it")

from meilisearch.errors import MeilisearchApiError  # noqa: E402

MASTER_KEY = "a-master-key-of-some-length"
FILMS = [
    {"id": 1, "title": "Carol", "genres": ["Romance", "Drama"], "year": 2015, "_geo": {"lat": 48.85, "lng": 2.35}},
    {"id": 2, "title": "Wonder Woman", "genres": ["Action", "Adventure"], "year": 2017, "_geo": {"lat": 51.5, "lng": -0.1}},
    {"id": 3, "title": "Life of Pi", "genres": ["Adventure", "Drama"], "year": 2012},
    {"id": 4, "title": "Mad Max: Fury Road", "genres": ["Adventure", "Science Fiction"], "year": 2015},
    {"id": 5, "title": "Moana", "genres": ["Fantasy", "Action"], "year": 2016},
    {"id": 6, "title": "Philadelphia", "genres": ["Drama"], "year": 1993},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    args = ("--master-key", MASTER_KEY, "--experimental-allowed-ip-networks", "127.0.0.0/8")
    with running(tmp_path_factory.mktemp("client"), *args) as daemon:
        yield f"http://127.0.0.1:{daemon.port}"
        assert daemon.bugs() == []


@pytest.fixture
def client(url: str) -> Any:
    return meilisearch.Client(url, MASTER_KEY)


@pytest.fixture
def films(client: Any) -> Iterator[Any]:
    """An index of films that can be filtered and sorted."""
    index = client.index("films")
    done(client, index.update_settings({
        "filterableAttributes": ["genres", "year", "_geo"], "sortableAttributes": ["year", "_geo"]}))
    done(client, index.add_documents(FILMS, "id"))
    yield index
    done(client, index.delete())


def done(client: Any, info: Any) -> Any:
    """The finished task, which has succeeded."""
    uid = info["taskUid"] if isinstance(info, dict) else info.task_uid
    task = client.wait_for_task(uid, timeout_in_ms=20_000, interval_in_ms=2)
    assert task.status == "succeeded", task
    return task


def ids(found: Any) -> list[int]:
    return [hit["id"] for hit in found["hits"]]


def test_indexes(client: Any) -> None:
    done(client, client.create_index("books", {"primaryKey": "isbn"}))
    assert client.get_index("books").primary_key == "isbn"
    assert [index.uid for index in client.get_indexes()["results"]] == ["books"]
    done(client, client.create_index("novels"))
    done(client, client.index("novels").update(primary_key="id"))
    done(client, client.swap_indexes([{"indexes": ["books", "novels"]}]))
    assert client.get_index("books").primary_key == "id"
    assert client.index("books").get_stats().number_of_documents == 0
    assert set(client.get_all_stats()["indexes"]) == {"books", "novels"}
    for uid in ("books", "novels"):
        done(client, client.delete_index(uid))
    assert client.get_indexes()["total"] == 0


def test_documents(client: Any, films: Any) -> None:
    assert dict(films.get_document(1))["title"] == "Carol"
    done(client, films.update_documents([{"id": 1, "rating": 5}]))
    assert dict(films.get_document(1, {"fields": ["title", "rating"]})) == {"title": "Carol", "rating": 5}
    found = films.get_documents({"filter": "year = 2015", "fields": ["id"], "limit": 1})
    assert (found.total, [document.id for document in found.results]) == (2, [1])
    for info in films.add_documents_in_batches([{"id": 10 + n, "title": f"Part {n}"} for n in range(5)], batch_size=2):
        done(client, info)
    done(client, films.delete_document(10))
    with pytest.warns(DeprecationWarning):  # by the client
        done(client, films.delete_documents([11, 12]))
    done(client, films.delete_documents(filter="year < 2000"))
    assert [document.id for document in films.get_documents({"limit": 99}).results] == [1, 2, 3, 4, 5, 13, 14]
    done(client, films.add_documents_csv(b"id,title\n20,Twenty\n"))
    done(client, films.add_documents_ndjson(b'{"id": 21, "title": "Twenty-one"}\n'))
    assert ids(films.search("twenty")) == ["20", 21]  # columns of CSV are texts unless they say otherwise
    client.update_experimental_features({"editDocumentsByFunction": True})
    function = {"function": "doc.title = doc.title.to_upper()", "filter": "year = 2015"}
    done(client, client.update_documents_by_function("films", function))
    assert dict(films.get_document(1))["title"] == "CAROL"
    done(client, films.delete_all_documents())
    assert films.get_documents().total == 0


def test_searches(client: Any, films: Any) -> None:
    assert ids(films.search("caorl")) == [1]
    found = films.search("wonder", {"attributesToHighlight": ["*"], "showRankingScore": True})
    assert found["hits"][0]["_formatted"]["title"] == "<em>Wonder</em> Woman" and found["hits"][0]["_rankingScore"] > 0.9
    found = films.search("", {"filter": ["year > 2012", ["genres = Drama", "genres = Action"]], "facets": ["genres"], "sort": ["year:desc"]})
    assert ids(found) == [2, 5, 1]
    assert found["facetDistribution"]["genres"] == {"Action": 2, "Adventure": 1, "Drama": 1, "Fantasy": 1, "Romance": 1}
    assert ids(films.search("", {"filter": "_geoRadius(48.8, 2.3, 50000)"})) == [1]
    assert ids(films.search("", {"sort": ["_geoPoint(51.5, 0):asc"]}))[:2] == [2, 1]
    assert films.facet_search("genres", "dra")["facetHits"] == [{"value": "Drama", "count": 3}]
    many = client.multi_search([{"indexUid": "films", "q": "pi"}, {"indexUid": "films", "q": "moana"}])
    assert [ids(result) for result in many["results"]] == [[3], [5]]
    merged = client.multi_search([{"indexUid": "films", "q": "pi"}, {"indexUid": "films", "q": "moana"}], {"limit": 5})
    assert sorted(ids(merged)) == [3, 5]


def test_settings(client: Any, films: Any) -> None:
    done(client, films.update_synonyms({"wolverine": ["logan"]}))
    done(client, films.update_stop_words(["of", "the"]))
    done(client, films.update_ranking_rules(["words", "typo", "year:desc"]))
    done(client, films.update_typo_tolerance({"minWordSizeForTypos": {"oneTypo": 4, "twoTypos": 10}}))
    done(client, films.update_distinct_attribute("year"))
    shown = films.get_settings()
    assert shown["rankingRules"] == ["words", "typo", "year:desc"] and shown["stopWords"] == ["of", "the"]
    assert films.get_typo_tolerance().min_word_size_for_typos.one_typo == 4
    assert ids(films.search("", {"sort": []})) == [2, 5, 1, 3, 6]
    done(client, films.reset_settings())
    assert films.get_distinct_attribute() is None and films.get_synonyms() == {}


def test_tasks(client: Any, films: Any) -> None:
    newest = client.get_tasks({"limit": 2, "indexUids": ["films"]})
    assert len(newest.results) == 2 and newest.results[0].uid > newest.results[1].uid
    task = client.get_task(newest.results[0].uid)
    assert (task.index_uid, task.status) == ("films", "succeeded")
    batch = client.get_batches({"limit": 1}).results[0]
    assert client.get_batch(batch.uid).uid == batch.uid
    done(client, client.cancel_tasks({"uids": task.uid}))
    done(client, client.delete_tasks({"uids": task.uid}))
    with pytest.raises(MeilisearchApiError) as missing:
        client.get_task(task.uid)
    assert missing.value.code == "task_not_found"


def test_keys_and_tenant_tokens(client: Any, films: Any, url: str) -> None:
    assert {key.name for key in client.get_keys().results} >= {"Default Search API Key", "Default Admin API Key"}
    expires_at = datetime.now(timezone.utc) + timedelta(hours=1)
    key = client.create_key({"description": "films", "actions": ["search"], "indexes": ["films"],
                             "expiresAt": expires_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")})
    assert client.update_key(key.uid, {"name": "searches"}).name == "searches"
    searcher = meilisearch.Client(url, key.key)
    assert ids(searcher.index("films").search("carol")) == [1]
    with pytest.raises(MeilisearchApiError) as refused:
        searcher.index("films").add_documents([{"id": 9}])
    assert refused.value.code == "invalid_api_key"
    token = client.generate_tenant_token(key.uid, {"films": {"filter": "year = 2015"}}, api_key=key.key,
                                         expires_at=expires_at)
    tenant = meilisearch.Client(url, token)
    assert sorted(ids(tenant.index("films").search(""))) == [1, 4]
    assert ids(tenant.index("films").search("", {"filter": "genres = Drama"})) == [1]
    client.delete_key(key.uid)
    with pytest.raises(MeilisearchApiError):
        tenant.index("films").search("")


class Receiver(HTTPServer):
    """Keeps the first NDJSON it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.lines: list[Any] = []
        self.has_come = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            self.server.lines += [json.loads(line) for line in content.splitlines()]  # type: ignore[attr-defined]
            self.send_response(204)
            self.end_headers()
            self.server.has_come.set()  # type: ignore[attr-defined]

        def log_message(self, *args: object) -> None:
            """Say nothing."""


def test_webhooks(client: Any) -> None:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hook = client.create_webhook({"url": f"http://127.0.0.1:{receiver.server_port}/", "headers": {"x-secret": "s"}})
    assert client.get_webhook(hook.uuid).url == hook.url and len(client.get_webhooks().results) == 1
    task = done(client, client.create_index("told"))
    assert receiver.has_come.wait(20)
    assert [(line["uid"], line["status"]) for line in receiver.lines] == [(task.uid, "succeeded")]
    client.delete_webhook(hook.uuid)
    done(client, client.delete_index("told"))
    receiver.shutdown()
    thread.join()
    receiver.server_close()


def test_the_instance(client: Any) -> None:
    assert client.is_healthy() and client.health() == {"status": "available"}
    assert client.get_version()["pkgVersion"]
    assert "metrics" in client.get_experimental_features()


def test_chats(client: Any) -> None:
    client.http.patch("experimental-features", {"chatCompletions": True})
    source = Source([[c(role="assistant", content="He"), c(content="llo"), f("stop"), DONE]])
    try:
        settings = {"source": "vLlm", "baseUrl": source.url, "apiKey": "a-key-of-some-length-or-more", "prompts": {"system": "Be brief."}}
        shown = client.update_chat_workspace_settings("support", settings)
        assert shown == client.get_chat_workspace_settings("support")
        assert shown["apiKey"] == "a-kXXXXX..." and shown["prompts"]["system"] == "Be brief."
        assert client.get_chat_workspaces(limit=5)["results"] == [{"uid": "support"}]
        chunks = client.create_chat_completion("support", [{"role": "user", "content": "hi"}])
        assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks) == "Hello"
        assert source.bodies[0]["messages"][0] == {"role": "system", "content": "Be brief."}
    finally:
        source.close()
    with pytest.raises(MeilisearchApiError) as refused:
        list(client.create_chat_completion("nowhere", []))
    assert refused.value.code == "chat_not_found"
