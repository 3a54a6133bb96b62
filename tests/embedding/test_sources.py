"""What must hold of the sources of embedders:

1. Each sends what its service reads, and reads what it sends.
2. Unknown dimensions are those of the text `test`, asked for once; not with fragments.
3. OpenAI: lowered dimensions are sent; after a 400 each text is sent alone, a long one shortened; keys come from the environment.
4. Ollama: two interfaces, told apart by the address; a missing model is said.
5. Queries: search fragments, of which exactly one must match; media; the cache.
6. A composite embedder has parts of one kind of vectors.
7. Without a model, and with one that svcd does not run, there are errors.
8. Embedders in use are kept by their settings.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from svcd.embedding import EmbeddingError, Embedders, Environment, embedder_of
from tests.support.scripted_server import Reply, ScriptedServer, by_body

Make = Callable[..., Environment]
FRAGMENTS = {
    "request": "{{fragment}}", "response": {"data": "{{embedding}}"}, "dimensions": 2,
    "indexingFragments": {"a": {"value": "{{ doc.name }}"}},
    "searchFragments": {"breed": {"value": {"b": "a {{ media.breed }}"}}, "name": {"value": "{{ media.name }}"},
                        "query": {"value": "about {{ q }}"}},
}


def message(call: Callable[..., Any], *given: Any) -> str:
    with pytest.raises(EmbeddingError) as error:
        call(*given)
    return str(error.value)


def vectors_of(body: Any) -> Reply:
    return Reply({"data": [{"embedding": [len(text), 1.0]} for text in body["input"]]})


# 2. Dimensions


def test_unknown_dimensions_are_asked_for_once(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply([1, 2, 3])]
    settings = {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}"}
    embedder = embedder_of(settings, environment())
    assert service.requests == []
    assert (embedder.dimensions(), embedder.dimensions(), len(embedder.embed(["x"])[0])) == (3, 3, 3)
    assert service.bodies == ["test", "x"]
    assert embedder_of(settings, environment(), 3).dimensions() == 3
    assert len(service.requests) == 2


def test_unknown_dimensions_of_a_bad_service(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply(b"no", 404)]
    embedder = embedder_of({"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}"}, environment())
    assert message(embedder.dimensions) == (
        "runtime error: could not determine model dimensions:\n  - test embedding failed with error: received unexpected HTTP 404 "
        "from embedding server\n  - server replied with `no`")


def test_dimensions_of_fragments_must_be_given(environment: Make) -> None:
    settings = {"source": "rest", "url": "http://127.0.0.1:1", **FRAGMENTS, "dimensions": None}
    assert message(embedder_of(settings, environment()).dimensions) == (
        "user error: cannot infer `dimensions` for an embedder using `indexingFragments`.\n  - Note: Specify `dimensions` "
        "explicitly or don't use `indexingFragments`.")


# 3. OpenAI


@pytest.mark.parametrize("members, dimensions, sent", [
    ({}, 1536, {"model": "text-embedding-3-small"}),
    ({"model": "text-embedding-3-large"}, 3072, {"model": "text-embedding-3-large"}),
    ({"model": "text-embedding-3-large", "dimensions": 2}, 2, {"model": "text-embedding-3-large", "dimensions": 2}),
    ({"model": "text-embedding-ada-002", "dimensions": 1536}, 1536, {"model": "text-embedding-ada-002"}),
    ({"model": "of-another-maker", "dimensions": 2}, 2, {"model": "of-another-maker", "dimensions": 2}),
])
def test_models_of_openai(service: ScriptedServer, environment: Make, members: Any, dimensions: int, sent: Any) -> None:
    embedder = embedder_of({"source": "openAi", "url": service.url, **members}, environment())
    assert embedder.dimensions() == dimensions
    service.replies = [Reply({"data": [{"embedding": [0.0] * dimensions}] * 2})]
    assert len(embedder.embed(["a", "b"])) == 2
    assert service.bodies == [{**sent, "input": ["a", "b"]}]


@pytest.mark.parametrize("members, variables, sent", [
    ({}, {}, None),
    ({}, {"OPENAI_API_KEY": "b"}, "Bearer b"),
    ({}, {"OPENAI_API_KEY": "b", "SVC_OPENAI_API_KEY": "a"}, "Bearer a"),
    ({"apiKey": "c"}, {"SVC_OPENAI_API_KEY": "a"}, "Bearer c"),
    ({"apiKey": ""}, {"SVC_OPENAI_API_KEY": "a"}, None),
])
def test_keys_of_openai(service: ScriptedServer, environment: Make, members: Any, variables: Any, sent: str | None) -> None:
    service.replies = [Reply(b"no", 401)]
    embedder = embedder_of({"source": "openAi", "url": service.url, **members}, environment(**variables))
    assert message(embedder.embed, ["a"]) == (
        "user error: could not authenticate against OpenAI server\n  - server replied with `no`\n  - Hint: Check the `apiKey` "
        "parameter in the embedder configuration, and the `SVC_OPENAI_API_KEY` and `OPENAI_API_KEY` environment variables")
    assert service.requests[0].headers.get("authorization") == sent


def test_after_a_bad_request_each_text_is_sent_alone_and_long_ones_are_shortened(service: ScriptedServer, environment: Make) -> None:
    def at_most_20_kb(body: Any) -> Reply:
        return vectors_of(body) if sum(map(len, body["input"])) < 20_000 else Reply(b"too long", 400)

    service.replies = [by_body(at_most_20_kb)]
    embedder = embedder_of({"source": "openAi", "url": service.url, "model": "m", "dimensions": 2}, environment())
    long = "word " * 10_000
    assert [vector[0] for vector in embedder.embed(["short", long])] == [5, 2 * 8191]
    assert [[len(text) for text in body["input"]] for body in service.bodies] == [
        [5, 50_000], [5], [50_000], [4 * 8191], [2 * 8191]]
    assert embedder.embed([long])[0][0] == 2 * 8191
    assert [len(body["input"][0]) for body in service.bodies[5:]] == [50_000, 4 * 8191, 2 * 8191]


def test_a_bad_request_that_is_not_for_length_stays_one(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply(b"what?", 400)]
    embedder = embedder_of({"source": "openAi", "url": service.url}, environment())
    assert message(embedder.embed, ["a"]) == (
        "user error: sent a bad request to embedding server\n  - server replied with `what?`")
    assert len(service.requests) == 1


# 4. Ollama


def test_both_interfaces_of_ollama(service: ScriptedServer, environment: Make) -> None:
    settings = {"source": "ollama", "model": "nomic-embed-text", "dimensions": 2}
    service.replies = [Reply({"embeddings": [[1, 2], [3, 4]]})]
    assert len(embedder_of({**settings, "url": service.url}, environment()).embed(["a", "b"])) == 2
    service.replies = [Reply({"embedding": [1, 2]})]
    older = embedder_of(settings, environment(SVC_OLLAMA_URL=service.url + "dings"))
    assert len(older.embed(["a"])) == 1
    assert service.bodies == [{"model": "nomic-embed-text", "input": ["a", "b"]}, {"model": "nomic-embed-text", "prompt": "a"}]


def test_faults_of_ollama(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply(b"pull it", 404)]
    settings = {"source": "ollama", "model": "m", "url": service.url}
    missing = ("user error: model not found. Svc will not automatically download models from the Ollama library, please pull the "
               "model manually\n  - server replied with `pull it`")
    assert message(embedder_of({**settings, "dimensions": 2}, environment()).embed, ["a"]) == missing
    assert message(embedder_of(settings, environment()).dimensions) == (
        f"runtime error: could not determine model dimensions:\n  - test embedding failed with {missing}")
    assert message(embedder_of, {**settings, "url": "http://a/b"}, environment()) == (
        "user error: unsupported Ollama URL.\n  - For `ollama` sources, the URL must end with `/api/embed` or `/api/embeddings`\n"
        "  - Got `http://a/b`")


# 5. Queries


@pytest.mark.parametrize("q, media, sent", [
    ("dogs", None, "about dogs"),
    (None, {"breed": "lab"}, {"b": "a lab"}),
])
def test_the_search_fragment_that_matches_is_sent(service: ScriptedServer, environment: Make, q: Any, media: Any, sent: Any) -> None:
    service.replies = [Reply({"data": [1, 2]})]
    embedder = embedder_of({"source": "rest", "url": service.url, **FRAGMENTS}, environment())
    assert list(embedder.embed_query(q, media)) == [1, 2]
    assert service.bodies == [sent]


def test_no_or_several_search_fragments(service: ScriptedServer, environment: Make) -> None:
    embedder = embedder_of({"source": "rest", "url": service.url, **FRAGMENTS}, environment())
    assert message(embedder.embed_query, None, {"x": 1}) == (
        'user error: Query matches no search fragment.\n  - Note: {"q":null,"media":{"x":1}}')
    assert message(embedder.embed_query, "a", {"name": "b"}) == (
        "user error: Query matches multiple search fragments.\n  - Note: First matched fragment `name`.\n  - Note: Second matched "
        'fragment `query`.\n  - Note: {"q":"a","media":{"name":"b"}}')


def test_media_need_fragments(service: ScriptedServer, environment: Make) -> None:
    plain = {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}", "dimensions": 2}
    assert message(embedder_of(plain, environment()).embed_query, None, {}) == (
        "user error: `media` requested, and the configuration has source `rest`, but the configuration doesn't have "
        "`searchFragments`.")
    for settings in ({"source": "openAi"}, {"source": "ollama", "model": "m"}, {"source": "userProvided", "dimensions": 2}):
        assert message(embedder_of(settings, environment()).embed_query, None, {}) == (
            "user error: `media` requested but the configuration doesn't have source `rest`")


def test_vectors_of_queries_are_kept(service: ScriptedServer, environment: Make) -> None:
    service.replies = [by_body(lambda body: Reply([len(body), 1]))]
    settings = {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}", "dimensions": 2}
    embedder = embedder_of(settings, environment(query_cache_entries=2))
    for q in ("a", "b", "a", "c", "a", "b", "x" * 2001, "x" * 2001):
        assert embedder.embed_query(q)[0] == len(q)
    assert service.bodies == ["a", "b", "c", "b", "x" * 2001, "x" * 2001]
    without = embedder_of(settings, environment())
    without.embed_query("a"), without.embed_query("a")
    assert len(service.requests) == 8


# 6. Composite


def composite(service: ScriptedServer, **indexing: Any) -> dict[str, Any]:
    part = {"source": "rest", "url": service.url, "request": "{{text}}", "response": "{{embedding}}", "dimensions": 2}
    return {"source": "composite", "searchEmbedder": part, "indexingEmbedder": {**part, **indexing}}


def test_parts_of_a_composite_embedder_are_compared(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply([1, 2])]
    embedder = embedder_of(composite(service), environment())
    assert embedder.dimensions() == 2
    assert len(service.requests) == 6
    assert [list(vector) for vector in embedder.embed(["a"])] == [[1, 2]]
    assert list(embedder.embed_query("b")) == [1, 2]
    assert embedder_of(composite(service), environment(), 2).dimensions() == 2
    assert len(service.requests) == 8


def test_parts_that_do_not_match(service: ScriptedServer, environment: Make) -> None:
    beginning = "error: error while generating test embeddings.\n  - "
    assert message(embedder_of(composite(service, dimensions=3), environment()).dimensions) == (
        f"user {beginning}the dimensions of embeddings produced at search time and at indexing time don't match.\n"
        "  - Search time dimensions: 2\n  - Indexing time dimensions: 3\n"
        "  - Note: Dimensions of embeddings produced by both embedders are required to match.")
    service.replies = [by_body(lambda body: Reply({"e": [1, 0]} if isinstance(body, list) else [0, 1]))]
    other = {"request": ["{{text}}"], "response": {"e": "{{embedding}}"}}
    assert message(embedder_of(composite(service, **other), environment()).dimensions) == (
        f"user {beginning}the embeddings produced at search time and indexing time are not similar enough.\n"
        "  - angular distance 0.50\n  - Svc requires a maximum distance of 0.01.\n"
        "  - Note: check that both embedders produce similar embeddings.")
    service.replies = [Reply(b"no", 404)]
    assert message(embedder_of(composite(service), environment()).dimensions) == (
        f"runtime {beginning}could not generate test embedding with embedder at search time.\n  - Embedding failed with error: "
        "received unexpected HTTP 404 from embedding server\n  - server replied with `no`")


def test_a_composite_embedder_sends_queries_without_fragments(service: ScriptedServer, environment: Make) -> None:
    service.replies = [Reply({"data": [1, 2]})]
    parts = {role: {"source": "rest", "url": service.url, **FRAGMENTS, other: None} for role, other in (
        ("searchEmbedder", "indexingFragments"), ("indexingEmbedder", "searchFragments"))}
    embedder = embedder_of({"source": "composite", **parts}, environment())
    assert (embedder.dimensions(), list(embedder.embed_query("dogs"))) == (2, [1, 2])
    assert service.bodies == ["dogs"]
    assert "doesn't have source `rest`" in message(embedder.embed_query, None, {"breed": "a"})


# 7. and 8.


def test_embedders_without_a_model(environment: Make) -> None:
    manual = embedder_of({"source": "userProvided", "dimensions": 3}, environment())
    assert (manual.dimensions(), manual.embed([])) == (3, [])
    for call, given in ((manual.embed, ["Captain"]), (manual.embed_query, "Captain")):
        assert message(call, given) == ("user error: attempt to embed the following text in a configuration where embeddings must "
                                        "be user provided:\n  - `Captain`")


def test_templates_that_are_of_no_use(environment: Make) -> None:
    settings = {"source": "rest", "url": "http://a", "request": "{{text}}", "response": 4}
    assert message(embedder_of, settings, environment()) == 'user error: in `response`: "{{embedding}}" not found'
    broken = {**settings, **FRAGMENTS, "indexingFragments": {"a": {"value": {"x": "{{ doc"}}}}
    assert message(embedder_of, broken, environment()).startswith(
        "user error: in `.indexingFragments.a.x`, error while parsing template: liquid: ")


def test_embedders_in_use_are_kept(environment: Make) -> None:
    embedders = Embedders(environment(), most=2)
    manual = {"source": "userProvided", "dimensions": 3}
    first = embedders.get(manual)
    assert embedders.get(dict(manual)) is first
    assert embedders.get(manual, 3) is not first
    embedders.get({**manual, "dimensions": 4})
    assert embedders.get(manual) is not first
    embedders.abort()
