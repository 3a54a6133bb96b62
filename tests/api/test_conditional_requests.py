"""ETag and If-None-Match (docs/http.md#conditional-requests). What must hold:

1. An answer with status 304 is the answer that the client would get: through random writes, settings, swaps, rules, features and
   networks, for bearers of different rights.
2. The same request without a change in between gets 304, and no search runs for it.
3. Settings, statistics and single documents get 304 whenever the client has the answer, whatever else was written.
4. Answers on which other indexes, other hosts or the cutoff have a part have no ETag; errors have none.
5. The ETag of an answer is of the state that the search has read, also if a write came just before.
6. Another process of the daemon knows the ETags; after a restart they are unknown.
"""
from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from svcd.api import search as search_route
from svcd.instance.data_folder import DataFolderReader
from svcd.instance.rows import KeyRow
from tests.api.conftest import JSON_TYPE, Client, Got, client_of
from tests.faults.conftest import IS_LONG, seed  # noqa: F401 (a fixture)
from tests.support.bearers import MASTER_KEY, token, uid, value_of

SEARCH = "/indexes/films/search"
WORDS = ("star", "moon", "wars", "sea")
OWN = re.compile(r'"(processingTimeMs|requestUid|queryUid)":("[^"]*"|\d+)')  # of each answer, not of what is asked
OPERATIONS = 400 if IS_LONG else 30

Ask = tuple[str, str, Any, dict[str, str]]


def asks(*bearers: str) -> list[Ask]:
    """Method, path, body and headers of what is asked after each operation."""
    everyone: list[tuple[str, str, Any]] = [
        ("GET", f"{SEARCH}?q=star&limit=3", None), ("POST", SEARCH, {"q": "star", "limit": 3}),
        ("POST", SEARCH, {"filter": "kind = 1", "facets": ["kind"]}),
    ]
    master: list[tuple[str, str, Any]] = [
        ("POST", "/indexes/books/search", {"q": "sea", "showRankingScore": True}),
        ("POST", SEARCH, {"vector": [1.0, 0.5], "hybrid": {"embedder": "e", "semanticRatio": 0.5}}),
        ("POST", SEARCH, {"filter": "_foreign(by, kind = 1)"}),
        ("GET", "/indexes/films/documents?limit=2&offset=1", None), ("GET", "/indexes/films/documents/3", None),
        ("POST", "/indexes/films/documents/fetch", {"filter": "kind = 1", "retrieveVectors": True}),
        ("POST", "/indexes/films/documents/fetch", {"filter": "_foreign(by, kind = 1)"}),
        ("GET", "/indexes/films/settings", None), ("GET", "/indexes/films/settings/synonyms", None),
        ("GET", "/indexes/films/stats", None), ("GET", "/stats", None),
    ]
    found = [(*ask, {"authorization": f"Bearer {bearer}"}) for bearer in bearers for ask in everyone]
    found += [(*ask, {"authorization": f"Bearer {MASTER_KEY}"}) for ask in master]
    found.append((*everyone[0], {"authorization": f"Bearer {MASTER_KEY}", "svc-include-metadata": "true"}))
    return found


def send(client: Client, ask: Ask, *known: str) -> Got:
    """An answer. known: tags that the client has."""
    method, path, body, headers = ask
    headers = {**headers, **({"if-none-match": ", ".join(known)} if known else {})}
    return client.send(method, path, b"" if body is None else json.dumps(body).encode(), headers | ({} if body is None else JSON_TYPE))


def seen(got: Got) -> tuple[int, str]:
    """What a client can tell apart."""
    return got.status, OWN.sub("", got.text)


@pytest.fixture
def admin(connect: Callable[..., Client]) -> Callable[[str, str, Any], Got]:
    """A request of the bearer of the master key."""
    client = connect(MASTER_KEY)
    return lambda method, path, body=None: client.ask(MASTER_KEY, method, path, body)


def documents(chance: random.Random) -> list[dict[str, Any]]:
    return [{"id": chance.randrange(8), "title": " ".join(chance.choices(WORDS, k=3)), "kind": chance.randrange(3),
             "by": chance.randrange(8), "_vectors": {"e": [chance.random(), chance.random()]}} for _ in range(chance.randrange(1, 5))]


def operation(chance: random.Random) -> tuple[str, str, Any]:
    """Method, path and body of a random change."""
    index = f"/indexes/{chance.choice(['films', 'films', 'books'])}"
    flag = chance.random() < 0.5
    return chance.choice([
        ("POST", f"{index}/documents", documents(chance)), ("PUT", f"{index}/documents", documents(chance)),
        ("DELETE", f"{index}/documents/{chance.randrange(8)}", None),
        ("POST", f"{index}/documents/delete", {"filter": f"kind = {chance.randrange(3)}"}),
        ("POST", "/swap-indexes", [{"indexes": ["films", "books"]}]), ("POST", "/swap-indexes", [{"indexes": ["films", "books"]}]),
        ("PATCH", f"{index}/settings", {"synonyms": {"sea": [chance.choice(WORDS)]}}),
        ("PATCH", f"{index}/settings", {"stopWords": chance.sample(WORDS, 1)}), ("DELETE", f"{index}/settings/stop-words", None),
        ("PATCH", f"{index}/settings", {"displayedAttributes": chance.choice([["*"], ["id", "title"]])}),
        ("PATCH", f"{index}/settings", {"foreignKeys": chance.choice([[], [{"fieldName": "by", "foreignIndexUid": "books"}]])}),
        ("PATCH", "/dynamic-search-rules/a", {"actions": [{"selector": {"indexUid": "films", "id": str(chance.randrange(8))},
                                                           "action": {"type": "pin", "position": 0}}], "active": flag}),
        ("DELETE", "/dynamic-search-rules", None),
        ("PATCH", "/experimental-features", {chance.choice(["dynamicSearchRules", "foreignKeys", "chatCompletions"]): flag}),
        ("PATCH", "/network", {"self": chance.choice(["a", "b"]), "remotes": {"b": {"url": "http://b"}}}),
        ("POST", "/webhooks", {"url": f"http://{chance.randrange(10)}"}), ("DELETE", f"{index}/documents", None),
        ("DELETE", "/indexes/books", None), ("POST", f"{index}/documents", documents(chance)),
    ])


# Refusals that earlier changes of a long run explain: a feature that is off, the largest number of webhooks.
EARLIER = ("feature_not_enabled", "invalid_webhooks") if IS_LONG else ()
FILTERABLE = {"filterableAttributes": ["kind", "by"]}
SETTINGS = FILTERABLE | {"embedders": {"e": {"source": "userProvided", "dimensions": 2}}}


def test_an_answer_that_is_not_sent_again_is_the_answer_that_would_be_sent(connect: Any, instance: Any, work: Callable[[], None],
                                                      admin: Callable[..., Got], seed: int) -> None:
    chance, client = random.Random(seed), connect(MASTER_KEY)
    for feature in ("dynamicSearchRules", "foreignKeys", "network"):
        instance.update_features({feature: True})
    key = uid(1)
    instance.keys.add(KeyRow(key, ["search"], ["*"], 1, 1))
    bearers = [MASTER_KEY, value_of(key), *(token({"films": {"filter": f"kind = {kind}"}}, key) for kind in (1, 2))]
    known: list[dict[str, tuple[int, str]]] = [{} for _ in asks(*bearers)]  # of each ask: tag -> the answer that came with it
    unchanged = changed = 0
    for number in range(OPERATIONS):
        if not number % 10:
            for index in ("films", "books"):
                admin("PATCH", f"/indexes/{index}/settings", SETTINGS)
        change = operation(chance)
        got = admin(*change)
        assert got.status < 300 or got.fault[1] in EARLIER, change
        work()
        for ask, answers in zip(asks(*bearers), known):
            whole = send(client, ask)
            got = send(client, ask, *answers) if answers else whole
            if got.status == 304:
                assert (got.text, answers[got.headers["etag"]]) == ("", seen(whole)), (change, ask)
                unchanged += 1
            else:
                assert seen(got) == seen(whole)
                changed += 1
                if ask[1].endswith(("/settings", "/3", "/stats")):
                    assert seen(whole) not in answers.values(), (change, ask)
            if tag := whole.headers.get("etag"):
                assert answers.setdefault(tag, seen(whole)) == seen(whole), (change, ask)
                assert send(client, ask, tag).status == 304, ask
    assert unchanged > 100 and changed > 100


@pytest.fixture
def films(client: Client, work: Callable[[], None]) -> Client:
    client.json("PATCH", "/indexes/films/settings", FILTERABLE)
    client.json("POST", "/indexes/films/documents", [{"id": 1, "title": "star", "kind": 1}])
    work()
    return client


def tag_of(client: Client, method: str, path: str, body: Any = None) -> str:
    got = send(client, (method, path, body, {}))
    assert got.status == 200, got.text
    return got.headers["etag"]


@pytest.mark.parametrize("ask", [("GET", f"{SEARCH}?q=star", None), ("POST", SEARCH, {"q": "star"})])
def test_no_search_runs_for_an_answer_that_the_client_has(films: Client, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tag = tag_of(films, *ask)
    monkeypatch.setattr(search_route, "_run_search", lambda *_: pytest.fail("a search"))
    films.app.services.search_cache._cache.forget(lambda _: True)
    for known in ([tag], ['"other"', tag], [tag.removeprefix("W/")]):
        got = send(films, (*ask, {}), *known)
        assert (got.status, got.text, got.headers) == (304, "", {"etag": tag})


def test_a_document_of_before_is_known_after_other_writes(films: Client, work: Callable[[], None]) -> None:
    paths = ("/indexes/films/documents/1", "/indexes/films/settings", "/indexes/films/settings/stop-words")
    tags = {path: tag_of(films, "GET", path) for path in paths}
    films.json("POST", "/indexes/films/documents", [{"id": 2}])
    work()
    assert [send(films, ("GET", path, None, {}), tag).status for path, tag in tags.items()] == [304] * len(paths)


def test_a_client_that_knows_another_answer_gets_this_one(films: Client) -> None:
    got = send(films, ("POST", SEARCH, {"q": "star"}, {}), tag_of(films, "POST", SEARCH, {"q": "sta"}), "*")
    assert got.status == 200 and got.value["hits"]


def test_answers_that_others_decide_have_no_tag(films: Client, work: Callable[[], None]) -> None:
    films.instance.update_features({"foreignKeys": True, "network": True})
    films.json("PATCH", "/network", {"self": "a"})
    films.json("POST", "/indexes/books/documents", [{"id": 1, "kind": 1}])
    films.json("PATCH", "/indexes/books/settings", FILTERABLE)
    films.json("PATCH", "/indexes/films/settings", {"foreignKeys": [{"fieldName": "by", "foreignIndexUid": "books"}]})
    work()
    for body, status in (({"useNetwork": True}, 200), ({"showPerformanceDetails": True}, 200), ({"q": "star"}, 200),
                         ({"filter": "_foreign(by, kind = 1)"}, 200), ({"filter": "nothing ="}, 400)):
        got = send(films, ("POST", SEARCH, body, {}))
        assert (got.status, got.headers.get("etag")) == (status, None), (body, got.text)
    assert "etag" not in send(films, ("POST", "/indexes/films/documents/fetch", {"filter": "_foreign(by, kind = 1)"}, {})).headers
    assert "etag" not in send(films, ("GET", "/indexes/none/documents/1", None, {})).headers
    assert "etag" not in send(films, ("GET", "/indexes/films/documents/none", None, {})).headers


def test_the_tag_is_of_the_state_that_was_read(films: Client, work: Callable[[], None],
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    read_together = DataFolderReader.read_together

    def written_before(self: Any, *others: Any) -> Any:
        monkeypatch.setattr(DataFolderReader, "read_together", read_together)
        films.json("POST", "/indexes/films/documents", [{"id": 2, "title": "star"}])
        work()
        return read_together(self, *others)

    monkeypatch.setattr(DataFolderReader, "read_together", written_before)
    ask: Ask = ("POST", SEARCH, {"q": "star"}, {})
    got = send(films, ask)
    assert len(got.value["hits"]) == 2
    assert got.headers["etag"] == send(films, ask).headers["etag"]


def test_another_process_knows_the_tags_of_this_one_and_another_start_does_not(films: Client) -> None:
    ask: Ask = ("POST", SEARCH, {"q": "star"}, {})
    tag = tag_of(films, *ask[:3])
    for start, status in ((films.instance.start, 304), ("another", 200)):
        folder = DataFolderReader(films.instance.path, {}, start)
        other: Any = client_of(folder, None, lambda: 0, films.instance.keys)  # type: ignore[arg-type]
        assert send(other, ask, tag).status == status
        folder.close()
