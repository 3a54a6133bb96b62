"""Parameters of query strings: each parses its text, names the faulty parameter, and describes itself for OpenAPI (docs/http.md).

Values are texts; a parser takes one and raises ValueError(reason) to reject it.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from svcd.base.errors import ApiError
from svcd.validation import messages
from svcd.validation.bounds import Bound
from svcd.validation.checks import BAD_REQUEST, Schema
from svcd.validation.messages import U64_MAX, FieldError

Parse = Callable[[str], Any]

_POSITIVE = re.compile(r"\+?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII | re.I)
_BOOLEANS = {"true": True, "false": False}


class UnknownText(ValueError):
    """Raised by parsers of enumerations, with the accepted texts for the message."""

    def __init__(self, accepted: tuple[str, ...]) -> None:
        super().__init__("unknown value")
        self.accepted = accepted


class Param(NamedTuple):
    """One query parameter.

    parse: text -> value; raises ValueError(reason). code, missing_code: error codes when it is faulty or missing; None for the
    code of the whole query string. bound: of the elements of a list.
    """

    parse: Parse
    code: str | None = None
    required: bool = False
    missing_code: str | None = None
    default: Any = None
    schema: Mapping[str, Any] = {"type": "string"}
    is_list: bool = False
    about: str = ""
    bound: Bound | None = None

    @classmethod
    def list_of(cls, parse: Parse, code: str | None = None, **others: Any) -> Param:
        """A list separated by commas."""
        return cls(parse, code, is_list=True, **others)

    def decode(self, name: str, text: str) -> Any:
        """Return the value of the parameter. Raises FieldError, which names `name`, or `name[1]` in a list."""
        if not self.is_list:
            return self._parsed(name, text)
        texts = text.split(",")
        if self.bound is not None and len(texts) > self.bound.most:
            raise FieldError(f"Invalid value in parameter `{name}`: {self.bound.refusal(len(texts))}", self.code)
        if len(texts) == 1:
            return [self._parsed(name, text)]
        return [self._parsed(f"{name}[{i}]", element) for i, element in enumerate(texts)]

    def _parsed(self, place: str, text: str) -> Any:
        try:
            return self.parse(text)
        except UnknownText as error:
            hint = messages.did_you_mean(text, error.accepted)
            names = messages.one_of(error.accepted)
            raise FieldError(f"Unknown value `{text}` for parameter `{place}`: {hint}{names}", self.code) from None
        except ValueError as error:
            raise FieldError(f"Invalid value in parameter `{place}`: {error}", self.code) from None

    def describe(self, name: str) -> Schema:
        """Return the parameter object of the OpenAPI document."""
        schema = dict(_SCHEMAS.get(self.parse, self.schema))
        if self.is_list:
            schema = {"type": "array", "items": schema, **({} if self.bound is None else {"maxItems": self.bound.most})}
        if self.default is not None:
            schema["default"] = self.default
        described: Schema = {"name": name, "in": "query", "required": self.required, "schema": schema}
        if self.is_list:
            described |= {"style": "form", "explode": False}
        return {**described, "description": self.about} if self.about else described


text: Parse = str  # any text, unchanged


def positive_integer(value: str) -> int:
    """Parse an integer from 0 to 2^64 - 1."""
    digits = value.removeprefix("+").lstrip("0") or "0"
    # 2^64 - 1 has 20 digits; int() of a much longer text would be slow.
    if _POSITIVE.fullmatch(value) and len(digits) <= 20 and int(digits) <= U64_MAX:
        return int(digits)
    raise ValueError(f"could not parse `{value}` as a positive integer")


def number(value: str) -> float:
    """Parse a floating point number, in decimal or scientific notation."""
    if _NUMBER.fullmatch(value):
        return float(value)
    raise ValueError(f"could not parse `{value}` as a number")


def boolean(value: str) -> bool:
    """Parse `true` or `false`, in lower case."""
    if value in _BOOLEANS:
        return _BOOLEANS[value]
    raise ValueError(f"could not parse `{value}` as a boolean, expected either `true` or `false`")


def choice(*accepted: str, unlisted: tuple[str, ...] = ()) -> Parse:
    """Return a parser that accepts one of some texts, which messages list in this order, and unlisted ones."""

    def parse(value: str) -> str:
        if value not in accepted and value not in unlisted:
            raise UnknownText(accepted)
        return value

    return parse


def one_character(value: str) -> str:
    """Accept a text of exactly one character."""
    if len(value) == 1:
        return value
    if not value:
        raise ValueError("expected a string of one character, but found an empty string")
    found = f"found the following string of {len(value)} characters: `{value}`"
    raise ValueError(f"expected a string of one character, but {found}")


_SCHEMAS: Mapping[Parse, Schema] = {
    positive_integer: {"type": "integer", "minimum": 0},
    number: {"type": "number"},
    boolean: {"type": "boolean"},
}


def decode_query(query: str, params: Mapping[str, Param], *, code: str = BAD_REQUEST) -> dict[str, Any]:
    """Decode a raw query string: {name: value} of all declared parameters, absent ones with their default.

    If a parameter is given twice, its last text counts, checked at the place of the first.
    Raises ApiError with the code of the faulty parameter, or `code` if it has no code.
    """
    texts = dict(parse_qsl(query, keep_blank_values=True, errors="replace"))
    given: dict[str, Any] = {}
    try:
        for name, value in texts.items():
            if name not in params:
                hint = messages.did_you_mean(name, params)
                raise FieldError(f"Unknown parameter `{name}`: {hint}{messages.one_of(params)}")
            given[name] = params[name].decode(name, value)
        for name, param in params.items():
            if param.required and name not in given:
                raise FieldError(f"Missing parameter `{name}`", param.missing_code)
    except FieldError as error:
        raise ApiError(error.code or code, error.message) from None
    return {name: given.get(name, param.default) for name, param in params.items()}
