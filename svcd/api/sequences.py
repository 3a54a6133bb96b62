"""Bodies that must be a list of anything: the JSON reader itself words what is wrong with them.

Knows how serde_json refuses a value that is no list, and at which place; refuses to know what lists are for.
"""
from __future__ import annotations

from typing import Any

from svcd import jsontext
from svcd.api.quoting import quoted
from svcd.errors import ApiError
from svcd.http.message import Request
from svcd.jsontext import JsonError

_BLANKS = b" \t\n\r"


def read_sequence(request: Request) -> list[Any]:
    """The list in a body.

    Raises unsupported_media_type, missing_payload, malformed_payload, bad_request for another value.
    """
    essence = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    subtype = essence.partition("/")[2]
    if subtype != "json" and not subtype.endswith("+json"):
        raise ApiError("unsupported_media_type", "Content type error")
    content = request.body.read()
    if not content:
        raise ApiError("missing_payload", "A json payload is missing.")
    try:
        return _sequence(content)
    except JsonError as error:
        raise ApiError("malformed_payload", f"The json payload provided is malformed. `{error}`.") from None


def _sequence(content: bytes) -> list[Any]:
    start = len(content) - len(content.lstrip(_BLANKS))
    if content[start:start + 1] in (b"[", b""):
        return jsontext.loads(content)
    # A map is refused at its first byte, before it is read; other values behind their last.
    is_map = content[start:start + 1] == b"{"
    end = start if is_map else jsontext.value_end(content, start)
    found = "map" if is_map else _found(jsontext.loads(content[start:end]))
    line_start = content.rfind(b"\n", 0, end) + 1
    line = content.count(b"\n", 0, end) + 1
    place = f"line {line} column {end - line_start}"
    raise ApiError(
        "bad_request", f"Json deserialize error: invalid type: {found}, expected a sequence at {place}")


def _found(value: Any) -> str:
    """A scalar as serde names what it did not expect."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"string {quoted(value)}"
    kind = "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "floating point"
    return f"{kind} `{jsontext.dumps(value)}`"
