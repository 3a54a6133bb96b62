"""A grammar in the notation of the pages (EBNF), and its sentences."""
from __future__ import annotations

import re
from functools import cached_property

_RULE = re.compile(r"^(\w+) *= (.*(?:\n +.*)*)", re.M)
_PART = re.compile(r'"([^"]+)"|(\w+)|([()|*?])')

Sentences = frozenset[tuple[str, ...]]
# What an expression may be: kind ("word", "name", "all", "any", "some", "maybe") and its parts.
Expression = tuple[str, tuple["Expression", ...] | str]


class Grammar:
    """Rules `name = expression` of "words" and names, in parentheses and with `|`, `*` and `?`.

    A name without a rule stands for itself. No rule may begin with itself, and no part of a `*` be empty.
    """

    def __init__(self, text: str) -> None:
        self._rules = {name: _Reader(body).read() for name, body in _RULE.findall(text)}
        self._known: dict[tuple[Expression, int], Sentences] = {}
        self.terminals = set(re.findall(r'"([^"]+)"', text))

    @cached_property
    def undefined(self) -> set[str]:
        """The names without a rule."""
        def names(expression: Expression) -> set[str]:
            kind, parts = expression
            if isinstance(parts, str):
                return {parts} if kind == "name" else set()
            return {name for part in parts for name in names(part)}

        return {name for body in self._rules.values() for name in names(body)} - set(self._rules)

    def sentences(self, start: str, length: int) -> Sentences:
        """All that are no longer than so many words."""
        return self._made(("name", start), length)

    def _made(self, expression: Expression, length: int) -> Sentences:
        key = (expression, length)
        if key not in self._known:
            self._known[key] = self._make(expression, length)
        return self._known[key]

    def _make(self, expression: Expression, length: int) -> Sentences:
        kind, parts = expression
        if isinstance(parts, str):
            if kind == "name" and parts in self._rules:
                return self._made(self._rules[parts], length)
            return frozenset([(parts,)] if length else [])
        if kind == "any":
            return frozenset().union(*(self._made(part, length) for part in parts))
        if kind == "all":
            return self._joined(parts, length)
        return self._joined((*parts, expression) if kind == "some" else parts, length) | {()}

    def _joined(self, parts: tuple[Expression, ...], length: int) -> Sentences:
        """What the parts make one after the other."""
        if not parts:
            return frozenset([()])
        return frozenset(first + rest for first in self._made(parts[0], length)
                         for rest in self._joined(parts[1:], length - len(first)))


class _Reader:
    """One expression, read from left to right."""

    def __init__(self, body: str) -> None:
        self._parts = [(word, name, sign) for word, name, sign in _PART.findall(body)]
        assert re.sub(r"\s", "", body) == re.sub(r"\s", "", "".join(f'"{word}"' if word else name + sign
                                                                     for word, name, sign in self._parts))

    def read(self) -> Expression:
        expression = self._alternatives()
        assert not self._parts
        return expression

    def _alternatives(self) -> Expression:
        found = [self._sequence()]
        while self._parts and self._parts[0][2] == "|":
            self._parts.pop(0)
            found.append(self._sequence())
        return ("any", tuple(found))

    def _sequence(self) -> Expression:
        found: list[Expression] = []
        while self._parts and self._parts[0][2] not in ("|", ")"):
            found.append(self._item())
        return ("all", tuple(found))

    def _item(self) -> Expression:
        word, name, sign = self._parts.pop(0)
        item: Expression = ("word", word) if word else ("name", name)
        if sign:
            assert sign == "("
            item = self._alternatives()
            assert self._parts.pop(0)[2] == ")"
        if self._parts and self._parts[0][2] in ("*", "?"):
            item = ("some" if self._parts.pop(0)[2] == "*" else "maybe", (item,))
        return item
