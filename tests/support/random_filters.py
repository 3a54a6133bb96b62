"""Random documents and filters from a seed, each filter with a plain test of one document that means the same.

The tests look at documents as JSON values, one by one, and know nothing of readers, sets and trees.
"""
from __future__ import annotations

import math
import random
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

Document = dict[str, Any]
Test = Callable[[Document], bool]

FIELDS = ["a", "b", "b.c", "b.d.e", "ta g", "été", "never"]
TEXTS = ["", "x", "X", "xy", "Xyz", "été", "ÉTÉ", "e\u0301te\u0301", "1", "2.5", "true", "it's", 'say "x"', "back\\slash",
         "a b", " padded ", "日本", "z\nz", "ﬁn", "AND", "-0.0", "10", "nul\0in"]
NUMBERS: list[Any] = [0, -0.0, 1, 2, 2.5, -1, 10, 1e3, 1e21, -7.25]
FILTER_TEXTS = [*TEXTS, "0", "-0", "+1", ".5", "5.", "1e3", "1e400", "NaN", "inf", "0x1", "1 ", "zzz", "\U0010ffff"]


def document(dice: random.Random, number: int) -> Document:
    """A document with some of the fields."""
    made: Document = {"id": number}
    for name in ("a", "ta g", "été"):
        if dice.random() < 0.7:
            made[name] = _value(dice, 2)
    if dice.random() < 0.7:
        made["b"] = dice.choice((_object(dice), [_object(dice), _object(dice)], _value(dice, 1)))
    return made


def _object(dice: random.Random) -> Document:
    made = {}
    if dice.random() < 0.7:
        made["c"] = _value(dice, 1)
    if dice.random() < 0.5:
        made["d"] = {"e": _value(dice, 1)} if dice.random() < 0.8 else _value(dice, 0)
    return made


def _value(dice: random.Random, depth: int) -> Any:
    kind = dice.randrange(10 if depth else 7)
    if kind < 3:
        return dice.choice(TEXTS)
    if kind < 5:
        return dice.choice(NUMBERS)
    if kind == 5:
        return dice.choice((True, False))
    if kind == 6:
        return None
    return [] if kind == 7 else [_value(dice, depth - 1) for _ in range(dice.randrange(1, 4))]


# What a document has


def _members(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of every member of an object, however deep, that is called `path`."""
    if isinstance(value, list):
        for element in value:
            yield from _members(element, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name == path:
                yield name, inner
            elif path.startswith(f"{name}."):
                yield from _members(inner, path[len(name) + 1:])


def _held(made: Document, path: str) -> list[Any]:
    return [value for _, value in _members(made, path)]


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for element in value:
            yield from _flat(element)
    elif not isinstance(value, dict) and value is not None:
        yield value


def _texts(made: Document, path: str) -> list[str]:
    found = [value for held in _held(made, path) for value in _flat(held)]
    spelled = [str(value).lower() if isinstance(value, bool) else value for value in found]
    return [normal for value in spelled if isinstance(value, str) and (normal := _normal(value))]


def _numbers(made: Document, path: str) -> list[tuple[float, float]]:
    """(number, its sign), for -0.0 stands before 0.0."""
    found = [value for held in _held(made, path) for value in _flat(held)]
    return [_signed(float(value)) for value in found if isinstance(value, (int, float)) and not isinstance(value, bool)]


def _signed(number: float) -> tuple[float, float]:
    return number, math.copysign(1, number)


def _normal(text: str) -> str:
    return "".join(unicodedata.normalize("NFKD", character) for character in text.strip(" \t\r\n")).lower()


def _as_number(text: str) -> tuple[float, float] | None:
    """Only what the texts of this module can be."""
    if not text or text.strip() != text or not set(text) <= set("+-.0123456789e"):
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return _signed(number) if math.isfinite(number) else None


# Filters


def written(dice: random.Random, text: str) -> str:
    """A value as somebody may write it."""
    is_plain = text and all(character.isalnum() or character in "_-." for character in text)
    keywords = {"AND", "OR", "IN", "NOT", "TO", "EXISTS", "IS", "NULL", "EMPTY", "CONTAINS", "STARTS", "WITH"}
    form = dice.randrange(4)
    if is_plain and text not in keywords and form < 2:
        return text
    if form == 2:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if form == 3 and is_plain:
        return '"' + "".join(f"\\u{{{ord(character):x}}}" for character in text) + '"'
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", dice.choice(("\n", "\\n"))) + '"'


def expression(dice: random.Random, depth: int = 4) -> tuple[str, Test]:
    """A filter, and the test of a document that it stands for."""
    kind = dice.randrange(8) if depth else 7
    if kind < 2:
        return _joined(dice, depth, "AND", all)
    if kind < 4:
        return _joined(dice, depth, "OR", any)
    if kind == 4:
        text, test = expression(dice, depth - 1)
        return f"NOT{_blank(dice, 1)}({_blank(dice)}{text}{_blank(dice)})", lambda made: not test(made)
    if kind == 5:
        text, test = expression(dice, depth - 1)
        return f"({_blank(dice)}{text}{_blank(dice)})", test
    return _condition(dice)


def _joined(dice: random.Random, depth: int, word: str, combine: Callable[[Iterator[bool]], bool]) -> tuple[str, Test]:
    parts = [expression(dice, depth - 1) for _ in range(dice.randrange(2, 4))]
    text = f"{_blank(dice, 1)}{word}{_blank(dice, 1)}".join(f"({text})" for text, _ in parts)
    return text, lambda made: combine(test(made) for _, test in parts)


def _blank(dice: random.Random, least: int = 0) -> str:
    return "".join(dice.choices(" \t\n\r", weights=(9, 1, 1, 1), k=max(least, dice.choice((0, 0, 1, 2)))))


def _condition(dice: random.Random) -> tuple[str, Test]:
    field = dice.choice(FIELDS)
    make = dice.choice(_CONDITIONS)
    text, test = make(dice, field)
    return f"{written(dice, field)}{_blank(dice, 1)}{text}", test


def _equal(made: Document, field: str, text: str) -> bool:
    return _normal(text) in _texts(made, field) or _as_number(text) in _numbers(made, field)


def _comparison(dice: random.Random, field: str) -> tuple[str, Test]:
    operator, text = dice.choice(("=", "!=", "<", "<=", ">", ">=")), dice.choice(FILTER_TEXTS)
    shown = f"{operator}{_blank(dice)}{written(dice, text)}"
    if operator in ("=", "!="):
        return shown, lambda made: _equal(made, field, text) == (operator == "=")
    holds = {"<": lambda one, two: one < two, "<=": lambda one, two: one <= two,
             ">": lambda one, two: one > two, ">=": lambda one, two: one >= two}[operator]
    normal, number = _normal(text).encode(), _as_number(text)
    return shown, lambda made: any(holds(value.encode(), normal) for value in _texts(made, field)) or (
        number is not None and any(holds(value, number) for value in _numbers(made, field)))


def _between(dice: random.Random, field: str) -> tuple[str, Test]:
    low, high = dice.choice(FILTER_TEXTS), dice.choice(FILTER_TEXTS)
    first, last = _as_number(low), _as_number(high)
    shown = f"{written(dice, low)} TO {written(dice, high)}"
    return shown, lambda made: any(_normal(low).encode() <= value.encode() <= _normal(high).encode()
                                   for value in _texts(made, field)) or (
        first is not None and last is not None and any(first <= value <= last for value in _numbers(made, field)))


def _in(dice: random.Random, field: str) -> tuple[str, Test]:
    texts = dice.choices(FILTER_TEXTS, k=dice.choice((0, 1, 3, 40)))
    is_negated = dice.random() < 0.3
    listed = f"{_blank(dice)},{_blank(dice)}".join(written(dice, text) for text in texts)
    comma = "," if texts and dice.random() < 0.2 else ""
    shown = f"{'NOT ' * is_negated}IN{_blank(dice)}[{_blank(dice)}{listed}{comma}{_blank(dice)}]"
    return shown, lambda made: any(_equal(made, field, text) for text in texts) != is_negated


def _state(dice: random.Random, field: str) -> tuple[str, Test]:
    name, is_negated = dice.choice(("NULL", "EMPTY")), dice.random() < 0.5
    wanted = [None] if name == "NULL" else ["", [], {}]

    def is_one(value: Any) -> bool:
        return any(value == each and type(value) is type(each) for each in wanted)

    shown = f"IS{_blank(dice, 1)}{f'NOT{_blank(dice, 1)}' * is_negated}{name}"
    return shown, lambda made: any(map(is_one, _held(made, field))) != is_negated


def _exists(dice: random.Random, field: str) -> tuple[str, Test]:
    is_negated = dice.random() < 0.5
    return f"{'NOT ' * is_negated}EXISTS", lambda made: bool(_held(made, field)) != is_negated


def _contains(dice: random.Random, field: str) -> tuple[str, Test]:
    text, is_negated = dice.choice(FILTER_TEXTS), dice.random() < 0.3
    shown = f"{'NOT ' * is_negated}CONTAINS{_blank(dice, 1)}{written(dice, text)}"
    return shown, lambda made: any(_normal(text) in value for value in _texts(made, field)) != is_negated


def _starts(dice: random.Random, field: str) -> tuple[str, Test]:
    text, is_negated = dice.choice(FILTER_TEXTS), dice.random() < 0.3
    shown = f"{'NOT ' * is_negated}STARTS WITH{_blank(dice, 1)}{written(dice, text)}"
    if not _normal(text):
        return shown, lambda made: bool(_held(made, field)) != is_negated
    return shown, lambda made: any(value.startswith(_normal(text)) for value in _texts(made, field)) != is_negated


_CONDITIONS = [_comparison, _comparison, _between, _in, _state, _exists, _contains, _starts]
