"""Builtins for strings and characters: search, substrings, splitting, case, and changes in place.

Positions count characters; negative ones count from the end. Builtins that change a string return (new string, result),
because Python strings are immutable.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from svcd.base import json_text
from svcd.rhai import errors
from svcd.rhai.builtins import ANY, Builtin, Runtime, pure, replacing
from svcd.rhai.errors import FunctionError
from svcd.rhai.values import Char, Range, Value

Change = tuple[str, Value]  # (new string, result)
_KINDS = (str, Char)


def start_of(start: int, length: int) -> int:
    """The index that a start position means: negative counts from the end; clamped to 0..length."""
    return max(start + length, 0) if start < 0 else min(start, length)


def span(start: int, length: int, wanted: int) -> tuple[int, int]:
    """(first, end) of a slice of at most `wanted` elements."""
    first = start_of(start, length)
    return first, first + min(max(wanted, 0), length - first)


def range_span(numbers: Range, length: int) -> tuple[int, int]:
    """(first, end) of the slice that a range selects."""
    start = max(numbers.start, 0)
    return span(start, length, max(numbers.end, 0) + numbers.is_inclusive - start)


# Parts


def _sub_string(runtime: Runtime, text: str, start: int, wanted: int = errors.STRING_LENGTH) -> str:
    first, last = span(start, len(text), wanted)
    return runtime.new_text(text[first:last])


def _sub_string_of(runtime: Runtime, text: str, numbers: Range) -> str:
    first, last = range_span(numbers, len(text))
    return runtime.new_text(text[first:last])


def _crop(act: Callable[..., str]) -> Callable[..., Change]:
    return lambda runtime, text, *part: (act(runtime, text, *part), None)


def _index_of(runtime: Runtime, text: str, part: str, start: int = 0) -> int:
    runtime.charge_scan(text)
    return text.find(part, start_of(start, len(text)))


def _starts_with(runtime: Runtime, text: str, part: str) -> bool:
    runtime.charge_scan(part)
    return text.startswith(part)


def _ends_with(runtime: Runtime, text: str, part: str) -> bool:
    runtime.charge_scan(part)
    return text.endswith(part)


def _get(runtime: Runtime, text: str, index: int) -> Char | None:
    return Char(text[index]) if -len(text) <= index < len(text) else None


def _set(runtime: Runtime, text: str, index: int, character: Char) -> Change:
    if not -len(text) <= index < len(text):
        return text, None
    at = index % len(text)
    return runtime.new_text(text[:at] + character + text[at + 1:]), None


def chars(runtime: Runtime, text: str) -> list[Value]:
    """The characters of a string, as an array."""
    runtime.check_array_length(len(text))
    runtime.charge(len(text))
    return [Char(letter) for letter in text]


def _min(runtime: Runtime, x: str, y: str) -> str:
    runtime.charge_scan(x)
    return min(x, y)


def _max(runtime: Runtime, x: str, y: str) -> str:
    runtime.charge_scan(x)
    return max(x, y)


# Splitting


def _pieces(runtime: Runtime, pieces: list[str]) -> list[Value]:
    runtime.charge(len(pieces))
    return runtime.new_array(list(pieces))


def _words(runtime: Runtime, text: str) -> list[Value]:
    runtime.charge_scan(text)
    return _pieces(runtime, text.split(None, errors.ARRAY_LENGTH))


def _split(runtime: Runtime, text: str, part: str, most: int | None = None) -> list[Value]:
    runtime.charge_scan(text)
    count = errors.ARRAY_LENGTH if most is None else min(max(most, 1) - 1, errors.ARRAY_LENGTH)
    if part:
        return _pieces(runtime, text.split(part, count))
    runtime.check_array_length(len(text) + 2)
    return _pieces(runtime, ["", *text, ""])


def _split_rev(runtime: Runtime, text: str, part: str, most: int | None = None) -> list[Value]:
    runtime.charge_scan(text)
    count = errors.ARRAY_LENGTH if most is None else min(max(most, 1) - 1, errors.ARRAY_LENGTH)
    return _pieces(runtime, text.rsplit(part, count)[::-1]) if part else _split(runtime, text, part)


def _split_at(runtime: Runtime, text: str, index: int) -> list[Value]:
    at = start_of(index, len(text))
    return [runtime.new_text(text[:at]), runtime.new_text(text[at:])]


# Changes


def _letters(act: Callable[[str], str]) -> Callable[[Runtime, str], str]:
    """upper() or lower(), charged by the new length: a sharp s becomes two letters."""
    return lambda runtime, text: runtime.new_text(act(text))


def _making(act: Callable[[str], str]) -> Callable[[Runtime, str], Change]:
    return lambda runtime, text: (runtime.new_text(act(text)), None)


def _of_character(act: Callable[[str], str]) -> Callable[[Runtime, Char], Char]:
    return lambda runtime, character: Char(act(character)) if len(act(character)) == 1 else character


def _replace(runtime: Runtime, text: str, old: str, new: str) -> Change:
    runtime.charge_scan(text)
    runtime.check_text_length(len(text) + text.count(old) * (len(new) - len(old)))
    return runtime.new_text(text.replace(old, new)), None


def _append(runtime: Runtime, text: str, more: Value) -> Change:
    added = runtime.to_text(more)
    runtime.check_text_length(len(text) + len(added))
    runtime.charge(len(text) >> errors.COPIED_SHIFT)
    return text + added, None


def _remove(runtime: Runtime, text: str, part: str) -> Change:
    runtime.charge_scan(text)
    return text.replace(part, "") if part else text, None


def _pad(runtime: Runtime, text: str, length: int, filling: str) -> Change:
    runtime.check_text_length(length)
    if length <= len(text) or not filling:
        return text, None
    missing = length - len(text)
    return runtime.new_text(text + filling * -(-missing // len(filling))), None


def _pop(runtime: Runtime, text: str) -> Change:
    return runtime.new_text(text[:-1]), Char(text[-1]) if text else None


def _pop_many(runtime: Runtime, text: str, count: int) -> Change:
    at = max(len(text) - max(count, 0), 0)
    return runtime.new_text(text[:at]), text[at:]


def _truncate(runtime: Runtime, text: str, length: int) -> Change:
    return runtime.new_text(text[:max(length, 0)]), None


def _map_builtins() -> Iterator[Builtin]:
    yield pure("len", (str,), lambda runtime, text: len(text))
    yield pure("is_empty", (str,), lambda runtime, text: not text)
    yield pure("bytes", (str,), lambda runtime, text: len(runtime.new_text(text).encode()))
    yield pure("get", (str, int), _get)
    yield pure("chars", (str,), chars)
    yield pure("to_chars", (str,), chars)
    yield pure("chars", (str, int), lambda runtime, *part: chars(runtime, _sub_string(runtime, *part)))
    yield pure("chars", (str, int, int), lambda runtime, *part: chars(runtime, _sub_string(runtime, *part)))
    yield pure("chars", (str, Range), lambda runtime, *part: chars(runtime, _sub_string_of(runtime, *part)))
    yield pure("sub_string", (str, int), _sub_string)
    yield pure("sub_string", (str, int, int), _sub_string)
    yield pure("sub_string", (str, Range), _sub_string_of)
    yield pure("split", (str,), _words)
    yield pure("split", (str, int), _split_at)
    yield pure("parse_json", (str,), _parse_json)
    yield pure("min", (str, str), _min)
    yield pure("max", (str, str), _max)
    yield pure("to_upper", (str,), _letters(str.upper))
    yield pure("to_lower", (str,), _letters(str.lower))
    yield pure("to_upper", (Char,), _of_character(str.upper))
    yield pure("to_lower", (Char,), _of_character(str.lower))


def _search_rows() -> Iterator[Builtin]:
    for kind in _KINDS:
        yield pure("starts_with", (str, kind), _starts_with)
        yield pure("ends_with", (str, kind), _ends_with)
        yield pure("index_of", (str, kind), _index_of)
        yield pure("index_of", (str, kind, int), _index_of)
        yield pure("split", (str, kind), _split)
        yield pure("split", (str, kind, int), _split)
        yield pure("split_rev", (str, kind), _split_rev)
        yield pure("split_rev", (str, kind, int), _split_rev)


def _changing_rows() -> Iterator[Builtin]:
    yield replacing("make_upper", (str,), _making(str.upper))
    yield replacing("make_lower", (str,), _making(str.lower))
    yield replacing("make_upper", (Char,), lambda runtime, each: (_of_character(str.upper)(runtime, each), None))
    yield replacing("make_lower", (Char,), lambda runtime, each: (_of_character(str.lower)(runtime, each), None))
    yield replacing("trim", (str,), _making(str.strip))
    yield replacing("clear", (str,), lambda runtime, text: ("", None))
    yield replacing("truncate", (str, int), _truncate)
    yield replacing("set", (str, int, Char), _set)
    yield replacing("append", (str, ANY), _append)
    yield replacing("+=", (str, ANY), _append)
    yield replacing("pop", (str,), _pop)
    yield replacing("pop", (str, int), _pop_many)
    yield replacing("crop", (str, int), _crop(_sub_string))
    yield replacing("crop", (str, int, int), _crop(_sub_string))
    yield replacing("crop", (str, Range), _crop(_sub_string_of))
    for kind in _KINDS:
        yield replacing("remove", (str, kind), _remove)
        yield replacing("pad", (str, int, kind), _pad)
        for other in _KINDS:
            yield replacing("replace", (str, kind, other), _replace)


def _of_all() -> Iterator[Builtin]:
    yield pure("to_string", (ANY,), lambda runtime, value: runtime.to_text(value))
    yield pure("to_debug", (ANY,), lambda runtime, value: runtime.to_text(value, is_bare=False))
    yield pure("print", (ANY,), lambda runtime, value: None)
    yield pure("debug", (ANY,), lambda runtime, value: None)


def _parse_json(runtime: Runtime, text: str) -> Value:
    runtime.charge(len(text))  # the value may take many times the memory of the text
    try:
        return runtime.copied(json_text.loads(text))
    except ValueError as error:
        raise FunctionError(f"Syntax error: {error}") from None


STRING_BUILTINS = (*_map_builtins(), *_search_rows(), *_changing_rows(), *_of_all())
PROPERTIES = {str: ("len", "is_empty", "chars", "bytes")}
