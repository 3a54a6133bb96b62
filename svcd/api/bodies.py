"""JSON bodies that are read whole: their limit in values, their errors as answers.

Knows that the parsed form of a body may be many times its size, and how faults of the text are told;
refuses to know what a body means.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from svcd import jsontext
from svcd.errors import ApiError
from svcd.http.message import Request
from svcd.jsontext import JsonError

# Of a body that is not a list of documents or of identifiers: more than any setting or search has use for.
MOST_VALUES = 1_000_000


def read_body(request: Request) -> bytes:
    """The bytes of a body. Raises missing_payload, and what reading it raises."""
    content = request.body.read()
    if not content:
        raise ApiError("missing_payload", "A json payload is missing.")
    return content


def json_value(content: bytes, most: int = MOST_VALUES) -> Any:
    """The value in a body. Raises malformed_payload, payload_too_large."""
    with told_faults():
        check_size(content, most)
        return jsontext.loads(content)


def check_size(content: bytes, most: int) -> None:
    """Raise payload_too_large for more than so many values, JsonError for what is wrong before them."""
    if not jsontext.has_at_most(content, most):
        raise ApiError("payload_too_large", "The provided payload reached the size limit. The maximum accepted number "
                                            f"of values in a payload of this kind is {most}.")


@contextmanager
def told_faults() -> Iterator[None]:
    """Faults of a JSON text become malformed_payload."""
    try:
        yield
    except JsonError as error:
        raise ApiError("malformed_payload", f"The json payload provided is malformed. `{error}`.") from None
