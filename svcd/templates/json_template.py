"""A JSON value in which every string is a template: the fragments of embedders."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.templates.errors import TemplateError
from svcd.templates.template import Template


class JsonTemplate:
    """A parsed JSON template. value: as it was given."""

    __slots__ = ("_parsed", "value")

    def __init__(self, value: Any, parsed: Any) -> None:
        self.value = value
        self._parsed = parsed

    @classmethod
    def parse(cls, value: Any) -> JsonTemplate:
        """Parse every string of a JSON value; keys of objects are no templates. Raises TemplateError with the path."""
        return cls(value, _parsed(value))

    def render(self, variables: Mapping[str, Any]) -> Any:
        """The value with each string rendered. Raises TemplateError with the path of the first that fails."""
        return _rendered(self._parsed, variables)


def _parsed(value: Any) -> Any:
    if isinstance(value, str):
        return Template.parse(value)
    return _mapped(value, _parsed)


def _rendered(parsed: Any, variables: Mapping[str, Any]) -> Any:
    if isinstance(parsed, Template):
        return parsed.render(variables)
    return _mapped(parsed, lambda part: _rendered(part, variables))


def _mapped(value: Any, change: Any) -> Any:
    """The same array or object with its members changed; anything else as it is."""
    if isinstance(value, dict):
        return {key: _at(key, change, member) for key, member in value.items()}
    if isinstance(value, list):
        return [_at(place, change, member) for place, member in enumerate(value)]
    return value


def _at(place: str | int, change: Any, member: Any) -> Any:
    try:
        return change(member)
    except TemplateError as error:
        raise error.at(place) from None
