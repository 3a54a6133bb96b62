"""What must hold of requests that try to reach more than their bearer may, on every route of the table.

1. Nothing of an index that is not the bearer's shows in any answer, whatever the request names: in its path, query string, body, by
   a foreign key, a join, a federation, a template, a task.
2. Nothing of documents that the filter of a tenant token hides shows either.
3. Nothing of such an index changes, when what the bearer enqueued has run.
4. Other instances and language models are asked for no more than the bearer may search, with the filter of the token, and never with
   its key. A model gets no document that the bearer may not search.

A route without requests in REQUESTS fails the first test. Who may use a route at all is in tests/api/test_who_may_do_what.py.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from svcd.api import mcp_tools, streaming
from svcd.api.answers import uuid7
from svcd.api.all_routes import ROUTES
from svcd.api.openapi import operation_id
from svcd.api.routes import Route
from svcd.auth.keys import ACTIONS
from svcd.http.message import Portions
from svcd.instance.instance import Instance
from svcd.instance.rows import KeyRow
from svcd.mcp.tools import TOOLS
from svcd.querylog.recorder import Recorder, Search
from svcd.querylog.store import FILE, QueryLog
from svcd.tasks.runner import Runner
from svcd.validation.names import FEATURES
from tests.api.conftest import JSON_TYPE, Client, Got, client_of
from tests.faults.conftest import IS_LONG
from tests.support.bearers import MASTER_KEY, NOW, Clock, token, uid, value_of
from tests.support.chat_source import SEARCH, Source, c, f, t
from tests.support.scripted_server import Reply, ScriptedServer
from tests.support.tasks_in_process import LocalWriter

pytestmark = pytest.mark.slow

# Words that stand nowhere but in what is to be hidden: in the other index, in documents of another owner, in the bearers' own.
HUSH, VEILED, PLAIN = "hushword", "veiledword", "plainword"
OWN = [{"id": 1, "title": PLAIN, "owner": "a", "friend": "s1"}, {"id": 2, "title": VEILED, "owner": VEILED, "friend": "s1"}]
OTHER = [{"id": "s1", "title": HUSH, "owner": HUSH, HUSH: HUSH}, {"id": "s2", "title": HUSH, "owner": "a", "friend": 1}]
OWN_SETTINGS = {"filterableAttributes": ["owner", "friend", "title", "id"], "sortableAttributes": ["title"],
                "foreignKeys": [{"foreignIndexUid": "other", "fieldName": "friend"}],
                "embedders": {"e": {"source": "userProvided", "dimensions": 1}}, "chat": {"description": "of the bearer"}}
OTHER_SETTINGS = {"filterableAttributes": ["owner", "friend", "title", HUSH], "synonyms": {HUSH: [HUSH]}, "stopWords": [f"{HUSH}s"],
                  "chat": {"description": HUSH, "documentTemplate": f"{HUSH} {{{{ doc.title }}}}"},
                  "embedders": {"e": {"source": "userProvided", "dimensions": 1}}}
FILTER = "owner = a"


# -- What is asked, by the operation of a route. Bodies and query strings that name the other index, and those that do not.

INDEXES = ("own", "other", "*", "o*")
QUERIES = [{"indexUid": index_uid, **members} for index_uid in ("own", "other") for members in (
    {}, {"facets": ["*"], "showRankingScoreDetails": True, "attributesToHighlight": ["*"], "q": "h"},
    {"filter": "_foreign(friend, owner EXISTS)"}, {"useNetwork": True}, {"filter": "owner EXISTS OR owner NOT EXISTS", "retrieveVectors": True},
    {"filter": ["owner = a) OR (owner EXISTS"]}, {"distinct": "owner"}, {"sort": ["title:asc"], "q": "v", "matchingStrategy": "all"})]
SEARCHES = [{name: value for name, value in query.items() if name != "indexUid"} for query in QUERIES]
FEDERATIONS = [{"queries": [{name: value for name, value in query.items() if name != "facets"} for query in queries], "federation": federation}
               for queries in ([QUERIES[0]], [QUERIES[8]], [QUERIES[0], QUERIES[8]], [QUERIES[0], QUERIES[11]])
               for federation in ({}, {"facetsByIndex": {"other": ["owner"]}}, {"facetsByIndex": {"own": ["owner"]}, "mergeFacets": {}})]
FETCHES: list[Any] = [{}, {"filter": "owner EXISTS", "fields": ["*"], "sort": ["title:desc"]}, {"filter": "_foreign(friend, owner EXISTS)"},
                      {"ids": ["1", "2", "s1"], "retrieveVectors": True}, {"useNetwork": True}]
FACETS = [{"facetName": name, **members} for name in ("owner", "title", "friend", HUSH[:4]) for members in (
    {}, {"facetQuery": "h"}, {"facetQuery": "v"}, {"filter": "owner EXISTS OR owner NOT EXISTS"}, {"useNetwork": True})]
SIMILAR = [{"id": each, "embedder": "e", "filter": condition} for each in (1, 2, "s1") for condition in (None, "owner EXISTS")]
EXPLAINED = [{"documentId": each, "q": q, "filter": condition, "attributesToSearchOn": fields} for each in ("1", "2", "s1")
             for q in (HUSH[:4], VEILED[:5] + "x zz", PLAIN, None) for condition, fields in (
                 (None, None), ("owner = x", None), (None, ["owner"]), ("_foreign(friend, owner EXISTS)", None))]
SWAPS = [[{"indexes": list(pair), "rename": rename}] for pair in (("own", "other"), ("other", "new")) for rename in (False, True)]
TEMPLATES = [{"template": {"kind": kind, "indexUid": index_uid, **more}, "input": given} for index_uid in ("own", "other")
             for kind, more in (("chatDocumentTemplate", {}), ("documentTemplate", {"embedder": "e"}), ("inlineDocumentTemplate", {"inline": "{{ doc.title }}"}))
             for given in (None, {"kind": "indexDocument", "indexUid": "other", "id": "s1"}, {"kind": "indexDocument", "indexUid": "own", "id": "1"})]
TASK_FILTERS = ("", "?limit=1000", "?indexUids=other", "?indexUids=other,own,*", "?uids=0,1,2,3,4,5,6,7,8,9", "?statuses=succeeded,failed&reverse=true",
                "?types=indexSwap,settingsUpdate,documentAdditionOrUpdate", "?from=9", "?canceledBy=0", "?batchUids=0,1,2,3,4,5")
CHAT = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": {}}}
                  for name in ("_meiliSearchProgress", "_meiliSearchSources", "_meiliAppendConversationMessage")]}
DOCUMENTS = [[{"id": 3, "title": PLAIN, "owner": "a", "friend": "s1"}], [{"id": "s1", "title": "overwritten"}]]
CALLS: list[tuple[str, dict[str, Any]]] = [("list_indexes", {}), *((name, {"index": index_uid, **arguments}) for index_uid in ("own", "other") for name, arguments in (
    ("list_indexes", {}), ("search", {"facets": ["*"]}), ("search", {"question": "h", "fields": ["*"]}), ("search", {"filter": "_foreign(friend, owner EXISTS)"}),
    ("search", {"filter": "owner EXISTS OR owner NOT EXISTS"}), ("search", {"filter": "owner = a) OR (owner EXISTS", "question": "v"}),
    ("get_documents", {"ids": [1, 2, "s1"]}), ("get_documents", {"ids": ["s1"], "fields": ["*"]}),
    *(("facet_values", {"field": field, "beginning": part}) for field in ("owner", "title", HUSH[:4]) for part in (None, "h", "v")),
    ("facet_values", {"field": "owner", "filter": "owner EXISTS", "question": "v"}),
    *(("similar", {"id": each, "filter": "owner EXISTS"}) for each in (1, 2, "s1")),
    ("add_documents", {"documents": [{"id": 3, "title": PLAIN, "owner": "a"}]}), ("add_documents", {"documents": [{"id": "s1", "title": "overwritten"}]}),
    ("add_documents", {"documents": [{"id": "s1", "title": "merged"}], "merge": True}), ("delete_documents", {"ids": ["s1", 1]})))]
MESSAGES = [{"jsonrpc": "2.0", "id": 1, "method": method, "params": params} for method, params in (
    ("tools/list", {}), ("resources/list", {}), ("prompts/get", {"name": "search"}),
    *(("resources/read", {"uri": f"svcd://{each}"}) for each in ("own", "other", "own/1", "own/2", "other/s1", "own/../other/s1", "other%2Fs1")),
    *(("tools/call", {"name": name, "arguments": arguments}) for name, arguments in CALLS))]
KEY_BODY = {"actions": ["*"], "indexes": ["*"], "expiresAt": None}
NO_BODY: list[Any] = [None]
WRITES = ("", "?dryRun=true")
LOGGED = uuid7()  # the request uid of a search on the other index

REQUESTS: dict[str, tuple[list[Any], tuple[str, ...]]] = {  # operation: (bodies, query strings)
    "post_indexes": ([{"uid": "new"}, {"uid": "other"}, {"uid": "own"}], WRITES),
    "patch_indexes_index_uid": ([{"primaryKey": "title"}, {"primaryKey": None}], WRITES),
    "get_indexes": (NO_BODY, ("", "?limit=100", "?offset=1")),
    "post_indexes_index_uid_fields": ([{}, {"limit": 100}, {"filter": {"attributePatterns": ["*"]}}], ("",)),
    "post_swap_indexes": (SWAPS, WRITES),
    "get_indexes_index_uid_documents": (NO_BODY, ("", "?limit=100&fields=*", "?filter=_foreign(friend,%20owner%20EXISTS)", "?ids=s1,1,2")),
    "post_indexes_index_uid_documents": (DOCUMENTS, (*WRITES, "?primaryKey=id")),
    "put_indexes_index_uid_documents": (DOCUMENTS, WRITES),
    "post_indexes_index_uid_documents_fetch": (FETCHES, ("",)),
    "post_indexes_index_uid_documents_delete_batch": ([["s1"], [1]], WRITES),
    "post_indexes_index_uid_documents_delete": ([{"filter": "owner EXISTS"}, {"filter": "_foreign(friend, owner EXISTS)"}], WRITES),
    "post_indexes_index_uid_documents_edit": ([{"function": "doc.seen = doc.friend", "filter": None}, {"function": "doc.x = context", "context": {"a": 1}}],
                                              WRITES),
    "get_indexes_index_uid_changes": (NO_BODY, ("", "?documents=true&retrieveVectors=true")),
    "get_indexes_index_uid_documents_document_id": (NO_BODY, ("", "?fields=*&retrieveVectors=true")),
    "post_indexes_index_uid_search": (SEARCHES, ("",)),
    "get_indexes_index_uid_search": (NO_BODY, ("", "?q=h&facets=*", "?filter=owner%20EXISTS", "?filter=_foreign(friend,%20owner%20EXISTS)")),
    "post_multi_search": ([{"queries": [query]} for query in QUERIES] + [{"queries": QUERIES}] + FEDERATIONS, ("",)),
    "post_indexes_index_uid_facet_search": (FACETS, ("",)),
    "get_indexes_index_uid_similar": (NO_BODY, ("?id=1&embedder=e", "?id=s1&embedder=e", "?id=2&embedder=e&filter=owner%20EXISTS")),
    "post_indexes_index_uid_similar": (SIMILAR, ("",)),
    "post_indexes_index_uid_explain": (EXPLAINED, ("",)),
    "patch_indexes_index_uid_settings": ([{"synonyms": {"a": ["b"]}}, {"foreignKeys": [{"foreignIndexUid": "other", "fieldName": "friend"}]}], WRITES),
    "get_tasks": (NO_BODY, TASK_FILTERS), "get_batches": (NO_BODY, TASK_FILTERS),
    "get_tasks_stream": (NO_BODY, ("", "?indexUids=other")), "get_batches_stream": (NO_BODY, ("", "?indexUids=other")),
    "post_tasks_cancel": (NO_BODY, ("?indexUids=other", "?statuses=enqueued")),
    "delete_tasks": (NO_BODY, ("?indexUids=other", "?statuses=succeeded,failed")),
    "post_logs_stream": ([{"target": "trace"}], ("",)), "post_logs_stderr": ([{"target": "trace"}], ("",)),
    "patch_experimental_features": ([{"metrics": False}], ("",)),
    "patch_network": ([{"remotes": {"r": {"url": "http://127.0.0.1:1", "searchApiKey": "x"}}}], ("",)),
    "post_network_control": ([{"origin": {}, "message": {}}], ("",)),
    "patch_chats_workspace_uid_settings": ([{"baseUrl": "http://127.0.0.1:1"}], ("",)),
    "post_chats_workspace_uid_chat_completions": ([CHAT], ("",)),
    "get_chats": (NO_BODY, ("",)),
    "get_stats": (NO_BODY, ("", "?showInternalDatabaseSizes=true")), "get_indexes_index_uid_stats": (NO_BODY, ("", "?showInternalDatabaseSizes=true")),
    "get_webhooks_uuid_failures": (NO_BODY, ("",)),
    "get_keys": (NO_BODY, ("", "?limit=100")), "post_keys": ([KEY_BODY], ("",)), "patch_keys_key": ([{"name": "mine"}], ("",)),
    "post_webhooks": ([{"url": "http://127.0.0.1:1"}], ("",)), "patch_webhooks_uuid": ([{"url": "http://127.0.0.1:1"}], ("",)),
    "post_export": ([{"url": "http://127.0.0.1:1"}, {"url": "http://127.0.0.1:1", "indexes": {"own": {}}}], ("",)),
    "post_render_template": (TEMPLATES, ("",)),
    "post_indexes_index_uid_events": ([{"requestUid": LOGGED, "documentId": "s1", "position": 1}], ("",)),
    "get_analytics_searches": (NO_BODY, ("", "?indexUid=other", "?indexUid=own&limit=1000")),
    "post_dynamic_search_rules": ([{}, {"filter": {}}], ("",)),
    "patch_dynamic_search_rules_uid": ([{"active": False}], ("",)),
    "post_mcp": (MESSAGES, ("",)),
}


def is_of_one_setting(row: Route) -> bool:
    """A route of one setting; all of them are asked the same."""
    return row.path.startswith("/indexes/{index_uid}/settings/")


def needs_requests(row: Route) -> bool:
    """It takes a body, or shows what its query string asks for."""
    return bool(row.body or row.query and row.method == "GET") and not is_of_one_setting(row)


def test_every_route_is_tried() -> None:
    """A new route that takes a body or a query string needs a row in REQUESTS, a new parameter of paths one in PARAMETERS."""
    assert {operation_id(row) for row in ROUTES if needs_requests(row)} <= REQUESTS.keys()
    assert REQUESTS.keys() <= {operation_id(row) for row in ROUTES}
    assert {name for row in ROUTES for name in row.parameters} == PARAMETERS.keys()


def test_every_tool_is_tried() -> None:
    """A new tool needs a row in CALLS."""
    assert {name for name, _ in CALLS} == TOOLS.keys()


PARAMETERS = {
    "index_uid": INDEXES, "document_id": ("1", "2", "s1"), "task_id": tuple(map(str, range(10))), "batch_id": tuple(map(str, range(10))),
    "workspace_uid": ("w",), "key": (uid(1), value_of(uid(1))), "uuid": (uid(1),), "uid": ("rule",),
    "node": ("a",),
}


# -- Who asks


@dataclass(frozen=True)
class Bearer:
    """What is sent, and the words that no answer to it may have. filter: of its token."""

    value: str | None
    hidden: tuple[str, ...] = (HUSH,)
    filter: str | None = None


ALL, OF_OWN, OF_PREFIX, READS, SEARCHES_OWN, LISTED, EXPIRED, WRITES_OWN = (uid(number) for number in range(1, 9))
KEYS = (
    KeyRow(ALL, ["*"], ["*"], 1, 1), KeyRow(OF_OWN, ["*"], ["own"], 1, 1), KeyRow(OF_PREFIX, ["*"], ["ow*"], 1, 1),
    KeyRow(READS, ["*.get"], ["own"], 1, 1), KeyRow(SEARCHES_OWN, ["search", "chatCompletions"], ["own"], 1, 1),
    KeyRow(LISTED, [action for action in ACTIONS if action != "*"], ["own", "none"], 1, 1), KeyRow(EXPIRED, ["*"], ["*"], 1, 1, expires_at=NOW),
    KeyRow(WRITES_OWN, ["documents.add"], ["own"], 1, 1),
)
NOTHING, FILTERED = (HUSH, VEILED, PLAIN), (HUSH, VEILED)
BEARERS = {
    "a key of the index": Bearer(value_of(OF_OWN)), "a key that only writes": Bearer(value_of(WRITES_OWN), NOTHING),
    "a token for all of its key": Bearer(token(["*"], SEARCHES_OWN)),
    "a token with a filter": Bearer(token({"own": {"filter": FILTER}}, ALL), FILTERED, FILTER),
}
BEARERS |= {  # tried in the long form alone
    "nobody": Bearer(None, NOTHING), "a wrong key": Bearer("wrong", NOTHING), "a uid": Bearer(ALL, NOTHING),
    "an expired key": Bearer(value_of(EXPIRED), NOTHING), "a token of an expired key": Bearer(token(["*"], EXPIRED), NOTHING),
    "a key of a prefix": Bearer(value_of(OF_PREFIX)), "a key that reads": Bearer(value_of(READS)),
    "a key that searches": Bearer(value_of(SEARCHES_OWN)), "a key of all actions, one by one": Bearer(value_of(LISTED)),
    "a token of the index": Bearer(token(["own"], ALL)), "a token for both": Bearer(token(["o*"], OF_OWN)),
    "a token with a filter for everything": Bearer(token({"*": {"filter": [FILTER]}}, OF_OWN), FILTERED, FILTER),
    "a token with a filter of its index alone": Bearer(token({"own": {"filter": FILTER}, "*": None}, OF_PREFIX), FILTERED, FILTER),
} if IS_LONG else {}


class World:
    """An instance with an index that bearers may see and one that they may not, a remote and a language model."""

    def __init__(self, instance: Instance, remote: ScriptedServer, model: Source) -> None:
        self.instance, self.remote, self.model = instance, remote, model
        for feature in FEATURES:
            instance.force_feature(feature)
        for key in KEYS:
            instance.keys.add(key)
        self.client: Client = client_of(instance, MASTER_KEY, Clock(NOW), instance.keys)
        self.query_log = QueryLog(instance.path / FILE, 100 << 20, 10_000)
        self.client.app.services.query_log = Recorder(self.query_log.write)
        self.query_log.write([Search(LOGGED if number else uuid7(), "other", f"{HUSH} {'x' * number}", number, 1, ALL, str(client))
                              for client in range(3) for number in (0, 1)])
        self.client.app.services.mcp_writes, self.client.app.services.mcp_calls_per_minute = True, 1_000_000
        self.client.app.services.keeps_changes = True
        self._runner = Runner(instance, make_writer=lambda _: LocalWriter(), changes_keep_s=3600)
        self.master("PATCH", "/network", {"self": "a", "remotes": {"a": {"url": "http://here"}, "b": {
            "url": remote.url, "searchApiKey": "key of the remote"}}})
        self.master("PATCH", "/chats/w/settings", {"source": "openAi", "baseUrl": model.url, "apiKey": "key of the model"})
        self.master("PATCH", "/dynamic-search-rules/rule", {"actions": [
            {"selector": {"indexUid": "other", "id": "s1"}, "action": {"type": "pin", "position": 0}}]})
        self.master("PATCH", "/indexes/other/settings", OTHER_SETTINGS)
        self.master("POST", "/indexes/other/documents", [{**each, "_vectors": {"e": [1.0]}} for each in OTHER])
        self.work()
        self.master("POST", "/indexes/other/documents", [{"title": f"{HUSH} without an id"}])  # fails, with the document in its error
        self.fill()
        self.before = self.state()

    def master(self, method: str, url: str, value: Any = None) -> Got:
        got = self.client.ask(MASTER_KEY, method, url, value)
        assert got.status < 300, (method, url, got.text)
        return got

    def fill(self) -> None:
        """The bearers' index is as at first."""
        self.work()
        self.master("DELETE", "/indexes/own")
        self.master("PATCH", "/indexes/own/settings", OWN_SETTINGS)
        self.master("POST", "/indexes/own/documents", [{**each, "_vectors": {"e": [1.0]}} for each in OWN])
        self.work()
        self.remote.requests.clear()
        self.model.requests.clear()

    def work(self) -> None:
        while self._runner.step():
            pass

    def state(self) -> Any:
        """All that must not change: the other index, keys, the network, rules, features, workspaces."""
        paths = ("/indexes/other/documents?limit=100&retrieveVectors=true", "/indexes/other/settings", "/keys", "/network", "/experimental-features",
                 "/dynamic-search-rules/rule", "/chats/w/settings", "/webhooks", "/indexes/other")
        counted = self.master("GET", "/analytics/searches?indexUid=other").value
        return [self.master("GET", path).value for path in paths], counted["byIndex"].get("other"), self.master("GET", "/tasks?indexUids=other&limit=1000").value["results"]

    def answer(self, row: Route, url: str, body: Any, headers: Mapping[str, str]) -> str:
        """The body of the answer; of a stream what has happened before."""
        content = b"" if body is None else json.dumps(body).encode()
        sent = {**headers, **({} if body is None else JSON_TYPE), "last-event-id": "0"}
        answer = self.client.answer(row.method, url, content, sent)
        assert answer.status < 500 or answer.status in (502, 503), (url, body, answer.body)
        if isinstance(answer.body, bytes):
            return answer.body.decode()
        pieces = iter(answer.body)
        is_endless = row.path.endswith("/stream")
        text = b"".join(next(pieces) for _ in range(8)) if is_endless else b"".join(pieces)
        answer.body.close()  # type: ignore[union-attr]
        assert isinstance(answer.body, (Portions, streaming.StreamBody))
        return text.decode()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """See World. The remote finds nothing; the model always searches the other index, then the bearers', then greets."""
    heartbeat, streaming.HEARTBEAT_S = streaming.HEARTBEAT_S, 0.0
    wait, mcp_tools._WAIT_S = mcp_tools._WAIT_S, 0.0
    found = {"hits": [], "processingTimeMs": 1, "limit": 20, "offset": 0, "estimatedTotalHits": 0, "results": [], "total": 0, "facetHits": []}
    remote, model = ScriptedServer(Reply(found)), Source()
    calls = [[t(0, "c1", SEARCH, json.dumps({"index_uid": index_uid, "q": "", "filter": condition})), f("tool_calls"), "[DONE]"]
             for index_uid, condition in (("other", ""), ("own", ""), ("own", "_foreign(friend, owner EXISTS)"), ("own", "owner EXISTS"))]
    model.script = [*calls, [c(role="assistant", content="Hi"), f("stop"), "[DONE]"]]
    instance = Instance(tmp_path_factory.mktemp("who") / "data")
    try:
        made = World(instance, remote, model)
        yield made
        made.client.app.services.query_log.stop()
        made.query_log.close()
    finally:
        streaming.HEARTBEAT_S, mcp_tools._WAIT_S = heartbeat, wait
        instance.close()
        remote.close()
        model.close()


def urls_of(row: Route) -> Iterator[tuple[str, Any]]:
    """Paths with query strings, and bodies, to send to a route."""
    bodies, queries = REQUESTS.get(operation_id(row), (NO_BODY, ("",)))
    for values in product(*(PARAMETERS[name] for name in row.parameters)):
        path = row.path
        for name, value in zip(row.parameters, values):
            path = path.replace(f"{{{name}}}", value)
        for query, body in product(queries, bodies):
            yield path + query, body


@pytest.mark.parametrize("name", BEARERS)
def test_nobody_reaches_more_than_is_his(name: str, world: World, figure: Callable[..., None]) -> None:
    bearer, leaks, asked = BEARERS[name], [], 0
    authorization = {} if bearer.value is None else {"authorization": f"Bearer {bearer.value}"}
    for row in ROUTES:
        for url, body in urls_of(row):
            for headers in ({}, {"svc-proxy-search": "true", "meili-proxy-search": "true"}):
                if headers and "search" not in row.actions and "documents.get" not in row.actions:
                    continue
                world.model.requests.clear()
                text = world.answer(row, url, body, {**authorization, **headers})
                asked += 1
                leaks += [(row.method, url, body, word, text[:300]) for word in bearer.hidden if word in text]
                leaks += [(row.method, url, body, word, "to a model") for word in bearer.hidden if word in json.dumps(world.model.bodies)]
    leaks += asked_of_remotes(world, bearer)
    world.work()
    is_changed = world.state() != world.before
    world.fill()
    figure(f"every route with the bearer “{name}”: leaks", len(leaks), limit=f"none in {asked} requests")
    assert leaks == []
    assert not is_changed


def asked_of_remotes(world: World, bearer: Bearer) -> list[Any]:
    """What remotes were asked that the bearer may not search, or with what is his."""
    wrong: list[Any] = []
    for received in world.remote.requests:
        text = received.content.decode()
        if bearer.value and bearer.value in text + json.dumps(received.headers):
            wrong.append(("the key of the bearer", received))
        if '"other"' in text or "/other/" in received.path:
            wrong.append(("another index", received))
        if bearer.filter and bearer.filter.split(" = ")[0] not in text:
            wrong.append(("without the filter", received))
    return wrong


def test_who_may_see_all_of_it_does(world: World) -> None:
    """Else the words that are looked for say nothing. Routes that change something are not tried."""
    shown: dict[str, set[str]] = {HUSH: set(), VEILED: set(), PLAIN: set()}
    world.client.app.services.mcp_writes = False
    for row in ROUTES:
        if {"search", "documents.get", "settings.get", "tasks.get", "stats.get"}.issuperset(row.actions):
            for url, body in urls_of(row):
                text = world.answer(row, url, body, {"authorization": f"Bearer {value_of(ALL)}"})
                for word in shown:
                    shown[word] |= {operation_id(row)} if word in text else set()
    assert len(shown[HUSH]) >= 15 and len(shown[VEILED]) >= 8 and len(shown[PLAIN]) >= 8, shown
    assert {"get_tasks", "get_tasks_stream", "post_multi_search", "post_render_template", "post_mcp"} <= shown[HUSH]
    assert "post_mcp" in shown[VEILED] & shown[PLAIN]


def test_remotes_and_models_are_asked(world: World) -> None:
    """Else what is checked of them says nothing."""
    bearer = {"authorization": f"Bearer {BEARERS['a token with a filter'].value}", **JSON_TYPE}
    world.fill()
    body = json.dumps({"useNetwork": True}).encode()
    assert world.client.send("POST", "/indexes/own/search", body, bearer).status == 200
    assert len(world.remote.requests) == 1 and not asked_of_remotes(world, BEARERS["a token with a filter"])
    answer = world.client.answer("POST", "/chats/w/chat/completions", json.dumps(CHAT).encode(), bearer)
    assert answer.status == 200 and PLAIN in b"".join(answer.body).decode()
    told = world.model.told()
    assert len(told) == 4 and HUSH not in "".join(told) and VEILED not in "".join(told) and PLAIN in "".join(told)
