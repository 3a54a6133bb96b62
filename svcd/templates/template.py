"""Templates: a text with `{{ outputs }}` and `{% tags %}` in the language Liquid; JSON values with such texts; variables.

Most templates are the default template, or text with only variables in it. This module renders these some twenty times faster
than the library, which is not even imported for them; tests compare both.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from svcd.templates import limits
from svcd.templates.limits import FRAGMENT_NESTING, Budget, Render, TemplateError
from svcd.templates.values import find, text_of, unknown_variable

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
    rendered = "".join([f"{field['name']}: {value if type(value) is str else text_of(value, charge)}\n"
                        for field in variables["fields"] if field["is_searchable"] and (value := field["value"]) is not None])
    charge(0, len(rendered))
    return rendered


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
        """Return the text for these variables (see svcd.templates.template) at its full length.

        budget: the remaining work, if other templates share it. Raises TemplateError for a variable that does not exist, a
        filter that rejects its input, and beyond the limits of work, size and nesting (docs/templates.md#limits).
        """
        return self._render(variables, budget or Budget())


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


# Not visible in templates, though they are members of documents.
HIDDEN = frozenset({"_vectors", "_geo", "_geojson"})


def document_variables(document: Mapping[str, Any], is_searchable: Callable[[str], bool] = lambda name: True) -> dict[str, Any]:
    """Return `doc` and `fields` for a document template.

    document: its JSON value, members in their stored order. is_searchable: returns for the name of a field whether the setting
    `searchableAttributes` has it (`settings.searchable.__contains__`); without an index always true.
    `fields` has {name, value, is_searchable} for each member of the document, in its order.
    """
    visible = {name: value for name, value in document.items() if name not in HIDDEN}
    return {"doc": visible, "fields": [
        {"name": name, "value": value, "is_searchable": is_searchable(name)} for name, value in visible.items()]}


def fragment_variables(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return only `doc`, for an indexing fragment."""
    return {"doc": {name: value for name, value in document.items() if name not in HIDDEN}}


def search_variables(q: str | None, media: Any = None) -> dict[str, Any]:
    """Return the given ones of `q` and `media` of a search query, for a search fragment."""
    return {name: value for name, value in (("q", q), ("media", media)) if value is not None}
