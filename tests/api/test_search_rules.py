"""Search rules over HTTP. What must hold:

1. A rule is created and changed by PATCH: members replace those of before as a whole, null resets one, others stay.
2. Faults have the codes and words of the interface; a uid must be like that of an index.
3. Lists show the newest first, filtered by words and by `active`; their total is that of all that match.
4. The index of the rules is seen by no route of indexes, not even through foreign keys.
5. Rules pin documents in searches of every kind, merged ones too; totals and facets count them; pages joined are the whole list.
6. Facet searches and similar documents know no rules; nor does any search while the feature is off.
7. An answer that is kept is not given once a rule has changed, or has come into force.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.api import search_services
from svcd.api.search_services import ActiveRules
from svcd.base import quantities
from svcd.instance.data_folder import DataFolderReader

RULES = "/dynamic-search-rules"
FILMS = [
    {"id": 1, "title": "Batman Returns", "kind": "keep", "colour": "red", "_vectors": {"e": [1.0, 0.0]}},
    {"id": 2, "title": "Batman Forever", "kind": "keep", "colour": "red", "_vectors": {"e": [0.9, 0.1]}},
    {"id": 3, "title": "The Matrix", "kind": "keep", "colour": "blue", "_vectors": {"e": [-1.0, 0.0]}},
    {"id": 4, "title": "Batman Begins", "kind": "drop", "colour": "green", "_vectors": {"e": [0.8, 0.2]}},
]
SETTINGS = {"filterableAttributes": ["kind", "colour"], "sortableAttributes": ["id"],
            "embedders": {"e": {"source": "userProvided", "dimensions": 2}}}


def pin(*places: tuple[int, int], **selector: str) -> list[dict[str, Any]]:
    """Actions: (id, position)."""
    return [{"selector": {**selector, "id": str(each)}, "action": {"type": "pin", "position": position}} for each, position in places]


@pytest.fixture(autouse=True)
def feature(client: Any) -> None:
    client.json("PATCH", "/experimental-features", {"dynamicSearchRules": True})


@pytest.fixture
def films(client: Any, work: Any) -> None:
    client.json("PATCH", "/indexes/films/settings", SETTINGS)
    client.json("POST", "/indexes/films/documents", FILMS)
    work()


@pytest.fixture
def put(client: Any, work: Any) -> Any:
    """put(uid, **members): change a rule, and wait."""
    def change(uid: str, **members: Any) -> None:
        answer = client.json("PATCH", f"{RULES}/{uid}", members)
        assert (answer.status, answer.value["type"], answer.value["indexUid"]) == (202, "dsrUpdate", ".svc_dsr")
        work()
        assert client.get(f"/tasks/{answer.value['taskUid']}").value["status"] == "succeeded"

    return change


def shown(client: Any, uid: str) -> dict[str, Any]:
    rule = client.get(f"{RULES}/{uid}").value
    rule.pop("lastUpdatedAt")
    return rule


def ids(answer: Any) -> list[int]:
    return [hit["id"] for hit in answer["hits"]]


def search(client: Any, **asked: Any) -> dict[str, Any]:
    return client.json("POST", "/indexes/films/search", asked).value


# Routes


def test_members_replace_those_of_before_and_null_resets(client: Any, put: Any) -> None:
    put("a")
    assert shown(client, "a") == {"uid": "a", "active": True, "conditions": {}, "actions": []}
    conditions = {"query": {"words": "x"}, "filter": {"values": {"k": [1, None, {"d": True}]}}}
    put("a", description="d", precedence=3, active=False, conditions=conditions, actions=pin((1, 0)))
    put("a", conditions={"time": {"start": "2026-01-02", "end": None, "other": 1}})
    assert shown(client, "a") == {"uid": "a", "description": "d", "precedence": 3, "active": False,
                                  "conditions": {"time": {"start": "2026-01-02T00:00:00Z"}}, "actions": pin((1, 0))}
    put("a", description=None, precedence=None, active=None, conditions=None, actions=None)
    assert shown(client, "a") == {"uid": "a", "active": True, "conditions": {}, "actions": []}


def test_the_values_of_a_filter_are_shown_as_they_were_given(client: Any, put: Any) -> None:
    put("a", conditions={"filter": {"values": {"k": [1, None, {"d": True}]}}})
    assert shown(client, "a")["conditions"] == {"filter": {"values": {"k": [1, None, {"d": True}]}}}
    put("a", conditions={"filter": {}})
    assert shown(client, "a")["conditions"] == {"filter": {"values": {}}}


@pytest.mark.parametrize("given, kept", [
    ("2026-01-02 03:04:05", "2026-01-02T03:04:05Z"), ("2026-01-02T03:04:05.120z", "2026-01-02T03:04:05.12Z"),
    ("2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05+02:00"), ("2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05Z"),
    ("2026-01-02T03:04:05.000+01:30", "2026-01-02T03:04:05+01:30"),
])
def test_times_keep_their_offset(client: Any, put: Any, given: str, kept: str) -> None:
    put("a", conditions={"time": {"start": given}})
    assert shown(client, "a")["conditions"]["time"]["start"] == kept


def test_details_show_the_rule_as_it_was_sent(client: Any, work: Any) -> None:
    sent = {"active": None, "description": "d", "conditions": {"query": {"isEmpty": True}}}
    answer = client.json("PATCH", f"{RULES}/a?customMetadata=why", sent).value
    client.send("DELETE", f"{RULES}/a?customMetadata=why")
    client.send("DELETE", f"{RULES}/unknown")
    work()
    client.json("PATCH", f"{RULES}/b", {})
    client.send("DELETE", RULES)
    client.send("DELETE", f"{RULES}")
    work()
    tasks = client.get("/tasks?reverse=true").value["results"]
    assert [task["status"] for task in tasks] == ["succeeded"] * 6 and answer["customMetadata"] == "why"
    assert [task["details"] for task in tasks] == [
        {"rule": sent, "updatedRules": 1}, {"updatedRules": 1}, {"updatedRules": 1}, {"rule": {}, "updatedRules": 1},
        {"deletedDocuments": 0}, {"deletedDocuments": 0}]
    batches = client.get("/batches?reverse=true").value["results"]
    assert [batch["stats"]["types"] for batch in batches] == [{"dsrUpdate": 3}, {"dsrUpdate": 1, "dsrClear": 2}]
    assert batches[0]["details"]["updatedRules"] == 3


def test_clearing_counts_the_rules(client: Any, put: Any, work: Any) -> None:
    put("a")
    put("b")
    uid = client.send("DELETE", RULES).value["taskUid"]
    work()
    assert client.get(f"/tasks/{uid}").value["details"] == {"deletedDocuments": 2}
    assert client.get(f"{RULES}/a").fault == (404, "dynamic_search_rule_not_found", "Dynamic search rule `a` not found.")


TYPED = "invalid_dynamic_search_rule_"
DATE = ("Invalid value at `.conditions.time.start`: `x` is not a valid date. It should follow the RFC 3339 format to represents a "
        "date or datetime in the future or specified as a null value. e.g. 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'.\n")


@pytest.mark.parametrize("body, code, message", [
    ({"conditions": {"query": {"isEmpty": True, "words": ""}}}, "bad_request",
     "Invalid value at `.conditions.query`: either `isEmpty` or `words` can be used, not both at once"),
    ({"conditions": {"time": {"start": "2025-01-02", "end": "2025-01-01"}}}, "bad_request",
     "Invalid value at `.conditions.time`: `end` (`2025-01-01 0:00:00.0 +00:00:00`) should be later than `start` "
     "(`2025-01-02 0:00:00.0 +00:00:00`)"),
    ({"conditions": {"time": {"start": "x"}}}, f"{TYPED}conditions", DATE),
    ({"conditions": {"query": {"word": "x"}}}, f"{TYPED}conditions",
     "Unknown field `word` inside `.conditions.query`: did you mean `words`? expected one of `isEmpty`, `words`"),
    ({"conditions": {"filter": {"values": []}}}, f"{TYPED}conditions",
     "Invalid value type at `.conditions.filter.values`: expected an object, but found an array: `[]`"),
    ({"conditions": 1}, f"{TYPED}conditions",
     "Invalid value type at `.conditions`: expected an object, but found a positive integer: `1`"),
    ({"precedence": -1}, f"{TYPED}priority",
     "Invalid value type at `.precedence`: expected a positive integer, but found a negative integer: `-1`"),
    ({"active": "no"}, f"{TYPED}active", 'Invalid value type at `.active`: expected a boolean, but found a string: `"no"`'),
    ({"description": 1}, f"{TYPED}description",
     "Invalid value type at `.description`: expected a string, but found a positive integer: `1`"),
    ({"actions": {}}, f"{TYPED}actions", "Invalid value type at `.actions`: expected an array, but found an object: `{}`"),
    ({"actions": [{}]}, f"{TYPED}actions", "Missing field `selector` inside `.actions[0]`"),
    ({"actions": [{"selector": {"id": "1"}}]}, f"{TYPED}actions", "Missing field `action` inside `.actions[0]`"),
    ({"actions": [{"selector": {}, "action": {"type": "pin", "position": 0}}]}, f"{TYPED}actions",
     "Missing field `id` inside `.actions[0].selector`"),
    ({"actions": [{"selector": {"id": "1"}, "action": {"position": 0}}]}, f"{TYPED}actions",
     "Missing field `type` inside `.actions[0].action`"),
    ({"actions": [{"selector": {"id": "1"}, "action": {"type": "pin"}}]}, f"{TYPED}actions",
     "Missing field `position` inside `.actions[0].action`"),
    ({"actions": [{"selector": {"id": "1"}, "action": {"type": "boost"}}]}, f"{TYPED}actions",
     "Invalid value at `.actions[0].action`: Incorrect tag value"),
    ({"actions": [{"selector": {"id": "1", "indexUid": "a b"}, "action": {"type": "pin", "position": 0}}]}, f"{TYPED}actions",
     "Invalid value at `.actions[0].selector.indexUid`: `a b` is not a valid index uid. Index uid can be an integer or a string "
     "containing only alphanumeric characters, hyphens (-) and underscores (_), and can not be more than 512 bytes."),
])
def test_faults_have_the_words_of_the_interface(client: Any, body: Any, code: str, message: str) -> None:
    assert client.json("PATCH", f"{RULES}/a", body).fault == (400, code, message)


@pytest.mark.parametrize("body, code, message", [
    ({"offset": -1}, f"{TYPED}offset",
     "Invalid value type at `.offset`: expected a positive integer, but found a negative integer: `-1`"),
    ({"limit": "1"}, f"{TYPED}limit", 'Invalid value type at `.limit`: expected a positive integer, but found a string: `"1"`'),
    ({"filter": []}, f"{TYPED}filter", "Invalid value type at `.filter`: expected an object, but found an array: `[]`"),
    ({"filter": {"quer": 1}}, f"{TYPED}filter",
     "Unknown field `quer` inside `.filter`: did you mean `query`? expected one of `query`, `active`"),
    ({"filter": {"query": 1}}, f"{TYPED}filter_query",
     "Invalid value type at `.filter.query`: expected a string, but found a positive integer: `1`"),
    ({"filter": {"active": 1}}, f"{TYPED}filter_active",
     "Invalid value type at `.filter.active`: expected a boolean, but found a positive integer: `1`"),
])
def test_faults_of_a_list(client: Any, body: Any, code: str, message: str) -> None:
    assert client.json("POST", RULES, body).fault == (400, code, message)


@pytest.mark.parametrize("method", ["GET", "PATCH", "DELETE"])
def test_a_uid_is_like_that_of_an_index(client: Any, method: str) -> None:
    answer = client.json(method, f"{RULES}/a%20b", {})
    assert answer.fault[:2] == (400, "invalid_index_uid")


def test_lists_show_the_newest_first(client: Any, put: Any) -> None:
    def listed(**asked: Any) -> tuple[list[str], int]:
        answer = client.json("POST", RULES, asked).value
        return [rule["uid"] for rule in answer["results"]], answer["total"]

    assert listed() == ([], 0)
    put("a", description="promo one", conditions={"query": {"words": "batman"}})
    put("b", description="promo two", active=False)
    put("c", description="other")
    put("a", precedence=1)
    assert listed() == (["a", "c", "b"], 3)
    assert listed(offset=1, limit=1) == (["c"], 3)
    assert listed(limit=0) == ([], 3)
    assert listed(limit=2**64 - 1) == (["a", "c", "b"], 3) and listed(offset=2**64 - 1, limit=2**64 - 1) == ([], 3)
    assert listed(filter={"query": "promo"}) == (["a", "b"], 2)
    assert listed(filter={"query": "prom"}) == ([], 0)
    assert listed(filter={"query": "promo -two"}) == (["a"], 1)
    assert listed(filter={"query": '"promo two"'}) == (["b"], 1)
    assert listed(filter={"query": "batman"}) == (["a"], 1)
    assert listed(filter={"active": False}) == (["b"], 1)
    assert listed(filter={"active": True, "query": "promo"}) == (["a"], 1)
    assert listed(filter={"active": None, "query": None}) == (["a", "c", "b"], 3)


def test_the_feature_is_asked_for_and_the_rules_stay(client: Any, put: Any, films: None) -> None:
    put("a", actions=pin((3, 0)))
    assert ids(search(client))[0] == 3
    client.json("PATCH", "/experimental-features", {"dynamicSearchRules": False})
    for method, url, words in (("POST", RULES, "Calling the `POST /dynamic-search-rules` route"),
                               ("GET", f"{RULES}/a", "Calling the `GET /dynamic-search-rules/{:ruleUid}` route"),
                               ("PATCH", f"{RULES}/a", "Using the `/dynamic-search-rules` routes"),
                               ("DELETE", RULES, "Using the `/dynamic-search-rules` routes")):
        status, code, message = client.json(method, url, {}).fault
        assert (status, code) == (400, "feature_not_enabled")
        assert message.startswith(f"{words} requires enabling the `dynamic search rules` experimental feature.")
    assert ids(search(client))[0] == 1
    client.json("PATCH", "/experimental-features", {"dynamicSearchRules": True})
    assert ids(search(client))[0] == 3


# The hidden index


def test_no_route_of_indexes_shows_the_rules(client: Any, put: Any, work: Any) -> None:
    put("a", actions=pin((1, 0)))
    assert client.get("/indexes").value["results"] == [] and client.get("/stats").value["indexes"] == {}
    assert client.get("/stats").value["lastUpdate"] is None
    for method, url, body in (("GET", "/indexes/.svc_dsr", None), ("GET", "/indexes/.svc_dsr/documents", None),
                              ("POST", "/indexes/.svc_dsr/search", {}), ("GET", "/tasks?indexUids=.svc_dsr", None),
                              ("POST", "/multi-search", {"queries": [{"indexUid": ".svc_dsr"}]})):
        answer = client.get(url) if body is None else client.json(method, url, body)
        assert answer.fault[:2] == (400, "invalid_index_uid"), url
    assert client.json("POST", "/swap-indexes", [{"indexes": [".svc_dsr", "a"]}]).status == 400
    client.json("PATCH", "/experimental-features", {"foreignKeys": True})
    client.json("PATCH", "/indexes/books/settings", {"foreignKeys": [{"fieldName": "by", "foreignIndexUid": ".svc_dsr"}]})
    client.json("POST", "/indexes/books/documents", [{"id": 1, "by": "a"}])
    work()
    assert client.json("POST", "/indexes/books/search", {}).fault[:2] == (404, "index_not_found")


def test_the_rules_stay_over_a_restart(client: Any, put: Any, instance: Any) -> None:
    put("a", actions=pin((1, 0)))
    reader = DataFolderReader(instance.path, instance.features())
    found = ActiveRules(reader).of_query("films")
    reader.close()
    assert found is not None and found.rules.index_uid == "films"


# Searches


def test_pins_come_first_whatever_the_query_says(client: Any, put: Any, films: None) -> None:
    put("a", actions=pin((3, 0), (4, 1), (99, 0)), conditions={"query": {"words": "batman"}})
    answer = search(client, q="batman", filter="kind = keep", facets=["colour"], showRankingScore=True, showRankingScoreDetails=True)
    assert ids(answer) == [3, 1, 2] and answer["estimatedTotalHits"] == 3
    assert answer["facetDistribution"] == {"colour": {"blue": 1, "red": 2}}
    assert answer["hits"][0]["_rankingScore"] == 1.0 and answer["hits"][0]["_rankingScoreDetails"] == {
        "pin": {"order": 0, "position": 0}}
    assert ids(search(client, q="matrix", filter="kind = keep")) == [3]
    assert ids(search(client, q="batman -returns", filter="kind = keep")) == [3, 2]
    assert ids(search(client, q="batman -matrix", filter="kind = keep")) == [3, 1, 2]
    assert ids(search(client, q="batman", filter="kind = keep", sort=["id:desc"])) == [3, 2, 1]
    assert ids(search(client, q="batman", rankingScoreThreshold=1)) == [3, 4]


@pytest.mark.parametrize("asked", [
    {}, {"q": "batman"}, {"sort": ["id:desc"]}, {"q": "batman", "hybrid": {"embedder": "e"}, "vector": [1, 0]},
    {"hybrid": {"embedder": "e", "semanticRatio": 1}, "vector": [1, 0]},
])
def test_pages_joined_are_the_whole_list(client: Any, put: Any, films: None, asked: Any) -> None:
    put("a", actions=pin((4, 0), (3, 2)))
    whole = ids(search(client, **asked))
    assert whole[0] == 4 and whole[2] == 3 and sorted(whole) == [1, 2, 3, 4]
    assert [ids(search(client, **asked, offset=place, limit=1)) for place in range(5)] == [[each] for each in whole] + [[]]
    paged = [search(client, **asked, page=page, hitsPerPage=3) for page in (1, 2)]
    assert [each for page in paged for each in ids(page)] == whole
    assert [(page["totalHits"], page["totalPages"]) for page in paged] == [(4, 2)] * 2


def test_pins_are_found_in_the_order_of_the_rules_before_they_are_sorted(client: Any, put: Any, films: None) -> None:
    put("a", precedence=1, actions=pin((1, 3)))
    put("b", precedence=2, actions=pin((2, 0)))
    assert ids(search(client)) == [2, 3, 4, 1]
    assert ids(search(client, limit=2)) == [3, 4]  # the first pin found keeps the second one waiting


def test_distinct_leaves_pins_alone(client: Any, put: Any, films: None) -> None:
    put("a", actions=pin((1, 1), (3, 0)))
    assert ids(search(client, distinct="colour")) == [3, 1, 2, 4]
    assert ids(search(client, distinct="colour", q="batman")) == [3, 1, 2, 4]


def test_a_semantic_search_has_pins(client: Any, put: Any, films: None) -> None:
    put("a", actions=pin((3, 0)), conditions={"query": {"words": "batman"}})
    semantic = {"hybrid": {"embedder": "e", "semanticRatio": 1}, "vector": [1, 0]}
    answer = search(client, q="batman", **semantic)
    assert ids(answer) == [3, 1, 2, 4] and answer["semanticHitCount"] == 3
    assert ids(search(client, **semantic)) == [1, 2, 4, 3]


def test_merged_queries_pin_for_themselves(client: Any, put: Any, films: None) -> None:
    put("a", actions=pin((3, 1)))
    put("b", precedence=1, actions=pin((4, 0)), conditions={"query": {"words": "returns"}})
    queries = [{"indexUid": "films", "q": "batman", "federationOptions": {"weight": 0.5}, "showRankingScoreDetails": True},
               {"indexUid": "films", "q": "returns"}]
    answer = client.json("POST", "/multi-search", {"queries": queries, "federation": {"facetsByIndex": {"films": ["kind"]}}}).value
    found = [(hit["id"], hit["_federation"]["queriesPosition"], hit["_federation"]["weightedRankingScore"]) for hit in answer["hits"]]
    assert [each[:2] for each in found] == [(4, 1), (3, 0), (3, 1), (1, 1), (2, 0), (4, 0)]
    assert [each[2] for each in found[:3]] == [1.0, 0.5, 1.0]
    assert answer["hits"][1]["_rankingScoreDetails"] == {"pin": {"order": 0, "position": 1}}
    assert answer["estimatedTotalHits"] == 4
    assert answer["facetsByIndex"]["films"]["distribution"] == {"kind": {"keep": 3, "drop": 1}}
    pages = [client.json("POST", "/multi-search", {"queries": queries, "federation": {"offset": place, "limit": 1}}).value
             for place in range(6)]
    assert [hit["id"] for page in pages for hit in page["hits"]] == [each[0] for each in found]


def test_distinct_of_merged_queries_leaves_pins_alone(client: Any, put: Any, films: None, work: Any) -> None:
    client.json("PATCH", "/indexes/more/settings", SETTINGS)
    client.json("POST", "/indexes/more/documents", [{**FILMS[0], "id": 9}])
    work()
    put("a", actions=pin((9, 0), indexUid="more") + pin((1, 0), indexUid="films"))
    queries = {"queries": [{"indexUid": "more"}, {"indexUid": "films"}], "federation": {"distinct": "colour"}}
    answer = client.json("POST", "/multi-search", queries).value
    assert ids(answer) == [1, 9, 2, 3, 4]


def test_facet_searches_and_similar_documents_know_no_rules(client: Any, put: Any, films: None) -> None:
    before = client.json("POST", "/indexes/films/facet-search", {"facetName": "colour", "q": "batman"}).value["facetHits"]
    similar = client.json("POST", "/indexes/films/similar", {"id": 1, "embedder": "e"}).value["hits"]
    put("a", actions=pin((3, 0)))
    assert client.json("POST", "/indexes/films/facet-search", {"facetName": "colour", "q": "batman"}).value["facetHits"] == before
    assert client.json("POST", "/indexes/films/similar", {"id": 1, "embedder": "e"}).value["hits"] == similar


def test_kept_answers_end_with_the_rules_they_were_made_with(client: Any, put: Any, films: None, work: Any, monkeypatch: Any) -> None:
    moment = [quantities.parse_utc("2026-01-01")]
    monkeypatch.setattr(search_services, "now", lambda: moment[0])
    assert ids(search(client)) == [1, 2, 3, 4]
    put("a", actions=pin((3, 0)), conditions={"time": {"start": "2026-01-02", "end": "2026-01-03"}})
    seen = []
    for _ in range(3):
        seen.append(ids(search(client))[0])
        moment[0] += quantities.DAY * 3 // 2
    assert seen == [1, 3, 1]
    moment[0] = quantities.parse_utc("2026-01-02")
    put("a", actions=pin((4, 0)))
    assert ids(search(client))[0] == 4
    client.send("DELETE", f"{RULES}/a")
    work()
    assert ids(search(client))[0] == 1
