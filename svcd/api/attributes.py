"""The fields of one index over HTTP: what its settings make of each of them.

Knows how patterns of settings cover attributes; refuses to know documents.
Source: recordings index/fields.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from svcd.api import shapes
from svcd.api.context import Answer, Context
from svcd.api.routes import Fields
from svcd.engine.attributes import WILDCARD, is_beneath, is_everything, is_reserved, locales_test, matches
from svcd.engine.facets.fields import order_of
from svcd.engine.filterable import Filterable
from svcd.fields import Field, array_of, boolean, nullable, object_of, positive_integer, string

_SORT_RULE = re.compile(r"(?P<attribute>.+):(?P<order>asc|desc)", re.S)


def _covers(name: str, attribute: str) -> bool:
    """True when a plain name of a setting covers an attribute: `*`, itself, or one of its parents."""
    return name == WILDCARD or is_beneath(attribute, name)


def _any_covers(names: Iterable[str] | None, attribute: str) -> bool:
    return any(_covers(name, attribute) for name in names or ())


def _enabled(is_enabled: bool) -> dict[str, Any]:
    return {"enabled": is_enabled}


def _ranking_rule(rules: Iterable[str], attribute: str) -> dict[str, Any]:
    """The orders of the rules that sort by the attribute; no member without any."""
    found = [_SORT_RULE.fullmatch(rule) for rule in rules]
    orders = [match["order"] for match in found if match and match["attribute"] == attribute]
    return {"enabled": True, "order": orders} if orders else _enabled(False)


def _filterable(settings: Mapping[str, Any], attribute: str) -> dict[str, Any]:
    rule = Filterable.of(settings).rule(attribute)
    return {
        "enabled": rule is not None and rule.is_filterable,
        "sortBy": order_of(settings, attribute),
        "facetSearch": rule is not None and rule.facet_search,
        "equality": rule is not None and rule.equality,
        "comparison": rule is not None and rule.comparison,
    }


def _is_displayed(settings: Mapping[str, Any], attribute: str) -> bool:
    names = settings.get("displayedAttributes")
    return is_everything(names) or _any_covers(names, attribute)


def _is_searchable(settings: Mapping[str, Any], attribute: str) -> bool:
    names = settings.get("searchableAttributes")
    return not is_reserved(attribute) and (is_everything(names) or _any_covers(names, attribute))


_VIEWS: Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]] = {  # member of the answer: its value
    "displayed": lambda settings, name: _enabled(_is_displayed(settings, name)),
    "searchable": lambda settings, name: _enabled(_is_searchable(settings, name)),
    "sortable": lambda settings, name: _enabled(_any_covers(settings.get("sortableAttributes"), name)),
    "distinct": lambda settings, name: _enabled(settings.get("distinctAttribute") == name),
    "rankingRule": lambda settings, name: _ranking_rule(settings.get("rankingRules") or (), name),
    "filterable": _filterable,
    "localized": lambda settings, name: {"locales": list(locales_test(settings.get("localizedAttributes"))(name) or ())},
}


def field_view(settings: Mapping[str, Any], attribute: str) -> dict[str, Any]:
    """What the settings make of one attribute."""
    return {"name": attribute} | {member: view(settings, attribute) for member, view in _VIEWS.items()}


def _is_wanted(view: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    patterns = wanted.get("attributePatterns")
    if patterns is not None and not any(matches(view["name"], pattern) for pattern in patterns):
        return False
    flags = {member: flag for member, flag in wanted.items() if member != "attributePatterns" and flag is not None}
    return all(view[member]["enabled"] is flag for member, flag in flags.items())


def list_fields(ctx: Context) -> Answer:
    """One page of the fields of an index, by name. Raises index_not_found."""
    offset, limit, wanted = ctx.body["offset"], ctx.body["limit"], ctx.body.get("filter") or {}
    with ctx.instance.read(ctx.index_uid) as reader:
        views = [field_view(reader.settings, name) for name in sorted(reader.fields())]
    kept = [view for view in views if _is_wanted(view, wanted)]
    return Answer(200, shapes.page(kept[offset:offset + limit], offset, limit, len(kept)))


def _flag(code: str) -> Field:
    return Field(nullable(boolean), f"invalid_index_fields_filter_{code}")


FIELDS_BODY = Fields({
    "offset": Field(positive_integer, "invalid_index_offset", default=0),
    "limit": Field(positive_integer, "invalid_index_limit", default=20),
    "filter": Field(nullable(object_of({
        "attributePatterns": Field(
            nullable(array_of(string)), "invalid_index_fields_filter_attribute_patterns"),
        "displayed": _flag("displayed"),
        "searchable": _flag("searchable"),
        "sortable": _flag("sortable"),
        "distinct": _flag("distinct"),
        "rankingRule": _flag("ranking_rule"),
        "filterable": _flag("filterable"),
    })), "invalid_index_fields_filter"),
})
