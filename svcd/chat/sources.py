"""The services that run models: addresses, headers, and their errors (docs/chats.md#sources)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from svcd.base.json_text import loads
from svcd.chat.workspace import AZURE, MISTRAL, OPEN_AI, VLLM, Complete

_USAGE = {"include_usage": True}
# Models that know only the role `system`: these names, and names that continue one of them with a hyphen.
_SYSTEM_MODELS = ("gpt-3.5", "gpt-4", "gpt-4.1", "gpt-4.5", "gpt-4o", "chatgpt-4o")
_SYSTEM, _DEVELOPER = "system", "developer"


@dataclass(frozen=True, slots=True)
class Source:
    """A kind of service.

    base_url: its default address. reports_usage: whether to ask it for the number of tokens. knows_developers: whether its newer
    models take the system prompt in the role `developer`. has_flat_errors: whether its error object is the body itself.
    """

    base_url: str = ""
    reports_usage: bool = False
    knows_developers: bool = False
    has_flat_errors: bool = False


SOURCES: Mapping[str, Source] = {
    OPEN_AI: Source("https://api.openai.com/v1", reports_usage=True, knows_developers=True),
    MISTRAL: Source("https://api.mistral.ai/v1", has_flat_errors=True),
    AZURE: Source(reports_usage=True, knows_developers=True),
    VLLM: Source(),
}


class SourceError(NamedTuple):
    """An error from a service, or from svcd."""

    type: str
    code: str | None
    message: str
    param: str | None = None


def url_of(workspace: Complete) -> str:
    """Return the URL for completions."""
    source = workspace["source"]
    base = SOURCES[source].base_url if workspace["baseUrl"] is None else workspace["baseUrl"]
    base = base.removesuffix("/")
    if source != AZURE:
        return f"{base}/chat/completions"
    version = quote_plus(workspace["apiVersion"] or "")
    return f"{base}/openai/deployments/{workspace['deploymentId']}/chat/completions?api-version={version}"


def headers_of(workspace: Complete) -> dict[str, str]:
    """Return the headers of a request."""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    key = workspace["apiKey"] or ""
    if workspace["source"] == AZURE:
        return {**headers, "api-key": key}
    named = {"openai-organization": workspace["orgId"], "openai-project": workspace["projectId"]}
    return {**headers, "authorization": f"Bearer {key}", **{name: value for name, value in named.items() if value},
            "openai-beta": "assistants=v2"}


def stream_options(workspace: Complete) -> Mapping[str, Any] | None:
    """Return the member `stream_options` of a request; None to omit it."""
    return _USAGE if SOURCES[workspace["source"]].reports_usage else None


def system_role(workspace: Complete, model: str) -> str:
    """Return the role of the system prompt."""
    if not SOURCES[workspace["source"]].knows_developers:
        return _SYSTEM
    return _SYSTEM if any(model == name or model.startswith(f"{name}-") for name in _SYSTEM_MODELS) else _DEVELOPER


def error_of(workspace: Complete, body: bytes) -> SourceError:
    """Return the error in a body that is not a stream of events."""
    try:
        value = loads(body)
        found = value if SOURCES[workspace["source"]].has_flat_errors else value["error"]
        error = SourceError(found["type"], found.get("code"), found["message"], found.get("param"))
    except (AttributeError, KeyError, TypeError, ValueError):
        return UNREADABLE_BODY
    optional = (error.code, error.param)
    if not all(isinstance(text, str) for text in (error.type, error.message)) \
            or not all(text is None or isinstance(text, str) for text in optional):
        return UNREADABLE_BODY
    return error


UNREADABLE_BODY = SourceError("reqwest_error", None, "error decoding response body")
STREAM_ENDED = SourceError("stream_ended", None, "Stream ended")


def transport_error(reason: str) -> SourceError:
    """The error for a connection that failed or broke."""
    return SourceError("transport_error", None, reason)


def unreadable_chunk(reason: str) -> SourceError:
    """The error for an event that is not a valid chunk."""
    return SourceError("json_deserialize_error", "internal", reason)


def unreadable_text(reason: str) -> SourceError:
    """The error for a stream that is not UTF-8."""
    return SourceError("invalid_utf8_error", None, reason)
