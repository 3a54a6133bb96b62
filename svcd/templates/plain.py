"""Templates that need no library: the default template, and text with nothing but variables in it.

Most templates are one of these. They are rendered some twenty times faster than by the library, which then is not even imported;
tests compare both.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from svcd.templates import limits
from svcd.templates.values import find, text_of, unknown_variable

Render = Callable[[Mapping[str, Any], limits.Budget], str]

# As svcd.schema.embedder_settings has it.
_DEFAULT = ("{% for field in fields %}{% if field.is_searchable and field.value != nil %}"
            "{{ field.name }}: {{ field.value }}\n{% endif %}{% endfor %}")
_VARIABLE = re.compile(r"\{\{[ \n]*((?!(?:true|false|nil|null|empty|blank)\b)[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*)[ \n]*\}\}",
                       re.IGNORECASE | re.ASCII)


def plain(text: str) -> Render | None:
    """A function that renders this template; None: it needs the library."""
    if text == _DEFAULT:
        return _render_default
    if len(text) > limits.TEXT:
        return None
    pieces = _VARIABLE.split(text)  # text, path, text, path, ..., text
    # `{{{ doc.a }}` is for the library: its output begins with the first two braces.
    if any("{{" in piece or "{%" in piece for piece in pieces[::2]) or any(piece.endswith("{") for piece in pieces[:-1:2]):
        return None
    return _renderer(pieces[::2], [path.split(".") for path in pieces[1::2]])


def _renderer(texts: list[str], paths: list[list[str]]) -> Render:
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
