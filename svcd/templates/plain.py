"""Templates that work without the library: the default template, and text with only variables in it.

Most templates are of these two kinds. This module renders them some twenty times faster than the library, which is not even
imported for them; tests compare both.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from svcd.templates import limits
from svcd.templates.values import find, text_of, unknown_variable

Render = Callable[[Mapping[str, Any], limits.Budget], str]

# The default of embedders and chats.
DEFAULT_TEMPLATE = ("{% for field in fields %}{% if field.is_searchable and field.value != nil %}"
                    "{{ field.name }}: {{ field.value }}\n{% endif %}{% endfor %}")
_VARIABLE = re.compile(r"\{\{[ \n]*((?!(?:true|false|nil|null|empty|blank)\b)[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*)[ \n]*\}\}",
                       re.IGNORECASE | re.ASCII)


def plain(text: str) -> Render | None:
    """Return a function that renders this template, or None if it needs the library."""
    if text == DEFAULT_TEMPLATE:
        return _render_default
    if len(text) > limits.TEXT:
        return None
    pieces = _VARIABLE.split(text)  # text, path, text, path, ..., text
    # `{{{ doc.a }}` needs the library: its output begins with the first two braces.
    if any("{{" in piece or "{%" in piece for piece in pieces[::2]) or any(piece.endswith("{") for piece in pieces[:-1:2]):
        return None
    texts, paths = pieces[::2], [path.split(".") for path in pieces[1::2]]

    def render(variables: Mapping[str, Any], budget: limits.Budget) -> str:
        parts = [texts[0]]
        charge = budget.charge
        for path, text in zip(paths, texts[1:]):
            if path[0] not in variables:
                raise unknown_variable(path[0])
            value = text_of(find(variables[path[0]], path), charge)
            charge(1, len(value))
            parts += (value, text)
        return "".join(parts)

    return render


def _render_default(variables: Mapping[str, Any], budget: limits.Budget) -> str:
    charge = budget.charge
    rendered = "".join([
        f"{field['name']}: {value if type(value) is str else text_of(value, charge)}\n"
        for field in variables["fields"]
        if field["is_searchable"] and (value := field["value"]) is not None
    ])
    charge(0, len(rendered))
    return rendered
