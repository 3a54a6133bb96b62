"""Answers messages of the Model Context Protocol: which methods there are, and what each returns (docs/mcp.md).

Nothing is kept between messages. svcd.mcp.protocol checks messages, svcd.api.mcp_tools runs tools.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from svcd.api.bodies import check_json, json_value
from svcd.api.context import Context
from svcd.api.mcp_tools import Tools
from svcd.api.routes import HandlerResult, Text
from svcd.base.errors import ApiError, quoted
from svcd.base.json_text import dumps
from svcd.http.message import HttpError
from svcd.mcp import protocol
from svcd.mcp.passages import parts_of, uri_of
from svcd.mcp.protocol import Call, ProtocolError
from svcd.mcp.tools import INSTRUCTIONS, MOST_CHARACTERS, TOOLS

MAX_BODY = 4 << 20  # bytes
_MAX_VALUES = 200_000
_PAGE = 100  # indexes in an answer of `resources/list`
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
_JSON = "application/json"
_CAPABILITIES: Mapping[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
_TEMPLATE = {"uriTemplate": "svcd://{index}/{document}", "name": "document", "title": "A document", "mimeType": _JSON,
             "description": "A document of an index by its identifier, as JSON."}
_PROMPT = {"name": "search", "title": "Search with svcd", "description": "Explains the indexes and how to search them.",
           "arguments": [{"name": "question", "description": "What to find out.", "required": False}]}


def respond(ctx: Context) -> HandlerResult:
    """The answer to one message."""
    headers = ctx.request.headers
    try:
        _check_origin(headers.get("origin"))
        check_json(headers.get("content-type"))
        content = b""
        for piece in ctx.request.body.chunks():
            content += piece
            if len(content) > MAX_BODY:
                raise ApiError("payload_too_large", f"A message has at most {MAX_BODY >> 20} MiB; send less at a time.")
        message = json_value(content, _MAX_VALUES)
    except ApiError as error:
        code = protocol.PARSE_ERROR if error.code in ("malformed_payload", "missing_payload") else protocol.INVALID_REQUEST
        reply = protocol.failed(ProtocolError(code, error.message), status=error.status)
    else:
        reply = protocol.answered(message, headers, Server(ctx).result)
    return HandlerResult(reply.status, Text("" if reply.value is None else dumps(reply.value)))


def _check_origin(origin: str | None) -> None:
    """Refuse pages of other hosts: a page may send requests to the machine of its reader. Assistants send no Origin."""
    if origin is None:
        return
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        host = None
    if host not in _LOCAL:
        raise HttpError(403, f"Pages of {quoted(origin)} may not call this address; only pages of this machine may.")


class Server:
    """The methods of the protocol, for one request."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tools = Tools(ctx)

    def result(self, call: Call) -> dict[str, Any]:
        """The result of a call. Raises ProtocolError."""
        stateless = {"server/discover": self._discover}
        with_handshake = {"initialize": self._initialize, "ping": lambda call: {}}
        methods: Mapping[str, Callable[[Call], dict[str, Any]]] = {
            "tools/list": lambda call: {"tools": [TOOLS[name].described(name) for name in self._tools.offered()]},
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": lambda call: {"resourceTemplates": [_TEMPLATE]},
            "resources/read": self._read_resource,
            "prompts/list": lambda call: {"prompts": [_PROMPT]},
            "prompts/get": self._get_prompt,
            **(stateless if call.is_stateless else with_handshake),
        }
        if call.method not in methods:
            known = ", ".join(methods)
            raise ProtocolError(protocol.METHOD_NOT_FOUND, f"Unknown method {quoted(call.method)}; methods are {known}.")
        return methods[call.method](call)

    def _discover(self, call: Call) -> dict[str, Any]:
        return {"supportedVersions": list(protocol.STATELESS), "capabilities": _CAPABILITIES, "instructions": INSTRUCTIONS}

    def _initialize(self, call: Call) -> dict[str, Any]:
        asked = call.params.get("protocolVersion")
        version = asked if asked in protocol.WITH_HANDSHAKE else protocol.WITH_HANDSHAKE[-1]
        return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": protocol.SERVER,
                "instructions": INSTRUCTIONS}

    def _call_tool(self, call: Call) -> dict[str, Any]:
        name, arguments = call.params.get("name"), call.params.get("arguments")
        arguments = {} if arguments is None else arguments
        offered = self._tools.offered()
        if name not in offered:
            raise ProtocolError(protocol.INVALID_PARAMS, f"Unknown tool {quoted(str(name))}; tools are {', '.join(offered)}.")
        if not isinstance(arguments, dict):
            raise ProtocolError(protocol.INVALID_PARAMS, "`arguments` must be an object.")
        return self._tools.call(name, arguments)

    def _list_resources(self, call: Call) -> dict[str, Any]:
        """A page of the indexes as resources; documents are found by searching."""
        cursor = call.params.get("cursor", "0")
        if not (isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
            raise ProtocolError(protocol.INVALID_PARAMS, "`cursor` must be a `nextCursor` of this method.")
        rows, total = self._tools.indexes(int(cursor), _PAGE)
        after = int(cursor) + _PAGE
        return {"resources": [{"uri": uri_of(row.uid), "name": row.uid, "mimeType": _JSON,
                               "description": f"Description of the index `{row.uid}`."} for row in rows],
                **({"nextCursor": str(after)} if after < total else {})}

    def _read_resource(self, call: Call) -> dict[str, Any]:
        uri, reason = call.params.get("uri"), "write svcd://INDEX/DOCUMENT, or svcd://INDEX"
        index_uid, document_id = (isinstance(uri, str) and parts_of(uri)) or (None, None)
        documents: Sequence[Any] = ()
        if index_uid is not None:
            found = (self._tools.call("list_indexes", {"index": index_uid}) if document_id is None else
                     self._tools.call("get_documents", {"index": index_uid, "ids": [document_id], "characters": MOST_CHARACTERS}))
            content = found.get("structuredContent", {})
            documents = content.get("indexes") or [each["document"] for each in content.get("documents", ())]
            reason = found["content"][0]["text"] if "isError" in found else "its index does not have the document"
        if not documents:
            raise ProtocolError(protocol.INVALID_PARAMS if call.is_stateless else protocol.RESOURCE_NOT_FOUND,
                                f"Unknown resource {quoted(str(uri))}: {reason}", {"uri": uri})
        return {"contents": [{"uri": uri, "mimeType": _JSON, "text": dumps(documents[0])}]}

    def _get_prompt(self, call: Call) -> dict[str, Any]:
        name, arguments = call.params.get("name"), call.params.get("arguments", {})
        if name != _PROMPT["name"] or not isinstance(arguments, dict):
            raise ProtocolError(protocol.INVALID_PARAMS,
                                f"Unknown prompt {quoted(str(name))}; the prompt is `{_PROMPT['name']}`.")
        indexes = self._tools.call("list_indexes", {})["content"][0]["text"]
        text = f"{INSTRUCTIONS}\n\nThe indexes, as list_indexes shows them:\n{indexes}"
        if isinstance(question := arguments.get("question"), str) and question:
            text += f"\n\nFind out: {question}"
        return {"description": _PROMPT["description"], "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
