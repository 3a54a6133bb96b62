"""Templates in the language Liquid: they make texts for embedders and language models from documents and search queries.

`Template` is one text, `JsonTemplate` a JSON value in which every string is a template (a fragment of an embedder).
docs/templates.md describes the language. The library that parses templates is imported when a template needs it.
"""
from svcd.templates.limits import TemplateError
from svcd.templates.template import (
    DEFAULT_TEMPLATE, JsonTemplate, Template, document_variables, fragment_variables, search_variables,
)

__all__ = [
    "DEFAULT_TEMPLATE", "JsonTemplate", "Template", "TemplateError", "document_variables", "fragment_variables",
    "search_variables",
]
