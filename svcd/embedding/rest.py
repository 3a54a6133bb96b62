"""Embedders that call a service: any with a JSON interface (`rest`), OpenAI and compatible services, Ollama."""
from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from svcd.base import json_text, logs
from svcd.base.errors import ApiError
from svcd.embedding.embedder import (
    DEFAULT_SEARCH_DEADLINE_S, NO_MEDIA, RUNTIME, USER, EmbeddingError, Environment, QueryCache, RequestCounts,
    ServiceError)
from svcd.embedding.service import REST, Endpoint, Service, Wording
from svcd.embedding.tokens import MOST_TOKENS, first_tokens, shorter_texts
from svcd.schema.embedder_settings import OPEN_AI_MODELS, USELESS, fragments, parse_fragments
from svcd.schema.exchange_templates import EMBEDDING, REPEAT, TEXT, TemplateMismatch, request_template, response_template
from svcd.templates import JsonTemplate, TemplateError, search_variables

# Texts per request, for services that take several.
TEXTS_PER_REQUEST = 10
# Most of the time is spent waiting for responses. More concurrent requests mean less waiting, up to the limit of small services.
REQUESTS_AT_ONCE = 8
TEST_TEXT = "test"
OPEN_AI_URL = "https://api.openai.com/v1/embeddings"
OPEN_AI_KEY_VARIABLES = ("SVC_OPENAI_API_KEY", "OPENAI_API_KEY")
OLLAMA_URL_VARIABLE, DEFAULT_OLLAMA_URL = "SVC_OLLAMA_URL", "http://localhost:11434/api/embeddings"

_OPEN_AI = Wording("OpenAI", "\n  - Hint: Check the `apiKey` parameter in the embedder configuration, and the "
                             "`SVC_OPENAI_API_KEY` and `OPENAI_API_KEY` environment variables")
_OLLAMA = Wording("Ollama")

# Sends one request: (the inputs to inject, expected number of vectors) -> vectors. Raises EmbeddingError.
Send = Callable[[Sequence[Any], int], "list[array[float]]"]


class RestEmbedder:
    """An embedder of the source `rest`, and the base class for the other services. See embedder.Embedder."""

    requests_at_once = REQUESTS_AT_ONCE
    no_media = ("`media` requested, and the configuration has source `rest`, but the configuration doesn't have "
                "`searchFragments`.")

    def __init__(self, endpoint: Endpoint, environment: Environment, dimensions: int | None,
                 has_fragments: bool = False, search_fragments: Mapping[str, Any] | None = None) -> None:
        """dimensions: None to ask the service. has_fragments: inputs are rendered fragments, not texts.

        search_fragments: build the inputs of queries; None to use the text of the query.
        """
        self._service = Service(endpoint, environment)
        self._environment, self._dimensions = environment, dimensions
        self._search_fragments = search_fragments and {
            name: JsonTemplate.parse(value) for name, value in search_fragments.items()}
        self._has_fragments = has_fragments
        self.inputs_per_request = TEXTS_PER_REQUEST if endpoint.request.is_repeated else 1
        self._cache = QueryCache(environment.query_cache_entries)
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._running: set[threading.Event] = set()

    # Dimensions

    @property
    def known_dimensions(self) -> int | None:
        """The length of the vectors, if the service need not be asked for it."""
        return self._dimensions

    def dimensions(self) -> int:
        """As in Embedder."""
        return self._dimensions or self._asked_dimensions(None)

    def _asked_dimensions(self, deadline: float | None) -> int:
        with self._asking:
            if self._dimensions is not None:
                return self._dimensions
            if self._has_fragments:
                raise EmbeddingError(USER, "cannot infer `dimensions` for an embedder using `indexingFragments`.\n  - Note: "
                                           "Specify `dimensions` explicitly or don't use `indexingFragments`.")
            try:
                with self._run() as stop:
                    self._dimensions = len(self._request([TEST_TEXT], None, stop, None, deadline)[0])
            except EmbeddingError as failure:
                raise EmbeddingError(
                    RUNTIME, f"could not determine model dimensions:\n  - test embedding failed with {failure}") from None
            return self._dimensions

    # Vectors

    def embed(self, inputs: Sequence[Any], counts: RequestCounts | None = None) -> list[array[float]]:
        """As in Embedder."""
        dimensions = self.dimensions() if inputs else 0
        size = self.inputs_per_request
        parts = [inputs[start:start + size] for start in range(0, len(inputs), size)]
        with self._run() as stop:
            if len(parts) < 2:
                return [vector for part in parts for vector in self._request(part, dimensions, stop, counts, None)]
            with ThreadPoolExecutor(min(len(parts), self.requests_at_once), "svcd-embedding") as pool:
                futures = [pool.submit(self._request, part, dimensions, stop, counts, None) for part in parts]
                done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
                failed = [future for future in futures if future in done and future.exception() is not None]
                if failed:  # the first error ends the other requests
                    stop.set()
                    for future in waiting:
                        future.cancel()
                    raise failed[0].exception()  # type: ignore[misc]  # `failed` has only calls with an exception
                return [vector for future in futures for vector in future.result()]

    def embed_query(self, q: str | None, media: Any = None, within_s: float = DEFAULT_SEARCH_DEADLINE_S) -> array[float]:
        """As in Embedder."""
        is_text = media is None and q is not None
        if is_text and (kept := self._cache.get(q or "")) is not None:
            return kept
        deadline = self._environment.clock() + within_s
        prompt = self._prompt(q, media)
        dimensions = self._dimensions or self._asked_dimensions(deadline)
        with self._run() as stop:
            vector = self._request([prompt], dimensions, stop, None, deadline)[0]
        if is_text:
            self._cache.put(q or "", vector)
        return vector

    def _prompt(self, q: str | None, media: Any) -> Any:
        """Return the input for a query: its text, or the only search fragment that can be rendered."""
        if self._search_fragments is None:
            if media is not None or q is None:
                raise EmbeddingError(USER, self.no_media)
            return q
        rendered = {}
        for name, fragment in self._search_fragments.items():
            try:
                rendered[name] = fragment.render(search_variables(q, media))
            except TemplateError:  # the fragment does not suit this query
                continue
        if len(rendered) == 1:
            return next(iter(rendered.values()))
        query = json_text.dumps({"q": q, "media": media})
        if not rendered:
            raise EmbeddingError(USER, f"Query matches no search fragment.\n  - Note: {query}")
        first, second, *_ = rendered
        raise EmbeddingError(USER, f"Query matches multiple search fragments.\n  - Note: First matched fragment `{first}`.\n"
                                   f"  - Note: Second matched fragment `{second}`.\n  - Note: {query}")

    def _request(self, inputs: Sequence[Any], dimensions: int | None, stop: threading.Event, counts: RequestCounts | None,
                 deadline: float | None) -> list[array[float]]:
        """Return the vectors of the inputs of one request. Raises EmbeddingError."""
        return self._sent(inputs, lambda sent, count: self._service.vectors(sent, count, dimensions, stop, counts, deadline))

    def _sent(self, inputs: Sequence[Any], send: Send) -> list[array[float]]:
        """Send the inputs of one request. Subclasses handle errors of their service."""
        return send(inputs, len(inputs))

    @contextmanager
    def _run(self) -> Iterator[threading.Event]:
        """The context of a call; yields an event that abort() sets."""
        stop = threading.Event()
        with self._lock:
            self._running.add(stop)
        try:
            yield stop
        finally:
            with self._lock:
                self._running.discard(stop)

    def abort(self) -> None:
        """As in Embedder."""
        with self._lock:
            for stop in self._running:
                stop.set()
        self._service.abort()


class OpenAiEmbedder(RestEmbedder):
    """OpenAI, or a service with its interface. Texts that exceed the limit of the model are shortened."""

    no_media = NO_MEDIA

    def _sent(self, inputs: Sequence[Any], send: Send) -> list[array[float]]:
        try:
            return send(inputs, len(inputs))
        except ServiceError as error:
            if error.status != 400:
                raise
            logs.warn("the embedding service rejects a request, maybe for long texts; each is sent alone, and shortened")
            refusal = error if len(inputs) == 1 else None
        return [self._shortened(text, refusal, send) for text in inputs]

    def _shortened(self, text: str, refusal: ServiceError | None, send: Send) -> array[float]:
        """Return the vector of one text, its first tokens, or its beginning. refusal: of the whole text, if it was sent alone."""
        tokens = first_tokens(text, self._environment.models)
        if tokens is not None and len(tokens) >= MOST_TOKENS:
            return send(tokens, 1)[0]  # token numbers instead of a text are one input
        for part in (text,) if tokens is not None else (text, *shorter_texts(text)):
            if part is text and refusal is not None:
                continue
            try:
                return send([part], 1)[0]
            except ServiceError as error:
                if error.status != 400:
                    raise
                refusal = error
        assert refusal is not None
        raise refusal


class OllamaEmbedder(RestEmbedder):
    """Ollama, with one of its two interfaces. It can only use models that were pulled before."""

    no_media = NO_MEDIA

    def _sent(self, inputs: Sequence[Any], send: Send) -> list[array[float]]:
        try:
            return send(inputs, len(inputs))
        except ServiceError as error:
            if error.status != 404:
                raise
            reason = ("model not found. Svc will not automatically download models from the Ollama library, please pull the "
                      "model manually")
            raise ServiceError(USER, reason, error.status, error.reply) from None


def rest_embedder(settings: Mapping[str, Any], environment: Environment, dimensions: int | None,
                  is_part: bool = False) -> RestEmbedder:
    """Return the embedder of settings of the source `rest`. Raises EmbeddingError.

    is_part: of a composite embedder, where queries do not use search fragments (quirk).
    """
    searching = fragments(settings, "searchFragments")
    has_fragments = bool(searching or fragments(settings, "indexingFragments"))
    try:
        parse_fragments(settings)
    except ApiError as refusal:
        raise EmbeddingError(USER, refusal.message.removeprefix(USELESS)) from None
    endpoint = _endpoint(settings["url"], settings.get("apiKey"), settings.get("headers") or {}, settings["request"],
                         settings["response"], REST, has_fragments)
    return RestEmbedder(endpoint, environment, settings.get("dimensions") or dimensions, has_fragments,
                        searching if has_fragments and not is_part else None)


def open_ai_embedder(settings: Mapping[str, Any], environment: Environment, dimensions: int | None) -> OpenAiEmbedder:
    """Return the embedder of settings of the source `openAi`."""
    model = settings["model"]
    native, may_be_fewer = OPEN_AI_MODELS.get(model, (None, True))
    wanted = settings.get("dimensions") if may_be_fewer else None
    request = {"model": model, "input": [TEXT, REPEAT]} | ({"dimensions": wanted} if wanted else {})
    response = {"data": [{"embedding": EMBEDDING}, REPEAT]}
    key = settings.get("apiKey")
    if key is None:
        key = next((environment.variables[name] for name in OPEN_AI_KEY_VARIABLES if environment.variables.get(name)), None)
    endpoint = _endpoint(settings.get("url") or OPEN_AI_URL, key, {}, request, response, _OPEN_AI)
    return OpenAiEmbedder(endpoint, environment, wanted or native or dimensions)


def ollama_embedder(settings: Mapping[str, Any], environment: Environment, dimensions: int | None) -> OllamaEmbedder:
    """Return the embedder of settings of the source `ollama`. Raises EmbeddingError."""
    url = settings.get("url") or environment.variables.get(OLLAMA_URL_VARIABLE) or DEFAULT_OLLAMA_URL
    request: dict[str, Any] = {"model": settings["model"]}
    response: dict[str, Any]
    if url.endswith("/api/embeddings"):
        request, response = request | {"prompt": TEXT}, {"embedding": EMBEDDING}
    elif url.endswith("/api/embed"):
        request, response = request | {"input": [TEXT, REPEAT]}, {"embeddings": [EMBEDDING, REPEAT]}
    else:
        raise EmbeddingError(USER, "unsupported Ollama URL.\n  - For `ollama` sources, the URL must end with `/api/embed` or "
                                   f"`/api/embeddings`\n  - Got `{url}`")
    endpoint = _endpoint(url, settings.get("apiKey"), {}, request, response, _OLLAMA)
    return OllamaEmbedder(endpoint, environment, settings.get("dimensions") or dimensions)


def _endpoint(url: str, api_key: str | None, headers: Mapping[str, str], request: Any, response: Any, wording: Wording,
              has_fragments: bool = False) -> Endpoint:
    try:
        sent = request_template(request, has_fragments)
        return Endpoint(url, api_key, headers, sent, response_template(response, sent), wording)
    except TemplateMismatch as mismatch:
        raise EmbeddingError(USER, str(mismatch)) from None
