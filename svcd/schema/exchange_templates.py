"""Templates of requests and responses of embedding services: JSON with a placeholder in it.

A request has `{{text}}` or `{{fragment}}` in place of inputs, a response `{{embedding}}` in place of vectors. In an array, the
string `{{..}}` in second place means that the first item is repeated, once per input; the array then has no other items. See
docs/embedders.md#rest.
"""
from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from svcd.validation.messages import is_near

TEXT, FRAGMENT, EMBEDDING, REPEAT = "{{text}}", "{{fragment}}", "{{embedding}}", "{{..}}"

Path = tuple[str | int, ...]  # keys of objects, places in arrays

# Messages show up to _MOST_SHOWN characters of received values.
_MOST_SHOWN = 1000
_NOTE_OF_TEXT = ("\n  - Note: this template is using a document template, and so expects to contain the placeholder "
                 f'"{TEXT}" rather than "{FRAGMENT}"')
_NOTE_OF_FRAGMENT = ("\n  - Note: this template is using fragments, and so expects to contain the placeholder "
                     f'"{FRAGMENT}" rathern than "{TEXT}"')  # spelt so in the interface


class TemplateMismatch(ValueError):
    """A response that does not fit its template, or a useless template. str(): the sentence of the interface."""


class ExchangeTemplate(NamedTuple):
    """A parsed template.

    path: to the placeholder, or to the array whose first item is repeated. within: in that item, the path to the placeholder;
    None without repetition.
    """

    root: str
    placeholder: str
    template: Any
    path: Path
    within: Path | None

    @property
    def is_repeated(self) -> bool:
        """Whether it carries any number of values, or else one."""
        return self.within is not None

    def inject(self, values: Sequence[Any]) -> Any:
        """Return the request for these values; without repetition only the first value is used."""
        if self.within is None:
            return _with(self.template, self.path, values[0])
        first = self.template
        for part in self.path:
            first = first[part]
        first = first[0]
        return _with(self.template, self.path, [_with(first, self.within, value) for value in values])

    def extract(self, response: Any) -> list[list[float]]:
        """Return the vectors in a response, in its order. Raises TemplateMismatch."""
        if self.within is None:
            doing = f'extracting a single "{self.placeholder}"'
            return [self._numbers(self._found(response, self.path, doing), self.path, doing)]
        doing = f'extracting the array of "{self.placeholder}"s'
        array = self._found(response, self.path, doing)
        if not isinstance(array, list):
            raise self._wrong((*self.path, 0), len(self.path), array, doing)
        vectors = []
        for place, item in enumerate(array):
            doing = f'extracting item #{place} from the array of "{self.placeholder}"s'
            vectors.append(self._numbers(self._found(item, self.within, doing), self.within, doing))
        return vectors

    def _found(self, value: Any, path: Path, doing: str) -> Any:
        part: Any
        for depth, part in enumerate(path):
            if not isinstance(value, dict if isinstance(part, str) else list):
                raise self._wrong(path, depth, value, doing)
            if (part not in value) if isinstance(part, str) else (part >= len(value)):
                raise self._missing(path, depth, value, doing)
            value = value[part]
        return value

    def _wrong(self, path: Path, depth: int, found: Any, doing: str) -> TemplateMismatch:
        part = path[depth]
        wanted = f"an object with key `{part}`" if isinstance(part, str) else f"an array with at least {part + 1} item(s)"
        return TemplateMismatch(
            f"in {_place(self.root, path[:depth])}, while {doing}, configuration expects "
            f"{_named(self.root, path[:depth])} to be {wanted} but server sent {_shown(found)}")

    def _missing(self, path: Path, depth: int, found: Any, doing: str) -> TemplateMismatch:
        part = path[depth]
        hint = ""
        near = next((key for key in found if is_near(key, part)), None) if isinstance(part, str) else None
        if near is not None:
            hint = (f"\n  - Hint: {_named(self.root, path[:depth])} has key `{near}`, did you mean "
                    f"{_place(self.root, (*path[:depth], near))} in embedder configuration?")
        wanted = f'key "{part}"' if isinstance(part, str) else f"item #{part}"
        return TemplateMismatch(
            f"in {_place(self.root, path[:depth])}, while {doing}, configuration expects {wanted}, "
            f"which is missing in response{hint}")

    def _numbers(self, value: Any, path: Path, doing: str) -> list[float]:
        if not isinstance(value, list):
            fault = f"invalid type: {_kind(value)}, expected a sequence"
        elif set(map(type, value)) <= {int, float}:
            return value
        else:
            wrong = next(number for number in value if type(number) not in (int, float))
            fault = f"invalid type: {_kind(wrong)}, expected f32"
        raise TemplateMismatch(f"in {_place(self.root, path)}, while {doing}, expected {_named(self.root, path)} to be "
                               f"an array of numbers, but failed to parse server response:\n  - {fault}")


# Parsing

def request_template(template: Any, has_fragments: bool) -> ExchangeTemplate:
    """Return the template of requests of one embedder. Raises TemplateMismatch."""
    try:
        return _parsed("request", template, FRAGMENT if has_fragments else TEXT)
    except TemplateMismatch as error:
        raise TemplateMismatch(f"{error}{_NOTE_OF_FRAGMENT if has_fragments else _NOTE_OF_TEXT}") from None


def response_template(template: Any, request: ExchangeTemplate) -> ExchangeTemplate:
    """Return the template of responses to these requests. Raises TemplateMismatch."""
    response = _parsed("response", template, EMBEDDING)
    if response.is_repeated and not request.is_repeated:
        raise TemplateMismatch("in `response`: `response` has multiple embeddings, but `request` has only one text to embed")
    if request.is_repeated and not response.is_repeated:
        raise TemplateMismatch("in `response`: `response` has a single embedding, but `request` has multiple texts to embed")
    return response


def _parsed(root: str, template: Any, placeholder: str) -> ExchangeTemplate:
    parser = _Parser(root, placeholder)
    parser.read(template, ())
    if parser.array is None:
        if parser.single is None:
            raise TemplateMismatch(f'in `{root}`: "{placeholder}" not found')
        return ExchangeTemplate(root, placeholder, template, parser.single, None)
    path, within = parser.array
    if parser.single is not None:
        raise TemplateMismatch(f'in {_place(root, parser.single)}: Found "{placeholder}", but it was already present in '
                               f"{_place(root, (*path, 0, *within))} (repeated)")
    return ExchangeTemplate(root, placeholder, template, path, within)


class _Parser:
    """Finds the placeholder, and the array with a repeated item, in a template.

    before: the path to the array, while a repeated item is read; paths in messages begin with it.
    """

    def __init__(self, root: str, placeholder: str, before: Path | None = None) -> None:
        self._root = root
        self._placeholder = placeholder
        self._before = before
        self.single: Path | None = None
        self.array: tuple[Path, Path] | None = None

    def read(self, value: Any, path: Path) -> None:
        if value == self._placeholder:
            if self.single is not None:
                raise self._refusal(path, f'Found "{self._placeholder}", but it was already present in '
                                          f"{self._place(self.single)}")
            self.single = path
        elif value == REPEAT:
            raise self._refusal(path, f'"{REPEAT}" appears outside of an array')
        elif isinstance(value, dict):
            for key, member in value.items():
                self.read(member, (*path, key))
        elif isinstance(value, list):
            self._read_array(value, path)

    def _read_array(self, array: list[Any], path: Path) -> None:
        if array[1:2] != [REPEAT]:
            if REPEAT in array:
                raise self._bad_place(path, array.index(REPEAT))
            for place, item in enumerate(array):
                self.read(item, (*path, place))
            return
        if self._before is not None:
            raise self._refusal(path, f'"{REPEAT}" appears nested inside of a value that is itself repeated')
        if self.array is not None:
            raise self._refusal(path, f'Found "{REPEAT}", but it was already present in {self._place(self.array[0])}')
        if array[0] == REPEAT:
            raise self._bad_place(path, 0)
        if REPEAT in array[2:]:
            raise self._bad_place(path, array.index(REPEAT, 2))
        item = _Parser(self._root, self._placeholder, path)
        item.read(array[0], ())
        if item.single is None:
            raise self._refusal((*path, 0), f'Expected "{self._placeholder}" inside of the repeated value')
        self.array = path, item.single

    def _bad_place(self, path: Path, place: int) -> TemplateMismatch:
        return self._refusal(path, f'"{REPEAT}" expected at position #1, but found at position #{place}')

    def _refusal(self, path: Path, reason: str) -> TemplateMismatch:
        return TemplateMismatch(f"in {self._place(path)}: {reason}")

    def _place(self, path: Path) -> str:
        return _place(self._root, (*(self._before or ()), *path))


# Values and words

def _with(value: Any, path: Path, replacement: Any) -> Any:
    """Return a copy of a value with the part at a path replaced."""
    if not path:
        return replacement
    changed = copy.copy(value)
    changed[path[0]] = _with(value[path[0]], path[1:], replacement)
    return changed


def _place(root: str, path: Path) -> str:
    return f"`{root}{''.join(f'[{part}]' if isinstance(part, int) else f'.{part}' for part in path)}`"


def _named(root: str, path: Path) -> str:
    """Return the last named object on a path, and the number of its item on the path."""
    keys = [place for place, part in enumerate(path) if isinstance(part, str)]
    items = path[keys[-1] + 1:] if keys else path
    name = f"`{path[keys[-1]] if keys else root}`"
    if not items:
        return name
    levels = len(items) - 1
    nested = "" if not levels else "nested array in " if levels == 1 else f"nested array ({levels} levels of nesting) in "
    return f"item #{items[-1]} inside {nested}{name}"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"an array of size {len(value)}"
    if isinstance(value, Mapping):
        return f"an object with {len(value)} field(s)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{json.dumps(value)}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{value}`"
    if isinstance(value, str):
        return f"string {_shown(value)}"
    return "map" if isinstance(value, Mapping) else "sequence"
