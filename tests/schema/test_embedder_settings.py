"""What must hold of embedders in the settings:

1. Each source takes its members, lacks no mandatory one, and refuses the others in words.
2. Inside a composite embedder fewer sources and members are taken.
3. A change keeps members it doesn't name; null removes a member, a fragment, an embedder.
4. Another source drops the members it doesn't take.
5. Quantisation can't be undone.
6. Answers fill the defaults of the source and hide secrets.
7. Templates of documents, requests, responses and fragments are of use, as far as that can be said without the service.
8. A source of our own is accepted, and not listed where clients know the words.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.schema import embedder_settings
from svcd.schema.embedder_settings import DEFAULT_TEMPLATE, redact_embedders, resolve_embedders
from svcd.validation import decode_value

REST = {"source": "rest", "url": "http://localhost:1337", "request": "{{text}}", "response": "{{embedding}}"}


def decoded(embedders: dict[str, Any]) -> dict[str, Any]:
    change = decode_value(embedders, embedder_settings.embedders, code=embedder_settings.CODE)
    embedder_settings.check_embedders(change)
    return change


def refusal(embedder: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        decoded({"e": embedder})
    assert refused.value.code == "invalid_settings_embedders"
    return refused.value.message


def after(*changes: dict[str, Any]) -> dict[str, Any]:
    stored: dict[str, Any] = {}
    for change in changes:
        stored = embedder_settings.merge_embedders(stored, decoded(change))
    return stored


@pytest.mark.parametrize("embedder, message", [
    ({"source": "userProvided", "dimensions": 128, "documentTemplate": "x"},
     "`.embedders.e`: Field `documentTemplate` unavailable for source `userProvided`.\n"
     "  - note: `documentTemplate` is available for sources: `openAi`, `huggingFace`, `ollama`, `rest`\n"
     "  - note: available fields for source `userProvided`: `source`, `dimensions`, `distribution`, `binaryQuantized`"),
    ({"source": "openAi", "revision": "42"},
     "`.embedders.e`: Field `revision` unavailable for source `openAi`.\n"
     "  - note: `revision` is available for sources: `huggingFace`\n"
     "  - note: available fields for source `openAi`: `source`, `model`, `apiKey`, `dimensions`, `documentTemplate`, "
     "`documentTemplateMaxBytes`, `url`, `distribution`, `binaryQuantized`"),
    ({"source": "rest", "url": "http://localhost", "response": ""},
     "`.embedders.e`: Missing field `request` (note: this field is mandatory for source `rest`)"),
    ({"source": "userProvided"},
     "`.embedders.e`: Missing field `dimensions` (note: this field is mandatory for source `userProvided`)"),
    ({"source": "ollama"}, "`.embedders.e`: Missing field `model` (note: this field is mandatory for source `ollama`)"),
    ({"source": "rest", "url": "kefir", "request": 42, "response": 42},
     "`.embedders.e.url`: could not parse `kefir`: relative URL without a base"),
    ({"dimensions": 0}, "`.embedders.e.dimensions`: `dimensions` cannot be zero"),
    ({"documentTemplateMaxBytes": 0},
     "`.embedders.e.documentTemplateMaxBytes`: `documentTemplateMaxBytes` cannot be zero"),
    ({"source": "openAi", "model": "gpt"},
     "`.embedders.e.model`: Invalid model `gpt` for OpenAI. Supported models: "
     '["text-embedding-ada-002", "text-embedding-3-small", "text-embedding-3-large"]'),
    ({"source": "openAi", "model": "text-embedding-ada-002", "dimensions": 3},
     "`.embedders.e.dimensions`: Model `text-embedding-ada-002` does not support overriding its native dimensions of "
     "1536. Found 3"),
    ({"source": "openAi", "url": "http://localhost", "model": "doggo"},
     "`.embedders.e.model`: Invalid model `doggo` for OpenAI. Supported models: "
     '["text-embedding-ada-002", "text-embedding-3-small", "text-embedding-3-large"]'),
    ({"source": "openAi", "url": "http://localhost", "model": "text-embedding-3-large", "dimensions": 42000000},
     "`.embedders.e.dimensions`: Model `text-embedding-3-large` does not support overriding its dimensions to a value "
     "higher than 3072. Found 42000000"),
    ({"source": "openAi", "dimensions": 1537},
     "`.embedders.e.dimensions`: Model `text-embedding-3-small` does not support overriding its dimensions to a value "
     "higher than 1536. Found 1537"),
    ({"apiKey": 42}, "Invalid value type at `.e.apiKey`: expected a string, but found a positive integer: `42`"),
    ({"source": "rset"}, "Unknown value `rset` at `.e.source`: did you mean `rest`? expected one of `openAi`, "
                         "`huggingFace`, `ollama`, `userProvided`, `rest`, `composite`"),
    ({"distribution": {"mean": 1.5, "sigma": 0.1}},
     "Invalid value at `.e.distribution`: the distribution mean must be in the range [0, 1], got 1.5"),
    ({"distribution": {"mean": 1, "sigma": 0}},
     "Invalid value at `.e.distribution`: the distribution sigma must be in the range ]0, 1], got 0"),
    ({"bad": 1}, "Unknown field `bad` inside `.e`: expected one of `source`, `model`, `revision`, `pooling`, `apiKey`, "
                 "`dimensions`, `binaryQuantized`, `documentTemplate`, `documentTemplateMaxBytes`, `url`, "
                 "`indexingFragments`, `searchFragments`, `request`, `response`, `headers`, `searchEmbedder`, "
                 "`indexingEmbedder`, `distribution`"),
])
def test_refusals(embedder: dict[str, Any], message: str) -> None:
    assert refusal(embedder) == message


@pytest.mark.parametrize("embedder", [
    {}, {"source": "openAi", "url": "http://localhost", "model": "text-embedding-3-small"},
    {"source": "huggingFace", "pooling": "forceCls"},
    {"source": "ollama", "model": "m"}, {"source": "userProvided", "dimensions": 1}, REST,
    {"source": "openAi", "model": "text-embedding-3-large", "dimensions": 3072, "revision": None},
    {"source": "composite", "searchEmbedder": REST, "indexingEmbedder": {"source": "huggingFace"}},
])
def test_good_embedders_pass(embedder: dict[str, Any]) -> None:
    assert list(after({"e": embedder})) == ["e"]


@pytest.mark.parametrize("nested, message", [
    ({}, "`.embedders.e.searchEmbedder`: Missing field `source`.\n"
         "  - note: this field is mandatory for nested embedders"),
    ({"source": "userProvided"},
     "`.embedders.e.searchEmbedder.source`: Source `userProvided` is not available in a nested embedder"),
    ({**REST, "documentTemplate": "x"},
     "`.embedders.e.searchEmbedder`: Field `documentTemplate` unavailable for source `rest` for the search embedder.\n"
     "  - note: `documentTemplate` is available for sources: \n"
     "  - note: available fields for source `rest` for the search embedder: `source`, `apiKey`, `dimensions`, `url`, "
     "`searchFragments`, `request`, `response`, `headers`\n"
     "  - note: `documentTemplate` is available when source `rest` is not for the search embedder"),
])
def test_nested_embedders_take_less(nested: dict[str, Any], message: str) -> None:
    assert refusal({"source": "composite", "searchEmbedder": nested, "indexingEmbedder": REST}) == message


def test_null_removes_members_fragments_and_embedders() -> None:
    fragments = {"b": {"value": 1}, "a": {"value": {"x": "{{doc.a}}"}}}
    rest = {**REST, "request": "{{fragment}}", "searchFragments": {"q": {"value": "{{q}}"}}}
    stored = after(
        {"rest": {**rest, "dimensions": 3, "indexingFragments": fragments}, "manual": {"source": "userProvided",
                                                                                      "dimensions": 3}},
        {"rest": {"dimensions": None, "indexingFragments": {"b": None}}, "manual": None, "unknown": None},
    )
    assert stored == {"rest": {**rest, "indexingFragments": {"a": {"value": {"x": "{{doc.a}}"}}}}}


def test_another_source_drops_what_it_does_not_take() -> None:
    stored = after({"e": {**REST, "apiKey": "k", "documentTemplate": "t"}}, {"e": {"source": "huggingFace"}})
    assert stored == {"e": {"source": "huggingFace", "documentTemplate": "t"}}


def test_quantisation_stays() -> None:
    quantized = {"e": {"source": "userProvided", "dimensions": 3, "binaryQuantized": True}}
    assert after(quantized, {"e": {"dimensions": 4}})["e"]["binaryQuantized"] is True
    with pytest.raises(ApiError) as refused:
        after(quantized, {"e": {"binaryQuantized": False}})
    assert refused.value.message == (
        "`.embedders.e.binaryQuantized`: Cannot disable the binary quantization.\n"
        " - Note: Binary quantization is a lossy operation that cannot be reverted.\n"
        " - Hint: Add a new embedder that is non-quantized and regenerate the vectors.")


def test_at_most_256_embedders() -> None:
    manual = {"source": "userProvided", "dimensions": 3}
    full = after({str(i): manual for i in range(256)})
    with pytest.raises(ApiError) as refused:
        embedder_settings.merge_embedders(full, decoded({"one more": manual}))
    assert refused.value.message == "Too many embedders in the configuration. Found 257, but limited to 256."


def test_answers_fill_the_defaults_of_the_source() -> None:
    assert list(resolve_embedders({"e": {**REST, "dimensions": 4}})["e"].items()) == [
        ("source", "rest"), ("dimensions", 4), ("documentTemplate", DEFAULT_TEMPLATE),
        ("documentTemplateMaxBytes", 400), ("url", "http://localhost:1337"), ("request", "{{text}}"),
        ("response", "{{embedding}}"), ("headers", {}),
    ]
    assert "documentTemplate" not in resolve_embedders({"e": {**REST, "searchFragments": {"a": {"value": 1}}}})["e"]
    assert resolve_embedders({"e": {"source": "userProvided", "dimensions": 3}}) == {
        "e": {"source": "userProvided", "dimensions": 3}}
    assert resolve_embedders({"e": {}})["e"]["model"] == "text-embedding-3-small"


def test_defaults_of_a_nested_embedder_are_those_it_may_have() -> None:
    shown = resolve_embedders({"e": {"source": "composite", "searchEmbedder": REST, "indexingEmbedder": REST}})["e"]
    assert "documentTemplate" not in shown["searchEmbedder"]
    assert shown["indexingEmbedder"]["documentTemplate"] == DEFAULT_TEMPLATE


def test_secrets_are_hidden_in_nested_embedders_too() -> None:
    shown = redact_embedders({"e": {"searchEmbedder": {"apiKey": "k", "url": "http://u:p@h", "headers": {"x-api-key": "k", "x": "y"}},
                                    "apiKey": None}, "gone": None})
    hidden = {"apiKey": "XXX...", "url": "http://XXX...:XXX...@h", "headers": {"x-api-key": "k", "x": "y"}}
    assert shown == {"e": {"searchEmbedder": hidden, "apiKey": None}, "gone": None}


def test_features_are_asked_for_in_order() -> None:
    change = decode_value({"e": {"source": "composite", "searchEmbedder": {"searchFragments": {}}}, "gone": None},
                          embedder_settings.embedders)
    assert [action for _, action in embedder_settings.features_used(change)] == [
        "setting `searchFragments`", 'using `"composite"` as source', "setting `searchEmbedder`"]


# Templates


def useless(*changes: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        after(*changes)
    assert refused.value.code == "vector_embedding_error"
    return refused.value.message.removeprefix("Error while generating embeddings: user error: ")


TEXT_NOTE = ('\n  - Note: this template is using a document template, and so expects to contain the placeholder "{{text}}" '
             'rather than "{{fragment}}"')
FRAGMENT_NOTE = ('\n  - Note: this template is using fragments, and so expects to contain the placeholder "{{fragment}}" '
                 'rathern than "{{text}}"')
BOTH = {"indexingFragments": {"a": {"value": "{{doc.a}}"}}, "searchFragments": {"b": {"value": "{{q}}"}}}


@pytest.mark.parametrize("members, message", [
    ({"request": 42}, 'in `request`: "{{text}}" not found' + TEXT_NOTE),
    ({"request": 42, **BOTH}, 'in `request`: "{{fragment}}" not found' + FRAGMENT_NOTE),
    ({"request": "{{fragment}}", "indexingFragments": None}, 'in `request`: "{{text}}" not found' + TEXT_NOTE),
    ({"response": 42}, 'in `response`: "{{embedding}}" not found'),
    ({"response": ["{{embedding}}", "{{..}}"]},
     "in `response`: `response` has multiple embeddings, but `request` has only one text to embed"),
    ({"request": ["{{text}}", "{{..}}"]},
     "in `response`: `response` has a single embedding, but `request` has multiple texts to embed"),
    ({"request": "{{fragment}}", **BOTH, "documentTemplate": "x"},
     "cannot pass both fragments and a document template.\n  - Note: 1 fragments declared in `indexingFragments` and 1 fragments "
     "declared in `search_fragments_len`.\n  - Hint: remove the declared fragments or remove the `documentTemplate`"),
])
def test_templates_of_a_change_are_checked(members: dict[str, Any], message: str) -> None:
    assert useless({"e": {**REST, **members}}) == message


def test_a_change_may_leave_out_stored_fragments() -> None:
    fragmented = {**REST, "request": "{{fragment}}", **BOTH}
    assert after({"e": fragmented}, {"e": {"request": ["{{fragment}}"]}})["e"]["request"] == ["{{fragment}}"]
    assert useless({"e": fragmented}, {"e": {"request": "{{text}}"}}) == (
        'in `request`: "{{fragment}}" not found' + FRAGMENT_NOTE)


def test_fragments_come_in_pairs() -> None:
    rest = {**REST, "request": "{{fragment}}"}
    many = {"indexingFragments": {name: {"value": 1} for name in "dcba"}}
    assert useless({"e": {**rest, **many}}) == (
        "inconsistent fragments: `searchFragments` is empty, but `indexingFragments` declares 4 fragments: a, b, c, ...\n"
        " - Hint: declare at least one fragment in `searchFragments` or remove fragments from `indexingFragments` by setting "
        "them to `null`")
    assert useless({"e": {**rest, "searchFragments": BOTH["searchFragments"]}}) == (
        "inconsistent fragments: `indexingFragments` is empty, but `searchFragments` declares 1 fragments: b\n"
        "  - Hint: declare at least one fragment in `indexingFragments` or remove fragments from `searchFragments` by setting "
        "them to `null`")


def test_a_document_template_parses() -> None:
    message = refusal({**REST, "documentTemplate": "{{ doc.a"})
    assert message.startswith("`.embedders.e.documentTemplate`: Invalid template: user error: cannot parse template: liquid: ")


@pytest.mark.parametrize("template", ["{{ title }}", "{% for field in fields %}{{ field.names }}{% endfor %}"])
def test_a_document_template_uses_what_there_is(template: str) -> None:
    message = refusal({**REST, "documentTemplate": template})
    assert message.startswith(
        "`.embedders.e.documentTemplate`: Invalid template: user error: template contains invalid fields: liquid: Unknown ")
    assert message.endswith(". Only `doc.*`, `fields[i].name`, `fields[i].value` are supported.")


@pytest.mark.parametrize("template", [
    DEFAULT_TEMPLATE, "{{ doc.a.b[0].c }}", "{{ doc.genres | join: ', ' }}", "{{ doc.n | plus: 1 }}", "{{ fields[0].value }}",
    "{% for x in doc.list %}{{ x.y }}{% endfor %}", "{% assign a = doc.b %}{{ a.c }}", "{% if doc.a == 1 %}{% endif %}", "", "x",
])
def test_document_templates_of_use(template: str) -> None:
    decoded({"e": {**REST, "documentTemplate": template}})


def test_a_local_file_is_a_source() -> None:
    stored = after({"e": {"source": "staticFile", "model": "glove"}})
    assert resolve_embedders(stored)["e"]["documentTemplate"] == DEFAULT_TEMPLATE
    assert refusal({"source": "staticFile"}) == (
        "`.embedders.e`: Missing field `model` (note: this field is mandatory for source `staticFile`)")
    for name in ("../glove", ".glove", "a/b", ""):
        assert "is not the name of a file" in refusal({"source": "staticFile", "model": name})
    with pytest.raises(ApiError) as refused:
        decoded({"e": {"source": "x"}})
    assert "staticFile" not in refused.value.message


def test_passages_are_a_member_of_embedders_with_a_template() -> None:
    assert after({"e": {**REST, "chunk": {}}})["e"]["chunk"] == {"words": 200, "overlap": 40}
    assert after({"e": {**REST, "chunk": {"words": 50}}})["e"]["chunk"] == {"words": 50, "overlap": 10}
    assert "chunk" not in after({"e": {**REST, "chunk": {}}}, {"e": {"chunk": None}})["e"]
    assert after({"e": {"source": "composite", "searchEmbedder": REST, "indexingEmbedder": {**REST, "chunk": {}}}})
    for wrong, message in (({"words": 0}, "`words` must be from 1 to 10000, got 0"), ({"words": 10, "overlap": 6}, "half of `words`, 5, got 6"),
                           ({"word": 1}, "Unknown field `word`")):
        assert message in refusal({**REST, "chunk": wrong})
    assert "unavailable for source `userProvided`" in refusal({"source": "userProvided", "dimensions": 2, "chunk": {}})
    assert "this embedder has fragments" in refusal({
        **REST, "request": "{{fragment}}", "dimensions": 2, "chunk": {}, "indexingFragments": {"a": {"value": "{{doc.a}}"}},
        "searchFragments": {"q": {"value": "{{q}}"}}})
