"""Filters. What must hold:

1. Each filter does what its name says in the language Liquid.
2. A filter raises nothing but TemplateError, whatever its input and arguments.
3. `sort` gives the same elements in order, `uniq` the first of equal ones, `reverse` twice nothing, `split` undoes `join`.
4. Numbers are those of 64 bits, or fractional.
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.templates import Template, TemplateError
from svcd.templates.filters import FILTERS
from svcd.templates.language import TAGS
from svcd.templates.limits import Budget
from svcd.templates.values import equal
from tests.templates.test_template import json_values, words

DOC = {"t": "Ground  control\nto", "html": "<p class='a'>1 &lt; 2</p><!-- <b> --><script>x>y</script>", "l": [3, 1, 2, 1], "none": [],
       "o": [{"n": "b", "a": 2}, {"n": "B", "a": 1}, {"n": None}, {"n": "a", "a": 2.5}], "m": {"n": 1}, "f": False, "e": "", "nil": None}


def rendered(expression: str) -> str:
    return Template.parse("{{ " + expression + " }}").render({"doc": DOC})


@pytest.mark.parametrize("expression, wanted", [
    ("'aB' | upcase", "AB"), ("'aB' | downcase", "ab"), ("'my title' | capitalize", "My title"), ("' a ' | strip", "a"),
    ("' a ' | lstrip", "a "), ("' a ' | rstrip", " a"), ("'a<b' | escape", "a&lt;b"), ("'1 &lt; 2 < 3' | escape_once", "1 &lt; 2 &lt; 3"),
    ("doc.t | strip_newlines", "Ground  controlto"), ("doc.t | newline_to_br", "Ground  control<br />\nto"),
    ("doc.html | strip_html", "1 &lt; 2"), ("'a < b' | strip_html", "a < b"), ("'a<b>c' | strip_html", "ac"),
    ("'a b&c' | url_encode", "a+b%26c"), ("'a+b%26c' | url_decode", "a b&c"), ("'ab' | base64_encode", "YWI="),
    ("'YWI=' | base64_decode", "ab"), ("'??>' | base64_url_safe_encode", "Pz8-"), ("'Pz8-' | base64_url_safe_decode", "??>"),
    ("'a' | append: 'b'", "ab"), ("'a' | prepend: 'b'", "ba"), ("1 | append: 2", "12"), ("'aXbX' | replace: 'X', '-'", "a-b-"),
    ("'aXbX' | replace_first: 'X', '-'", "a-bX"), ("'aXbX' | replace_last: 'X', '-'", "aXb-"), ("'aXbX' | remove: 'X'", "ab"),
    ("'aXbX' | remove_first: 'X'", "abX"), ("'aXbX' | remove_last: 'X'", "aXb"), ("'ab' | replace: '', '-'", "-a-b-"),
    ("'Ground control' | truncate: 9", "Ground..."), ("'Ground' | truncate: 6", "Ground"), ("'Ground' | truncate: 3, ''", "Gro"),
    ("'Ground' | truncate: 1", "..."), ("doc.t | truncatewords: 2", "Ground control..."), ("doc.t | truncatewords: 3", DOC["t"]),
    ("doc.t | truncatewords: 1, '!'", "Ground!"), ("'a,b' | split: ',' | join: '-'", "a-b"), ("'ab' | split: '' | join: '-'", "a-b"),
    ("'' | split: ',' | size", "0"), ("'liquid' | slice: 2", "q"), ("'liquid' | slice: 2, 3", "qui"), ("'liquid' | slice: -3, 2", "ui"),
    ("'liquid' | slice: -9, 2", ""), ("doc.l | slice: 1, 2 | join", "1 2"),
    ("1 | plus: 2", "3"), ("0.1 | plus: 0.2", "0.3"), ("'3' | minus: 1.5", "1.5"), ("3 | times: 4", "12"), ("7 | divided_by: 2", "3"),
    ("7 | divided_by: 2.0", "3.5"), ("7 | modulo: 3", "1"), ("-7 | modulo: 3", "2"), ("1.5 | modulo: 1", "0.5"), ("-3 | abs", "3"),
    ("1.2 | ceil", "2"), ("1.8 | floor", "1"), ("2.5 | round", "3"), ("-2.5 | round", "-3"), ("1.239 | round: 2", "1.24"), ("7 | round", "7"),
    ("1 | at_least: 3", "3"), ("9 | at_most: 3", "3"), ("9223372036854775807 | plus: 1", "9223372036854776000"),
    ("doc.l | join: ', '", "3, 1, 2, 1"), ("doc.l | first", "3"), ("doc.l | last", "1"), ("doc.none | first", ""), ("'abc' | last", "c"),
    ("doc.l | size", "4"), ("'abc' | size", "3"), ("doc.m | size", "1"), ("doc.nil | size", "0"), ("doc.l | concat: doc.l | size", "8"),
    ("doc.l | reverse | join", "1 2 1 3"), ("doc.l | sort | join", "1 1 2 3"), ("doc.l | uniq | join", "3 1 2"), ("doc.l | sum", "7"),
    ("doc.o | map: 'a' | join", "2 1 2.5"), ("doc.m | map: 'n' | join", "1"), ("doc.o | sum: 'a'", "5.5"),
    ("doc.o | where: 'a', 2 | map: 'n' | join", "b"), ("doc.o | where: 'a' | size", "3"), ("doc.o | compact: 'n' | size", "3"),
    ("doc.o | sort: 'n' | map: 'n' | join", "B a b "), ("doc.o | sort_natural: 'n' | map: 'n' | join", "a b B "),
    ("doc.o | uniq: 'a' | size", "4"), ("doc.nil | default: 'x'", "x"), ("doc.e | default: 'x'", "x"), ("doc.none | default: 'x'", "x"),
    ("doc.f | default: 'x'", "x"), ("doc.f | default: 'x', allow_false: true", "false"), ("0 | default: 'x'", "0"),
    ("'2020-02-03T04:05:06' | date: '%Y/%m/%d %H:%M'", "2020/02/03 04:05"), ("'3 Feb 2020' | date: '%d.%m.'", "03.02."),
    ("'no date' | date: '%Y'", "no date"), ("doc.nil | date: '%Y'", ""),
])
def test_what_filters_do(expression: str, wanted: str) -> None:
    assert rendered(expression) == wanted


def test_the_documentation_has_all_filters_and_tags() -> None:
    page = (Path(__file__).parents[2] / "docs" / "templates.md").read_text()
    filters, tags = page.split("## Filters")[1].split("## ")[0], page.split("## Tags")[1].split("Comparisons")[0]
    named = re.findall(r"`(\w+)`", "".join(line.split("|")[2] for line in filters.splitlines() if line.startswith("| ")))
    assert set(named) == set(FILTERS)
    assert set(re.findall(r"`(\w+)`", tags)) == TAGS | {"else", "elsif", "when", "limit", "offset", "reversed", "forloop", "raw"}


@pytest.mark.parametrize("expression, words", [
    ("doc.t | plus: 1", "Number expected, found `string`"), ("1 | divided_by: 0", "Can't calculate 1 divided_by 0"),
    ("1 | modulo: 0", "Can't calculate"), ("doc.m | join: ','", "Array expected, found `object`"), ("'a' | sort", "Array expected"),
    ("'a' | truncate: 1.5", "Whole number expected"), ("'a' | truncate: 'b'", "Number expected"), ("'a' | upcase: 1", "arguments"),
    ("'a' | append", "arguments"), ("'a' | append: 'b', c: 1", "arguments"), ("'?' | base64_decode", "can't be converted"),
    ("doc.l | concat: 1", "Array expected"), ("1 | first", "String or Array expected"),
])
def test_what_filters_reject(expression: str, words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        rendered(expression)
    assert words in caught.value.message and "from: Filter error\n  with:\n    filter=" in caught.value.message


@settings(max_examples=300)
@given(st.sampled_from(sorted(FILTERS)), json_values | st.floats(), st.lists(json_values | st.integers() | words, max_size=3))
def test_nothing_but_template_errors(name: str, value: Any, args: list[Any]) -> None:
    try:
        FILTERS[name](Budget().charge, value, *args)
    except TemplateError as error:
        assert error.message.endswith("\n")


@given(st.lists(st.none() | st.integers(-5, 5) | st.floats(-5, 5)))
def test_orders(elements: list[Any]) -> None:
    charge = Budget().charge
    known = sorted(element for element in elements if element is not None)
    assert FILTERS["sort"](charge, elements) == known + [None] * elements.count(None)
    assert FILTERS["reverse"](charge, FILTERS["reverse"](charge, elements)) == elements
    assert FILTERS["uniq"](charge, elements) == list(dict.fromkeys(elements))


@given(st.lists(json_values, max_size=6))
def test_uniq_goes_by_equality(elements: list[Any]) -> None:
    charge = Budget().charge
    kept = FILTERS["uniq"](charge, elements)
    for place, element in enumerate(kept):
        others = [other for other in kept[:place] if equal(element, other, charge)]
        assert all(isinstance(element, bool) != isinstance(other, bool) or isinstance(element, (list, dict)) for other in others)
    assert all(any(element == one for one in kept) for element in elements)


@given(st.lists(st.text(st.characters(exclude_characters="|"), min_size=1), min_size=1))
def test_split_undoes_join(texts: list[str]) -> None:
    charge = Budget().charge
    assert FILTERS["split"](charge, FILTERS["join"](charge, texts, "|"), "|") == texts
