"""JSON bodies that are read whole: their limit in values, and their errors as answers (docs/http.md#json-bodies).

A parsed body takes many times its size in memory, so the number of values is limited before it is parsed.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from svcd.base import json_text
from svcd.base.errors import ApiError
from svcd.base.json_text import JsonError
from svcd.http.message import Request, media_type

# Values of a body that is not a list of documents or identifiers: far more than any setting or search needs.
MAX_VALUES = 1_000_000
# Values of the body of a search of one index, which needs no more than the longest filter, and which every visitor may send.
MAX_SEARCH_VALUES = 300_000


def check_json(content_type: str | None) -> None:
    """Raise missing_content_type or invalid_content_type, unless a body has a type of JSON."""
    accepted = "Accepted values for the Content-Type header are: `application/json`"
    if content_type is None:
        raise ApiError("missing_content_type", f"A Content-Type header is missing. {accepted}")
    subtype = media_type(content_type).partition("/")[2]
    if subtype != "json" and not subtype.endswith("+json"):
        raise ApiError("invalid_content_type", f"The Content-Type `{content_type}` is invalid. {accepted}")


def read_body(request: Request) -> bytes:
    """The bytes of a body. Raises missing_payload, and what reading it raises."""
    content = request.body.read()
    if not content:
        raise ApiError("missing_payload", "A json payload is missing.")
    return content


def json_value(content: bytes, most: int = MAX_VALUES) -> Any:
    """The value in a body. Raises malformed_payload, payload_too_large."""
    try:
        check_size(content, most)
        return json_text.loads(content)
    except JsonError as error:
        raise malformed(error) from None


def malformed(error: JsonError) -> ApiError:
    """The error for a syntax error.

    Not a context manager: if `__exit__` replaces an exception, Python 3.13 keeps the first one in a cycle until the collector
    runs, and with its frames the body.
    """
    return ApiError("malformed_payload", f"The json payload provided is malformed. `{error}`.")


def check_size(content: bytes, most: int) -> None:
    """Raise payload_too_large for more than `most` JSON values, JsonError for a syntax error before that many."""
    if not json_text.has_at_most(content, most):
        raise ApiError("payload_too_large", "The provided payload reached the size limit. The maximum accepted number "
                                            f"of values in a payload of this kind is {most}.")


# Bodies that must be a list. As serde_json does, errors name the value found and its position: clients expect these messages.

_BLANKS = b" \t\n\r"
_PORTION = 1 << 16  # characters of a list that are decoded together
_LONGEST_FOUND = 10_000  # characters of a body that is not a list


def read_sequence(request: Request, most: int) -> Iterator[list[Any]]:
    """The values of the list in a body, some at a time. Errors are raised while iterating.

    Raises unsupported_media_type, missing_payload, malformed_payload, bad_request for another value,
    payload_too_large for more than `most` values.
    """
    try:
        check_json(request.headers.get("content-type"))
    except ApiError:
        raise ApiError("unsupported_media_type", "Content type error") from None
    content = read_body(request)
    try:
        start = len(content) - len(content.lstrip(_BLANKS))
        if content[start:start + 1] not in (b"[", b""):
            # The position is the first byte of an object, but the end of any other value.
            is_map = content[start:start + 1] == b"{"
            end = start if is_map else json_text.value_end(content, start)
            found = "map" if is_map else serde_type(json_text.loads(content[start:end]))
            line, column = content.count(b"\n", 0, end) + 1, end - content.rfind(b"\n", 0, end) - 1
            raise ApiError("bad_request", f"Json deserialize error: invalid type: {found}, expected a sequence at line {line} "
                                          f"column {column}")
        check_size(content, most)
        try:
            yield from _portions(content.decode().strip(_BLANKS.decode()))
            return
        except ValueError:
            pass
        raise json_text.fault_in(content) or ValueError("the scanner accepts a text that the decoder rejects")
    except JsonError as error:
        raise malformed(error) from None


def _portions(text: str) -> Iterator[list[Any]]:
    """The items of a list, portion by portion. Raises ValueError for a syntax error.

    A portion may end at any comma. If the comma is inside an item, the text before it is not a valid list.
    """
    if not text.endswith("]"):
        raise ValueError
    at, size, last = 1, _PORTION, len(text) - 1
    while at <= last:
        end = text.find(",", at + size, last) % len(text)  # without a comma, -1: the closing bracket
        try:
            values = json_text.decoded(f"[{text[at:end]}]")
        except ValueError:
            if end == last:
                raise
            size *= 2
            continue
        if not values and (at, end) != (1, last):
            raise ValueError
        yield values
        at, size = end + 1, _PORTION


def serde_type(value: Any) -> str:
    """A scalar in the words with which serde reports an unexpected value."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"string {debug_string(value[:_LONGEST_FOUND])}" + "…" * (len(value) > _LONGEST_FOUND)
    kind = "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "floating point"
    return f"{kind} `{json_text.dumps(value)}`"


# Strings in the debug form of Rust, as messages of the interface quote them

_ESCAPED = {"\t": "\\t", "\r": "\\r", "\n": "\\n", "\0": "\\0", '"': '\\"', "\\": "\\\\"}


def debug_string(text: str) -> str:
    """The text in double quotes, with unprintable characters escaped."""
    shown = (_ESCAPED.get(character) or (character if character.isprintable() else f"\\u{{{ord(character):x}}}")
             for character in text)
    return f'"{"".join(shown)}"'
