"""What a model may search, and what it is told.

1. All indexes that the request opens are offered, with descriptions and frequent values of all filterable fields, hidden ones too.
2. Searches use the parameters of the index; documents are rendered whole, hits are shown as searches show them.
3. What the settings have wrong is an error of the call: a template, an embedder, an expression of `sort`.
4. A full queue refuses a search.
5. Searches, those that reach their time limit, tokens and the usage report count chats. Logs show no key.
"""
from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from svcd.analytics import report
from svcd.analytics.collector import Usage
from svcd.base import logs
from tests.chat.conftest import Chat, body_of
from tests.chat.test_completions import ALIEN_HIT, HEAT_HIT, HI, HI_SHOWN, S, arguments, call, failed, sources, told
from tests.support.chat_source import DONE, Round, c, f, t, u

_FAILED = "the search tool call failed with "


def asked_for(chat: Chat) -> dict[str, Any]:
    """The function that the last request declared."""
    function: dict[str, Any] = chat.source.bodies[-1]["tools"][0]["function"]
    return function


def searched(chat: Chat, **members: Any) -> list[Any]:
    """What a client hears of one search, without what follows."""
    chat.plays(*call(arguments(**members)))
    events = told(chat.complete("sources"))
    assert events[-len(HI_SHOWN):] == HI_SHOWN
    return events[:-len(HI_SHOWN)]


def test_every_index_is_described(chat: Chat) -> None:
    chat.settle("books", filterableAttributes=["author", "none", {"attributePatterns": ["al*"]}, {"attributePatterns": ["x"], "features": {
        "facetSearch": True, "filter": {"equality": False, "comparison": False}}}], displayedAttributes=["id"])
    texts = [f"t{number:02}" for number in range(12)]
    chat.add("books", [{"id": number, "author": {"name": text, "born": number % 2}, "x": 1, "also": texts}
                       for number, text in enumerate(texts)])
    chat.plays(HI)
    chat.complete()
    function = asked_for(chat)
    assert function["description"] == "DESC\n\n - books: \n\n\n\n - movies: Films\n\n"
    properties = function["parameters"]["properties"]
    assert properties["index_uid"]["enum"] == ["books", "movies"]
    names = ", ".join(reversed(texts[2:]))
    assert properties["filter"]["description"] == (
        f"FLT\n## Facet distributions of the books index\nalso: {names}.\nauthor: \nauthor.born: 1, 0.\nauthor.name: {names}.\n\n"
        "\n## Facet distributions of the movies index\nyear: 1995, 1979.\n\n")


def test_numbers_come_first_and_frequent_values_before_others(chat: Chat) -> None:
    chat.add("movies", [{"id": number, "year": year} for number, year in enumerate(["old", 1979, 1979, "old", "new"], 10)])
    chat.plays(HI)
    for _ in range(2):  # the second time from the cache
        chat.complete()
        assert "year: 1979, 1995, old, new.\n" in asked_for(chat)["parameters"]["properties"]["filter"]["description"]


def test_the_parameters_of_the_index_hold(chat: Chat) -> None:
    chat.settle("movies", sortableAttributes=["year"], chat={"searchParameters": {"limit": 1, "sort": ["year:desc"]}})
    assert searched(chat) == [sources(HEAT_HIT)]
    chat.settle("movies", chat={"searchParameters": {"sort": None, "limit": None, "attributesToSearchOn": ["year"]}})
    assert searched(chat, q="alien") == [sources()]
    chat.settle("movies", chat={"searchParameters": {"attributesToSearchOn": None, "rankingScoreThreshold": 1.0}})
    assert searched(chat, q="alie") == [sources()]


def test_documents_are_rendered_whole(chat: Chat) -> None:
    chat.add("movies", [{"id": 1, "title": "Alien", "year": 1979, "_geo": {"lat": 1, "lng": 2}}])
    chat.settle("movies", chat={"documentTemplate": "{% for field in fields %}{{ field.name }} {% endfor %}{{ doc.year }}",
                                "documentTemplateMaxBytes": 1})
    assert searched(chat) == [sources(ALIEN_HIT, HEAT_HIT)]
    assert chat.source.told() == ["id title year 1979\nid title year 1995"]


@pytest.mark.parametrize(("setting", "status", "message"), [
    ({"documentTemplate": "{{ doc.none }}"}, 400, "user error: missing field in document: liquid: Unknown index"),
    ({"searchParameters": {"hybrid": {"embedder": "e"}}}, 400, "Cannot find embedder with name `e`."),
    ({"searchParameters": {"sort": ["year:up"]}}, 400, "Invalid syntax for the sort parameter: expected expression ending by"),
])
def test_faults_of_the_settings_are_errors(chat: Chat, setting: Any, status: int, message: str) -> None:
    chat.settle("movies", chat=setting)
    ((kind, name, code, said),) = searched(chat, q="alien")
    assert (kind, name, code) == ("error", "response_error", str(status)) and said.startswith(message)
    assert chat.source.told() == [_FAILED + said]


def test_what_the_search_itself_refuses_is_told_to_the_model_alone(chat: Chat) -> None:
    chat.settle("movies", chat={"searchParameters": {"sort": ["year:asc"]}})
    assert searched(chat) == [sources()]
    assert chat.source.told()[0].startswith("Attribute `year` is not sortable.")


def test_without_words_no_embedder_is_asked(chat: Chat) -> None:
    chat.settle("movies", chat={"searchParameters": {"hybrid": {"embedder": "e"}}})
    assert searched(chat, filter="year > 1990", q=" ") == [sources(HEAT_HIT)]


@pytest.mark.parametrize("text", ['{"q": ""}', '{"index_uid": 1}', '{"index_uid": "movies", "q": []}', "[]", "", '{"index_uid"'])
def test_arguments_of_another_form(chat: Chat, text: str) -> None:
    chat.plays(*call(text))
    assert told(chat.complete("sources")) == HI_SHOWN
    assert chat.source.told()[0]


def test_members_of_arguments_may_be_absent_or_more(chat: Chat) -> None:
    chat.plays(*call('{"index_uid": "movies", "q": null, "limit": 1}'))
    assert told(chat.complete("sources")) == [sources(ALIEN_HIT, HEAT_HIT), *HI_SHOWN]


def test_a_full_queue_refuses(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = chat.client.searches

    def full() -> Any:
        raise searches.too_many_searches()

    monkeypatch.setattr(searches, "slot", full)
    ((_, _, code, message),) = searched(chat)
    assert code == "503" and chat.source.told() == [_FAILED + message]


def test_redirects_repeat_the_request(chat: Chat) -> None:
    chat.plays(Round(status=307, body=b"", headers=(("Location", "/v1/elsewhere"),)), HI)
    assert chat.complete() == HI_SHOWN
    assert chat.source.requests[1].path == "/v1/elsewhere" and chat.source.bodies[0] == chat.source.bodies[1]


def test_metrics_count_searches_and_tokens(chat: Chat) -> None:
    assert "svc_chat" not in chat.client.get("/metrics").text
    chat.plays([t(0, "c1", S, arguments()), t(1, "c2", S, "{"), f("tool_calls"), u(10, 2, 12), DONE],
               [{**c(content="x"), "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}, f("stop"), DONE])
    chat.complete()
    lines = chat.client.get("/metrics").text.splitlines()
    labels = '{workspace="w",model="gpt-4o"}'
    for line in ('svc_chat_searches_total{type="internal"} 1', f"svc_chat_prompt_tokens_total{labels} 11",
                 f"svc_chat_completion_tokens_total{labels} 3", f"svc_chat_tokens_total{labels} 14",
                 "# TYPE svc_chat_tokens_total counter"):
        assert line in lines


def test_the_usage_report_counts_chats_that_began(chat: Chat) -> None:
    usage = chat.client.app.services.usage = Usage()
    chat.plays(HI)
    chat.complete()
    chat.complete(model="secret", messages=[])
    chat.answer(body_of(n=2))
    told_figures = report.groups(usage.take())["chat completions"]
    spent = told_figures.pop("chat.time_spent")
    assert 0 <= spent["min"] <= spent["avg"] <= spent["max"]
    assert told_figures == {
        "chat.total_received": 2, "chat.total_succeeded": 2, "chat.total_messages": 1, "chat.avg_messages_per_request": 0.5,
        "chat.total_streamed_requests": 2, "chat.total_non_streamed_requests": 0, "chat.streaming_ratio": 1.0,
        "chat.models_used": {"gpt-4o": 1, "other": 1}}


def test_logs_show_what_is_searched_and_no_key(chat: Chat) -> None:
    log = io.StringIO()
    logs.configure("DEBUG", stream=log)
    try:
        chat.plays([t(0, "c1", S, arguments(q="alien")), f("tool_calls"), DONE], ["no chunk", DONE])
        chat.complete("sources")
    finally:
        logs.configure()
    said = log.getvalue()
    assert "Facet distributions" in said and "_meiliSearchSources" in said and "alien" in said
    assert re.search(r"ERROR .*no chunk", said) and "sk-test" not in said


def test_an_embedding_that_fails_is_an_error(chat: Chat) -> None:
    chat.settle("movies", embedders={"e": {"source": "rest", "url": "http://127.0.0.1:1/", "dimensions": 2,
                                           "request": "{{text}}", "response": "{{embedding}}"}})
    chat.settle("movies", chat={"searchParameters": {"hybrid": {"embedder": "e", "semanticRatio": 1.0}}})
    ((_, _, code, message),) = searched(chat, q="alien")
    assert code == "400" and message and failed(400, message)[1] == "response_error"


def test_streams_are_limited(chat: Chat) -> None:
    chat.plays(HI)
    open_answers = [chat.answer(body_of()) for _ in range(4)]
    refused = chat.answer(body_of())
    assert refused.status == 503 and json.loads(refused.body)["code"] == "bad_request"
    for answer in open_answers:
        answer.body.close()
    assert chat.complete() == HI_SHOWN


def test_searches_that_reach_their_limit_are_counted(chat: Chat) -> None:
    chat.add("movies", [{"id": 10 + number, "title": title} for number, title in enumerate(("red sun", "sun", "sun of red"))])
    chat.settle("movies", searchCutoffMs=0)
    searched(chat, q="sun red")
    assert "\nsvc_degraded_search_requests 1\n" in chat.client.get("/metrics").text
