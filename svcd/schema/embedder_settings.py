"""The setting `embedders`: members of each source, checks, defaults, and how a change is merged with the stored value.

Checks are those that need no call to the service; templates and the names of models are not checked, except models of OpenAI.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from svcd.base.errors import ApiError
from svcd.validation import (
    Field,
    anything,
    boolean,
    map_of,
    nullable,
    number,
    object_of,
    one_of,
    parsed,
    positive_integer,
    string,
)
from svcd.validation.messages import name_list
from svcd.validation.urls import parse_url, redacted_secret, redacted_url

Embedder = dict[str, Any]

CODE = "invalid_settings_embedders"
MAX_EMBEDDERS = 256
DEFAULT_SOURCE = "openAi"
DEFAULT_TEMPLATE = (
    "{% for field in fields %}{% if field.is_searchable and field.value != nil %}"
    "{{ field.name }}: {{ field.value }}\n{% endif %}{% endfor %}"
)
DEFAULT_TEMPLATE_BYTES = 400

_TEXT = ("documentTemplate", "documentTemplateMaxBytes")
_ALWAYS = ("distribution", "binaryQuantized")
_FRAGMENTS = ("indexingFragments", "searchFragments")
_NESTED = ("searchEmbedder", "indexingEmbedder")
_DEFAULT_TEXT = {"documentTemplate": DEFAULT_TEMPLATE, "documentTemplateMaxBytes": DEFAULT_TEMPLATE_BYTES}


@dataclass(frozen=True, slots=True)
class Source:
    """One source of embeddings. defaults: members that responses show although they were not set."""

    mandatory: tuple[str, ...]
    optional: tuple[str, ...]
    defaults: Mapping[str, Any]

    @property
    def members(self) -> frozenset[str]:
        """All members that may be set."""
        return frozenset(("source", *self.mandatory, *self.optional))


SOURCES: dict[str, Source] = {
    "openAi": Source(
        (), ("model", "apiKey", "dimensions", *_TEXT, "url", *_ALWAYS),
        {"model": "text-embedding-3-small", **_DEFAULT_TEXT}),
    "huggingFace": Source(
        (), ("model", "revision", "pooling", *_TEXT, *_ALWAYS),
        {"model": "BAAI/bge-base-en-v1.5", "pooling": "useModel", **_DEFAULT_TEXT}),
    "ollama": Source(("model",), ("apiKey", "dimensions", *_TEXT, "url", *_ALWAYS), _DEFAULT_TEXT),
    "userProvided": Source(("dimensions",), _ALWAYS, {}),
    "rest": Source(
        ("url", "request", "response"), ("apiKey", "dimensions", *_TEXT, *_FRAGMENTS, "headers", *_ALWAYS),
        {**_DEFAULT_TEXT, "headers": {}}),
    "composite": Source(_NESTED, _ALWAYS, {}),
}
_DEFAULT_REVISION = "617ca489d9e86b49b8167676d8220688b99db36e"  # of the default model of huggingFace

# Models of OpenAI: (dimensions, are fewer possible?).
_OPEN_AI_MODELS = {
    "text-embedding-ada-002": (1536, False),
    "text-embedding-3-small": (1536, True),
    "text-embedding-3-large": (3072, True),
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an embedder is defined: at the top, or in a composite one for one of its two roles."""

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
    """The same object with its members in the order of their names."""
    return dict(sorted(value.items()))


def _checked_distribution(value: Mapping[str, float]) -> Mapping[str, float]:
    if not 0 <= value["mean"] <= 1:
        raise ValueError(f"the distribution mean must be in the range [0, 1], got {value['mean']:g}")
    if not 0 < value["sigma"] <= 1:
        raise ValueError(f"the distribution sigma must be in the range ]0, 1], got {value['sigma']:g}")
    return value


_FRAGMENT = object_of({"value": Field(anything, required=True)})
_FRAGMENT_MAP = parsed(map_of(nullable(_FRAGMENT)), sorted_members)
_DISTRIBUTION = parsed(
    object_of({"mean": Field(number, required=True), "sigma": Field(number, required=True)}), _checked_distribution)

_CHECKS = {  # in the order of messages and responses
    "source": one_of(*SOURCES),
    "model": string,
    "revision": string,
    "pooling": one_of("useModel", "forceCls", "forceMean"),
    "apiKey": string,
    "dimensions": positive_integer,
    "binaryQuantized": boolean,
    "documentTemplate": string,
    "documentTemplateMaxBytes": positive_integer,
    "url": string,
    "indexingFragments": _FRAGMENT_MAP,
    "searchFragments": _FRAGMENT_MAP,
    "request": anything,
    "response": anything,
    "headers": parsed(map_of(string), sorted_members),
}


def _fields(checks: Mapping[str, Any]) -> dict[str, Field]:
    return {member: Field(nullable(check)) for member, check in checks.items()}


_NESTED_CHECK = object_of(_fields({name: check for name, check in _CHECKS.items() if name != "binaryQuantized"}))
EMBEDDER_FIELDS = _fields(_CHECKS | dict.fromkeys(_NESTED, _NESTED_CHECK) | {"distribution": _DISTRIBUTION})
embedders = parsed(map_of(nullable(object_of(EMBEDDER_FIELDS))), sorted_members)

# The note about a rejected member lists members in an order of its own.
_NOTE_ORDER = tuple(member for member in EMBEDDER_FIELDS if member != "binaryQuantized") + ("binaryQuantized",)


def features_used(change: Mapping[str, Embedder | None]) -> Iterator[tuple[str, str]]:
    """(feature, action for the message) for each experimental feature that a change needs, in the order of checks."""
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
    """Check a change as far as that is possible without the stored value. Raises invalid_settings_embedders."""
    for name, embedder in change.items():
        if embedder is not None:
            _check_embedder(name, embedder, _TOP)


def merge_embedders(
    stored: Mapping[str, Embedder], change: Mapping[str, Embedder | None]
) -> dict[str, Embedder]:
    """The stored value after a change: absent members are kept, null removes a member or an embedder.

    Raises invalid_settings_embedders when the result is not a valid embedder.
    """
    after = dict(stored)
    for name, embedder in change.items():
        after.pop(name, None)
        if embedder is not None:
            after[name] = _merged_embedder(name, stored.get(name, {}), embedder)
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
    _check_embedder(name, after, _TOP)
    return after


def _kept_members(stored: Embedder, change: Embedder) -> Embedder:
    """The stored members that a change keeps: with another source only those that this source has."""
    before = stored.get("source", DEFAULT_SOURCE)
    source = change.get("source", before) or DEFAULT_SOURCE
    if source == before:
        return stored
    return {member: value for member, value in stored.items() if member in SOURCES[source].members}


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


def _check_embedder(name: str, embedder: Embedder, place: _Place) -> None:
    for member in ("dimensions", "documentTemplateMaxBytes"):
        if embedder.get(member) == 0:
            raise _refusal(f"{place.path(name)}.{member}", f"`{member}` cannot be zero")
    _check_url(name, embedder.get("url"), place)
    source = embedder.get("source")
    if source is None:
        return
    _check_members(name, embedder, source, place)
    if source == "openAi" and not embedder.get("url"):
        _check_open_ai(name, embedder, place)
    for nested in _PLACES if source == "composite" else ():
        _check_nested(name, embedder[nested.role], nested)


def _check_url(name: str, url: str | None, place: _Place) -> None:
    if url is None:
        return
    try:
        parse_url(url)
    except ValueError as error:
        raise _refusal(f"{place.path(name)}.url", f"could not parse `{url}`: {error}") from None


def _check_nested(name: str, embedder: Embedder, place: _Place) -> None:
    source = embedder.get("source")
    if source is None:
        note = "\n  - note: this field is mandatory for nested embedders"
        raise _refusal(place.path(name), f"Missing field `source`.{note}")
    if source in ("composite", "userProvided"):
        raise _refusal(f"{place.path(name)}.source", f"Source `{source}` is not available in a nested embedder")
    _check_embedder(name, embedder, place)


def _check_members(name: str, embedder: Embedder, source: str, place: _Place) -> None:
    for member in EMBEDDER_FIELDS:
        if embedder.get(member) is not None and not _is_available(member, source, place):
            raise _refusal(place.path(name), _unavailable(member, source, place))
    for member in SOURCES[source].mandatory:
        if embedder.get(member) is None:
            note = f"(note: this field is mandatory for source `{source}`)"
            raise _refusal(place.path(name), f"Missing field `{member}` {note}")


def _is_available(member: str, source: str, place: _Place) -> bool:
    return member in SOURCES[source].members and member not in place.forbidden


def _unavailable(member: str, source: str, place: _Place) -> str:
    sources = [other for other in SOURCES if _is_available(member, other, place)]
    members = [other for other in _NOTE_ORDER if _is_available(other, source, place)]
    text = (
        f"Field `{member}` unavailable for source `{source}`{place.note}."
        f"\n  - note: `{member}` is available for sources: {name_list(sources)}"
        f"\n  - note: available fields for source `{source}`{place.note}: {name_list(members)}"
    )
    if place.note and member in SOURCES[source].members:
        text += f"\n  - note: `{member}` is available when source `{source}` is not{place.note}"
    return text


def _check_open_ai(name: str, embedder: Embedder, place: _Place) -> None:
    """OpenAI itself has only certain models; another address may have any."""
    model, dimensions = embedder.get("model"), embedder.get("dimensions")
    if model is not None and model not in _OPEN_AI_MODELS:
        listed = ", ".join(f'"{known}"' for known in _OPEN_AI_MODELS)
        reason = f"Invalid model `{model}` for OpenAI. Supported models: [{listed}]"
        raise _refusal(f"{place.path(name)}.model", reason)
    model = model or SOURCES["openAi"].defaults["model"]
    native, may_be_fewer = _OPEN_AI_MODELS[model]
    if dimensions is None or dimensions == native or (may_be_fewer and dimensions < native):
        return
    limit = f"dimensions to a value higher than {native}" if may_be_fewer else f"native dimensions of {native}"
    reason = f"Model `{model}` does not support overriding its {limit}. Found {dimensions}"
    raise _refusal(f"{place.path(name)}.dimensions", reason)


def resolve_embedders(stored: Mapping[str, Embedder]) -> dict[str, Embedder]:
    """All embedders with the defaults of their source, members in the order of responses."""
    return {name: _resolved_embedder(embedder, _TOP) for name, embedder in sorted(stored.items())}


def _resolved_embedder(embedder: Embedder, place: _Place) -> Embedder:
    source = embedder.get("source") or DEFAULT_SOURCE
    defaults = {
        member: value for member, value in SOURCES[source].defaults.items() if _is_available(member, source, place)
    }
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
    """The same embedders with masked secrets."""
    return {name: embedder and _redacted_embedder(embedder) for name, embedder in shown.items()}


def _redacted_embedder(embedder: Embedder) -> Embedder:
    hidden = dict(embedder)
    if hidden.get("apiKey") is not None:
        hidden["apiKey"] = redacted_secret(hidden["apiKey"])
    if hidden.get("url") is not None:
        hidden["url"] = redacted_url(hidden["url"])
    for role in _NESTED:
        if hidden.get(role):
            hidden[role] = _redacted_embedder(hidden[role])
    return hidden
