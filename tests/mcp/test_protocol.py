"""Messages of the protocol. What must hold:

1. Each malformed message gets the error of JSON-RPC and its HTTP status, with the id of the request where that can be known.
2. A request without handshake repeats its revision, method and name in headers; the first fault decides the error.
3. Results without handshake have `resultType`, the server, and how long they may be kept; results with one have none of it.
4. A notification gets no reply.
5. What is encoded for a header is decoded to the same text.
"""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.mcp import protocol
from svcd.mcp.protocol import Call, ProtocolError, Reply, answered, decoded_header, encoded_header, headers_of

META = {protocol.VERSION_KEY: "2026-07-28", protocol.CAPABILITIES_KEY: {}}


def result_of(call: Call) -> dict[str, Any]:
    if call.method not in ("tools/list", "tools/call"):
        raise ProtocolError(protocol.METHOD_NOT_FOUND, "no such method")
    return {"method": call.method}


def reply_to(message: Any, headers: dict[str, str] | None = None) -> Reply:
    """headers: None for those that belong to the message."""
    return answered(message, headers_of(message) if headers is None else headers, result_of)


def request(method: str = "tools/list", meta: Any = None, **members: Any) -> dict[str, Any]:
    params = {**members.pop("params", {}), **({} if meta is None else {"_meta": meta})}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **members}


@pytest.mark.parametrize("message", [
    [], [request()], [request(), request(id=8)], "text", 7, None, True, {}, {"jsonrpc": "2.0"}, {"jsonrpc": "1.0", "id": 1, "method": "ping"},
    {"jsonrpc": 2.0, "id": 1, "method": "ping"}, {"id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": 1, "result": {}},
    request(id=None), request(id=1.5), request(id=True), request(id=[]), request(id={}), request(id="x" * 257), request(id=1 << 63),
    request(id=-(1 << 63)), request(method=7), request(method=None), {**request(), "params": []}, {**request(), "params": "x"},
    {**request(), "params": None}, {**request(), "params": {"_meta": 7}}, {**request(), "params": {"_meta": None}},
])
def test_malformed_messages_are_invalid_requests(message: Any) -> None:
    found = reply_to(message, {})
    assert found.status == 400 and found.value is not None
    assert found.value["jsonrpc"] == "2.0" and found.value["id"] is None and found.value["error"]["code"] == -32600


@pytest.mark.parametrize("request_id", [0, -5, 2**53 + 1, "", "x" * 256, "ä"])
def test_ids_come_back(request_id: Any) -> None:
    assert reply_to(request(id=request_id)) == (200, {"jsonrpc": "2.0", "id": request_id, "result": {"method": "tools/list"}})
    assert reply_to(request("none", id=request_id)).value["id"] == request_id  # type: ignore[index]


@pytest.mark.parametrize(("meta", "changes", "code"), [
    ({}, {}, -32602), ({protocol.VERSION_KEY: "2026-07-28"}, {}, -32602), ({protocol.CAPABILITIES_KEY: {}}, {}, -32602),
    (META, {"mcp-protocol-version": "2025-11-25"}, -32020), (META, {"mcp-protocol-version": None}, -32020),
    (META, {"mcp-method": "tools/list"}, -32020), (META, {"mcp-method": None}, -32020), (META, {"mcp-name": None}, -32020),
    (META, {"mcp-name": "other"}, -32020), (META, {"mcp-name": "=?base64?!?="}, -32020),
    ({**META, protocol.VERSION_KEY: "2027-01-01"}, {"mcp-protocol-version": "2027-01-01"}, -32022),
    ({**META, protocol.VERSION_KEY: 7}, {}, -32020), (META, {"mcp-protocol-version": "2027-01-01"}, -32020),
])
def test_envelopes_are_checked_in_order(meta: Any, changes: dict[str, str | None], code: int) -> None:
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "search", **changes}
    found = reply_to(request("tools/call", meta, params={"name": "search"}), {name: text for name, text in headers.items() if text is not None})
    assert found.status == 400 and found.value is not None
    assert (found.value["id"], found.value["error"]["code"]) == (7, code)
    if code == -32022:
        assert found.value["error"]["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


def test_results_without_handshake_say_more() -> None:
    found = reply_to(request("tools/list", META)).value["result"]  # type: ignore[index]
    assert found["resultType"] == "complete" and found["ttlMs"] == 60_000 and found["cacheScope"] == "private"
    assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "svcd"
    assert "ttlMs" not in reply_to(request("tools/call", META, params={"name": "search"})).value["result"]  # type: ignore[index]


def test_unknown_methods_are_not_found() -> None:
    assert reply_to(request("ping", META)).status == 404
    assert reply_to(request("nothing")).status == 200
    for found in (reply_to(request("ping", META)), reply_to(request("nothing"))):
        assert found.value is not None and found.value["error"]["code"] == -32601


def test_notifications_get_no_reply() -> None:
    for params in ({}, {"_meta": META}):
        assert reply_to({"jsonrpc": "2.0", "method": "notifications/initialized", "params": params}) == (202, None)


@given(st.text())
@settings(max_examples=50)
def test_headers_keep_every_text(text: str) -> None:
    if text.isprintable() or text.encode("utf-8", "replace").decode() == text:
        encoded = encoded_header(text)
        assert encoded.isascii() and encoded == encoded.strip() and decoded_header(encoded) == text
