"""A JSON value in which every string is a template: the fragments of embedders."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from svcd.templates.errors import TemplateError
from svcd.templates.limits import FRAGMENT_NESTING, Budget
from svcd.templates.template import Template


class JsonTemplate:
    """A parsed JSON template. value: the given value."""

    __slots__ = ("_parsed", "value")

    def __init__(self, value: Any, parsed: Any) -> None:
        self.value = value
        self._parsed = parsed  # the same value with a Template for each string

    @classmethod
    def parse(cls, value: Any) -> JsonTemplate:
        """Parse every string of a JSON value, except keys of objects. Raises TemplateError with the path."""
        return cls(value, _mapped(value, str, Template.parse))

    def render(self, variables: Mapping[str, Any]) -> Any:
        """Return the value with each string rendered. Raises TemplateError with the path of the first string that fails.

        The limits hold for all strings together.
        """
        budget = Budget()
        return _mapped(self._parsed, Template, lambda template: template.render(variables, budget))


def _mapped(value: Any, kind: type, change: Callable[[Any], Any], depth: int = FRAGMENT_NESTING) -> Any:
    """Return the value with every part of one kind changed."""
    if isinstance(value, kind):
        return change(value)
    if not isinstance(value, (dict, list)):
        return value
    if not depth:
        raise TemplateError("liquid: Value is nested too deeply\n")

    def changed(place: str | int, member: Any) -> Any:
        try:
            return _mapped(member, kind, change, depth - 1)
        except TemplateError as error:
            raise error.at(place) from None

    if isinstance(value, dict):
        return {key: changed(key, member) for key, member in value.items()}
    return [changed(place, member) for place, member in enumerate(value)]
