"""What must hold of attributes and the settings that name them:

1. A pattern has a wildcard at one end, at both, or is the wildcard alone.
2. `a.b` lies beneath `a`, `ab` does not; reserved attributes are reserved with everything beneath them.
3. Of filterable rules, the first that matches decides; a plain name covers what lies beneath it, a pattern does not.
"""
from __future__ import annotations

import pytest

from svcd.schema.attributes import Filterable, FilterableRule, is_beneath, is_reserved, matches


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*", ["a", "a.b", "ba", "b"]),
        ("a", ["a"]),
        ("a*", ["a", "a.b"]),
        ("a.*", ["a.b"]),
        ("*a", ["a", "ba"]),
        ("*a*", ["a", "a.b", "ba"]),
        ("**", ["a", "a.b", "ba", "b"]),
    ],
)
def test_patterns(pattern: str, matched: list[str]) -> None:
    assert [name for name in ["a", "a.b", "ba", "b"] if matches(name, pattern)] == matched


def test_what_lies_beneath() -> None:
    assert is_beneath("a.b.c", "a") and is_beneath("a", "a")
    assert not is_beneath("ab", "a") and not is_beneath("a", "a.b")
    assert is_reserved("_geo.lat") and not is_reserved("_geography")


def test_the_first_matching_rule_decides() -> None:
    rules = Filterable([{"attributePatterns": ["a.b"], "features": {"filter": {"equality": False}}}, "a",
                        {"attributePatterns": ["*x"], "features": {"filter": {"comparison": True}}}])
    assert rules.rule("a.b") == FilterableRule(0, False, False, False) and "a.b" not in rules
    assert rules.rule("a.b.c") == FilterableRule(1) and "a.x" in rules
    assert rules.rule("x") == FilterableRule(2, False, True, True)
    assert rules.rule("ab") is None and "ab" not in rules
    assert "a" not in Filterable(["*", "a*"]) and "a" in Filterable([{"attributePatterns": ["*"]}])
    assert rules.names("a") and not rules.names("a.b")
