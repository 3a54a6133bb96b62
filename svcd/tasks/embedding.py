"""Renders the inputs of embedders from documents, and embeds them; keeps results for later attempts.

svcd.tasks.document_vectors decides what an index embeds, and when.
"""
from __future__ import annotations

import json
import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from svcd.base.errors import ApiError
from svcd.index.kept_embeddings import ALONE, AWAIT, COUNT, SHARE, KeptEmbeddings, embedding_key
from svcd.index.vector_reader import EmbedderRow
from svcd.schema.embedder_settings import DEFAULT_TEMPLATE, indexing_fragments, indexing_part
from svcd.schema.index_settings import IndexSettings

if TYPE_CHECKING:
    from svcd.embedding import Embedder, Embedders, RequestCounts
    from svcd.templates import JsonTemplate, Template

Document = Mapping[str, Any]
# Number of the indexing fragment, or of the passage, None for a whole document template -> rendered input.
Inputs = dict["int | None", Any]
Report = Callable[[int, int], None]  # number of embedded inputs, and their total

USER_PROVIDED = "userProvided"
EMBEDDING = "embedding"  # the step of a batch
CODE = "vector_embedding_error"
_DIMENSIONS = {"asked": "dimensions"}  # instead of an input
_MISSING = "missing field in document `{id}`: {error}"

# Members that determine the vectors, besides the members that the inputs are rendered with.
IDENTITY = ("source", "model", "modelPath", "revision", "pooling", "url", "request", "response", "dimensions")
# Embedders whose vectors cost less to make again than to keep, and are the same on every machine.
_LOCAL = frozenset(("staticFile", USER_PROVIDED))

# Failures that indexing ignores, so that documents get no vectors: words of this variable, separated by commas.
FAILURE_MODES = "SVC_EXPERIMENTAL_CONFIG_EMBEDDER_FAILURE_MODES"
_IGNORE_TEMPLATES, _IGNORE_EMBEDDERS = "ignore_document_template_failures", "ignore_embedder_failures"

_answers = ALONE
_networks: tuple[str, ...] = ()
_embedders: Embedders | None = None
_counts: RequestCounts | None = None  # of the batch; None before its first request
_spent = {"inputs": 0, "embedding_s": 0.0}  # of the batch: the embedded inputs, and the seconds that they took
# Of a dry run: embedder -> vectors to make, calls of its service; the keys of inputs that the batch would have kept by now.
_counted: dict[str, Counter[str]] = {}
_counted_keys: set[bytes] = set()
# The dimensions of a service that would be asked for them: a frequent number, for estimates of bytes.
_ASSUMED_DIMENSIONS = 768


class AnswersNeeded(Exception):
    """The batch needs answers of services, and only the leader of the cluster may call them."""


def begin_batch(networks: Sequence[str], answers: str = ALONE) -> None:
    """Set the private networks that embedders of this process may call, a launch option of the daemon; reset the counts.

    answers: ALONE, SHARE on the leader of a cluster, AWAIT on its other nodes, COUNT in a dry run.
    """
    global _networks, _embedders, _counts, _answers
    _counts = None
    _spent.update(inputs=0, embedding_s=0.0)
    _counted.clear()
    _counted_keys.clear()
    _answers = answers
    if tuple(networks) != _networks:
        _networks, _embedders = tuple(networks), None


def is_shared() -> bool:
    """Return whether the answers of services are kept after the batch, for the other nodes of a cluster."""
    return _answers != ALONE


def spent() -> dict[str, float]:
    """Return the number of inputs that were embedded since begin_batch(), and the seconds that it took."""
    return dict(_spent)


def counted() -> dict[str, dict[str, int]]:
    """Return embedder -> {"made": vectors that a dry run would make, "calls": requests to its service}."""
    return {name: {"made": counts["made"], "calls": counts["calls"]} for name, counts in _counted.items()}


def request_counts() -> dict[str, Any] | None:
    """Return the requests to services since begin_batch(), as batches show them; None without requests."""
    if _counts is None or not _counts.total:
        return None
    return {"total": _counts.total, "failed": _counts.failed, "lastError": _counts.last_error}


def _kept_counts() -> RequestCounts:
    global _counts
    if _counts is None:
        from svcd.embedding import RequestCounts

        _counts = RequestCounts()
    return _counts


def _kept_embedders() -> Embedders:
    """Return the embedders of this process, with their connections."""
    global _embedders
    if _embedders is None:
        # Imported late: few indexes have an embedder that makes vectors.
        from svcd.embedding import Embedders, Environment
        from svcd.remote.guard import Guard

        _embedders = Embedders(Environment(guard=Guard(tuple(map(ip_network, _networks)))))
    return _embedders


class Source:
    """The source of the vectors of one embedder.

    settings: of the embedder, resolved. index: settings of the index. row: the embedder in the index file; None before it is
    added.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], index: IndexSettings, row: EmbedderRow | None = None) -> None:
        self.name, self.settings = name, settings
        self._is_searchable = index.searchable.__contains__
        self._row = row
        # A composite embedder renders and embeds documents like its part for indexing.
        self._indexing = indexing_part(settings)

    @property
    def is_user_provided(self) -> bool:
        """Whether users give all vectors."""
        return self.settings["source"] == USER_PROVIDED

    @property
    def has_fragments(self) -> bool:
        """Whether a document has vectors of indexing fragments, instead of one vector of a document template."""
        return bool(indexing_fragments(self.settings))

    @cached_property
    def _embedder(self) -> Embedder:
        return _kept_embedders().get(self.settings, self._row.dimensions if self._row else None)

    def dimensions(self, kept: KeptEmbeddings) -> int:
        """Return the length of the vectors; ask the service if the settings do not give it. Raises vector_embedding_error."""
        if self.is_user_provided:
            return int(self.settings["dimensions"])
        from svcd.embedding import EmbeddingError

        try:
            if _answers == COUNT and self._indexing["source"] not in _LOCAL:
                return self._counted_dimensions()
            if _answers == ALONE or self._indexing["source"] in _LOCAL:
                return self._embedder.dimensions()
            key = embedding_key(self._identity, _DIMENSIONS)
            found = kept.find([key])
            if not found:
                vectors = self._asked([key], lambda: [array("f", [self._embedder.dimensions()])], kept)
                kept.keep([key], vectors)
                found = {key: vectors[0]}
            return int(found[key][0])
        except EmbeddingError as error:
            raise ApiError(CODE, error.while_generating()) from None

    def _counted_dimensions(self) -> int:
        """Return the length of the vectors as far as it is known, and count the request that would ask for it."""
        known = getattr(self._embedder, "known_dimensions", None)
        if known is None and self.has_fragments:
            return self._embedder.dimensions()  # refuses
        if known is None:
            _counted.setdefault(self.name, Counter())["calls"] += 1
        return int(known or (self._row.dimensions if self._row else _ASSUMED_DIMENSIONS))

    def _count(self, keys: Sequence[bytes]) -> None:
        """Count inputs that would be embedded together."""
        counts = _counted.setdefault(self.name, Counter())
        counts["made"] += len(keys)
        if self._indexing["source"] not in _LOCAL:
            counts["calls"] += -(-len(keys) // self._embedder.inputs_per_request)
            _counted_keys.update(keys)

    def _asked(self, keys: Sequence[bytes], ask: Callable[[], Sequence[array[float]]], kept: KeptEmbeddings
               ) -> Sequence[array[float]]:
        """Return the answer of a service. Raises EmbeddingError; AnswersNeeded on a node that must not call the service."""
        from svcd.embedding import EmbeddingError

        if _answers == AWAIT:
            failure = kept.failure(keys)
            if failure is None:
                raise AnswersNeeded
            raise EmbeddingError(*failure)
        try:
            return ask()
        except EmbeddingError as error:
            if _answers == SHARE:
                kept.keep_failure(keys, error.fault, error.reason)
            raise

    @cached_property
    def _ignored(self) -> frozenset[str]:
        """The words of FAILURE_MODES. Raises vector_embedding_error for an unknown word."""
        words = frozenset(filter(None, map(str.strip, os.environ.get(FAILURE_MODES, "").split(","))))
        if unknown := sorted(words - {_IGNORE_TEMPLATES, _IGNORE_EMBEDDERS}):
            raise ApiError(CODE, f"Unknown word `{unknown[0]}` in the variable `{FAILURE_MODES}`: expected "
                                 f"`{_IGNORE_TEMPLATES}` or `{_IGNORE_EMBEDDERS}`.")
        return words

    # Inputs

    @cached_property
    def _template(self) -> Template:
        from svcd.templates import Template

        return self._parsed(Template.parse, self._indexing.get("documentTemplate") or DEFAULT_TEMPLATE)

    @cached_property
    def _fragments(self) -> Sequence[tuple[int, JsonTemplate]]:
        from svcd.templates import JsonTemplate

        found = indexing_fragments(self.settings)
        assert self._row
        return sorted(((self._row.fragments[name], self._parsed(JsonTemplate.parse, fragment["value"], name))
                       for name, fragment in found.items()), key=lambda each: each[0])

    def _parsed(self, parse: Callable[[Any], Any], value: Any, fragment: str = "") -> Any:
        from svcd.templates import TemplateError

        try:
            return parse(value)
        except TemplateError as error:
            reason = error.while_parsing(f".indexingFragments.{fragment}" if fragment else "")
            raise ApiError(CODE, f"Error while generating embeddings: user error: {reason}") from None

    def inputs(self, document_id: str, document: Document) -> Inputs:
        """Return the inputs of a document: its rendered template or the passages of it, or each fragment that can be rendered.

        Raises vector_embedding_error for a template that cannot be rendered.
        """
        from svcd.templates import TemplateError, document_variables, fragment_variables

        is_ignored = _IGNORE_TEMPLATES in self._ignored
        if not self.has_fragments:
            try:
                text = self._template.render(document_variables(document, self._is_searchable))
            except TemplateError as error:
                if is_ignored:
                    return {}
                raise ApiError(CODE, _MISSING.format(id=document_id, error=error.message)) from None
            if chunk := self._indexing.get("chunk"):
                from svcd.templates.passages import passages  # few embedders divide texts

                return dict(enumerate(passages(text, **chunk)))
            return {None: text}
        variables = fragment_variables(document)
        found: Inputs = {}
        for number, template in self._fragments:
            try:
                found[number] = template.render(variables)
            except TemplateError:  # then the document gets no vector of this fragment
                pass
        return found

    def known_inputs(self, document_id: str, document: Document) -> Inputs | None:
        """Return inputs() of an earlier state of a document; None if it cannot be rendered."""
        try:
            return self.inputs(document_id, document)
        except ApiError:
            return None

    # Calls

    @cached_property
    def _identity(self) -> str:
        return json.dumps({member: self._indexing.get(member) for member in IDENTITY}, sort_keys=True)

    def embed(self, inputs: Sequence[Any], kept: KeptEmbeddings, report: Report = lambda finished, total: None
              ) -> list[array[float] | None]:
        """Return one vector for each input. Equal inputs are sent once, and inputs that an earlier attempt embedded are not sent.

        A failure of the embedder raises EmbeddingError, or gives None for its inputs if FAILURE_MODES ignores it.
        """
        from svcd.embedding import EmbeddingError

        keys = [embedding_key(self._identity, each) for each in inputs]
        is_local = self._indexing["source"] in _LOCAL
        if _answers == COUNT:
            assert self._row
            zero = array("f", bytes(4 * self._row.dimensions))
            vectors = dict.fromkeys(_counted_keys.intersection(keys), zero)
        else:
            vectors = {} if is_local else kept.find(dict.fromkeys(keys))
        missing = {key: each for key, each in zip(keys, inputs) if key not in vectors}
        wanted = list(missing)
        portion = max(1, self._embedder.inputs_per_request * self._embedder.requests_at_once)
        for start in range(0, len(wanted), portion):
            part = wanted[start:start + portion]
            texts = [missing[key] for key in part]
            if _answers == COUNT:
                self._count(part)
                vectors.update(dict.fromkeys(part, zero))
                continue
            begun = time.perf_counter()
            try:
                if is_local:
                    made: Sequence[array[float]] = self._embedder.embed(texts, _kept_counts())
                else:
                    made = self._asked(part, partial(self._embedder.embed, texts, _kept_counts()), kept)
            except EmbeddingError:
                if _IGNORE_EMBEDDERS not in self._ignored:
                    raise
                continue
            if not is_local:
                kept.keep(part, made)
            vectors.update(zip(part, made))
            _spent["inputs"] += len(part)
            _spent["embedding_s"] += time.perf_counter() - begun
            report(start + len(part), len(wanted))
        return [vectors.get(key) for key in keys]
