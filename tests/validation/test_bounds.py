"""What must hold of bounds: items up to a bound are accepted, one more is refused with the code of the field; docs/search.md has them."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.ranking.sort import SortError, split_rules
from svcd.validation import Field, Param, array_of, bounds, decode_body, decode_query, query_strings, string, text_of
from svcd.validation.bounds import Bound

THREE = Bound(3, "elements")
FIELDS = {"facets": Field(array_of(string, bound=THREE), "invalid_search_facets"), "q": Field(text_of(THREE), "invalid_search_q")}
PARAMS = {"facets": Param.list_of(query_strings.text, "invalid_search_facets", bound=THREE)}


@pytest.mark.parametrize("body", [{"facets": ["a", "b", "c"]}, {"q": "abc"}])
def test_as_many_items_as_the_bound_are_accepted(body: dict[str, Any]) -> None:
    assert decode_body(body, FIELDS) == body


@pytest.mark.parametrize("body, code", [({"facets": [1] * 4}, "invalid_search_facets"), ({"q": "abcd"}, "invalid_search_q")])
def test_one_more_is_refused_before_any_is_looked_at(body: dict[str, Any], code: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode_body(body, FIELDS)
    (name,) = body
    assert (caught.value.code, caught.value.message) == (
        code, f"Invalid value at `.{name}`: expected at most 3 elements, but found 4")


def test_query_strings_have_the_same_bounds() -> None:
    assert decode_query("facets=a,b,c", PARAMS) == {"facets": ["a", "b", "c"]}
    with pytest.raises(ApiError) as caught:
        decode_query("facets=a,b,c,d", PARAMS)
    assert caught.value.code == "invalid_search_facets"
    assert caught.value.message == "Invalid value in parameter `facets`: expected at most 3 elements, but found 4"
    assert len(split_rules(",".join(["a:asc"] * 100))) == 100
    with pytest.raises(SortError, match="at most 100 elements, but found 101"):
        split_rules(",".join(["a:asc"] * 101))


def test_schemas_show_the_bound() -> None:
    assert FIELDS["facets"].describe()["maxItems"] == 3 and FIELDS["q"].describe()["maxLength"] == 3
    assert PARAMS["facets"].describe("facets")["schema"]["maxItems"] == 3


def test_the_documentation_has_all_bounds() -> None:
    text = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
    table = text[text.index("\n## Bounds"):text.index("\n## Long pages")]
    found = [bound.most for bound in vars(bounds).values() if isinstance(bound, Bound)]
    assert len(found) == 7
    for most in (*found, bounds.FILTER_COST):
        assert f"| {most:,} |" in table, most
