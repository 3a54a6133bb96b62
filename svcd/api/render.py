"""`POST /render-template`: render a template of an index or of the request with a document or a search query.

The response shows the text for an embedder or a language model (docs/templates.md#the-route).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from svcd.api.bodies import serde_type
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.schema.embedder_settings import fragments, indexing_part
from svcd.templates import JsonTemplate, Template, TemplateError, document_variables, fragment_variables
from svcd.validation import Field, anything, index_uid, non_zero, nullable, object_of, one_of, string
from svcd.validation.names import require_feature

_TEMPLATE_CODE = "invalid_render_template"
_INPUT_CODE = "invalid_render_input"
_MEMBERS = {"index_uid": "indexUid", "document_template_max_bytes": "documentTemplateMaxBytes"}

# For each kind of template: the feature it needs, then the required (+) and forbidden (-) members, in the order of the checks.
_CHAT = ("chatCompletions", "accessing chat settings")
_FRAGMENT = ("multimodal", "accessing fragments")
_Kind = tuple[tuple[str, str] | None, str]
_TEMPLATE_KINDS: dict[str, _Kind] = {
    "documentTemplate": (None, "-fragment -inline +index_uid +embedder"),
    "chatDocumentTemplate": (_CHAT, "+index_uid -embedder -fragment -inline"),
    "indexingFragment": (_FRAGMENT, "+index_uid +embedder +fragment -inline -document_template_max_bytes"),
    "searchFragment": (_FRAGMENT, "+index_uid +embedder +fragment -inline -document_template_max_bytes"),
    "inlineDocumentTemplate": (None, "-index_uid -embedder -fragment +inline"),
    "inlineFragment": (("multimodal", "rendering an inline fragment"),
                       "-index_uid -embedder -fragment +inline -document_template_max_bytes"),
}
_INPUT_KINDS: dict[str, _Kind] = {
    "indexDocument": (None, "+indexUid +id -inline"),
    "inlineDocument": (None, "-index_uid -id +inline"),
    "inlineSearch": (("multimodal", "rendering search"), "-index_uid -id +inline"),
}


def render(ctx: Context) -> HandlerResult:
    """The template and, if the request has an input, the rendered text.

    Raises invalid_api_key for an index that the key does not have, invalid_render_template, template_parsing_error,
    invalid_render_input, render_document_not_found, template_rendering_error, index_not_found, feature_not_enabled.
    """
    wanted, given = ctx.body["template"], ctx.body.get("input")
    for named in (wanted, given or {}):
        if named.get("indexUid") is not None:
            ctx.permission.require(named["indexUid"])
    template = _fetched(ctx, wanted)
    rendered = None if given is None else _rendered(template, *_input(ctx, given))
    return HandlerResult(200, {"template": template.text if isinstance(template, Template) else template.value,
                               "rendered": rendered})


def _check_kind(ctx: Context, kinds: Mapping[str, _Kind], given: Mapping[str, Any], code: str, doing: str) -> None:
    """Check the feature of a kind, and which parameters it has."""
    feature, rules = kinds[given["kind"]]
    if feature is not None:
        require_feature(ctx.instance.features(), feature[0], f"{doing}: {feature[1]}")
    for rule in rules.split():
        name = rule[1:]
        is_there = given.get(_MEMBERS.get(name, name)) is not None
        if is_there == (rule[0] == "-"):
            raise ApiError(code, f"{doing}: parameter `{name}` {'disallowed' if is_there else 'missing'} "
                                 f"for kind `{given['kind']}`")


# The template

_FETCHING_TEMPLATE = "error while fetching template"


def _fetched(ctx: Context, wanted: Mapping[str, Any]) -> Template | JsonTemplate:
    _check_kind(ctx, _TEMPLATE_KINDS, wanted, _TEMPLATE_CODE, _FETCHING_TEMPLATE)
    kind = wanted["kind"]
    if kind == "inlineDocumentTemplate" and not isinstance(wanted["inline"], str):
        raise _no_template("inline document templates must be strings")
    value = wanted["inline"] if kind.startswith("inline") else _stored(ctx, wanted)
    is_fragment = kind.endswith("Fragment")
    try:
        return JsonTemplate.parse(value) if is_fragment else Template.parse(value)
    except TemplateError as error:
        reason = error.while_parsing() if is_fragment else f"user error: cannot parse template: {error.message}"
        raise ApiError("template_parsing_error", f"{_FETCHING_TEMPLATE}: {reason}") from None


def _no_template(reason: str) -> ApiError:
    return ApiError(_TEMPLATE_CODE, f"{_FETCHING_TEMPLATE}: {reason}")


def _stored(ctx: Context, wanted: Mapping[str, Any]) -> Any:
    """The template of an index: text, or the JSON value of a fragment."""
    uid = wanted["indexUid"]
    try:
        with ctx.read(uid) as reader:
            settings = reader.settings
    except ApiError as error:
        if error.code != "index_not_found":
            raise
        raise ApiError(error.code, f"{_FETCHING_TEMPLATE}: cannot open index `{uid}`: {error.message}") from None
    if wanted["kind"] == "chatDocumentTemplate":
        return settings.resolved["chat"]["documentTemplate"]
    embedder = settings.embedders.get(wanted["embedder"])
    place = f"embedder `{wanted['embedder']}` in index `{wanted['indexUid']}`"
    is_search = wanted["kind"] == "searchFragment"
    missing = f"cannot find {{}} fragment `{wanted.get('fragment')}` for {place}"
    if embedder is None:
        # For search fragments clients know other words, which take the fragment for an indexing one.
        raise _no_template(missing.format("indexing") if is_search else f"cannot find {place}")
    indexing, searching = indexing_part(embedder), embedder.get("searchEmbedder", embedder)
    if wanted["kind"] == "documentTemplate":
        if "documentTemplate" not in indexing or fragments(indexing, "indexingFragments"):
            raise _no_template(f"{place} does not use a document template.")
        return indexing["documentTemplate"]
    if not fragments(indexing, "indexingFragments"):
        raise _no_template(f"{place} does not use fragments.")
    known = fragments(searching, "searchFragments") if is_search else fragments(indexing, "indexingFragments")
    if wanted["fragment"] not in known:
        raise _no_template(missing.format("search" if is_search else "indexing"))
    return known[wanted["fragment"]]


# The input

_FETCHING_INPUT = "error while fetching input"
_DOCUMENT_NOTE = "the inline document must be a JSON map"
_SEARCH_NOTE = "the inline search query must be a JSON map containing `q` and/or `media`"


def _input(ctx: Context, given: Mapping[str, Any]) -> tuple[dict[str, Any], Callable[[str], bool] | None]:
    """(the document or query, a function that tells which fields of the document are searchable; None for a query)."""
    uid = given.get("indexUid")
    if uid is None:
        _check_kind(ctx, _INPUT_KINDS, given, _INPUT_CODE, _FETCHING_INPUT)
        if given["kind"] == "inlineDocument":
            return _object(given["inline"], "document", _DOCUMENT_NOTE), lambda name: True  # without an index
        query = _object(given["inline"], "search", _SEARCH_NOTE)
        if not isinstance(query.get("q", ""), str):
            raise ApiError(_INPUT_CODE, f"{_FETCHING_INPUT}: `q` is not a string")
        return {name: query[name] for name in ("q", "media") if name in query}, None
    try:
        with ctx.read(uid) as reader:
            _check_kind(ctx, _INPUT_KINDS, given, _INPUT_CODE, _FETCHING_INPUT)
            docid = reader.docid_of(given["id"])
            if docid is None:
                raise ApiError("render_document_not_found", f"{_FETCHING_INPUT}: document `{given['id']}` not found in `{uid}`")
            return loads(reader.documents([docid])[0]), reader.settings.searchable.__contains__
    except ApiError as error:
        if error.code != "index_not_found":
            raise
        raise ApiError(error.code, f"Cannot open index `{uid}`: {error.message}") from None


def _object(value: Any, what: str, note: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    # As a reader of JSON says it: a list is noticed where it begins, a scalar at its end.
    found, column = ("sequence", 0) if isinstance(value, list) else (serde_type(value), len(dumps(value).encode()))
    raise ApiError(_INPUT_CODE, f"{_FETCHING_INPUT}: parsing inline {what}: invalid type: {found}, expected a map "
                                f"at line 1 column {column}\n  - Note: {note}")


def _rendered(template: Template | JsonTemplate, given: dict[str, Any], is_searchable: Callable[[str], bool] | None) -> Any:
    try:
        if isinstance(template, JsonTemplate):
            return template.render(given if is_searchable is None else fragment_variables(given))
        if is_searchable is not None:
            return template.render(document_variables(given, is_searchable))
        reason = "cannot render a document template with a search query"
    except TemplateError as error:
        reason = error.while_rendering() if isinstance(template, JsonTemplate) else \
            f"user error: missing field in document: {error.message}"
    raise ApiError("template_rendering_error", f"error while rendering template: {reason}")


_BODY = Fields({
    "template": Field(object_of({
        "kind": Field(one_of(*_TEMPLATE_KINDS), _TEMPLATE_CODE, required=True, missing_code=_TEMPLATE_CODE),
        "indexUid": Field(nullable(index_uid), _TEMPLATE_CODE, about="Index that has the template."),
        "embedder": Field(nullable(string), _TEMPLATE_CODE, about="Embedder that has the template."),
        "fragment": Field(nullable(string), _TEMPLATE_CODE, about="Name of the fragment."),
        "inline": Field(anything, _TEMPLATE_CODE, about="The template itself."),
        "documentTemplateMaxBytes": Field(nullable(non_zero), _TEMPLATE_CODE, about="Accepted; nothing is cut."),
    }), _TEMPLATE_CODE, required=True, missing_code="bad_request"),
    "input": Field(nullable(object_of({
        "kind": Field(one_of(*_INPUT_KINDS), _INPUT_CODE, required=True, missing_code=_INPUT_CODE),
        "indexUid": Field(nullable(index_uid), _INPUT_CODE, about="Index that has the document."),
        "id": Field(nullable(string), _INPUT_CODE, about="Identifier of the document."),
        "inline": Field(anything, _INPUT_CODE, about="The document or search query itself."),
    })), _INPUT_CODE, about="Without it the template is only shown."),
})
_ANSWER = {"type": "object", "required": ["template"], "properties": {"template": {}, "rendered": {}}}

ROUTES = (
    Route("POST", "/render-template", render, ("settings.get", "documents.get"), {200: _ANSWER}, "Render a template", "Template",
          feature=("renderRoute", "calling the /render-template route"), body=_BODY),
)
