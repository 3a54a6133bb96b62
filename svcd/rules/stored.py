"""Search rules as documents of a hidden index: its settings, updates of rules, and their public form.

Source: docs/search-rules.md#storage.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Rule = dict[str, Any]

# Not a valid name of an index, so that no route of indexes shows it.
INDEX_UID = ".svc_dsr"
PRIMARY_KEY = "uid"

_FILTERABLE = {
    "active": {"equality": True, "comparison": False},
    "conditions.time.start": {"equality": True, "comparison": True},
    "conditions.time.end": {"equality": True, "comparison": True},
    "conditions.query.isEmpty": {"equality": True, "comparison": False},
    "conditions.filter.values.*": {"equality": True, "comparison": True},
    "conditions.filter.nbConstraints": {"equality": True, "comparison": True},
}
SETTINGS: Mapping[str, Any] = {
    "searchableAttributes": ["conditions.query.words", "description"],
    "filterableAttributes": [{"attributePatterns": [name], "features": {"facetSearch": False, "filter": features}}
                             for name, features in _FILTERABLE.items()],
    "sortableAttributes": ["lastUpdatedAt", "precedence"],
    "typoTolerance": {"enabled": False},
    "prefixSearch": "disabled",
    "facetSearch": False,
    "proximityPrecision": "byAttribute",
}
NEWEST_FIRST = ("lastUpdatedAt:desc",)

# The members of a rule except its uid, in display order. None: a member without a value is omitted.
_DEFAULTS: Mapping[str, Any] = {
    "description": None, "lastUpdatedAt": None, "precedence": None, "active": True, "conditions": {}, "actions": [],
}


def updated(rule: Mapping[str, Any] | None, uid: str, change: Mapping[str, Any], moment: str) -> Rule:
    """Return a rule after an update at a moment. rule: None for a new rule.

    Members of the change replace members of the rule as a whole; null resets a member.
    """
    after = {**_DEFAULTS, **(rule or {}), **change, "lastUpdatedAt": moment}
    members = {name: _DEFAULTS[name] if after[name] is None else after[name] for name in _DEFAULTS}
    conditions = dict(members["conditions"])
    if "filter" in conditions:  # store the number of values that a filter must have
        values = (conditions["filter"] or {}).get("values") or {}
        conditions["filter"] = {"values": values, "nbConstraints": count_values(values)}
    return {PRIMARY_KEY: uid, **{name: value for name, value in members.items() if value is not None}, "conditions": conditions}


def count_values(value: Any) -> int:
    """Return the number of texts, numbers and booleans in a JSON value, at any depth."""
    if isinstance(value, Mapping):
        return sum(map(count_values, value.values()))
    if isinstance(value, list):
        return sum(map(count_values, value))
    return value is not None


def shown(rule: Mapping[str, Any]) -> Rule:
    """Return the public form of a stored rule."""
    members = {name: rule.get(name, default) for name, default in _DEFAULTS.items()}
    view: Rule = {PRIMARY_KEY: rule[PRIMARY_KEY], **{name: value for name, value in members.items() if value is not None}}
    if held := view["conditions"].get("filter"):
        view["conditions"] = {**view["conditions"], "filter": {"values": held.get("values") or {}}}
    return view
