"""Check JSON values: each check decodes a value, raises FieldError at the faulty place, and describes itself as a JSON schema.

The first error in the order of the body is reported.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from svcd.base.errors import ApiError
from svcd.validation import messages
from svcd.validation.bounds import Bound
from svcd.validation.messages import ARRAY, BOOLEAN, NEGATIVE, NUMBER, OBJECT, POSITIVE, STRING, U64_MAX, FieldError

Schema = dict[str, Any]

BAD_REQUEST = "bad_request"


class Check(Protocol):
    """Decodes one JSON value, and describes the values that it accepts."""

    def decode(self, value: Any, location: str) -> Any:
        """Return the decoded value. location: `.a[0].b`, "" at the root. Raises FieldError."""
        ...

    def describe(self) -> Schema:
        """Return a JSON schema, in the dialect of OpenAPI 3.1."""
        ...


# The default of members that are left out of the decoded object when the body lacks them.
ABSENT: Any = object()


class Field(NamedTuple):
    """One member of a JSON object.

    code: error code of faults in this member; None for the code of the enclosing field.
    missing_code: error code when a required member is absent; None for the code of the enclosing object.
    default: the decoded value of an absent member; ABSENT leaves it out. about: the description in the OpenAPI document.
    is_listed: whether messages about other members name it; False for extensions of the interface.
    """

    check: Check
    code: str | None = None
    required: bool = False
    missing_code: str | None = None
    default: Any = ABSENT
    about: str = ""
    is_listed: bool = True

    def decode(self, value: Any, location: str) -> Any:
        """Return the decoded value. Raises FieldError with the code of the field."""
        try:
            return self.check.decode(value, location)
        except FieldError as error:
            raise error.within(self.code) from None

    def describe(self) -> Schema:
        """Return the JSON schema of the check, with description and default."""
        schema = self.check.describe()
        if self.about:
            schema["description"] = self.about
        if self.default is not ABSENT:
            schema["default"] = self.default
        return schema


class _Anything:
    """Any value, unchanged."""

    def decode(self, value: Any, location: str) -> Any:
        return value

    def describe(self) -> Schema:
        return {}


class _Kind(NamedTuple):
    """Any value of one type, unchanged. kind: its name in messages; json_type: its name in JSON schemas."""

    kind: str
    type_: type
    json_type: str

    def decode(self, value: Any, location: str) -> Any:
        if isinstance(value, self.type_):
            return value
        raise messages.wrong_type(value, (self.kind,), location)

    def describe(self) -> Schema:
        return {"type": self.json_type}


class _Text(NamedTuple):
    """A text of at most `bound` characters."""

    bound: Bound

    def decode(self, value: Any, location: str) -> Any:
        if not isinstance(value, str):
            raise messages.wrong_type(value, (STRING,), location)
        if len(value) > self.bound.most:
            raise messages.invalid_value(self.bound.refusal(len(value)), location)
        return value

    def describe(self) -> Schema:
        return {"type": "string", "maxLength": self.bound.most}


class _Integer(NamedTuple):
    """An integer from low to high, both included. takes_zero: False rejects 0 with a separate message."""

    high: int
    low: int = 0
    takes_zero: bool = True

    @property
    def kinds(self) -> tuple[str, ...]:
        return (POSITIVE,) if self.low >= 0 else (POSITIVE, NEGATIVE)

    def decode(self, value: Any, location: str) -> int:
        if type(value) is int and self.low <= value <= self.high and (value or self.takes_zero):  # bool is not int here
            return value
        if messages.kind_of(value) not in self.kinds:
            raise messages.wrong_type(value, self.kinds, location)
        if not value and not self.takes_zero:
            reason = f"a non-zero integer value lower than `{self.high}` was expected, but found a zero"
        elif value > self.high:
            reason = f"value: `{value}` is too large to be deserialized, maximum value authorized is `{self.high}`"
        else:
            reason = f"value: `{value}` is too small to be deserialized, minimum value authorized is `{self.low}`"
        raise messages.invalid_value(reason, location)

    def describe(self) -> Schema:
        schema: Schema = {"type": "integer", "minimum": self.low if self.takes_zero else 1}
        return schema if self.high == U64_MAX else {**schema, "maximum": self.high}


class _Number:
    """Any number, as a float."""

    def decode(self, value: Any, location: str) -> float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        raise messages.wrong_type(value, (NUMBER,), location)

    def describe(self) -> Schema:
        return {"type": "number"}


class _Array(NamedTuple):
    """A list whose elements pass one check. length: the exact number of elements, None for any; bound: the most elements."""

    check: Check
    length: int | None = None
    bound: Bound | None = None

    def decode(self, value: Any, location: str) -> list[Any]:
        if not isinstance(value, list):
            raise messages.wrong_type(value, (ARRAY,), location)
        if self.length is not None and len(value) != self.length:
            count = f"Received {len(value)} elements instead of {self.length}"
            raise FieldError(f"Invalid array len{messages.at(location)}. {count}: `{messages.json_excerpt(value)}`")
        if self.bound is not None and len(value) > self.bound.most:
            raise messages.invalid_value(self.bound.refusal(len(value)), location)
        return [self.check.decode(element, f"{location}[{i}]") for i, element in enumerate(value)]

    def describe(self) -> Schema:
        schema: Schema = {"type": "array", "items": self.check.describe()}
        if self.bound is not None:
            return {**schema, "maxItems": self.bound.most}
        return schema if self.length is None else {**schema, "minItems": self.length, "maxItems": self.length}


class _Map(NamedTuple):
    """An object with any names, whose values pass one check, in the order of the body."""

    check: Check

    def decode(self, value: Any, location: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise messages.wrong_type(value, (OBJECT,), location)
        return {name: self.check.decode(member, f"{location}.{name}") for name, member in value.items()}

    def describe(self) -> Schema:
        return {"type": "object", "additionalProperties": self.check.describe()}


class _OneOf(NamedTuple):
    """One of some strings, which messages list in this order. unlisted: more strings, which messages do not list."""

    names: tuple[str, ...]
    unlisted: tuple[str, ...] = ()

    def decode(self, value: Any, location: str) -> str:
        if not isinstance(value, str):
            raise messages.wrong_type(value, (STRING,), location)
        if value not in self.names and value not in self.unlisted:
            raise messages.unknown_value(value, self.names, location)
        return value

    def describe(self) -> Schema:
        return {"type": "string", "enum": [*self.names, *self.unlisted]}


class _Nullable(NamedTuple):
    """null, or a value that a check accepts. Messages do not mention null."""

    check: Check

    def decode(self, value: Any, location: str) -> Any:
        return None if value is None else self.check.decode(value, location)

    def describe(self) -> Schema:
        schema = self.check.describe()
        if isinstance(schema.get("type"), str) and "enum" not in schema:
            return {**schema, "type": [schema["type"], "null"]}
        return {"oneOf": [{"type": "null"}, schema]} if schema else schema


class _Parsed(NamedTuple):
    """A checked value converted by a function, which raises ValueError(reason) to reject it."""

    check: Check
    parse: Callable[[Any], Any]

    def decode(self, value: Any, location: str) -> Any:
        checked = self.check.decode(value, location)
        try:
            return self.parse(checked)
        except FieldError:
            raise
        except ValueError as error:
            raise messages.invalid_value(str(error), location) from None

    def describe(self) -> Schema:
        return self.check.describe()


class _ObjectOr(NamedTuple):
    """Objects pass the first check; other values pass the second one, whose messages name the accepted kinds."""

    objects: Check
    others: Check

    def decode(self, value: Any, location: str) -> Any:
        return (self.objects if isinstance(value, dict) else self.others).decode(value, location)

    def describe(self) -> Schema:
        return {"oneOf": [self.others.describe(), self.objects.describe()]}


class _Object(NamedTuple):
    """An object with declared members, which the decoded object has in declared order.

    immutable: {member: error code} of members that exist but cannot be set here. is_open: other members are ignored instead of
    being rejected.
    """

    fields: Mapping[str, Field]
    immutable: Mapping[str, str]
    is_open: bool

    def decode(self, value: Any, location: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise messages.wrong_type(value, (OBJECT,), location)
        given: dict[str, Any] = {}
        for name, member in value.items():
            declared = self.fields.get(name)
            if declared is not None:
                given[name] = declared.decode(member, f"{location}.{name}")
            elif not self.is_open:
                raise self._refused(name, location)
        decoded: dict[str, Any] = {}
        for name, declared in self.fields.items():
            if name in given:
                decoded[name] = given[name]
            elif declared.required:
                raise FieldError(f"Missing field `{name}`{messages.inside(location)}", declared.missing_code)
            elif declared.default is not ABSENT:
                decoded[name] = declared.default
        return decoded

    def _refused(self, name: str, location: str) -> FieldError:
        where, names = messages.inside(location), tuple(name for name, declared in self.fields.items() if declared.is_listed)
        if name in self.immutable:
            return FieldError(f"Immutable field `{name}`{where}: {messages.one_of(names)}", self.immutable[name])
        hint = messages.did_you_mean(name, names)
        return FieldError(f"Unknown field `{name}`{where}: {hint}{messages.one_of(names)}")

    def describe(self) -> Schema:
        schema: Schema = {"type": "object"}
        required = [name for name, declared in self.fields.items() if declared.required]
        if required:
            schema["required"] = required
        schema["properties"] = {name: declared.describe() for name, declared in self.fields.items()}
        return schema if self.is_open else {**schema, "additionalProperties": False}


string = _Kind(STRING, str, "string")
boolean = _Kind(BOOLEAN, bool, "boolean")
any_object = _Kind(OBJECT, dict, "object")
anything = _Anything()
positive_integer = _Integer(U64_MAX)
non_zero = _Integer(U64_MAX, takes_zero=False)
integer = _Integer(2**63 - 1, -(2**63))
number = _Number()
array_of, bounded, map_of, nullable, object_or, parsed, text_of = _Array, _Integer, _Map, _Nullable, _ObjectOr, _Parsed, _Text


def object_of(fields: Mapping[str, Field], *, immutable: Mapping[str, str] | None = None, is_open: bool = False) -> Check:
    """An object with declared members. is_open: other members are ignored."""
    return _Object(fields, immutable or {}, is_open)


def one_of(*names: str, unlisted: tuple[str, ...] = ()) -> Check:
    """One of some strings, which messages list in this order. unlisted: additional strings, which messages do not list."""
    return _OneOf(names, unlisted)


def decode_value(value: Any, check: Check, *, code: str = BAD_REQUEST) -> Any:
    """Decode a whole body. Raises ApiError with the code of the faulty field, or `code` if the field has no code."""
    try:
        return check.decode(value, "")
    except FieldError as error:
        raise ApiError(error.code or code, error.message) from None


def decode_body(value: Any, fields: Mapping[str, Field], *, immutable: Mapping[str, str] | None = None) -> Any:
    """Decode a body that is an object with declared members. Raises ApiError as decode_value()."""
    return decode_value(value, object_of(fields, immutable=immutable))
