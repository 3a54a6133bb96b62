"""The services that models run at: addresses, headers, and the errors that they answer with (docs/chats.md#sources)."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from svcd.base.json_text import loads
from svcd.chat.workspace import AZURE, MISTRAL, OPEN_AI, VLLM, Complete

_USAGE = {"include_usage": True}
# Models that know only the role `system`: these names, and those that continue one with a hyphen.
_SYSTEM_MODELS = ("gpt-3.5", "gpt-4", "gpt-4.1", "gpt-4.5", "gpt-4o", "chatgpt-4o")
_SYSTEM, _DEVELOPER = "system", "developer"


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of service.

    base_url: where it is when a workspace does not say. reports_usage: is it asked for the number of tokens? knows_developers:
    do its newer models take the system prompt in the role `developer`? has_flat_errors: is its error object the body itself?
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
    """An error as a service says it, or in words of svcd."""

    type: str
    code: str | None
    message: str
    param: str | None = None


def url_of(workspace: Complete) -> str:
    """The URL that completions are requested from."""
    source = workspace["source"]
    base = SOURCES[source].base_url if workspace["baseUrl"] is None else workspace["baseUrl"]
    base = base.removesuffix("/")
    if source != AZURE:
        return f"{base}/chat/completions"
    version = quote_plus(workspace["apiVersion"] or "")
    return f"{base}/openai/deployments/{workspace['deploymentId']}/chat/completions?api-version={version}"


def headers_of(workspace: Complete) -> dict[str, str]:
    """The headers of a request."""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    key = workspace["apiKey"] or ""
    if workspace["source"] == AZURE:
        return {**headers, "api-key": key}
    named = {"openai-organization": workspace["orgId"], "openai-project": workspace["projectId"]}
    return {**headers, "authorization": f"Bearer {key}", **{name: value for name, value in named.items() if value},
            "openai-beta": "assistants=v2"}


def stream_options(workspace: Complete) -> Mapping[str, Any] | None:
    """The member of this name in a request; None to leave it out."""
    return _USAGE if SOURCES[workspace["source"]].reports_usage else None


def system_role(workspace: Complete, model: str) -> str:
    """The role of the system prompt."""
    if not SOURCES[workspace["source"]].knows_developers:
        return _SYSTEM
    return _SYSTEM if any(model == name or model.startswith(f"{name}-") for name in _SYSTEM_MODELS) else _DEVELOPER


def error_of(workspace: Complete, body: bytes) -> SourceError:
    """The error that a body describes which is no stream of events."""
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
    """No connection, or a broken one."""
    return SourceError("transport_error", None, reason)


def unreadable_chunk(reason: str) -> SourceError:
    """A chunk that is not one."""
    return SourceError("json_deserialize_error", "internal", reason)


def unreadable_text(reason: str) -> SourceError:
    """A stream that is not UTF-8."""
    return SourceError("invalid_utf8_error", None, reason)
