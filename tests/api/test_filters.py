"""What must hold of the filters of tenant tokens.

1. Joined to a filter of a request they are asked for both, whatever form either has: the request's first.
2. A search without a rule keeps its parameters as they are.
3. A filter of a wrong form is refused, that of the rule too.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.api.filters import with_bearer_filter
from svcd.base.errors import ApiError
from svcd.filters.evaluation import is_empty

FORMS = [None, "a = 1", ["a = 1"], [["a = 1", "b = 1"], "c = 1"], []]
CODE = "invalid_search_filter"


@pytest.mark.parametrize(("given", "rule", "both"), [
    ("a = 1", "r = 1", ["a = 1", "r = 1"]),
    (None, "r = 1", "r = 1"),
    (["a = 1", ["b = 1", "c = 1"]], "r = 1", ["a = 1", ["b = 1", "c = 1"], "r = 1"]),
    ("a = 1 OR b = 1", [["r = 1", "r = 2"], "s = 1"], ["a = 1 OR b = 1", ["r = 1", "r = 2"], "s = 1"]),
    ([], ["r = 1"], ["r = 1"]),
    ("", "r = 1", ["", "r = 1"]),
])
def test_two_filters_become_one(given: Any, rule: Any, both: Any) -> None:
    assert with_bearer_filter(given, rule, CODE) == both


@pytest.mark.parametrize("given", FORMS)
def test_a_rule_is_never_lost(given: Any) -> None:
    for rule in FORMS[1:4]:
        both, listed = with_bearer_filter(given, rule, CODE), rule if isinstance(rule, list) else [rule]
        assert not is_empty(both)
        assert both == rule if given is None else both[-len(listed):] == listed


@pytest.mark.parametrize("given", FORMS)
def test_without_a_rule_nothing_changes(given: Any) -> None:
    assert with_bearer_filter(given, None, CODE) is given


@pytest.mark.parametrize(("given", "rule"), [(5, "r = 1"), ("a = 1", 5), ("a = 1", {"r": 1}), (None, [[["r = 1"]]])])
def test_a_wrong_form_is_refused(given: Any, rule: Any) -> None:
    with pytest.raises(ApiError) as refused:
        with_bearer_filter(given, rule, CODE)
    assert refused.value.code == CODE
