"""`POST /render-template`. What must hold:

1. Each kind of template is shown as it is stored or given, and rendered with each kind of input that fits it.
2. Which parameters a kind must and must not have is checked in a fixed order, with the words that clients know.
3. A template that does not parse, or cannot be rendered, is an error of its own code; hostile ones end, too.
4. A kind that needs an experimental feature says so while it is off.
5. A key needs both permissions, and the indexes of template and input.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.schema.embedder_settings import DEFAULT_TEMPLATE
from tests.support.dict_reader import DictReader
from tests.support.patched_reading import read_indexes

KEFIR = {"id": 0, "name": "kefir", "_vectors": {"other": [1]}}
INTEL = {"id": 2, "name": "intel", "breed": "labrador", "_geo": {"lat": 1, "lng": 2}}
REST = {"source": "rest", "url": "http://localhost/", "request": "{{fragment}}", "response": "{{embedding}}", "dimensions": 3}
EMBEDDERS: dict[str, Any] = {
    "plain": {"source": "openAi"},
    "own": {"source": "ollama", "documentTemplate": "{{ doc.name }} is a dog"},
    "manual": {"source": "userProvided", "dimensions": 3},
    "parts": {**REST, "indexingFragments": {"basic": {"value": {"text": "{{ doc.name }}", "n": [1, "{{ doc.breed }}"]}}},
              "searchFragments": {"q": {"value": "Query {{ q }}"}, "media": {"value": "It's a {{ media.breed }}"}}},
    "both": {"source": "composite", "searchEmbedder": {"source": "openAi"},
             "indexingEmbedder": {"source": "openAi", "documentTemplate": "{{ doc.breed }}"}},
    "both parts": {"source": "composite",
                   "searchEmbedder": {**REST, "searchFragments": {"q": {"value": "{{ q }}"}}},
                   "indexingEmbedder": {**REST, "indexingFragments": {"i": {"value": "{{ doc.name }}"}}}},
}
FEATURES = ("renderRoute", "multimodal", "chatCompletions")
TEMPLATE, INPUT, PARSING, RENDERING = (
    "invalid_render_template", "invalid_render_input", "template_parsing_error", "template_rendering_error")


DOGS = DictReader([KEFIR, INTEL], {
    "searchableAttributes": ["name", "breed"], "embedders": EMBEDDERS, "chat": {"documentTemplate": "# {{ doc.name }}"}})


@pytest.fixture
def dogs(client, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of an index `dogs` with embedders of all kinds."""
    read_indexes(monkeypatch, {"dogs": DOGS})
    client.json("PATCH", "/experimental-features", dict.fromkeys(FEATURES, True))
    return client


def ask(client: Any, template: Any, given: Any = None) -> Any:
    return client.json("POST", "/render-template", {"template": template, **({} if given is None else {"input": given})})


def stored(kind: str, embedder: str | None = None, fragment: str | None = None) -> dict[str, Any]:
    members = {"kind": kind, "indexUid": "dogs", "embedder": embedder, "fragment": fragment}
    return {name: value for name, value in members.items() if value is not None}


def inline(template: Any, kind: str = "inlineDocumentTemplate") -> dict[str, Any]:
    return {"kind": kind, "inline": template}


def document(document_id: str) -> dict[str, str]:
    return {"kind": "indexDocument", "indexUid": "dogs", "id": document_id}


def dog(**members: Any) -> dict[str, Any]:
    return {"kind": "inlineDocument", "inline": members}


def query(**members: Any) -> dict[str, Any]:
    return {"kind": "inlineSearch", "inline": members}


PARTS = EMBEDDERS["parts"]["indexingFragments"]["basic"]["value"]


@pytest.mark.parametrize("template, given, shown, rendered", [
    (stored("documentTemplate", "plain"), None, DEFAULT_TEMPLATE, None),
    (stored("documentTemplate", "plain"), document("2"), DEFAULT_TEMPLATE, "name: intel\nbreed: labrador\n"),
    (stored("documentTemplate", "plain"), dog(a=1, b=None, c=[True]), DEFAULT_TEMPLATE, "a: 1\nc: true\n"),
    (stored("documentTemplate", "own"), document("0"), "{{ doc.name }} is a dog", "kefir is a dog"),
    (stored("documentTemplate", "both"), document("2"), "{{ doc.breed }}", "labrador"),
    (stored("chatDocumentTemplate"), document("2"), "# {{ doc.name }}", "# intel"),
    (stored("indexingFragment", "parts", "basic"), None, PARTS, None),
    (stored("indexingFragment", "parts", "basic"), document("2"), PARTS, {"n": [1, "labrador"], "text": "intel"}),
    (stored("indexingFragment", "both parts", "i"), dog(name="iko"), "{{ doc.name }}", "iko"),
    (stored("searchFragment", "both parts", "q"), query(q="x"), "{{ q }}", "x"),
    (stored("searchFragment", "parts", "media"), query(q="unused", media={"breed": "poodle"}, filter="ignored"),
     "It's a {{ media.breed }}", "It's a poodle"),
    (stored("searchFragment", "parts", "q"), query(q="dogs"), "Query {{ q }}", "Query dogs"),
    (inline("{{ doc.name }} is {{ doc.breed.kind }}"), dog(name="iko", breed={"kind": "terrier"}),
     "{{ doc.name }} is {{ doc.breed.kind }}", "iko is terrier"),
    (inline("{{ doc.name | upcase }}"), document("0"), "{{ doc.name | upcase }}", "KEFIR"),
    (inline("{{ fields | map: 'name' | join: ',' }}"), document("2"), "{{ fields | map: 'name' | join: ',' }}", "id,name,breed"),
    ({**inline("{{ doc.name }}"), "documentTemplateMaxBytes": 2}, document("0"), "{{ doc.name }}", "kefir"),
    (inline([{"a": "{{ q }}"}, 1], "inlineFragment"), query(q="x"), [{"a": "{{ q }}"}, 1], [{"a": "x"}, 1]),
    (inline("{{ media }}|", "inlineFragment"), query(media=None), "{{ media }}|", "|"),
    (inline(5, "inlineFragment"), dog(), 5, 5), (inline("x"), None, "x", None),
])
def test_templates_are_shown_and_rendered(dogs, template: Any, given: Any, shown: Any, rendered: Any) -> None:
    got = ask(dogs, template, given)
    assert (got.status, got.value) == (200, {"template": shown, "rendered": rendered})


@pytest.mark.parametrize("template, missing", [
    ({}, "Missing field `kind` inside `.template`"), (inline(["x"]), "inline document templates must be strings"),
    (stored("documentTemplate"), "parameter `embedder` missing for kind `documentTemplate`"),
    ({"kind": "documentTemplate", "embedder": "e"}, "parameter `index_uid` missing for kind `documentTemplate`"),
    ({**stored("documentTemplate", "e", "f"), "inline": "x"}, "parameter `fragment` disallowed for kind `documentTemplate`"),
    ({"kind": "documentTemplate", "inline": "x"}, "parameter `inline` disallowed for kind `documentTemplate`"),
    ({"kind": "chatDocumentTemplate", "embedder": "e"}, "parameter `index_uid` missing for kind `chatDocumentTemplate`"),
    (stored("chatDocumentTemplate", "e"), "parameter `embedder` disallowed for kind `chatDocumentTemplate`"),
    (stored("indexingFragment", "e"), "parameter `fragment` missing for kind `indexingFragment`"),
    ({**stored("indexingFragment", "e", "f"), "documentTemplateMaxBytes": 3},
     "parameter `document_template_max_bytes` disallowed for kind `indexingFragment`"),
    ({**stored("searchFragment", "e", "f"), "inline": 1}, "parameter `inline` disallowed for kind `searchFragment`"),
    ({"kind": "inlineDocumentTemplate", "inline": None}, "parameter `inline` missing for kind `inlineDocumentTemplate`"),
    ({**inline("x"), "indexUid": "dogs"}, "parameter `index_uid` disallowed for kind `inlineDocumentTemplate`"),
    ({**inline("x", "inlineFragment"), "documentTemplateMaxBytes": 3},
     "parameter `document_template_max_bytes` disallowed for kind `inlineFragment`"),
    (stored("documentTemplate", "none"), "cannot find embedder `none` in index `dogs`"),
    (stored("documentTemplate", "manual"), "embedder `manual` in index `dogs` does not use a document template."),
    (stored("documentTemplate", "parts"), "embedder `parts` in index `dogs` does not use a document template."),
    (stored("indexingFragment", "own", "f"), "embedder `own` in index `dogs` does not use fragments."),
    (stored("searchFragment", "manual", "f"), "embedder `manual` in index `dogs` does not use fragments."),
    (stored("indexingFragment", "parts", "f"), "cannot find indexing fragment `f` for embedder `parts` in index `dogs`"),
    (stored("searchFragment", "parts", "f"), "cannot find search fragment `f` for embedder `parts` in index `dogs`"),
    (stored("indexingFragment", "none", "f"), "cannot find embedder `none` in index `dogs`"),
    (stored("searchFragment", "none", "f"), "cannot find indexing fragment `f` for embedder `none` in index `dogs`"),
])
def test_wrong_templates(dogs, template: Any, missing: str) -> None:
    status, code, message = ask(dogs, template, document("0")).fault
    begin = "" if missing.startswith("Missing") else "error while fetching template: "
    assert (status, code, message) == (400, TEMPLATE, begin + missing)


def test_kinds_and_sizes_are_checked(dogs) -> None:
    assert ask(dogs, {"kind": "doc"}).fault[1:] == (
        TEMPLATE, "Unknown value `doc` at `.template.kind`: expected one of `documentTemplate`, `chatDocumentTemplate`, "
                  "`indexingFragment`, `searchFragment`, `inlineDocumentTemplate`, `inlineFragment`")
    assert ask(dogs, inline("x"), {"kind": "doc"}).fault[1:] == (
        INPUT, "Unknown value `doc` at `.input.kind`: expected one of `indexDocument`, `inlineDocument`, `inlineSearch`")
    assert ask(dogs, {**inline("x"), "documentTemplateMaxBytes": 0}).fault[1] == TEMPLATE
    assert ask(dogs, {**inline("x"), "more": 0}).fault[1] == TEMPLATE
    assert ask(dogs, inline("x"), {"kind": "inlineDocument", "id": 3}).fault[1] == INPUT


@pytest.mark.parametrize("given, reason", [
    ({"kind": "indexDocument", "id": "0"}, "parameter `indexUid` missing for kind `indexDocument`"),
    ({"kind": "indexDocument", "indexUid": "dogs"}, "parameter `id` missing for kind `indexDocument`"),
    ({**document("0"), "inline": {}}, "parameter `inline` disallowed for kind `indexDocument`"),
    ({**dog(), "indexUid": "dogs"}, "parameter `index_uid` disallowed for kind `inlineDocument`"),
    ({**dog(), "id": "0"}, "parameter `id` disallowed for kind `inlineDocument`"),
    ({"kind": "inlineDocument"}, "parameter `inline` missing for kind `inlineDocument`"),
    ({"kind": "inlineSearch", "inline": None}, "parameter `inline` missing for kind `inlineSearch`"),
    ({"kind": "inlineSearch", "inline": {"q": 3}}, "`q` is not a string"),
    ({"kind": "inlineSearch", "inline": {"q": None}}, "`q` is not a string"),
    ({"kind": "inlineDocument", "inline": "né"}, "parsing inline document: invalid type: string \"né\", expected a map at line 1 "
                                               "column 5\n  - Note: the inline document must be a JSON map"),
    ({"kind": "inlineDocument", "inline": [1]}, "parsing inline document: invalid type: sequence, expected a map at line 1 "
                                                "column 0\n  - Note: the inline document must be a JSON map"),
    ({"kind": "inlineSearch", "inline": True}, "parsing inline search: invalid type: boolean `true`, expected a map at line 1 "
                                               "column 4\n  - Note: the inline search query must be a JSON map containing `q` and/or `media`"),
])
def test_wrong_inputs(dogs, given: Any, reason: str) -> None:
    assert ask(dogs, inline("{{ doc.name }}"), given).fault == (400, INPUT, f"error while fetching input: {reason}")


def test_what_does_not_exist(dogs) -> None:
    assert ask(dogs, inline("x"), document("7")).fault == (
        404, "render_document_not_found", "error while fetching input: document `7` not found in `dogs`")
    assert ask(dogs, {**stored("documentTemplate", "e"), "indexUid": "birds"}).fault == (
        404, "index_not_found", "error while fetching template: cannot open index `birds`: Index `birds` not found.")
    assert ask(dogs, inline("x"), {**document("0"), "indexUid": "birds"}).fault == (
        404, "index_not_found", "Cannot open index `birds`: Index `birds` not found.")


UNKNOWN = "liquid: Unknown index\n  with:\n    variable=doc\n    requested index=breed\n    available indexes=id, name\n"


@pytest.mark.parametrize("template, given, code, message", [
    (inline("{{ doc.name"), None, PARSING, "error while fetching template: user error: cannot parse template: liquid:  --> 1:4\n"
                                           "  |\n1 | {{ doc.name\n  |    ^---\n  |\n  = expected Literal\n"),
    (inline(["{% a %}"], "inlineFragment"), None, PARSING,
     "error while fetching template: in `[0]`, error while parsing template: liquid:  --> 1:4\n"
     "  |\n1 | {% a %}\n  |    ^---\n  |\n  = unexpected tag 'a'\n"),
    (inline("{{ doc.breed }}"), document("0"), RENDERING,
     f"error while rendering template: user error: missing field in document: {UNKNOWN}"),
    (inline("{{ doc.breed }}", "inlineFragment"), document("0"), RENDERING,
     f"error while rendering template: error while rendering template: {UNKNOWN}"),
    (stored("indexingFragment", "parts", "basic"), document("0"), RENDERING,
     f"error while rendering template: in `.n[1]`, error while rendering template: {UNKNOWN}"),
    (stored("searchFragment", "parts", "media"), query(q="x"), RENDERING,
     "error while rendering template: error while rendering template: liquid: Unknown variable\n  with:\n    requested variable=media\n"),
    (inline("{{ doc }}"), query(q="x"), RENDERING,
     "error while rendering template: cannot render a document template with a search query"),
    (inline("{% for i in (1..99999) %}{% for j in (1..99999) %}{% endfor %}{% endfor %}"), dog(), RENDERING,
     "error while rendering template: user error: missing field in document: liquid: Template takes more than 500000 steps\n"
     "from: {% for j in (1..99999)  %}\n"),
])
def test_templates_that_fail(dogs, template: Any, given: Any, code: str, message: str) -> None:
    status, told, words = ask(dogs, template, given).fault
    assert (status, told) == (400, code)
    assert words.startswith(message.removesuffix("from: {% for j in (1..99999)  %}\n"))


@pytest.mark.parametrize("template, given, feature, action", [
    (inline("x"), None, "renderRoute", "calling the /render-template route requires"),
    (stored("chatDocumentTemplate"), None, "chatCompletions", "error while fetching template: accessing chat settings requires"),
    (stored("indexingFragment"), None, "multimodal", "error while fetching template: accessing fragments requires"),
    (stored("searchFragment"), None, "multimodal", "error while fetching template: accessing fragments requires"),
    (inline("x", "inlineFragment"), None, "multimodal", "error while fetching template: rendering an inline fragment requires"),
    (inline("x"), query(), "multimodal", "error while fetching input: rendering search requires"),
])
def test_features(dogs, template: Any, given: Any, feature: str, action: str) -> None:
    assert ask(dogs, template, given).value.get("code") != "feature_not_enabled"
    dogs.json("PATCH", "/experimental-features", {feature: False})
    status, code, message = ask(dogs, template, given).fault
    assert (status, code) == (400, "feature_not_enabled") and message.startswith(action)


def test_a_key_needs_the_indexes_of_template_and_input(dogs, connect) -> None:
    guarded = connect("a master key of some length")

    def told(*indexes: str) -> int:
        wanted = {"actions": ["settings.get", "documents.get"], "indexes": list(indexes), "expiresAt": None}
        key = guarded.ask("a master key of some length", "POST", "/keys", wanted).value["key"]
        return guarded.ask(key, "POST", "/render-template", {"template": stored("documentTemplate", "own"),
                                                             "input": document("0")}).status

    assert told("dogs") == told("*") == 200 and told("cats") == 403
    key = guarded.ask("a master key of some length", "POST", "/keys", {
        "actions": ["settings.get", "documents.get"], "indexes": ["cats"], "expiresAt": None}).value["key"]
    for template, given in ((stored("documentTemplate", "own"), None), (inline("x"), document("0"))):
        got = guarded.ask(key, "POST", "/render-template", {"template": template, "input": given})
        assert (got.status, got.value["code"]) == (403, "invalid_api_key")
    assert guarded.ask(key, "POST", "/render-template", {"template": inline("x"), "input": dog()}).value["rendered"] == "x"
