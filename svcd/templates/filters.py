"""FILTERS: the functions that may follow a `|` in a template.

A filter is called with charge(steps, characters), the value on its left and its arguments. It counts the elements that it reads
and the characters that it makes, and raises TemplateError for an unsuitable value. svcd does not use the filters of the library:
they write values as Python does, and some take unlimited time or memory.
"""
from __future__ import annotations

import base64
import html
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import ROUND_HALF_UP, Decimal
from functools import cmp_to_key, partial
from inspect import signature
from operator import add, mul, sub
from typing import Any, TypeVar

from dateutil import parser as date_parser

from svcd.templates import limits
from svcd.templates.limits import Charge, TemplateError
from svcd.templates.values import MISSING, get, is_array, is_scalar, is_truthy, order, scalar_text, text_of, type_name

Number = int | float
_MAX_INTEGER = 2**63 - 1


Filter = Callable[..., Any]
Function = TypeVar("Function", bound=Filter)
FILTERS: dict[str, Filter] = {}


def _register(name: str, function: Function) -> Function:
    """Register a filter. Errors of Python about its arguments become TemplateErrors."""
    parameters = signature(function)

    def checked(*args: Any, **named: Any) -> Any:
        try:
            parameters.bind(*args, **named)
        except TypeError as error:
            raise _fault(f"Invalid number of arguments: {error}") from None
        return function(*args, **named)

    FILTERS[name] = checked
    return function


def _filter(name: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a filter."""
    return lambda function: _register(name, function)


def _fault(message: str) -> TemplateError:
    return TemplateError(f"liquid: {message}\n")


def _text(charge: Charge, value: Any) -> str:
    return value if isinstance(value, str) else text_of(value, charge)


def _array(charge: Charge, value: Any) -> Sequence[Any]:
    """The elements of an array. Raises TemplateError for anything else, and for too many of them."""
    if not is_array(value):
        raise _fault(f"Invalid input: Array expected, found `{type_name(value)}`")
    if len(value) > limits.ELEMENTS:
        raise _fault(f"Array has more than {limits.ELEMENTS} elements")
    charge(len(value))
    return value if isinstance(value, list) else list(value)


def _number(value: Any) -> Number:
    """A number, also from a text that is one."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _result(value)
    if isinstance(value, str) and len(value) <= 40:
        for kind in (int, float):
            try:
                return _result(kind(value))
            except ValueError:
                pass
    raise _fault(f"Invalid argument: Number expected, found `{type_name(value)}`")


def _whole(value: Any) -> int:
    number = _number(value)
    if isinstance(number, float):
        raise _fault("Invalid argument: Whole number expected, found `fractional number`")
    return max(min(number, _MAX_INTEGER), -_MAX_INTEGER)


def _result(number: Number) -> Number:
    """Whole numbers that need more than 64 bits become fractional ones."""
    if not isinstance(number, int) or abs(number) <= _MAX_INTEGER:
        return number
    try:
        return float(number)
    except OverflowError:
        raise _fault("Number is too large") from None


def _made(charge: Charge, text: str) -> str:
    """Charge for a text that is at most some times as long as the value, and return it."""
    charge(len(text) // 64, len(text))
    return text


# Text


def _changed_text(change: Callable[[str], str], charge: Charge, value: Any) -> str:
    """Change a text. change: takes time linear in its length."""
    text = _text(charge, value)
    charge(len(text) // 64)
    try:
        return _made(charge, change(text))
    except ValueError:  # half a surrogate pair, which UTF-8 cannot encode; not base64
        raise _fault("Invalid input: the text can't be converted") from None


_HIDDEN_ELEMENTS = {"<script": "</script>", "<style": "</style>", "<!--": "-->"}


def _without_tags(text: str) -> str:
    """Return the text without HTML tags, comments, scripts and styles; linear: a missing closing tag is sought only once."""
    kept = []
    position = 0
    lower = text.lower()
    if len(lower) != len(text):  # some letters become several small letters
        lower = text
    unclosed: set[str] = set()
    while (start := text.find("<", position)) >= 0:
        opening = next((opening for opening in _HIDDEN_ELEMENTS if lower.startswith(opening, start)), "")
        end = -1
        for closing in (_HIDDEN_ELEMENTS.get(opening, ">"), ">"):
            if end < 0 and closing not in unclosed:
                end = lower.find(closing, start)
                end += len(closing) if end >= 0 else 0
                if end < 0:
                    unclosed.add(closing)
        if end < 0:
            break
        kept.append(text[position:start])
        position = end
    return "".join([*kept, text[position:]])


_CHANGES: dict[str, Callable[[str], str]] = {
    "capitalize": lambda text: text[:1].upper() + text[1:],
    "downcase": str.lower,
    "upcase": str.upper,
    "strip": str.strip,
    "lstrip": str.lstrip,
    "rstrip": str.rstrip,
    "escape": html.escape,
    "escape_once": lambda text: html.escape(html.unescape(text)),
    "newline_to_br": lambda text: re.sub(r"\r?\n", "<br />\n", text),
    "strip_newlines": lambda text: re.sub(r"\r?\n", "", text),
    "url_encode": urllib.parse.quote_plus,
    "url_decode": urllib.parse.unquote_plus,
    "base64_encode": lambda text: base64.b64encode(text.encode()).decode(),
    "base64_url_safe_encode": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64_decode": lambda text: base64.b64decode(text, validate=True).decode(),
    "base64_url_safe_decode": lambda text: base64.b64decode(text, b"-_", validate=True).decode(),
    "strip_html": _without_tags,
}
for _name, _change in _CHANGES.items():
    _register(_name, partial(_changed_text, _change))


def _replaced(charge: Charge, value: Any, old: Any, new: Any, count: int) -> str:
    """count: maximum number of replacements; -1 for all."""
    text, old, new = _text(charge, value), _text(charge, old), _text(charge, new)
    found = text.count(old) if count < 0 else count
    charge(len(text) // 32, len(text) + found * len(new))
    return text.replace(old, new, count)


@_filter("replace_last")
def _replace_last(charge: Charge, value: Any, old: Any, new: Any = "") -> str:
    text, old = _text(charge, value), _text(charge, old)
    place = text.rfind(old)
    return _made(charge, text if place < 0 else text[:place] + _text(charge, new) + text[place + len(old):])


@_filter("truncate")
def _truncate(charge: Charge, value: Any, length: Any = 50, end: Any = "...") -> str:
    """Cut a text to `length` characters, including `end`."""
    text, length, end = _text(charge, value), _whole(length), _text(charge, end)
    return _made(charge, text if len(text) <= length else text[:max(length - len(end), 0)] + end)


@_filter("truncatewords")
def _truncate_words(charge: Charge, value: Any, number: Any = 15, end: Any = "...") -> str:
    text, number = _text(charge, value), max(_whole(number), 1)
    charge(len(text) // 16)
    words = text.split()
    return _made(charge, text if len(words) <= number else " ".join(words[:number]) + _text(charge, end))


@_filter("split")
def _split(charge: Charge, value: Any, separator: Any) -> list[str]:
    text, separator = _text(charge, value), _text(charge, separator)
    charge(len(text) // 64)
    number = len(text) if not separator else text.count(separator) + 1
    if number > limits.ELEMENTS:
        raise _fault(f"Array would have more than {limits.ELEMENTS} elements")
    charge(number, len(text))
    return list(text) if not separator else text.split(separator) if text else []


@_filter("slice")
def _slice(charge: Charge, value: Any, start: Any, length: Any = 1) -> Any:
    """Return a part of a text or array; a start below 0 counts from the end."""
    sequence = _array(charge, value) if is_array(value) else _text(charge, value)
    start, length = _whole(start), _whole(length)
    if start < 0:
        start += len(sequence)
    part = sequence[start:start + max(length, 0)] if start >= 0 else sequence[:0]
    charge(len(part) // 64, len(part) if isinstance(part, str) else 0)
    return part


# Numbers


def _calculated(name: str, calculate: Callable[[Any, Any], Number], charge: Charge, value: Any, operand: Any) -> Number:
    left, right = _number(value), _number(operand)
    try:
        if isinstance(left, int) and isinstance(right, int):
            return _result(calculate(left, right))
        # As decimal numbers: 0.1 plus 0.2 is 0.3.
        return float(calculate(Decimal(repr(left)), Decimal(repr(right))))
    except (ArithmeticError, ValueError):
        raise _fault(f"Can't calculate {scalar_text(left)} {name} {scalar_text(right)}") from None


_CALCULATIONS: dict[str, Callable[[Any, Any], Number]] = {
    "plus": add, "minus": sub, "times": mul,
    "divided_by": lambda left, right: left // right if isinstance(left, int) else left / right,
    "modulo": lambda left, right: left % right if isinstance(left, int) else left - right * (left / right).__floor__(),
    "at_least": max, "at_most": min,
}
for _name, _calculation in _CALCULATIONS.items():
    _register(_name, partial(_calculated, _name, _calculation))


def _rounded_to_whole(number: Number, function: Callable[[Number], int]) -> Number:
    if not math.isfinite(number):
        raise _fault("Invalid input: Finite number expected")
    return _result(function(number))


@_filter("round")
def _round(charge: Charge, value: Any, digits: Any = 0) -> Number:
    """Halves go away from zero."""
    number, digits = _number(value), min(max(_whole(digits), 0), 20)
    if not math.isfinite(number):
        raise _fault("Invalid input: Finite number expected")
    if isinstance(number, int) or abs(number) > 1e16:
        return number
    rounded = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return float(rounded) if digits else int(rounded)


# Arrays


@_filter("join")
def _join(charge: Charge, value: Any, separator: Any = " ") -> str:
    texts, separator = [_text(charge, element) for element in _array(charge, value)], _text(charge, separator)
    charge(0, sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def _end_of(value: Any, place: int) -> Any:
    if not isinstance(value, str) and not is_array(value):
        raise _fault(f"Invalid input: String or Array expected, found `{type_name(value)}`")
    return value[place] if len(value) else None


@_filter("size")
def _size(charge: Charge, value: Any) -> int:
    size = get(value, "size") if is_array(value) or is_scalar(value) else len(value) if isinstance(value, Mapping) else 0
    return int(size)


@_filter("map")
def _map(charge: Charge, value: Any, name: Any) -> list[Any]:
    """The members of this name of the objects that have one."""
    elements = _array(charge, [value] if isinstance(value, Mapping) else value)
    found = (element.get(_text(charge, name), MISSING) for element in elements if isinstance(element, Mapping))
    return [member for member in found if member is not MISSING]


@_filter("where")
def _where(charge: Charge, value: Any, name: Any, target: Any = None) -> list[Any]:
    elements = [value] if isinstance(value, Mapping) else value
    wanted = None if target is None else _identity(charge, target)
    return [element for element in _array(charge, elements) if (member := _member(charge, element, name)) is not None
            and (is_truthy(member) if target is None else _identity(charge, member) == wanted)]


@_filter("uniq")
def _uniq(charge: Charge, value: Any, name: Any = None) -> list[Any]:
    first_ones: dict[Any, Any] = {}
    for element in _array(charge, value):
        first_ones.setdefault(_identity(charge, _member(charge, element, name)), element)
    return list(first_ones.values())


@_filter("sum")
def _sum(charge: Charge, value: Any, name: Any = None) -> Number:
    members = (_member(charge, element, name) for element in _array(charge, value))
    numbers = [member for member in members if isinstance(member, (int, float)) and not isinstance(member, bool)]
    return _result(math.fsum(numbers) if any(isinstance(number, float) for number in numbers) else sum(numbers))


def _sorted(charge: Charge, value: Any, name: Any, key: Callable[[Any], Any]) -> list[Any]:
    elements = _array(charge, value)
    keyed = [(key(_member(charge, element, name)), element) for element in elements]
    characters = sum(len(value) for value, _ in keyed if isinstance(value, str))
    charge((len(keyed) + characters // 256) * len(keyed).bit_length())
    return [element for _, element in sorted(keyed, key=cmp_to_key(_compared))]


def _compared(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
    if left[0] is None or right[0] is None:
        return (left[0] is None) - (right[0] is None)
    return order(left[0], right[0]) or 0


def _member(charge: Charge, element: Any, name: Any) -> Any:
    """Return the element itself, or its member of this name, None for a missing member."""
    if name is None:
        return element
    return element.get(_text(charge, name)) if isinstance(element, Mapping) else None


def _identity(charge: Charge, value: Any, depth: int = limits.NESTING) -> Any:
    """Return a hashable value that is equal for equal values."""
    if is_scalar(value) or value is None:
        return (isinstance(value, bool), value)
    if not depth:
        raise _fault("Value is nested too deeply")
    if isinstance(value, Mapping):
        charge(len(value))
        return frozenset((key, _identity(charge, member, depth - 1)) for key, member in value.items())
    elements = value if is_array(value) else ()
    charge(len(elements))
    return tuple(_identity(charge, element, depth - 1) for element in elements)


_SHORT: dict[str, Filter] = {
    "append": lambda charge, value, end: _made(charge, _text(charge, value) + _text(charge, end)),
    "prepend": lambda charge, value, begin: _made(charge, _text(charge, begin) + _text(charge, value)),
    "replace": lambda charge, value, old, new="": _replaced(charge, value, old, new, -1),
    "replace_first": lambda charge, value, old, new="": _replaced(charge, value, old, new, 1),
    "remove": lambda charge, value, part: _made(charge, _text(charge, value).replace(_text(charge, part), "")),
    "remove_first": lambda charge, value, part: _made(charge, _text(charge, value).replace(_text(charge, part), "", 1)),
    "remove_last": lambda charge, value, part: _replace_last(charge, value, part, ""),
    "abs": lambda charge, value: _result(abs(_number(value))),
    "ceil": lambda charge, value: _rounded_to_whole(_number(value), math.ceil),
    "floor": lambda charge, value: _rounded_to_whole(_number(value), math.floor),
    "first": lambda charge, value: _end_of(value, 0),
    "last": lambda charge, value: _end_of(value, -1),
    "concat": lambda charge, value, other: [*_array(charge, value), *_array(charge, other)],
    "reverse": lambda charge, value: list(_array(charge, value))[::-1],
    "compact": lambda charge, value, name=None: [
        element for element in _array(charge, value) if _member(charge, element, name) is not None],
    # Smallest first, nil last; values without an order keep their order.
    "sort": lambda charge, value, name=None: _sorted(charge, value, name, lambda member: member),
    # By texts in small letters.
    "sort_natural": lambda charge, value, name=None: _sorted(
        charge, value, name, lambda member: None if member is None else _text(charge, member).lower()),
}
for _name, _short in _SHORT.items():
    _register(_name, _short)


@_filter("default")
def _default(charge: Charge, value: Any, default: Any = "", allow_false: Any = False) -> Any:
    """Return the value, or the default for nil, false and empty values."""
    if value is False:
        return value if is_truthy(allow_false) else default
    is_empty = value is None or ((isinstance(value, (str, Mapping)) or is_array(value)) and not value)
    return default if is_empty else value


# glibc accepts a width, as in `%1000000000d`, and writes that number of characters.
_WIDTH = re.compile(r"%[-_0^#]*[0-9]{2,}")


@_filter("date")
def _date(charge: Charge, value: Any, form: Any) -> Any:
    """Format a date as strftime does; other values are returned unchanged."""
    form = _text(charge, form)
    if len(form) > 200 or _WIDTH.search(form):
        raise _fault("Invalid argument: format of the date is too long")
    moment = _moment(value)
    return value if moment is None or not form else _made(charge, moment.strftime(form.encode("utf-8", "replace").decode()))


def _moment(value: Any) -> datetime | None:
    """Parse the seconds since 1970, a text with a date, `now` or `today`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if value in ("now", "today"):
        return datetime.now()
    try:
        if isinstance(value, str) and not value.isdigit():
            return date_parser.parse(value) if len(value) <= 100 else None
        return datetime.fromtimestamp(float(value))
    except (ValueError, ArithmeticError, OSError, TypeError, LookupError):
        return None
