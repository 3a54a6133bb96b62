"""TOOLS: the tools that models call, one row each, with the checks of their arguments and the schemas of both sides.

Descriptions are written for models: they say when to use a tool, and what to do next.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from svcd.schema.documents import checked_identifier
from svcd.validation import (
    Check, Field, any_object, anything, array_of, boolean, bounded, bounds, object_of, parsed, string, text_of,
)

MOST_CHARACTERS = 100_000  # of an answer
_TEXT, _WORD, _COUNT = {"type": "string"}, text_of(bounds.TEXT), {"type": "integer"}
_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Tool:
    """One tool. about: for models. arguments: their checks. output: members of its result, as JSON schemas.

    required: the members of the result that are always there. action: the permission that a tool that writes needs besides
    `search`.
    """

    title: str
    about: str
    arguments: Mapping[str, Field]
    output: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]
    action: str | None = None

    @cached_property
    def check(self) -> Check:
        """Decodes the arguments."""
        return object_of(self.arguments)

    def described(self, name: str) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        hints = {"readOnlyHint": self.action is None, "destructiveHint": self.action is not None, "idempotentHint": True,
                 "openWorldHint": False}
        return {"name": name, "title": self.title, "description": self.about, "inputSchema": self.check.describe(),
                "outputSchema": {"type": "object", "properties": dict(self.output), "required": list(self.required)},
                "annotations": {"title": self.title, **hints}}


def _list_of(members: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object", "properties": dict(members), "required": list(required)}}


def _characters(default: int) -> Field:
    return Field(bounded(MOST_CHARACTERS, 500), default=default, about="The most characters of the answer.")


def _limit(default: int, most: int) -> Field:
    return Field(bounded(most, 1), default=default)


_INDEX = Field(string, about="The index to use, as list_indexes names it. Needless if there is only one.")
_FILTER = Field(_WORD, about=(
    'A condition on filterable fields (list_indexes has them): year >= 1990 AND genres = "Science Fiction". Operators: AND, OR, '
    "NOT, =, !=, >, >=, <, <=, IN [a, b], TO, EXISTS, IS NULL, IS EMPTY, and parentheses."))
_FIELDS = Field(array_of(string, bound=bounds.NAMES), about="Fields to show; all if it is absent.")
_ID = parsed(anything, checked_identifier)
_IDS = Field(array_of(_ID, bound=bounds.NAMES), required=True, about="Identifiers of documents: the member `id` of passages.")
_ID_SHOWN: Mapping[str, Any] = {"type": ["string", "integer"]}
_PASSAGES = _list_of({"id": _ID_SHOWN, "uri": _TEXT, "title": _TEXT, "score": {"type": "number"}, "fields": _OBJECT,
                      "cut": {"type": "array", "items": _TEXT}}, ("fields",))
_TASK = {"taskUid": _COUNT, "status": _TEXT, "error": _TEXT}

TOOLS: Mapping[str, Tool] = {
    "list_indexes": Tool(
        "List the indexes",
        "List the indexes that can be searched, with the number of documents, an example document, the fields that filters and "
        "sorting may use, and frequent values of these fields. Call it first, unless you know the index.",
        {"index": Field(string, about="Describe this index alone."), "characters": _characters(20_000)},
        {"indexes": _list_of({
            "index": _TEXT, "description": _TEXT, "documents": _COUNT, "primaryKey": {"type": ["string", "null"]},
            "searchable": {"type": "array", "items": _TEXT}, "filterable": {"type": "object"},
            "sortable": {"type": "array", "items": _TEXT}, "embedders": {"type": "array", "items": _TEXT}, "example": _OBJECT,
            "error": _TEXT,
        }, ("index",)), "more": {"type": "array", "items": _TEXT, "description": "Indexes that did not fit in the answer."}},
        ("indexes",)),
    "search": Tool(
        "Search an index",
        "Search documents by a question in plain words, and get the passages that match best. Ask a whole question or give its "
        "important words; put conditions on fields (years, categories) into `filter`, not into the question. If nothing fits, "
        "ask in other words, or without the filter. Use get_documents to read a whole document.",
        {"question": Field(_WORD, default="", about="A question, or words. Empty: all documents that match the filter."),
         "index": _INDEX, "filter": _FILTER,
         "sort": Field(array_of(string, bound=bounds.SORT), about="Order by fields instead of relevance: [\"year:desc\"]."),
         "facets": Field(array_of(string, bound=bounds.NAMES), about="Count the values of these filterable fields in all hits."),
         "fields": _FIELDS, "limit": _limit(5, 50), "offset": Field(bounded(10_000), default=0, about="Passages to skip."),
         "characters": _characters(8_000)},
        {"index": _TEXT, "total": {**_COUNT, "description": "Documents that match; estimated."}, "passages": _PASSAGES,
         "facets": _OBJECT, "more": {"type": "string", "description": "How to get more passages."}},
        ("index", "total", "passages")),
    "get_documents": Tool(
        "Read documents",
        "Read whole documents by their identifiers. A long text is cut to the budget of characters: read on with `start`.",
        {"ids": _IDS, "index": _INDEX, "fields": _FIELDS,
         "start": Field(bounded(1 << 40), default=0, about="Characters to skip in each text that is longer."),
         "characters": _characters(20_000)},
        {"index": _TEXT, "documents": _list_of({"id": _ID_SHOWN, "uri": _TEXT, "document": _OBJECT,
                                               "cut": {"type": "array", "items": _TEXT}}, ("document",)),
         "missing": {"type": "array", "items": _TEXT, "description": "Identifiers without a document, or of hidden documents."},
         "omitted": {"type": "array", "items": _TEXT, "description": "Identifiers whose documents did not fit in the answer."}},
        ("index", "documents", "missing")),
    "facet_values": Tool(
        "List the values of a field",
        "List the values of a filterable field with the number of documents of each. Use it to find the spelling for a filter.",
        {"field": Field(string, required=True, about="A filterable field."),
         "beginning": Field(_WORD, about="Only texts with a word that begins like this; typos are allowed."),
         "question": Field(_WORD, default="", about="Count only documents that match."), "index": _INDEX, "filter": _FILTER,
         "limit": _limit(20, 100)},
        {"index": _TEXT, "field": _TEXT, "values": _list_of({"value": _TEXT, "count": _COUNT}, ("value", "count"))},
        ("index", "field", "values")),
    "similar": Tool(
        "Find similar documents",
        "Find documents whose meaning is similar to one document, in an index with embedders (list_indexes has them).",
        {"id": Field(_ID, required=True, about="The identifier of the document to compare with."), "index": _INDEX,
         "embedder": Field(string, about="Needless if the index has only one."), "filter": _FILTER, "fields": _FIELDS,
         "limit": _limit(5, 50), "characters": _characters(8_000)},
        {"index": _TEXT, "total": _COUNT, "passages": _PASSAGES}, ("index", "total", "passages")),
    "add_documents": Tool(
        "Add documents",
        "Add documents to an index. A document with the identifier of an existing one replaces it, or with `merge` changes it.",
        {"documents": Field(array_of(any_object, bound=bounds.NAMES), required=True, about="Each with its primary key."),
         "index": _INDEX, "merge": Field(boolean, default=False, about="Keep fields of existing documents that are not given.")},
        {"index": _TEXT, **_TASK}, ("index", "taskUid", "status"), action="documents.add"),
    "delete_documents": Tool(
        "Delete documents", "Delete documents by their identifiers. This cannot be undone.",
        {"ids": _IDS, "index": _INDEX},
        {"index": _TEXT, **_TASK}, ("index", "taskUid", "status"), action="documents.delete"),
}
INSTRUCTIONS = (
    "svcd searches the documents of the user. Call list_indexes to see which indexes there are, search to find passages by a "
    "question with filters, get_documents to read a whole document, facet_values to find values for filters. Name the documents "
    "that an answer relies on.")
