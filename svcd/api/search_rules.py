"""The routes of search rules: list, get, create or update, delete. See docs/search-rules.md."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.routes import Fields, HandlerResult, Route
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.base.quantities import parse_utc
from svcd.rules import stored
from svcd.rules.stored import INDEX_UID
from svcd.validation import (
    Field, Param, any_object, array_of, boolean, index_uid, nullable, object_of, parsed, positive_integer, query_strings, string,
)
from svcd.validation.checks import Check, Schema
from svcd.validation.messages import STRING, FieldError, inside, invalid_value, wrong_type

_BAD_REQUEST = "bad_request"
_ACTION_TYPE = "pin"

_BAD_DATE = ("`{text}` is not a valid date. It should follow the RFC 3339 format to represents a date or datetime in the future "
             "or specified as a null value. e.g. 'YYYY-MM-DD' or 'YYYY-MM-DD HH:MM:SS'.\n")


# Checks of a rule


def _moment(text: str) -> str:
    """A moment in its stored form: RFC 3339, with its own offset."""
    try:
        parse_utc(text)
    except ValueError:
        raise ValueError(_BAD_DATE.format(text=text)) from None
    if len(text) == len("YYYY-MM-DD"):
        return f"{text}T00:00:00Z"
    whole, offset = (text[:-1], "Z") if text[-1] in "zZ" else (text[:-6], text[-6:]) if text[-6] in "+-" else (text, "Z")
    day, _, time = whole.replace(" ", "T").replace("t", "T").partition("T")
    seconds, _, fraction = time.partition(".")
    fraction = fraction[:9].rstrip("0")
    return f"{day}T{seconds}{'.' if fraction else ''}{fraction}{'Z' if offset[1:] == '00:00' else offset}"


def _in_order(time: Mapping[str, str | None]) -> dict[str, str]:
    given = _without_nulls(time)
    start, end = given.get("start"), given.get("end")
    if start is not None and end is not None and parse_utc(start) > parse_utc(end):
        shown = []
        for moment in (end, start):  # as `2025-01-01 0:00:00.0 +00:00:00`
            whole, offset = (moment[:-1], "+00:00") if moment.endswith("Z") else (moment[:-6], moment[-6:])
            day, _, clock = whole.partition("T")
            hours, _, rest = clock.partition(":")
            shown.append(f"{day} {int(hours)}:{rest}{'' if '.' in rest else '.0'} {offset}:00")
        raise FieldError("Invalid value at `.conditions.time`: `end` (`{}`) should be later than `start` (`{}`)".format(*shown),
                         _BAD_REQUEST)
    return given


def _empty_or_words(query: Mapping[str, Any]) -> dict[str, Any]:
    given = _without_nulls(query)
    if given.get("isEmpty") and "words" in given:
        raise FieldError("Invalid value at `.conditions.query`: either `isEmpty` or `words` can be used, not both at once",
                         _BAD_REQUEST)
    return given


def _without_nulls(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


class _Action:
    """The action of a rule on a document. The type is checked first, because the other members depend on it."""

    _position = object_of({"position": Field(positive_integer, required=True)})

    def decode(self, value: Any, location: str) -> dict[str, Any]:
        """The decoded action. Raises FieldError."""
        if isinstance(value, dict):
            if "type" not in value:
                raise FieldError(f"Missing field `type`{inside(location)}")
            if not isinstance(value["type"], str):
                raise wrong_type(value["type"], (STRING,), f"{location}.type")
            if value["type"] != _ACTION_TYPE:
                raise invalid_value("Incorrect tag value", location)
            value = {name: member for name, member in value.items() if name != "type"}
        return {"type": _ACTION_TYPE, **self._position.decode(value, location)}

    def describe(self) -> Schema:
        """A JSON schema."""
        schema = self._position.describe()
        return {**schema, "required": ["type", "position"],
                "properties": {"type": {"type": "string", "enum": [_ACTION_TYPE]}, **schema["properties"]}}


_action: Check = _Action()
_conditions = parsed(object_of({
    "time": Field(nullable(parsed(object_of({
        "start": Field(nullable(parsed(string, _moment)), about="The rule applies from this time on."),
        "end": Field(nullable(parsed(string, _moment)), about="The rule applies until this time."),
    }, is_open=True), _in_order))),
    "query": Field(nullable(parsed(object_of({
        "isEmpty": Field(nullable(boolean), about="True: the rule applies only to queries without words."),
        "words": Field(nullable(string), about="The query must contain these words."),
    }), _empty_or_words))),
    "filter": Field(nullable(object_of({
        "values": Field(any_object, default={}, about="Attribute -> values that the filter of the query must ask for."),
    }))),
}), _without_nulls)
_actions = array_of(object_of({
    "selector": Field(parsed(object_of({
        "indexUid": Field(nullable(index_uid), about="The index of the document; without it, any."),
        "id": Field(string, required=True, about="The identifier of the document."),
    }), _without_nulls), required=True),
    "action": Field(_action, required=True),
}))
_RULE = Fields({  # in the order in which messages list them
    "description": Field(nullable(string), "invalid_dynamic_search_rule_description"),
    "precedence": Field(nullable(positive_integer), "invalid_dynamic_search_rule_priority",
                        about="Rules with smaller numbers come first."),
    "active": Field(nullable(boolean), "invalid_dynamic_search_rule_active"),
    "conditions": Field(nullable(_conditions), "invalid_dynamic_search_rule_conditions",
                        about="The rule applies only to queries that meet these conditions."),
    "actions": Field(nullable(_actions), "invalid_dynamic_search_rule_actions", about="The documents that the rule pins."),
})
_LIST = Fields({
    "offset": Field(positive_integer, "invalid_dynamic_search_rule_offset", default=0),
    "limit": Field(positive_integer, "invalid_dynamic_search_rule_limit", default=20),
    "filter": Field(nullable(object_of({
        "query": Field(nullable(string), "invalid_dynamic_search_rule_filter_query", about="Words of the rules."),
        "active": Field(nullable(boolean), "invalid_dynamic_search_rule_filter_active"),
    })), "invalid_dynamic_search_rule_filter"),
})
_METADATA = {"customMetadata": Param(query_strings.text, "invalid_index_custom_metadata", about="Free text kept on the task.")}


# Handlers


def list_rules(ctx: Context) -> HandlerResult:
    """One page of the rules, searched like documents. Rules that match equally well are sorted from new to old."""
    offset, limit = ctx.body["offset"], ctx.body["limit"]
    if ctx.instance.index(INDEX_UID) is None:
        return HandlerResult(200, shapes.page([], offset, limit, 0))
    # Imported late: a daemon without searches never needs them.
    from svcd.filters.evaluation import read_filter
    from svcd.ranking.bucket_sort import RankingLimits
    from svcd.search.keyword import keyword_search
    from svcd.search.request import SearchQuery

    wanted = ctx.body.get("filter") or {}
    is_active = wanted.get("active")
    condition = None if is_active is None else read_filter(f"active = {'true' if is_active else 'false'}", _BAD_REQUEST)
    query = SearchQuery(wanted.get("query"), sort=stored.NEWEST_FIRST, filter=condition)
    with ctx.instance.read(INDEX_UID) as reader:
        end = min(offset + limit, reader.number_of_documents)
        ranking = keyword_search(reader, query, RankingLimits(end), lambda: False).ranking
        texts = reader.documents([hit.docid for hit in ranking.hits[offset:]])
    rules = [stored.shown(loads(text)) for text in texts]
    return HandlerResult(200, shapes.page(rules, offset, limit, len(ranking.counted)))


def get(ctx: Context) -> HandlerResult:
    """One rule. Raises dynamic_search_rule_not_found."""
    uid = ctx.path["uid"]
    found: Mapping[str, str] = {}
    if ctx.instance.index(INDEX_UID) is not None:
        with ctx.instance.read(INDEX_UID) as reader:
            found = reader.identified_documents([uid])
    if uid not in found:
        raise ApiError("dynamic_search_rule_not_found", f"Dynamic search rule `{uid}` not found.")
    return HandlerResult(200, stored.shown(loads(found[uid])))


def update(ctx: Context) -> HandlerResult:
    """Enqueue the creation of a rule, or its update."""
    return _enqueued(ctx, "dsrUpdate", {"rule": ctx.body, "updatedRules": 1}, {"uid": ctx.path["uid"], "update": ctx.body})


def delete(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of a rule. The deletion of an unknown rule succeeds."""
    return _enqueued(ctx, "dsrUpdate", {"updatedRules": 1}, {"uid": ctx.path["uid"]})


def clear(ctx: Context) -> HandlerResult:
    """Enqueue the deletion of all rules."""
    return _enqueued(ctx, "dsrClear", {"deletedDocuments": None}, {})


def _enqueued(ctx: Context, kind: str, details: dict[str, Any], content: dict[str, Any]) -> HandlerResult:
    return shapes.enqueued(ctx, kind, INDEX_UID, details, content, custom_metadata=ctx.query["customMetadata"])


_TAG = "Search rules"
_PATH = "/dynamic-search-rules"
_FLAG = "dynamicSearchRules"
_USING = (_FLAG, "Using the `/dynamic-search-rules` routes")
_SUMMARY = {202: "TaskSummary"}

ROUTES = (
    Route("POST", _PATH, list_rules, "dynamicSearchRules.get", {200: "SearchRulePage"}, "List search rules", _TAG, body=_LIST,
          feature=(_FLAG, "Calling the `POST /dynamic-search-rules` route")),
    Route("DELETE", _PATH, clear, "dynamicSearchRules.delete", _SUMMARY, "Delete all search rules", _TAG, query=_METADATA,
          feature=_USING),
    Route("GET", f"{_PATH}/{{uid}}", get, "dynamicSearchRules.get", {200: "SearchRule"}, "Get a search rule", _TAG,
          feature=(_FLAG, "Calling the `GET /dynamic-search-rules/{:ruleUid}` route")),
    Route("PATCH", f"{_PATH}/{{uid}}", update, "dynamicSearchRules.update", _SUMMARY, "Create or change a search rule", _TAG,
          query=_METADATA, body=_RULE, feature=_USING),
    Route("DELETE", f"{_PATH}/{{uid}}", delete, "dynamicSearchRules.delete", _SUMMARY, "Delete a search rule", _TAG,
          query=_METADATA, feature=_USING),
)
