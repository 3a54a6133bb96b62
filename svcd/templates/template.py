"""One template: a text with `{{ outputs }}` and `{% tags %}` in the language Liquid."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.templates.errors import TemplateError


class Template:
    """A parsed template. It may be rendered any number of times, in any thread. text: as it was given."""

    __slots__ = ("_render", "text")

    def __init__(self, text: str, render: Any) -> None:
        self.text = text
        self._render = render

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raises TemplateError."""
        raise TemplateError("liquid: templates are not there yet\n")

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text for these variables (see svcd.templates.variables), not cut to any length.

        Raises TemplateError for a variable that does not exist, a filter that rejects its input, and beyond the limits of time,
        size and nesting (docs/templates.md#limits).
        """
        return self._render(variables)  # type: ignore[no-any-return]
