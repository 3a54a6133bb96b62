"""One template: a text with `{{ outputs }}` and `{% tags %}` in the language Liquid."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.templates.limits import Budget
from svcd.templates.plain import Render, plain


class Template:
    """A parsed template. It may be rendered any number of times, in any thread. text: as it was given."""

    __slots__ = ("_render", "text")

    def __init__(self, text: str, render: Render) -> None:
        self.text = text
        self._render = render

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raises TemplateError."""
        render = plain(text)
        if render is None:
            from svcd.templates.language import parse  # 15 MB of memory that most templates do without

            render = parse(text)
        return cls(text, render)

    def render(self, variables: Mapping[str, Any], budget: Budget | None = None) -> str:
        """The text for these variables (see svcd.templates.variables), not cut to any length.

        budget: what it may do, when it shares that with others. Raises TemplateError for a variable that does not exist, a
        filter that rejects its input, and beyond the limits of work, size and nesting (docs/templates.md#limits).
        """
        return self._render(variables, budget or Budget())

