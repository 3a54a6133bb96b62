"""One template: a text with `{{ outputs }}` and `{% tags %}` in the language Liquid."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.templates.limits import Budget
from svcd.templates.plain import Render, plain


class Template:
    """A parsed template. It may be rendered any number of times, in any thread. text: the given text."""

    __slots__ = ("_render", "text")

    def __init__(self, text: str, render: Render) -> None:
        self.text = text
        self._render = render

    @classmethod
    def parse(cls, text: str) -> Template:
        """Parse a template. Raises TemplateError."""
        render = plain(text)
        if render is None:
            from svcd.templates.language import parse  # 15 MB of memory that most templates do without

            render = parse(text)
        return cls(text, render)

    def render(self, variables: Mapping[str, Any], budget: Budget | None = None) -> str:
        """Return the text for these variables (see svcd.templates.variables) at its full length.

        budget: the remaining work, if other templates share it. Raises TemplateError for a variable that does not exist, a
        filter that rejects its input, and beyond the limits of work, size and nesting (docs/templates.md#limits).
        """
        return self._render(variables, budget or Budget())

