"""Messages of the Model Context Protocol: JSON-RPC requests in, replies with their HTTP status out (docs/mcp.md#protocol).

Two families of revisions share one address. Requests of STATELESS revisions carry their revision and the capabilities of the
client in `_meta`, repeat revision, method and name in headers, and get results with `resultType`. Clients of WITH_HANDSHAKE
revisions send `initialize` first; svcd keeps nothing of it, so any process answers any request.
"""
from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from svcd import __version__
from svcd.base.errors import quoted

STATELESS = ("2026-07-28",)
WITH_HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NAME_OF = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # method: the parameter in the header Mcp-Name
VERSION_HEADER, METHOD_HEADER, NAME_HEADER = "mcp-protocol-version", "mcp-method", "mcp-name"
VERSION_KEY, CAPABILITIES_KEY = "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"
SERVER = {"name": "svcd", "title": "svcd search engine", "version": __version__}

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022
RESOURCE_NOT_FOUND = -32002  # with a handshake; INVALID_PARAMS without
TOO_MANY_CALLS = -32000
_STATUSES = {METHOD_NOT_FOUND: 404, TOO_MANY_CALLS: 429, INTERNAL_ERROR: 500}  # others 400
_ALWAYS_WITH_STATUS = (PARSE_ERROR, INVALID_REQUEST, HEADER_MISMATCH, UNSUPPORTED_VERSION, TOO_MANY_CALLS)
_MOST_ID_CHARACTERS, _MOST_ID = 256, 1 << 63
# Methods whose results a client may keep, and for how many milliseconds. They depend on the key.
_KEPT_MS = {"server/discover": 60_000, "tools/list": 60_000, "prompts/list": 60_000, "resources/list": 10_000,
            "resources/templates/list": 60_000, "resources/read": 0}


class ProtocolError(Exception):
    """A request that gets a JSON-RPC error. The message says what would be right; data: more for programs."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Call(NamedTuple):
    """One checked request. is_stateless: of a revision without handshake."""

    method: str
    params: Mapping[str, Any]
    is_stateless: bool


class Reply(NamedTuple):
    """An HTTP status with the JSON value of the body; None for an empty one."""

    status: int
    value: dict[str, Any] | None = None


class Headers(Protocol):
    """The headers of an HTTP request; names in any case."""

    def get(self, name: str) -> str | None: ...


def answered(message: Any, headers: Headers, run: Callable[[Call], dict[str, Any]]) -> Reply:
    """Answer one message. run: makes the result of a call; raises ProtocolError."""
    request_id, is_stateless = None, False
    try:
        method, params = _checked(message)
        is_stateless = is_of_stateless(params, headers)
        if "id" not in message:  # a notification: no reply, and none of the protocol has an effect here
            return Reply(202)
        request_id = message["id"]
        if is_stateless:
            _check_envelope(method, params, headers)
        result = run(Call(method, params, is_stateless))
    except ProtocolError as error:
        return failed(error, request_id, is_stateless)
    if is_stateless:
        result = {**result, "resultType": "complete",
                  "_meta": {**result.get("_meta", {}), "io.modelcontextprotocol/serverInfo": SERVER}}
        if method in _KEPT_MS:
            result |= {"ttlMs": _KEPT_MS[method], "cacheScope": "private"}
    return Reply(200, {"jsonrpc": "2.0", "id": request_id, "result": result})


def failed(error: ProtocolError, request_id: Any = None, is_stateless: bool = True, status: int | None = None) -> Reply:
    """The reply with an error. status: of HTTP, None for the usual one of the code; with a handshake most errors have 200."""
    has_status = is_stateless or error.code in _ALWAYS_WITH_STATUS
    return Reply(status or (_STATUSES.get(error.code, 400) if has_status else 200), {
        "jsonrpc": "2.0", "id": request_id,
        "error": {"code": error.code, "message": error.message, **({} if error.data is None else {"data": error.data})}})


def _checked(message: Any) -> tuple[str, Mapping[str, Any]]:
    """(method, parameters) of a message. Raises ProtocolError."""
    if not isinstance(message, dict):
        kind = "a batch" if isinstance(message, list) else "no object"
        raise ProtocolError(INVALID_REQUEST, f"The body is {kind}; send one JSON-RPC request.")
    if message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, 'The member `jsonrpc` must be "2.0".')
    request_id = message.get("id", 0)
    if not (isinstance(request_id, str) and len(request_id) <= _MOST_ID_CHARACTERS
            or type(request_id) is int and abs(request_id) < _MOST_ID):
        raise ProtocolError(INVALID_REQUEST, f"The member `id` must be an integer of 64 bits, or a text of at most "
                                             f"{_MOST_ID_CHARACTERS} characters.")
    method, params = message.get("method"), message.get("params", {})
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "The member `method` must be a text; replies are not expected here.")
    if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
        raise ProtocolError(INVALID_REQUEST, "The members `params` and `params._meta` must be objects.")
    return method, params


def is_of_stateless(params: Mapping[str, Any], headers: Headers) -> bool:
    """Return whether a request follows a revision without handshake, known or not."""
    named = headers.get(VERSION_HEADER)
    return named is not None and named not in WITH_HANDSHAKE or VERSION_KEY in params.get("_meta", {})


def _check_envelope(method: str, params: Mapping[str, Any], headers: Headers) -> None:
    """Check `_meta`, the headers that repeat parts of the body, then the revision. Raises ProtocolError."""
    meta = params.get("_meta", {})
    if absent := [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]:
        raise ProtocolError(INVALID_PARAMS, f"`params._meta` lacks {' and '.join(f'`{key}`' for key in absent)}.")
    if not isinstance(meta[CAPABILITIES_KEY], dict):
        raise ProtocolError(INVALID_PARAMS, f"`{CAPABILITIES_KEY}` in `params._meta` must be an object.")
    repeated = {VERSION_HEADER: meta[VERSION_KEY], METHOD_HEADER: method}
    if isinstance(name := params.get(NAME_OF.get(method, "")), str):
        repeated[NAME_HEADER] = name
    for header, expected in repeated.items():
        given = headers.get(header)
        if given is None or decoded_header(given) != expected:
            raise ProtocolError(HEADER_MISMATCH, f"The header `{header}` must repeat the body: {quoted(str(expected))}.")
    if meta[VERSION_KEY] not in STATELESS:
        raise ProtocolError(UNSUPPORTED_VERSION, f"This revision is not supported; supported are {', '.join(STATELESS)}, "
                            f"and with `initialize` {', '.join(WITH_HANDSHAKE)}.",
                            {"supported": list(STATELESS), "requested": meta[VERSION_KEY]})


# Values of headers that are not plain ASCII text are sent in base64.

_PREFIX, _SUFFIX = "=?base64?", "?="


def encoded_header(value: str) -> str:
    """Return a text as the value of a header."""
    if value.isascii() and value.isprintable() and value == value.strip() and not value.startswith(_PREFIX):
        return value
    return f"{_PREFIX}{base64.b64encode(value.encode()).decode()}{_SUFFIX}"


def decoded_header(value: str) -> str | None:
    """Return the text that encoded_header() has encoded; None for broken base64."""
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    try:
        return base64.b64decode(value[len(_PREFIX):-len(_SUFFIX)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def headers_of(message: Any) -> dict[str, str]:
    """The headers of HTTP for a message that came without them, as over stdio."""
    params: Any = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict) or not isinstance(meta.get(VERSION_KEY), str):
        return {}
    found = {VERSION_HEADER: meta[VERSION_KEY], METHOD_HEADER: message.get("method"),
             NAME_HEADER: params.get(NAME_OF.get(str(message.get("method")), ""))}
    return {name: encoded_header(value) for name, value in found.items() if isinstance(value, str)}
