"""Check document templates before a document exists: they parse, and use only the variables `doc` and `fields`."""
from __future__ import annotations

from typing import Any

from svcd.templates import Template, TemplateError

# The start of errors that a template causes with any document. Other errors, as of filters, may be due to the example.
_ALWAYS_WRONG = ("liquid: Unknown variable\n", "liquid: Unknown index\n")


class _AnyObject(dict[str, Any]):
    """An object that has every member; each member is the object itself."""

    def __missing__(self, key: str) -> _AnyObject:
        return self

    def __contains__(self, key: object) -> bool:
        return True

    def __bool__(self) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        return self


def fault_of_syntax(text: str) -> str | None:
    """Return why a template cannot be parsed, in the words of the interface; None when it can."""
    try:
        Template.parse(text)
    except TemplateError as error:
        return f"user error: cannot parse template: {error.message}"
    return None


def fault_of_template(text: str) -> str | None:
    """Return the fault of a document template, in the words of the interface; None without fault."""
    fault = fault_of_syntax(text)
    if fault is not None:
        return fault
    template = Template.parse(text)
    field = {"name": "field", "value": "value", "is_searchable": True}
    try:
        template.render({"doc": _AnyObject(), "fields": [field]})
    except TemplateError as error:
        if error.message.startswith(_ALWAYS_WRONG):
            return (f"user error: template contains invalid fields: {error.message}. Only `doc.*`, `fields[i].name`, "
                    "`fields[i].value` are supported")
    return None
