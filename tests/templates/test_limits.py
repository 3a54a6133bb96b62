"""Hostile templates. What must hold:

1. A template that would not end, or would take all memory, ends soon with an error.
2. So does one that makes the parser slow; what is too long or too deep is rejected.
3. The same template with the same document always ends the same way.
4. What is within the limits is rendered, also with a large document.
"""
from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from svcd.templates import JsonTemplate, Template, TemplateError, fragment_variables, limits

SOON_S = 30  # some tenths of a second on an idle machine
BIG = "x" * 1_000_000
DOC: dict[str, Any] = {
    "big": BIG, "list": list(range(20_000)), "words": "a b " * 50_000, "less": "<" * 1_000_000,
    "objects": [{"a": number % 7} for number in range(50_000)], "empties": [[] for _ in range(90_000)],
}
DOC["deep"] = 1
for _ in range(500):
    DOC["deep"] = [DOC["deep"]]
STEPS, CHARACTERS, ELEMENTS = "takes more than 50000 steps", "makes more than 16777216 characters", "more than 100000"
DEEP = "nested too deeply"


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A tenth of the steps: the outcome is the same, sooner. Not where other limits are looked at."""
    params = getattr(request.node, "callspec", None)
    if params is None or params.params.get("words") == STEPS:
        monkeypatch.setattr(limits, "STEPS", limits.STEPS // 10)


def loop(body: str) -> str:
    return "{% for i in (1..100000) %}" + body + "{% endfor %}"


HOSTILE = [
    ("{% for i in (1..99999) %}{% for j in (1..99999) %}{% endfor %}{% endfor %}", STEPS), (loop("{% cycle 'a','b' %}" * 4000), STEPS),
    (loop("{% increment a %}" * 3000), STEPS), (loop("") * 2000, STEPS), (loop("{% comment %}{% endcomment %}" * 2000), STEPS),
    (loop("{% if " + " or ".join(["1 == 2"] * 380) + " %}{% endif %}"), STEPS),
    (loop("{% case doc.big %}{% when " + ", ".join(["'a'"] * 700) + " %}{% endcase %}"), STEPS),
    ("{% tablerow i in (1..99999) %}{% tablerow j in (1..99999) %}{% endtablerow %}{% endtablerow %}", STEPS),
    ("{% tablerow i in (1..99999) %}" + "{% comment %}{% endcomment %}" * 2000 + "{% endtablerow %}", STEPS),
    ("{% for i in (1.." + "9" * 3000 + ") %}{% endfor %}", ELEMENTS), ("{{ (1..9999999999) | join: ',' }}", ELEMENTS),
    ("{% assign r = (1..9999999999) %}{{ r | size }}", ELEMENTS), ("{{ doc.big | split: '' | size }}", ELEMENTS),
    ("{% assign a = 'aaaaaaaa' %}" + "{% assign a = a | append: a %}" * 60, CHARACTERS),
    ("{% assign a = doc.list %}" + "{% assign a = a | concat: a %}" * 60, ELEMENTS),
    ("{% assign a = 'x' %}" + loop("{% capture a %}{{ a }}{{ a }}{% endcapture %}"), CHARACTERS),
    ("{{ doc.big | replace: 'x', doc.big }}", CHARACTERS), ("{{ doc.big | replace: '', doc.big }}", CHARACTERS),
    ("{{ doc.list | join: doc.big }}", CHARACTERS), (loop("{{ doc.big }}"), CHARACTERS), ("{{ doc.big }}" * 5000, CHARACTERS),
    ("{{ doc.less | url_encode | url_encode | url_encode | url_encode }}", CHARACTERS), (loop("{{ doc.less | escape | size }}"), CHARACTERS),
    (loop("{% assign s = doc.big | prepend: 'a' %}"), CHARACTERS),
    (loop("{{ doc.objects | sort: 'a' | size }}"), STEPS), (loop("{{ doc.objects | where: 'a', 3 | size }}"), STEPS),
    (loop("{{ doc.objects | uniq: 'a' | size }}"), STEPS), (loop("{{ doc.list | sum }}"), STEPS), (loop("{{ doc.empties }}"), STEPS),
    (loop("{{ doc.words | truncatewords: 1 }}"), STEPS), (loop("{{ doc.big | split: 'y' | size }}"), CHARACTERS),
    (loop("{% if doc.big contains 'y' %}{% endif %}"), STEPS), (loop("{% if doc.list contains 'y' %}{% endif %}"), STEPS),
    (loop("{% if doc.list == doc.list %}{% endif %}"), STEPS), (loop("{% for o in doc.objects limit:40000 %}{% break %}{% endfor %}"), STEPS),
    ("{{ doc.empties }}" * 5000, STEPS),
    ("{{ doc.deep }}", DEEP), ("{{ doc.deep | join: ',' }}", DEEP), ("{{ doc.deep | uniq }}", DEEP),
    ("{% if doc.deep == doc.deep %}{% endif %}", DEEP), ("{{ 'now' | date: '%1000000000d' }}", "too long"),
    ("{{ 1 | append: doc.deep }}", DEEP),
]
UNREADABLE = [
    "{% if true %}" * 3000, "{% if true %}" * 3000 + "{% endif %}" * 3000, "{{ " + "doc[" * 900 + "1" + "]" * 900 + " }}", "{{ " * 30_000,
    "{% " * 30_000, "{% raw %}" * 10_000, "{{" + " " * 90_000 + "}}", ("{{" + " " * 3900 + "}}") * 25, ("{% if" + " " * 3900 + "%}") * 25,
    "{{ a }}" + "a" * 100_000, "{{ " + "'" * 3990 + " }}", "{{ " + "[(" * 1900 + " }}", "{{ doc.a | " + "a:" * 1900 + " }}",
    "{% raw %}" + "{% endraw" * 10_000, "{{ a }}{% for " + "a" * 3900 + " %}",
]


def ended(text: str) -> str:
    """The message with which a template ends soon, without much memory."""
    started = time.perf_counter()
    with pytest.raises(TemplateError) as caught:
        Template.parse(text).render({"doc": DOC})
    assert time.perf_counter() - started < SOON_S
    return caught.value.message


@pytest.mark.parametrize("text, words", HOSTILE, ids=[text[:40] for text, _ in HOSTILE])
def test_what_does_not_end(text: str, words: str) -> None:
    assert words in ended(text)


@pytest.mark.parametrize("text", UNREADABLE, ids=[text[:40] for text in UNREADABLE])
def test_what_is_slow_to_parse(text: str) -> None:
    ended(text)


@pytest.mark.parametrize("text", [text for text, words in HOSTILE if words == CHARACTERS], ids=lambda text: text[:40])
def test_memory_is_bounded(text: str) -> None:
    template = Template.parse(text)
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            template.render({"doc": DOC})
        assert tracemalloc.get_traced_memory()[1] < 150 * 2**20
    finally:
        tracemalloc.stop()


def test_the_limits_of_a_fragment_are_for_all_of_its_strings() -> None:
    costly = "{% for i in (1..5000) %}{% endfor %}"
    JsonTemplate.parse([costly]).render({})
    with pytest.raises(TemplateError, match=STEPS):
        JsonTemplate.parse([costly] * 10).render({})


def test_the_outcome_is_always_the_same() -> None:
    text = loop("{{ i }}{% for w in doc.list limit:3 %}{{ w }}{% endfor %}")
    assert len({ended(text) for _ in range(3)}) == 1


def test_what_is_large_but_within_the_limits() -> None:
    assert Template.parse("{{ doc.big }}").render({"doc": DOC}) == BIG
    some = Template.parse("{% for w in doc.list limit:5000 %}{{ w }} {% endfor %}").render({"doc": DOC})
    assert some.split() == list(map(str, range(5000)))
    assert JsonTemplate.parse({"t": "{{ doc.big | upcase }}"}).render(fragment_variables(DOC)) == {"t": BIG.upper()}
    blocks = limits.NESTING
    assert Template.parse("{% if true %}" * blocks + "x" + "{% endif %}" * blocks).render({}) == "x"
    assert Template.parse("{% for i in (1..1) %}" * blocks + "{{ i }}" + "{% endfor %}" * blocks).render({}) == "1"
    text = ("{{ doc.big.size }} " * 6000)[:limits.TEXT - 10]
    assert Template.parse(text.rpartition("{{")[0]).render({"doc": DOC}).startswith("1000000 ")
