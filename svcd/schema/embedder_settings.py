"""The setting `embedders`: members of each source, checks, defaults, and the merge of a change with the stored value.

The checks need no call to the service: names of models are not checked, except names of OpenAI and of local files.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from svcd.base.errors import ApiError
from svcd.schema.exchange_templates import TemplateMismatch, request_template, response_template
from svcd.templates import DEFAULT_TEMPLATE as DEFAULT_TEMPLATE, JsonTemplate, Template, TemplateError
from svcd.validation import (
    Field, anything, boolean, map_of, nullable, number, object_of, one_of, parsed, positive_integer, string,
)
from svcd.validation.messages import name_list
from svcd.validation.urls import parse_url, redacted_secret, redacted_url

Embedder = dict[str, Any]

CODE = "invalid_settings_embedders"
EMBEDDING_CODE = "vector_embedding_error"
# Messages about fragments and templates of requests begin with this text.
USELESS = "Error while generating embeddings: user error: "
MAX_EMBEDDERS = 256
DEFAULT_SOURCE = "openAi"
DEFAULT_TEMPLATE_BYTES = 400
DEFAULT_PASSAGE_WORDS, MAX_PASSAGE_WORDS = 200, 10_000

_TEXT = ("documentTemplate", "documentTemplateMaxBytes", "chunk")
_ALWAYS = ("distribution", "binaryQuantized")
_FRAGMENTS = ("indexingFragments", "searchFragments")
_NESTED = ("searchEmbedder", "indexingEmbedder")
_DEFAULT_TEXT = {"documentTemplate": DEFAULT_TEMPLATE, "documentTemplateMaxBytes": DEFAULT_TEMPLATE_BYTES}


class Source(NamedTuple):
    """One source of embeddings. defaults: members that responses show although they were not set."""

    mandatory: tuple[str, ...]
    optional: tuple[str, ...]
    defaults: Mapping[str, Any]

    @property
    def members(self) -> frozenset[str]:
        """All members that may be set."""
        return frozenset(("source", *self.mandatory, *self.optional))


SOURCES: dict[str, Source] = {
    "openAi": Source((), ("model", "apiKey", "dimensions", *_TEXT, "url", *_ALWAYS),
                     {"model": "text-embedding-3-small", **_DEFAULT_TEXT}),
    "huggingFace": Source((), ("model", "modelPath", "revision", "pooling", *_TEXT, *_ALWAYS),
                          {"model": "BAAI/bge-base-en-v1.5", "pooling": "useModel", **_DEFAULT_TEXT}),
    "ollama": Source(("model",), ("apiKey", "dimensions", *_TEXT, "url", *_ALWAYS), _DEFAULT_TEXT),
    "userProvided": Source(("dimensions",), _ALWAYS, {}),
    "rest": Source(("url", "request", "response"), ("apiKey", "dimensions", *_TEXT, *_FRAGMENTS, "headers", *_ALWAYS),
                   {**_DEFAULT_TEXT, "headers": {}}),
    "composite": Source(_NESTED, _ALWAYS, {}),
}
# Sources and members that other engines do not have: accepted, but not listed in messages whose exact text clients know.
OWN_SOURCES: dict[str, Source] = {"staticFile": Source(("model",), (*_TEXT, *_ALWAYS), _DEFAULT_TEXT)}
ALL_SOURCES = SOURCES | OWN_SOURCES
OWN_MEMBERS = frozenset(("modelPath", "chunk"))
# The name of a file or folder in the folder of local models: a name cannot lead out of that folder.
LOCAL_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_DEFAULT_REVISION = "617ca489d9e86b49b8167676d8220688b99db36e"  # of the default model of huggingFace

# Models of OpenAI: (dimensions, whether fewer dimensions are possible).
OPEN_AI_MODELS = {
    "text-embedding-ada-002": (1536, False),
    "text-embedding-3-small": (1536, True),
    "text-embedding-3-large": (3072, True),
}


class _Place(NamedTuple):
    """The place where an embedder is defined: at the top, or in a composite embedder in one of its two roles."""

    role: str = ""
    note: str = ""
    forbidden: frozenset[str] = frozenset()

    def path(self, name: str) -> str:
        return f".embedders.{name}.{self.role}" if self.role else f".embedders.{name}"


_TOP = _Place()
_PLACES = (
    _Place("searchEmbedder", " for the search embedder", frozenset((*_TEXT, "indexingFragments", *_ALWAYS))),
    _Place("indexingEmbedder", " for the indexing embedder", frozenset(("searchFragments", *_ALWAYS))),
)


def sorted_members(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with its members in the order of their names."""
    return dict(sorted(value.items()))


def _checked_distribution(value: Mapping[str, float]) -> Mapping[str, float]:
    if not 0 <= value["mean"] <= 1:
        raise ValueError(f"the distribution mean must be in the range [0, 1], got {value['mean']:g}")
    if not 0 < value["sigma"] <= 1:
        raise ValueError(f"the distribution sigma must be in the range ]0, 1], got {value['sigma']:g}")
    return value


def _checked_chunk(value: Mapping[str, int]) -> Mapping[str, int]:
    words = value["words"]
    if not 0 < words <= MAX_PASSAGE_WORDS:
        raise ValueError(f"`words` must be from 1 to {MAX_PASSAGE_WORDS}, got {words}")
    overlap = value.get("overlap", words // 5)
    if overlap > words // 2:
        raise ValueError(f"`overlap` must be at most half of `words`, {words // 2}, got {overlap}")
    return {"words": words, "overlap": overlap}


_CHUNK = parsed(object_of({"words": Field(positive_integer, default=DEFAULT_PASSAGE_WORDS), "overlap": Field(positive_integer)}),
                _checked_chunk)
_FRAGMENT = object_of({"value": Field(anything, required=True)})
_FRAGMENT_MAP = parsed(map_of(nullable(_FRAGMENT)), sorted_members)
_DISTRIBUTION = parsed(
    object_of({"mean": Field(number, required=True), "sigma": Field(number, required=True)}), _checked_distribution)

_CHECKS = {  # in the order of messages and responses
    "source": one_of(*SOURCES, unlisted=tuple(OWN_SOURCES)), "model": string, "modelPath": string, "revision": string,
    "pooling": one_of("useModel", "forceCls", "forceMean"), "apiKey": string, "dimensions": positive_integer,
    "binaryQuantized": boolean, "documentTemplate": string, "documentTemplateMaxBytes": positive_integer, "chunk": _CHUNK,
    "url": string,
    "indexingFragments": _FRAGMENT_MAP, "searchFragments": _FRAGMENT_MAP, "request": anything, "response": anything,
    "headers": parsed(map_of(string), sorted_members),
}


def _fields(checks: Mapping[str, Any]) -> dict[str, Field]:
    return {member: Field(nullable(check), is_listed=member not in OWN_MEMBERS) for member, check in checks.items()}


_NESTED_CHECK = object_of(_fields({name: check for name, check in _CHECKS.items() if name != "binaryQuantized"}))
EMBEDDER_FIELDS = _fields(_CHECKS | dict.fromkeys(_NESTED, _NESTED_CHECK) | {"distribution": _DISTRIBUTION})
embedders = parsed(map_of(nullable(object_of(EMBEDDER_FIELDS))), sorted_members)

# The note about a rejected member lists members in its own order.
_NOTE_ORDER = tuple(member for member in EMBEDDER_FIELDS if member != "binaryQuantized") + ("binaryQuantized",)


def features_used(change: Mapping[str, Embedder | None]) -> Iterator[tuple[str, str]]:
    """Yield (feature, action for the message) for each experimental feature that a change needs, in the order of checks."""
    for embedder in filter(None, change.values()):
        nested = [embedder[role] for role in _NESTED if embedder.get(role)]
        for member in _FRAGMENTS:
            if any(part.get(member) is not None for part in (embedder, *nested)):
                yield "multimodal", f"setting `{member}`"
        if embedder.get("source") == "composite":
            yield "compositeEmbedders", 'using `"composite"` as source'
        for role in _NESTED:
            if embedder.get(role) is not None:
                yield "compositeEmbedders", f"setting `{role}`"


def check_embedders(change: Mapping[str, Embedder | None]) -> None:
    """Check a change as far as possible without the stored value. Raises invalid_settings_embedders."""
    for name, embedder in change.items():
        if embedder is not None:
            _check_embedder(name, embedder, _TOP)


def merge_embedders(stored: Mapping[str, Embedder] | None, change: Mapping[str, Embedder | None]) -> dict[str, Embedder]:
    """Return the stored value after a change: absent members are kept, null removes a member or an embedder.

    Raises invalid_settings_embedders when the result is not a valid embedder.
    """
    after = dict(stored or {})
    for name, embedder in change.items():
        before = after.pop(name, {})
        if embedder is not None:
            after[name] = _merged_embedder(name, before, embedder)
    if len(after) > MAX_EMBEDDERS:
        message = f"Too many embedders in the configuration. Found {len(after)}, but limited to {MAX_EMBEDDERS}."
        raise ApiError(CODE, message)
    return sorted_members(after)


def _merged_embedder(name: str, stored: Embedder, change: Embedder) -> Embedder:
    if stored.get("binaryQuantized") and change.get("binaryQuantized", True) is not True:
        raise _refusal(
            f".embedders.{name}.binaryQuantized",
            "Cannot disable the binary quantization.\n - Note: Binary quantization is a lossy operation that "
            "cannot be reverted.\n - Hint: Add a new embedder that is non-quantized and regenerate the vectors.")
    kept = _kept_members(stored, change)
    changed = {member: _merged_member(member, kept.get(member), value) for member, value in change.items()}
    given = {"source": DEFAULT_SOURCE, **_without_null({**kept, **changed})}
    after = {member: given[member] for member in EMBEDDER_FIELDS if member in given}
    _check_embedder(name, after, _TOP, is_whole=True)
    return after


def _kept_members(stored: Embedder, change: Embedder) -> Embedder:
    """Return the stored members that a change keeps: with another source only the members of that source."""
    before = stored.get("source", DEFAULT_SOURCE)
    source = change.get("source", before) or DEFAULT_SOURCE
    if source == before:
        return stored
    return {member: value for member, value in stored.items() if member in ALL_SOURCES[source].members}


def _merged_member(member: str, stored: Any, value: Any) -> Any:
    if value is None or member not in (*_FRAGMENTS, *_NESTED):
        return value
    if member in _NESTED:
        stored = _kept_members(stored or {}, value)
        return _without_null({**stored, **{key: _merged_member(key, stored.get(key), value[key]) for key in value}})
    return sorted_members(_without_null({**(stored or {}), **value}))


def _without_null(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: member for key, member in value.items() if member is not None}


def _refusal(path: str, reason: str) -> ApiError:
    return ApiError(CODE, f"`{path}`: {reason}")


def _check_embedder(name: str, embedder: Embedder, place: _Place, is_whole: bool = False) -> None:
    """Check one embedder. is_whole: it is the result of a change, not a change, which may omit any member."""
    for member in ("dimensions", "documentTemplateMaxBytes"):
        if embedder.get(member) == 0:
            raise _refusal(f"{place.path(name)}.{member}", f"`{member}` cannot be zero")
    template, url = embedder.get("documentTemplate"), embedder.get("url")
    fault = fault_of_template(template) if template else None
    if fault is not None:  # the message names the outer embedder, even for the template of a nested one
        raise _refusal(f".embedders.{name}.documentTemplate", f"Invalid template: {fault}.")
    if url is not None:
        try:
            parse_url(url)
        except ValueError as error:
            raise _refusal(f"{place.path(name)}.url", f"could not parse `{url}`: {error}") from None
    if place is _TOP:
        _check_exchange(embedder, is_whole)
    if embedder.get("chunk") and any(fragments(embedder, member) for member in _FRAGMENTS):
        raise _refusal(f"{place.path(name)}.chunk", "Passages are parts of a document template, and this embedder has fragments. "
                                                    "Remove one of the two by setting it to `null`")
    source = embedder.get("source")
    if source is None:
        return
    for member in EMBEDDER_FIELDS:
        if embedder.get(member) is not None and not _is_available(member, source, place):
            raise _refusal(place.path(name), _unavailable(member, source, place))
    for member in ALL_SOURCES[source].mandatory:
        if embedder.get(member) is None:
            note = f"(note: this field is mandatory for source `{source}`)"
            raise _refusal(place.path(name), f"Missing field `{member}` {note}")
    if source == "openAi":
        _check_open_ai(name, embedder, place)
    if source == "staticFile" and not LOCAL_MODEL.fullmatch(embedder["model"]):
        raise _refusal(f"{place.path(name)}.model", f"`{embedder['model']}` is not the name of a file: it may have "
                                                    "letters, digits, `_`, `-` and `.`, and does not begin with `.` or `-`")
    for nested in _PLACES if source == "composite" else ():
        own_source = embedder[nested.role].get("source")
        if own_source is None:
            note = "\n  - note: this field is mandatory for nested embedders"
            raise _refusal(nested.path(name), f"Missing field `source`.{note}")
        if own_source in ("composite", "userProvided"):
            raise _refusal(f"{nested.path(name)}.source", f"Source `{own_source}` is not available in a nested embedder")
        _check_embedder(name, embedder[nested.role], nested)


# Distributions of similarities, which make the scores of models comparable (docs/vectors.md#scores)

# (source, model) -> mean and sigma of the similarities of related texts.
_OF_MODELS = {
    ("openAi", "text-embedding-ada-002"): (0.90, 0.08),
    ("openAi", "text-embedding-3-large"): (0.70, 0.1),
    ("openAi", "text-embedding-3-small"): (0.75, 0.1),
    ("huggingFace", "BAAI/bge-base-en-v1.5"): (0.85, 0.1),
}


def distribution_of(embedder: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (mean, sigma) of an embedder: from its settings, else of its model; None if both are unknown.

    embedder: its settings with the defaults filled in.
    """
    given = embedder.get("distribution")
    if given is not None:
        return given["mean"], given["sigma"]
    if embedder.get("source") == "composite":
        return distribution_of(embedder.get("searchEmbedder") or {}) or distribution_of(embedder.get("indexingEmbedder") or {})
    return _OF_MODELS.get((embedder.get("source", ""), embedder.get("model", "")))


# Fragments, requests and responses

def fragments(embedder: Mapping[str, Any], member: str) -> dict[str, Any]:
    """Return the fragments of one kind: {name: JSON value with templates}, in byte order of the names."""
    given = embedder.get(member) or {}
    return {name: given[name]["value"] for name in sorted(given) if given[name] is not None}


def indexing_part(embedder: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the settings for embedding documents: a part of a composite embedder, else all of them."""
    part: Mapping[str, Any] = embedder.get("indexingEmbedder") or embedder
    return part


def has_passages(embedder: Mapping[str, Any]) -> bool:
    """Return whether a document has a vector for each passage of its text."""
    return "chunk" in indexing_part(embedder)


def indexing_fragments(embedder: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fragments for embedding documents, as set; {} without fragments."""
    return indexing_part(embedder).get("indexingFragments") or {}


def _lonely(given: Mapping[str, Any], member: str, other: str, dash: str) -> str:
    names = ", ".join(list(given)[:3]) + (", ..." if len(given) > 3 else "")
    return (f"`{other}` is empty, but `{member}` declares {len(given)} fragments: {names}\n{dash} Hint: declare at least one "
            f"fragment in `{other}` or remove fragments from `{member}` by setting them to `null`")


def parse_fragments(embedder: Mapping[str, Any]) -> None:
    """Parse all fragments. Raises vector_embedding_error for a fragment that is not a template."""
    for member in _FRAGMENTS:
        for name, value in fragments(embedder, member).items():
            try:
                JsonTemplate.parse(value)
            except TemplateError as error:
                raise _useless(error.while_parsing(f".{member}.{name}")) from None


def _check_exchange(embedder: Embedder, is_whole: bool) -> None:
    """Check the given templates of requests, responses and fragments. Raises vector_embedding_error."""
    indexing, searching = (fragments(embedder, member) for member in _FRAGMENTS)
    has_fragments: bool | None = bool(indexing or searching)
    if is_whole:
        if bool(indexing) != bool(searching):  # an embedder has both kinds of fragments, or neither
            raise _useless("inconsistent fragments: " + (_lonely(indexing, *_FRAGMENTS, " -") if indexing else
                                                         _lonely(searching, *_FRAGMENTS[::-1], "  -")))
    elif has_fragments and embedder.get("documentTemplate") is not None:
        raise _useless(
            f"cannot pass both fragments and a document template.\n  - Note: {len(indexing)} fragments declared in "
            f"`indexingFragments` and {len(searching)} fragments declared in `search_fragments_len`.\n  - Hint: remove the "
            "declared fragments or remove the `documentTemplate`")
    if embedder.get("request") is None:
        return
    # A change may omit fragments that are stored; a null member removes them.
    if not is_whole and not any(member in embedder and embedder[member] is None for member in _FRAGMENTS):
        has_fragments = has_fragments or None  # None: unknown
    try:
        try:
            request = request_template(embedder["request"], has_fragments is not False)
        except TemplateMismatch:
            if has_fragments is not None:
                raise
            request = request_template(embedder["request"], False)
        if embedder.get("response") is not None:
            response_template(embedder["response"], request)
    except TemplateMismatch as mismatch:
        raise _useless(str(mismatch)) from None
    parse_fragments(embedder)


def _useless(reason: str) -> ApiError:
    return ApiError(EMBEDDING_CODE, f"{USELESS}{reason}")


# Document templates, checked before a document exists: they parse, and use only the variables `doc` and `fields`

# The start of errors that a template causes with any document. Other errors, as of filters, may be due to the example.
_ALWAYS_WRONG = ("liquid: Unknown variable\n", "liquid: Unknown index\n")


class _AnyObject(dict[str, Any]):
    """An object that has every member; each member is the object itself."""

    def __missing__(self, key: str) -> _AnyObject:
        return self

    def __contains__(self, key: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        return self


def fault_of_syntax(text: str) -> str | None:
    """Return why a template cannot be parsed, in the words of the interface; None when it can."""
    try:
        Template.parse(text)
    except TemplateError as error:
        return f"user error: cannot parse template: {error.message}"
    return None


def fault_of_template(text: str) -> str | None:
    """Return the fault of a document template, in the words of the interface; None without fault."""
    fault = fault_of_syntax(text)
    if fault is not None:
        return fault
    field = {"name": "field", "value": "value", "is_searchable": True}
    try:
        Template.parse(text).render({"doc": _AnyObject(), "fields": [field]})
    except TemplateError as error:
        if error.message.startswith(_ALWAYS_WRONG):
            return (f"user error: template contains invalid fields: {error.message}. Only `doc.*`, `fields[i].name`, "
                    "`fields[i].value` are supported")
    return None


# Members

def _is_available(member: str, source: str, place: _Place) -> bool:
    return member in ALL_SOURCES[source].members and member not in place.forbidden


def _unavailable(member: str, source: str, place: _Place) -> str:
    sources = [other for other in SOURCES if _is_available(member, other, place)]
    members = [other for other in _NOTE_ORDER if _is_available(other, source, place) and other not in OWN_MEMBERS]
    text = (
        f"Field `{member}` unavailable for source `{source}`{place.note}."
        f"\n  - note: `{member}` is available for sources: {name_list(sources)}"
        f"\n  - note: available fields for source `{source}`{place.note}: {name_list(members)}"
    )
    if place.note and member in ALL_SOURCES[source].members:
        text += f"\n  - note: `{member}` is available when source `{source}` is not{place.note}"
    return text


def _check_open_ai(name: str, embedder: Embedder, place: _Place) -> None:
    """Check model and dimensions, at any address: services with other models need the source `rest`."""
    model, dimensions = embedder.get("model"), embedder.get("dimensions")
    if model is not None and model not in OPEN_AI_MODELS:
        listed = ", ".join(f'"{known}"' for known in OPEN_AI_MODELS)
        reason = f"Invalid model `{model}` for OpenAI. Supported models: [{listed}]"
        raise _refusal(f"{place.path(name)}.model", reason)
    model = model or SOURCES["openAi"].defaults["model"]
    native, may_be_fewer = OPEN_AI_MODELS[model]
    if dimensions is None or dimensions == native or (may_be_fewer and dimensions < native):
        return
    limit = f"dimensions to a value higher than {native}" if may_be_fewer else f"native dimensions of {native}"
    reason = f"Model `{model}` does not support overriding its {limit}. Found {dimensions}"
    raise _refusal(f"{place.path(name)}.dimensions", reason)


def resolve_embedders(stored: Mapping[str, Embedder]) -> dict[str, Embedder]:
    """Return all embedders with the defaults of their source, members in the order of responses."""
    return {name: _resolved_embedder(embedder, _TOP) for name, embedder in sorted(stored.items())}


def _resolved_embedder(embedder: Embedder, place: _Place) -> Embedder:
    source = embedder.get("source") or DEFAULT_SOURCE
    defaults = {member: value for member, value in ALL_SOURCES[source].defaults.items() if _is_available(member, source, place)}
    if any(embedder.get(member) for member in _FRAGMENTS):
        defaults = {member: value for member, value in defaults.items() if member not in _TEXT}
    if source == "huggingFace" and "model" not in embedder:
        defaults["revision"] = _DEFAULT_REVISION
    full = {"source": source, **defaults, **embedder}
    for nested in _PLACES:
        if full.get(nested.role):
            full[nested.role] = _resolved_embedder(full[nested.role], nested)
    return {member: full[member] for member in EMBEDDER_FIELDS if member in full}


def redact_embedders(shown: Mapping[str, Embedder | None]) -> dict[str, Embedder | None]:
    """Return the embedders with masked secrets."""
    return {name: embedder and _redacted_embedder(embedder) for name, embedder in shown.items()}


def _redacted_embedder(embedder: Embedder) -> Embedder:
    hide: dict[str, Callable[[Any], Any]] = {
        "apiKey": redacted_secret, "url": redacted_url, **dict.fromkeys(_NESTED, _redacted_embedder)}
    return {member: hide[member](value) if member in hide and value is not None else value for member, value in embedder.items()}
