"""What the language can do with texts and characters: search, parts, letters, and changes in place.

Positions count characters; one below 0 counts from the end. A text that a function changes is replaced: such
rows answer what it becomes, and their own value. Knows the rows alone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator

from svcd.base import json_text
from svcd.rhai import errors
from svcd.rhai.builtins import ANY, Builtin, Taker, pure, replacing
from svcd.rhai.errors import FunctionError
from svcd.rhai.values import Char, Range, Value

Change = tuple[str, Value]  # what the text becomes, and what the function answers
_KINDS = (str, Char)


def start_of(start: int, length: int) -> int:
    """Where a part begins: counted from the end below 0, no further than the ends."""
    return max(start + length, 0) if start < 0 else min(start, length)


def span(start: int, length: int, wanted: int) -> tuple[int, int]:
    """The ends of a part of `wanted` elements, of which there may be fewer."""
    first = start_of(start, length)
    return first, first + min(max(wanted, 0), length - first)


def range_span(numbers: Range, length: int) -> tuple[int, int]:
    """The ends of the part that a range names."""
    start = max(numbers.start, 0)
    return span(start, length, max(numbers.end, 0) + numbers.is_inclusive - start)


# Parts


def _sub_string(machine: Taker, text: str, start: int, wanted: int = errors.STRING_LENGTH) -> str:
    first, last = span(start, len(text), wanted)
    return machine.text(text[first:last])


def _sub_string_of(machine: Taker, text: str, numbers: Range) -> str:
    first, last = range_span(numbers, len(text))
    return machine.text(text[first:last])


def _crop(act: Callable[..., str]) -> Callable[..., Change]:
    return lambda machine, text, *part: (act(machine, text, *part), None)


def _index_of(machine: Taker, text: str, part: str, start: int = 0) -> int:
    machine.read(text)
    return text.find(part, start_of(start, len(text)))


def _starts_with(machine: Taker, text: str, part: str) -> bool:
    machine.read(part)
    return text.startswith(part)


def _ends_with(machine: Taker, text: str, part: str) -> bool:
    machine.read(part)
    return text.endswith(part)


def _get(machine: Taker, text: str, index: int) -> Char | None:
    return Char(text[index]) if -len(text) <= index < len(text) else None


def _set(machine: Taker, text: str, index: int, character: Char) -> Change:
    if not -len(text) <= index < len(text):
        return text, None
    at = index % len(text)
    return machine.text(text[:at] + character + text[at + 1:]), None


def chars(machine: Taker, text: str) -> list[Value]:
    """The characters of a text, as an array."""
    machine.room_for_elements(len(text))
    machine.charge(len(text))
    return [Char(letter) for letter in text]


def _least(machine: Taker, x: str, y: str) -> str:
    machine.read(x)
    return min(x, y)


def _greatest(machine: Taker, x: str, y: str) -> str:
    machine.read(x)
    return max(x, y)


# Splitting


def _pieces(machine: Taker, pieces: list[str]) -> list[Value]:
    machine.charge(len(pieces))
    return machine.elements(list(pieces))


def _words(machine: Taker, text: str) -> list[Value]:
    machine.read(text)
    return _pieces(machine, text.split(None, errors.ARRAY_LENGTH))


def _split(machine: Taker, text: str, part: str, most: int | None = None) -> list[Value]:
    machine.read(text)
    count = errors.ARRAY_LENGTH if most is None else min(max(most, 1) - 1, errors.ARRAY_LENGTH)
    if part:
        return _pieces(machine, text.split(part, count))
    machine.room_for_elements(len(text) + 2)
    return _pieces(machine, ["", *text, ""])


def _split_rev(machine: Taker, text: str, part: str, most: int | None = None) -> list[Value]:
    machine.read(text)
    count = errors.ARRAY_LENGTH if most is None else min(max(most, 1) - 1, errors.ARRAY_LENGTH)
    return _pieces(machine, text.rsplit(part, count)[::-1]) if part else _split(machine, text, part)


def _split_at(machine: Taker, text: str, index: int) -> list[Value]:
    at = start_of(index, len(text))
    return [machine.text(text[:at]), machine.text(text[at:])]


# Changes


def _letters(act: Callable[[str], str]) -> Callable[[Taker, str], str]:
    """upper() or lower(): a sharp s may become two letters."""
    return lambda machine, text: machine.text(act(text))


def _making(act: Callable[[str], str]) -> Callable[[Taker, str], Change]:
    return lambda machine, text: (machine.text(act(text)), None)


def _of_character(act: Callable[[str], str]) -> Callable[[Taker, Char], Char]:
    return lambda machine, character: Char(act(character)) if len(act(character)) == 1 else character


def _replace(machine: Taker, text: str, old: str, new: str) -> Change:
    machine.read(text)
    machine.room_for_text(len(text) + text.count(old) * (len(new) - len(old)))
    return machine.text(text.replace(old, new)), None


def _append(machine: Taker, text: str, more: Value) -> Change:
    added = machine.shown(more)
    machine.room_for_text(len(text) + len(added))
    machine.charge(len(text) >> errors.COPIED_SHIFT)
    return text + added, None


def _remove(machine: Taker, text: str, part: str) -> Change:
    machine.read(text)
    return text.replace(part, "") if part else text, None


def _pad(machine: Taker, text: str, length: int, filling: str) -> Change:
    machine.room_for_text(length)
    if length <= len(text) or not filling:
        return text, None
    missing = length - len(text)
    return machine.text(text + filling * -(-missing // len(filling))), None


def _pop(machine: Taker, text: str) -> Change:
    return machine.text(text[:-1]), Char(text[-1]) if text else None


def _pop_many(machine: Taker, text: str, count: int) -> Change:
    at = max(len(text) - max(count, 0), 0)
    return machine.text(text[:at]), text[at:]


def _truncate(machine: Taker, text: str, length: int) -> Change:
    return machine.text(text[:max(length, 0)]), None


def _rows() -> Iterator[Builtin]:
    yield pure("len", (str,), lambda machine, text: len(text))
    yield pure("is_empty", (str,), lambda machine, text: not text)
    yield pure("bytes", (str,), lambda machine, text: len(machine.text(text).encode()))
    yield pure("get", (str, int), _get)
    yield pure("chars", (str,), chars)
    yield pure("to_chars", (str,), chars)
    yield pure("chars", (str, int), lambda machine, *part: chars(machine, _sub_string(machine, *part)))
    yield pure("chars", (str, int, int), lambda machine, *part: chars(machine, _sub_string(machine, *part)))
    yield pure("chars", (str, Range), lambda machine, *part: chars(machine, _sub_string_of(machine, *part)))
    yield pure("sub_string", (str, int), _sub_string)
    yield pure("sub_string", (str, int, int), _sub_string)
    yield pure("sub_string", (str, Range), _sub_string_of)
    yield pure("split", (str,), _words)
    yield pure("split", (str, int), _split_at)
    yield pure("parse_json", (str,), _parse_json)
    yield pure("min", (str, str), _least)
    yield pure("max", (str, str), _greatest)
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
    yield replacing("make_upper", (Char,), lambda machine, each: (_of_character(str.upper)(machine, each), None))
    yield replacing("make_lower", (Char,), lambda machine, each: (_of_character(str.lower)(machine, each), None))
    yield replacing("trim", (str,), _making(str.strip))
    yield replacing("clear", (str,), lambda machine, text: ("", None))
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
    yield pure("to_string", (ANY,), lambda machine, value: machine.shown(value))
    yield pure("to_debug", (ANY,), lambda machine, value: machine.shown(value, is_bare=False))
    yield pure("print", (ANY,), lambda machine, value: None)
    yield pure("debug", (ANY,), lambda machine, value: None)


def _parse_json(machine: Taker, text: str) -> Value:
    machine.charge(len(text))  # what comes of it may take many times its memory
    try:
        return machine.own(json_text.loads(text))
    except ValueError as error:
        raise FunctionError(f"Syntax error: {error}") from None


STRING_BUILTINS = (*_rows(), *_search_rows(), *_changing_rows(), *_of_all())
PROPERTIES = {str: ("len", "is_empty", "chars", "bytes")}
