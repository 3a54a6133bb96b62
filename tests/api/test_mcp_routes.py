"""Assistants at POST /mcp. What must hold:

1. Without the feature the route refuses, and says how to switch it on; the feature shows once it was switched.
2. Both families of revisions are answered, by any request in any order.
3. Each tool gives what the route of the same subject gives, within its budget, as text and as structured content that fits its schema.
4. Errors of a call are results that say what to change; the message of a route stays.
5. Keys, tenant tokens and their filters hold in every tool (tests/faults/test_who_sees_what.py tries more); writing needs the option.
6. Malformed and hostile requests get the error of the protocol, never a failure of svcd.
7. A key has so many calls a minute.
8. Documents and indexes are resources, and the prompt describes the indexes.
9. A daemon that no assistant calls loads nothing of it but the route.
"""
from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svcd.api import mcp_tools
from svcd.instance.instance import Instance
from svcd.instance.rows import KeyRow
from svcd.mcp import protocol
from svcd.mcp.tools import TOOLS
from svcd.tasks.runner import Runner
from tests.api.conftest import JSON_TYPE, Client, Got, client_of, misfit
from tests.support.bearers import MASTER_KEY, NOW, Clock, token, uid, value_of
from tests.support.tasks_in_process import LocalWriter

META = {protocol.VERSION_KEY: "2026-07-28", protocol.CAPABILITIES_KEY: {}}
SETTINGS = {"filterableAttributes": ["year", "genres", "owner"], "sortableAttributes": ["year"], "displayedAttributes": [
    "id", "title", "year", "genres", "text"], "embedders": {"e": {"source": "userProvided", "dimensions": 2}}}
FILMS = [
    {"id": 1, "title": "Alien", "year": 1979, "genres": ["Horror"], "text": "A crew meets an organism. " * 100 + "The cat survives.", "owner": "a"},
    {"id": 2, "title": "Heat", "year": 1995, "genres": ["Crime"], "text": "A thief and a detective drink coffee.", "owner": "b"},
    {"id": 3, "title": "Ronin", "year": 1998, "genres": ["Crime", "Thriller"], "text": "Former agents chase a case.", "owner": "a"},
]
BOTH, SEARCHES, WRITES = (uid(number) for number in (1, 2, 3))


class Assistant:
    """Calls /mcp of an instance with the indexes `films` and `notes`."""

    def __init__(self, instance: Instance) -> None:
        for key in (KeyRow(BOTH, ["*"], ["*"], 1, 1), KeyRow(SEARCHES, ["search"], ["films"], 1, 1),
                    KeyRow(WRITES, ["search", "documents.add"], ["notes"], 1, 1)):
            instance.keys.add(key)
        self.client: Client = client_of(instance, MASTER_KEY, Clock(NOW), instance.keys)
        self.runner = Runner(instance, make_writer=lambda _: LocalWriter())
        self.bearer = MASTER_KEY
        for method, path, body in (("PATCH", "/indexes/films/settings", SETTINGS), ("POST", "/indexes/films/documents", [
                {**film, "_vectors": {"e": [film["id"], 1]}} for film in FILMS]), ("POST", "/indexes/notes/documents", [{"id": "n"}])):
            assert self.client.ask(MASTER_KEY, method, path, body).status == 202
        while self.runner.step():
            pass

    def switch(self, is_on: bool) -> None:
        assert self.client.ask(MASTER_KEY, "PATCH", "/experimental-features", {"mcp": is_on}).status == 200

    def send(self, message: Any, **headers: str) -> Got:
        content = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.client.send("POST", "/mcp", content, {
            "authorization": f"Bearer {self.bearer}", **JSON_TYPE,
            **{name.replace("_", "-"): text for name, text in headers.items()}})

    def ask(self, method: str, *, is_stateless: bool = False, **params: Any) -> Any:
        """The result, or the error."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, **({"_meta": META} if is_stateless else {})}}
        value = self.send(message, **protocol.headers_of(message)).value
        return value.get("result", value.get("error"))

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured content, which fits the schema of the tool; of a failure its text."""
        result = self.ask("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            return result["content"][0]["text"]
        found = result["structuredContent"]
        assert json.loads(result["content"][0]["text"]) == found
        assert misfit(found, TOOLS[tool].described(tool)["outputSchema"]) is None
        return found


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Assistant]:
    instance = Instance(tmp_path_factory.mktemp("mcp") / "data")
    yield Assistant(instance)
    instance.close()


@pytest.fixture
def films(opened: Assistant, monkeypatch: pytest.MonkeyPatch) -> Assistant:
    """The assistant with the master key, which may not write."""
    opened.switch(True)
    opened.bearer, opened.client.app.services.mcp_writes = MASTER_KEY, False
    monkeypatch.setattr(mcp_tools, "_WAIT_S", 0.0)
    return opened


def test_the_feature_is_needed(films: Assistant) -> None:
    films.switch(False)
    status, code, message = films.send({}).fault
    assert (status, code) == (400, "feature_not_enabled") and "`--experimental-mcp`" in message and '{"mcp": true}' in message
    assert films.client.ask(MASTER_KEY, "GET", "/experimental-features").value["mcp"] is False
    refused = films.client.ask(MASTER_KEY, "PATCH", "/experimental-features", {"mcq": True})
    assert refused.status == 400 and "`mcp`" not in refused.text


def test_a_new_instance_does_not_show_the_feature(client: Client) -> None:
    assert "mcp" not in client.get("/experimental-features").value


@pytest.mark.parametrize("asked", [*protocol.WITH_HANDSHAKE, "1999-01-01", None])
def test_a_handshake_is_answered(films: Assistant, asked: str | None) -> None:
    found = films.ask("initialize", protocolVersion=asked, capabilities={}, clientInfo={"name": "c", "version": "1"})
    assert found["protocolVersion"] == (asked if asked in protocol.WITH_HANDSHAKE else "2025-11-25")
    assert found["serverInfo"]["name"] == "svcd" and found["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}}
    assert films.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
    assert films.ask("ping") == {}


def test_without_handshake_the_server_is_discovered(films: Assistant) -> None:
    found = films.ask("server/discover", is_stateless=True)
    assert found["supportedVersions"] == ["2026-07-28"] and found["resultType"] == "complete" and found["ttlMs"] >= 0
    for removed in ("initialize", "ping", "logging/setLevel"):
        assert films.ask(removed, is_stateless=True)["code"] == -32601


def test_tools_are_listed(films: Assistant) -> None:
    reads = [name for name, tool in TOOLS.items() if tool.action is None]
    assert [tool["name"] for tool in films.ask("tools/list")["tools"]] == reads
    films.client.app.services.mcp_writes = True
    assert [tool["name"] for tool in films.ask("tools/list", is_stateless=True)["tools"]] == list(TOOLS)
    films.bearer = value_of(WRITES)
    assert [tool["name"] for tool in films.ask("tools/list")["tools"]] == [*reads, "add_documents"]


def test_indexes_are_described(films: Assistant) -> None:
    found = films.call("list_indexes", characters=500)
    assert [each["index"] for each in found["indexes"]] == ["films", "notes"]
    first = found["indexes"][0]
    assert first["documents"] == 3 and first["primaryKey"] == "id" and first["sortable"] == ["year"] and first["embedders"] == ["e"]
    assert set(first["filterable"]["genres"]) == {"Crime", "Horror", "Thriller"} and first["filterable"]["owner"] == ["a", "b"]
    assert first["example"]["title"] == "Alien" and len(first["example"]["text"]) == 81 and "owner" not in first["example"]
    assert [each["index"] for each in films.call("list_indexes", index="notes")["indexes"]] == ["notes"]


def test_a_search_finds_passages(films: Assistant) -> None:
    found = films.call("search", index="films", question="which animal survives?", limit=1, facets=["genres"])
    (best,) = found["passages"]
    assert best["id"] == 1 and best["title"] == "Alien" and best["uri"] == "svcd://films/1" and 0 < best["score"] <= 1
    assert best["fields"]["text"].endswith("The cat survives.") and best["fields"]["text"].startswith("…")
    assert found["facets"] == {"genres": {"Horror": 1}}
    crimes = films.call("search", index="films", filter="genres = Crime", sort=["year:desc"], limit=1, fields=["title"])
    assert crimes["total"] == 2 and "offset 1" in crimes["more"]
    assert crimes["passages"] == [{"id": 3, "uri": "svcd://films/3", "title": "Ronin", "score": 1.0, "fields": {}}]
    assert films.call("search", index="films", filter="genres = Crime", sort=["year:desc"], offset=1)["passages"][0]["id"] == 2


def test_a_search_ranks_as_its_route_does(films: Assistant) -> None:
    for question in ("crew thief", "a case of coffee", "organism agents chase", ""):
        route = films.client.ask(MASTER_KEY, "POST", "/indexes/films/search", {"q": question, "matchingStrategy": "bm25"}).value
        found = films.call("search", index="films", question=question)
        assert [hit["id"] for hit in route["hits"]] == [each["id"] for each in found["passages"]]
        assert found["total"] == route["estimatedTotalHits"]


def test_answers_keep_their_budget(films: Assistant) -> None:
    for characters in (500, 1000, 2000):
        for call in (films.call("search", index="films", question="crew", characters=characters),
                     films.call("similar", index="films", id=2, characters=characters),
                     films.call("get_documents", index="films", ids=[1, 2, 3], characters=characters)):
            assert len(json.dumps(call.get("passages", call.get("documents")), ensure_ascii=False, separators=(",", ":"))) <= characters + 10


def test_documents_are_read(films: Assistant) -> None:
    found = films.call("get_documents", index="films", ids=["2", 3, "x", 3], fields=["title", "owner"])
    assert [each["document"] for each in found["documents"]] == [{"title": "Heat"}, {"title": "Ronin"}] and found["missing"] == ["x"]
    (begun,) = films.call("get_documents", index="films", ids=[1], characters=1000)["documents"]
    start = len(begun["document"]["text"]) - 1
    (rest,) = films.call("get_documents", index="films", ids=[1], start=start)["documents"]
    assert begun["cut"] == ["text"] and begun["document"]["text"][:-1] + rest["document"]["text"] == FILMS[0]["text"]
    assert films.call("get_documents", index="films", ids=[1, 2], characters=500)["omitted"] == ["2"]


def test_values_of_a_field_are_listed(films: Assistant) -> None:
    assert films.call("facet_values", index="films", field="genres", beginning="thr")["values"] == [{"value": "Thriller", "count": 1}]
    assert films.call("facet_values", index="films", field="genres", question="thief")["values"] == [{"value": "Crime", "count": 1}]
    assert [each["count"] for each in films.call("facet_values", index="films", field="genres", limit=2)["values"]] == [2, 1]
    assert films.call("facet_values", index="films", field="year", filter="genres = Crime")["values"][0] == {"value": "1995", "count": 1}


def test_similar_documents_are_found(films: Assistant) -> None:
    found = films.call("similar", index="films", id=3, limit=1, filter="year < 1996")
    assert found["total"] == 2 and [each["id"] for each in found["passages"]] == [2]


@pytest.mark.parametrize(("tool", "arguments", "said"), [
    ("search", {"index": "films", "filter": "country = x"}, "`country` is not filterable. Available filterable attribute patterns are: `genres`,"),
    ("search", {"index": "films", "filter": "year >"}, "Was expecting a value"),
    ("search", {"index": "films", "sort": ["title:asc"]}, "not sortable. Available sortable attributes are: `year`"),
    ("search", {"index": "films", "facets": ["title"]}, "`title` is not filterable"),
    ("search", {"index": "film"}, "Index `film` not found; indexes are: films, notes."),
    ("search", {}, "Name an `index`; indexes are: films, notes."),
    ("search", {"index": "films", "limit": 51}, "maximum value authorized is `50`"),
    ("search", {"index": "films", "query": "x"}, "Unknown field `query`"),
    ("search", {"index": 7}, "Invalid value type at `.index`: expected a string"),
    ("get_documents", {"index": "films"}, "Missing field `ids`"), ("get_documents", {"index": "films", "ids": ["a b"]}, "is invalid"),
    ("facet_values", {"index": "films", "field": "title"}, "`title` is not filterable. Available filterable attributes patterns are: `genres, "),
    ("facet_values", {"index": "films", "field": "title", "beginning": "a"}, "not facet-searchable. Available facet-searchable attributes patterns"),
    ("similar", {"index": "notes", "id": "n"}, "has no embedders; use search."),
    ("similar", {"index": "films", "id": 9}, "Document `9` not found."),
    ("similar", {"index": "films", "id": 1, "embedder": "f"}, "Cannot find embedder with name `f`."),
])
def test_errors_say_what_to_change(films: Assistant, tool: str, arguments: dict[str, Any], said: str) -> None:
    found = films.call(tool, **arguments)
    assert isinstance(found, str) and said in found


def test_null_is_as_absent(films: Assistant) -> None:
    assert films.call("search", index="films", filter=None, limit=None)["total"] == 3


def test_unknown_tools_are_errors_of_the_protocol(films: Assistant) -> None:
    for name in ("none", "add_documents", None, 7, []):
        found = films.ask("tools/call", name=name, arguments={})
        assert found["code"] == -32602 and "tools are list_indexes, search" in found["message"]
    assert films.ask("tools/call", name="search", arguments=[])["code"] == -32602
    assert films.ask("tools/call", name="list_indexes", arguments=None)["structuredContent"]["indexes"]


def test_a_key_sees_its_indexes_alone(films: Assistant) -> None:
    films.bearer = value_of(SEARCHES)
    assert [each["index"] for each in films.call("list_indexes")["indexes"]] == ["films"]
    assert films.call("search", question="thief")["passages"][0]["id"] == 2  # the only index needs no name
    assert films.call("search", index="notes") == "Index `notes` not found; indexes are: films."
    assert films.ask("resources/read", uri="svcd://notes/n")["code"] == -32002


def test_the_filter_of_a_token_holds(films: Assistant) -> None:
    films.bearer = token({"films": {"filter": "owner = a"}}, BOTH)
    (described,) = films.call("list_indexes")["indexes"]
    assert described["documents"] == 2 and described["filterable"]["owner"] == ["a"] and "1995" not in described["filterable"]["year"]
    assert sorted(each["id"] for each in films.call("search")["passages"]) == [1, 3]
    assert films.call("get_documents", ids=[1, 2])["missing"] == ["2"]
    assert {each["value"] for each in films.call("facet_values", field="genres")["values"]} == {"Horror", "Crime", "Thriller"}
    assert [each["id"] for each in films.call("similar", id=1)["passages"]] == [3] and films.call("similar", id=2) == "Document `2` not found."
    assert films.ask("resources/read", uri="svcd://films/2")["code"] == -32002


def test_an_index_that_cannot_be_described_does_not_hide_the_others(films: Assistant) -> None:
    films.bearer = token({"films": {"filter": "title = a"}, "notes": None}, BOTH)
    first, second = films.call("list_indexes")["indexes"]
    assert first["index"] == "films" and "`title` is not filterable" in first["error"] and second["documents"] >= 1
    assert "`title` is not filterable" in films.call("get_documents", index="films", ids=[1])


def test_writing_needs_option_and_permission(films: Assistant) -> None:
    films.client.app.services.mcp_writes = True
    films.bearer = value_of(WRITES)
    assert films.call("add_documents", documents=[{"id": "m", "text": "kept"}])["status"] == "enqueued"
    while films.runner.step():
        pass
    assert films.call("get_documents", ids=["m"])["documents"][0]["document"] == {"id": "m", "text": "kept"}
    assert films.call("add_documents", index="films", documents=[{"id": 9}]) == "Index `films` not found; indexes are: notes."
    films.bearer = MASTER_KEY
    assert films.call("add_documents", index="notes", documents=[{"id": "m", "more": 1}], merge=True)["status"] == "enqueued"
    while films.runner.step():
        pass
    assert films.call("get_documents", index="notes", ids=["m"])["documents"][0]["document"] == {"id": "m", "text": "kept", "more": 1}
    assert films.call("delete_documents", index="notes", ids=["m"])["status"] == "enqueued"
    while films.runner.step():
        pass
    assert films.call("get_documents", index="notes", ids=["m"])["missing"] == ["m"]


def test_resources_are_indexes_and_documents(films: Assistant) -> None:
    assert [each["uri"] for each in films.ask("resources/list")["resources"]] == ["svcd://films", "svcd://notes"]
    assert films.ask("resources/list", cursor="1")["resources"][0]["uri"] == "svcd://notes"
    assert films.ask("resources/list", cursor="x")["code"] == -32602
    assert films.ask("resources/templates/list")["resourceTemplates"][0]["uriTemplate"] == "svcd://{index}/{document}"
    (content,) = films.ask("resources/read", uri="svcd://films/2", is_stateless=True)["contents"]
    assert json.loads(content["text"]) == {name: value for name, value in FILMS[1].items() if name != "owner"}
    assert json.loads(films.ask("resources/read", uri="svcd://notes")["contents"][0]["text"])["index"] == "notes"
    for uri in ("svcd://films/9", "svcd://none", "test://x", None):
        found = films.ask("resources/read", uri=uri, is_stateless=True)
        assert found["code"] == -32602 and found["data"] == {"uri": uri}


def test_the_prompt_describes_the_indexes(films: Assistant) -> None:
    (prompt,) = films.ask("prompts/list")["prompts"]
    text = films.ask("prompts/get", name=prompt["name"], arguments={"question": "who?"})["messages"][0]["content"]["text"]
    assert '"genres"' in text and text.endswith("Find out: who?")
    assert films.ask("prompts/get", name="none")["code"] == -32602


def test_calls_of_a_minute_are_limited(films: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(films.client.app.services.mcp_calls, "most", 0)
    assert films.call("list_indexes").startswith("All 0 calls of this minute are used; call again in ")
    assert "call again in" in films.ask("resources/read", uri="svcd://films/1")["message"]


@pytest.mark.parametrize(("origin", "status"), [
    ("http://localhost:6274", 200), ("http://127.0.0.1", 200), ("http://[::1]:80", 200), ("http://evil.example", 403), ("null", 403),
    ("http://localhost.evil.example", 403), ("", 403), ("http://[", 403), ("https://evil.example:localhost", 403)])
def test_pages_of_other_hosts_are_refused(films: Assistant, origin: str, status: int) -> None:
    got = films.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, origin=origin)
    assert got.status == status and (status == 200) == ("result" in got.value)


def hostile() -> Iterator[tuple[bytes, dict[str, str]]]:
    """200 requests that are not as the protocol wants them."""
    chance = random.Random(32)
    whole = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {}, "_meta": META}}
    right = protocol.headers_of(whole)
    for junk in (b"", b"{", b"[", b"nul", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b'"' + b"x" * (5 << 20) + b'"', b"1" * 10_000,
                 b"[" + b"1," * 300_000 + b"1]"):
        yield junk, {}
        yield junk, right
    values: list[Any] = [None, True, -1, 1e308, 10 ** 400, "", "x" * 100_000, "\x00", "\ud800", [], [[]], {}, {"_meta": META}, [whole, whole]]
    for number in range(180):
        broken = json.loads(json.dumps(whole))
        target = chance.choice((broken, broken["params"], broken["params"]["_meta"]))
        name = chance.choice([name for name in target if name != "arguments"])
        if number % 3:
            target[name] = chance.choice([value for value in values if not (name == "id" and value in (-1, "", "\x00"))])
        else:
            del target[name]
        if "id" not in broken:
            broken["id"] = None
        yield json.dumps(broken).encode(), right


def test_hostile_requests_get_the_error_of_the_protocol(films: Assistant) -> None:
    asked = 0
    for content, headers in hostile():
        got = films.send(content, **headers)
        asked += 1
        assert got.status in (400, 404, 413), (content[:200], got.text[:300])
        assert got.value["jsonrpc"] == "2.0" and got.value["error"]["code"] < -32000 and got.value["error"]["message"]
    assert asked == 200


def test_other_methods_are_not_allowed(films: Assistant) -> None:
    for method in ("GET", "DELETE", "PUT"):
        assert films.client.send(method, "/mcp", headers={"authorization": f"Bearer {MASTER_KEY}"}).status == 405


def test_a_wrong_type_is_refused(films: Assistant) -> None:
    got = films.client.send("POST", "/mcp", b"{}", {"authorization": f"Bearer {MASTER_KEY}", "content-type": "text/plain"})
    assert got.status == 415 and got.value["error"]["code"] == -32600


def test_a_key_is_needed(films: Assistant) -> None:
    films.bearer = "wrong"
    assert films.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}).fault[:2] == (403, "invalid_api_key")
    films.bearer = value_of(uid(9))
    assert films.send({}).status == 403


def test_settings_for_chats_hold(films: Assistant) -> None:
    for feature in ({"chatCompletions": True}, {"chatCompletions": False}):
        films.client.ask(MASTER_KEY, "PATCH", "/experimental-features", feature)
        settings = {"description": "Films", "searchParameters": {"attributesToSearchOn": ["title"]}} if feature["chatCompletions"] else None
        films.client.ask(MASTER_KEY, "PATCH", "/indexes/films/settings/chat", settings or {"description": None, "searchParameters": None})
        while films.runner.step():
            pass
        if settings:
            assert films.call("list_indexes", index="films")["indexes"][0]["description"] == "Films"
            assert films.call("search", index="films", question="thief")["total"] == 0


def test_an_embedder_is_used(films: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    ask: Callable[..., Any] = mcp_tools.Tools._ask

    def noted(tools: Any, route: Any, index_uid: str, body: Any, wait_s: float = 0.0) -> Any:
        sent.append(body)
        return ask(tools, route, index_uid, body, wait_s)

    monkeypatch.setattr(mcp_tools.Tools, "_ask", noted)
    monkeypatch.setattr(mcp_tools, "_USER_PROVIDED", "")
    for question in ("thief", " "):
        films.call("search", index="films", question=question)
    assert sent[0]["hybrid"] == {"embedder": "e", "semanticRatio": 0.5, "fusion": "score"} and "hybrid" not in sent[1]


def test_nothing_is_loaded_before_the_first_message() -> None:
    code = "import sys, svcd.cli.wiring, svcd.api.all_routes; print(sorted(name for name in sys.modules if name.startswith('svcd.') and 'mcp' in name))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "['svcd.api.mcp']"  # the route
