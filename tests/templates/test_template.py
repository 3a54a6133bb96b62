"""Templates. What must hold:

1. A text without `{{` and `{%` is rendered as it is.
2. An output writes text as it is, nil as nothing, numbers without exponent, elements and members one after the other.
3. A variable that does not exist is an error, which says what exists; as a condition of its own it is false.
4. `and` binds more than `or`; neither looks at its right side without need.
5. An error says in which tags, and in which round of a loop, it happened.
6. A template that does not parse is an error with a mark at the place.
7. The templates of users: those of the documentation of other engines do what they should.
8. A template is rendered with any document by any number of threads; no document is changed.

Fragments, and the variables of all templates. What must hold:

9. Every string of a JSON value is a template; everything else, and every key, stays.
10. An error has the path of the string; callers get it in words.
11. Rendering changes neither the fragment nor the variables.
12. Documents show neither vectors nor places; queries have no other variables than `q` and `media`.

Templates that need no library. What must hold:

13. They are rendered exactly as the library renders them, errors included.
14. The default template is one of them, whatever the document.
15. Text with nothing but variables is one of them; everything else goes to the library.
16. The library is imported for what needs it, and not before.
"""
from __future__ import annotations

import copy
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from svcd.schema.embedder_settings import DEFAULT_TEMPLATE
from svcd.templates import (
    JsonTemplate, Template, TemplateError, document_variables, fragment_variables, language, search_variables,
)
from svcd.templates.limits import Budget
from svcd.templates.template import plain

IKO = {"id": 1, "name": "iko", "tags": ["small", 2, 2.5], "breed": {"name": "jack russell", "kind": "terrier"}, "owner": None,
       "good": True, "bad": False, "empty": "", "none": [], "_vectors": {"e": [1]}, "_geo": {"lat": 1, "lng": 2}}
words = st.text(max_size=8)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6)


def rendered(text: str, document: Any = IKO) -> str:
    return Template.parse(text).render(document_variables(document))


def message(text: str, document: Any = IKO) -> str:
    with pytest.raises(TemplateError) as caught:
        rendered(text, document)
    return caught.value.message


@given(st.text().filter(lambda text: "{{" not in text and "{%" not in text))
def test_a_text_alone_stays(text: str) -> None:
    assert rendered(text) == text


@pytest.mark.parametrize("text, wanted", [
    ("{{ doc.name }}", "iko"), ("{{doc.name}}{{ doc.id }}", "iko1"), ("{{ doc.tags }}", "small22.5"),
    ("{{ doc.breed }}", "namejack russellkindterrier"), ("{{ doc.owner }}", ""), ("{{ doc.good }}{{ doc.bad }}", "truefalse"),
    ("{{ doc.breed.name }}", "jack russell"), ("{{ doc['breed']['kind'] }}", "terrier"), ("{{ doc.tags[0] }}", "small"),
    ("{{ doc.tags[-1] }}", "2.5"), ("{{ doc.tags.first }}{{ doc.tags.last }}{{ doc.tags.size }}", "small2.53"),
    ("{{ doc.name.size }}{{ doc.breed.size }}", "32"), ("{{ 'a' }}{{ \"b\" }}{{ 1.50 }}{{ -3 }}{{ true }}{{ nil }}", "ab1.5-3true"),
    ("a{{- doc.name -}} b", "aikob"), ("{{ empty }}{{ blank }}", ""), ("{% raw %}{{ doc.name }}{% endraw %}", "{{ doc.name }}"),
    ("{% assign n = doc.breed.name %}{{ n }}", "jack russell"), ("{% capture c %}<{{ doc.name }}>{% endcapture %}{{ c }}", "<iko>"),
    ("{% comment %}{{ doc.nothing }}{% endcomment %}", ""), ("{% increment i %}{% increment i %}{% decrement i %}", "011"),
    ("{% for t in doc.tags %}{% cycle 'a', 'b' %}{% endfor %}", "aba"), ("{% break %}never", ""),
    ("{% for t in doc.tags %}{{ forloop.index }}{{ t }}{% unless forloop.last %}, {% endunless %}{% endfor %}", "1small, 22, 32.5"),
    ("{% for t in doc.tags reversed %}{{ t }} {% endfor %}", "2.5 2 small "), ("{% for t in doc.none %}x{% else %}none{% endfor %}", "none"),
    ("{% for t in doc.tags limit:1 offset:1 %}{{ t }}{% endfor %}", "2"), ("{% for m in doc.breed %}{{ m[0] }}={{ m[1] }};{% endfor %}",
                                                                        "name=jack russell;kind=terrier;"),
    ("{% for i in (1..3) %}{{ i }}{% endfor %}", "123"), ("{% for i in (1..9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "12"),
    ("{% for i in (1..2) %}{% for j in (1..2) %}{{ forloop.parentloop.index }}{{ j }} {% endfor %}{% endfor %}", "11 12 21 22 "),
    ("{% case doc.name %}{% when 'a', 'iko' %}yes{% else %}no{% endcase %}", "yes"),
    ("{% if doc.id == 1 %} {% endif %}|", " |"),  # what is but blank is kept
    ("{% for f in fields %}{{ f.name }} {% endfor %}", "id name tags breed owner good bad empty none "),
])
def test_outputs_and_tags(text: str, wanted: str) -> None:
    assert rendered(text) == wanted


@given(json_values)
def test_outputs_write_every_value(value: Any) -> None:
    """As the rules say it, one after the other."""
    def written(value: Any) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, bool):
            return json.dumps(value)
        if isinstance(value, float):
            return format(Decimal(repr(value)), "f").removesuffix(".0")
        if isinstance(value, dict):
            return "".join(key + written(member) for key, member in value.items())
        return "".join(map(written, value)) if isinstance(value, list) else str(value)

    assert rendered("{{ doc.v }}", {"v": value}) == rendered("{{ doc['v'] }}", {"v": value}) == written(value)


# Conditions


@pytest.mark.parametrize("condition, holds", [
    ("doc.name", True), ("doc.missing", False), ("doc.missing.deeper", False), ("doc.name.deeper", False), ("missing", False),
    ("doc[missing]", False), ("doc.owner", False), ("doc.bad", False), ("doc.empty", True), ("doc.none", True), ("0", True),
    ("doc.name == 'iko'", True), ("doc.id == 1.0", True), ("doc.id == '1'", False), ("doc.owner == nil", True), ("doc.bad == nil", False),
    ("doc.empty == empty", True), ("doc.none == empty", True), ("doc.empty == blank", True), ("doc.name != blank", True),
    ("doc.id < 2", True), ("doc.id >= 2", False), ("doc.name < 'ikp'", True), ("doc.name > 3", False), ("doc.id <> 2", True),
    ("doc.name contains 'ik'", True), ("doc.tags contains 2", True), ("doc.tags contains 'x'", False), ("doc.breed contains 'kind'", True),
    ("true or false and false", True), ("false and false or true", True), ("false and doc.missing == 1", False),
    ("true or doc.missing == 1", True), ("doc.missing and doc.missing == 1", False),
])
def test_conditions(condition: str, holds: bool) -> None:
    text = f"{{% if {condition} %}}yes{{% else %}}no{{% endif %}}"
    assert rendered(text) == ("yes" if holds else "no")
    assert rendered(text.replace("if", "unless")) == ("no" if holds else "yes")


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.data())
def test_conditions_are_those_of_python(terms: list[bool], data: Any) -> None:
    operators = data.draw(st.lists(st.sampled_from(["and", "or"]), min_size=len(terms) - 1, max_size=len(terms) - 1))
    words = [str(terms[0]), *(word for pair in zip(operators, map(str, terms[1:])) for word in pair)]
    text = " ".join(words).lower()
    assert rendered(f"{{% if {text} %}}True{{% else %}}False{{% endif %}}") == str(eval(" ".join(words)))


# Errors


def test_unknown_variables_and_indexes_are_told() -> None:
    known = "id, name, tags, breed, owner, good, bad, empty, none"
    assert message("{{ title }}") == "liquid: Unknown variable\n  with:\n    requested variable=title\n"
    assert message("{{ doc.title }}") == message("{{ doc.title | default: 'x' }}") == (
        f"liquid: Unknown index\n  with:\n    variable=doc\n    requested index=title\n    available indexes={known}\n")
    assert message("{{ doc.breed.size.x }}").endswith(
        "    variable=doc.breed.size\n    requested index=x\n    available indexes=\n")
    assert message("{{ doc.tags[7] }}").endswith("    available indexes=0..2, first, last\n")
    assert message("{{ doc.none.first }}").endswith("    available indexes=first, last\n")
    assert message("{{ doc._vectors }}").endswith(f"    available indexes={known}\n")
    assert message("{{ doc[doc.breed] }}").startswith("liquid: Expected scalar, found `{\"name\": ")


def test_errors_say_where_they_happened() -> None:
    unknown = "liquid: Unknown index\n  with:\n    variable=t\n    requested index=x\n    available indexes=\n"
    assert message("{% for t in doc.tags %}{% if t == 2 %}{{ t.x }}{% endif %}{% endfor %}") == (
        unknown + "from: {% if t == 2 %}\nfrom: {% for t in doc[\"tags\"]  %}\n  with:\n    index=2\n")
    assert message("{% if doc.gender == \"F\" and true %}{% endif %}").endswith("from: {% if doc[\"gender\"] == \"F\" and true %}\n")
    assert message("{{ doc.tags | plus: 1 }}") == (
        "liquid: Invalid argument: Number expected, found `array`\nfrom: Filter error\n  with:\n    filter=plus: 1\n"
        "    input=[\"small\", 2, 2.5, ]\n")
    assert message("{% for t in doc.name %}{% endfor %}").startswith("liquid: Expected array, found `string`\nfrom: {% for")


@pytest.mark.parametrize("text, found", [
    ("{{ (1..doc.tags) }}", "array"), ("{{ (doc.breed..2) }}", "object"), ("{% cycle 1, (doc.owner..2) %}", "nil"), ("{% if (1..doc.tags) %}{% endif %}", "array"),
    ("{% if 1 == 2 == (1..doc.tags) %}{% endif %}", "array"), ("{% case 1 %}{% when (1..doc.breed) %}{% endcase %}", "object"),
    ("{% tablerow t in doc.tags cols: doc.breed %}{% endtablerow %}", "object"), ("{% for x in (1..doc.tags) %}{% endfor %}", "array"),
])
def test_ends_of_ranges_are_numbers(text: str, found: str) -> None:
    assert message(text).startswith(f"liquid: Expected whole number, found `{found}`\n")


def test_a_cycle_may_have_any_value() -> None:
    assert rendered("{% cycle empty, 1 %}{% cycle empty, 1 %}{% cycle blank %}{% cycle doc.tags %}{% cycle (1..2) %}") == "1small22.51..2"


@pytest.mark.parametrize("text, place, reason", [
    ("{{ doc.name", "1:4", "expected Literal"), ("a\nb {{ doc.name ! }}", "2:6", "unexpected '!'"), ("{% if %}", "1:4", "expected 'expression'"),
    ("{% if true %}", "1:4", "expected tag with value 'endif'"), ("{% case doc.id %} x", "1:4", "expected tag with value 'endcase'"),
    ("{% nothing %}", "1:4", "unexpected tag 'nothing'"),
    ("{{ doc.name }} {{ doc.name | nothing }}", "1:19", "Unknown filter `nothing`"), ("{% raw %}", "1:4", "endraw"),
    ("{% endif %}", "1:4", "unexpected tag 'endif'"), ("{{ }}", "1:4", ""), ("{% %}", "1:4", ""), ("{{ 'a }}", "1:4", ""),
    ("{% assign = 1 %}", "1:4", "assignment"), ("{% for a %}{% endfor %}", "1:4", ""), ("{% include 'a' %}", "1:4", "include"),
    ("{{ [] }}", "1:4", "expected an index"), ("{{ doc[ ] }}", "1:4", "expected an index"), ("{{ doc[.] }}", "1:4", "expected an index"),
    ("{{ doc.id | plus: doc[] }}", "1:4", "expected an index"), ("a\n{% if [] %}{% endif %}", "2:4", "expected an index"),
    ("{% if doc.id == doc[] %}{% endif %}", "1:4", "expected an index"), ("{% for x in doc[] %}{% endfor %}", "1:4", "expected an index"),
    ("{% assign x = doc[] %}", "1:4", "expected an index"), ("{% cycle doc[], 1 %}", "1:4", "expected an index"), ("{% for x in (1..doc[]) %}{% endfor %}", "1:4", ""),
    ("{% case 1 %}{% when doc.tags[nil] %}{% endcase %}", "1:4", "expected an index"), ("\n\n{{ doc.id | nothing }}", "3:4", "Unknown filter"),
    ("{% render 'a' %}", "1:4", "render"), ("{% liquid assign a = 1 %}", "1:4", "liquid"),
])
def test_what_does_not_parse(text: str, place: str, reason: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Template.parse(text)
    first, _, source, mark, _, last, end = caught.value.message.split("\n")
    line, column = map(int, place.split(":"))
    assert first == f"liquid:  --> {line}:{column}" and end == ""
    assert source == f"{line} | {text.splitlines()[line - 1]}" and mark.index("^") == len(f"{line} | ") + column - 1
    assert last.startswith("  = ") and reason in last


@given(st.text(st.sampled_from("{}%| .'\"[]()-abdocif\n1=")), json_values)
def test_nothing_but_template_errors(text: str, value: Any) -> None:
    for candidate in (text, "{{" + text + "}}", "{% " + text + "%}"):
        try:
            assert isinstance(Template.parse(candidate).render({"doc": value, "fields": []}), str)
        except TemplateError as error:
            assert error.message.startswith("liquid: ") and error.message.endswith("\n")


# In use


def test_a_template_may_break_off_anywhere() -> None:
    whole = ("{% for t in doc.tags %}{% case t %} x {% when 2 %}y{% else %}{{ t | upcase }}{% endcase %}{% endfor %}{% capture a %}z{% endcapture %}"
             "{% if doc.id %}{% elsif doc.name %}{% endif %}{% tablerow t in doc.tags %}{{ t }}{% endtablerow %}{% comment %}-{% endcomment %}"
             "{% unless doc.bad %}{% ifchanged %}b{% endifchanged %}{% endunless %}{% raw %}{{{% endraw %}")
    for end in range(len(whole)):
        try:
            rendered(whole[:end])
        except TemplateError:
            pass


def test_templates_of_users() -> None:
    default = "id: 1\nname: iko\ntags: small22.5\nbreed: namejack russellkindterrier\ngood: true\nbad: false\nempty: \nnone: \n"
    assert rendered(DEFAULT_TEMPLATE) == default
    only_name = Template.parse(DEFAULT_TEMPLATE).render(document_variables(IKO, {"name"}.__contains__))
    assert only_name == "name: iko\n"
    gender = "{%- if doc.gender == \"F\" -%}Une chienne {{ doc.name }}{%- else -%}\n Un chien {{ doc.name }}\n{%- endif %}."
    assert rendered(gender, {"name": "echo", "gender": "F"}) == "Une chienne echo."
    assert rendered(gender, {"name": "iko", "gender": "M"}) == "Un chien iko."
    film = ("A movie titled '{{doc.title}}' whose description starts with {{doc.overview|truncatewords: 3}}"
            "{% if doc.genres %} ({{ doc.genres | join: \", \" }}){% endif %}")
    assert rendered(film, {"title": "Up", "overview": "an old man flies away", "genres": ["A", "B"]}) == (
        "A movie titled 'Up' whose description starts with an old man... (A, B)")


@pytest.mark.parametrize("name", [
    "and", "blank", "cols", "contains", "continue", "empty", "false", "for", "if", "in", "limit", "nil", "null", "offset", "or",
    "reversed", "true", "with", "now", "today", "forloop", "__class__", "keys", "items", "assign", "endif",
])
def test_members_may_have_any_name(name: str) -> None:
    text = (f"{{{{ doc.{name} | join }}}} {{% for x in doc.{name} limit:1 %}}{{{{ x.{name} }}}}{{% endfor %}}"
            f"{{% if doc.{name} and doc.{name}[0].{name} == 1 %}}'.{name}'{{% endif %}}{{% assign y = doc . {name}  %}}{{{{ y.size }}}}"
            f"{{{{ '.{name}' }}}}{{% case doc.{name}.size %}}{{% when doc.{name}.size %}}!{{% endcase %}}")
    assert rendered(text, {name: [{name: 1}]}) == f"{name}1 1'.{name}'1.{name}!"


def test_one_template_in_several_threads() -> None:
    template = Template.parse("{% assign a = doc.id %}{% for i in (1..50) %}{% cycle 'x', 'y' %}{{ a }}{% endfor %}")
    with ThreadPoolExecutor(4) as threads:
        texts = list(threads.map(lambda number: template.render(document_variables({"id": number})), range(40)))
    assert texts == [f"x{number}y{number}" * 25 for number in range(40)]


@settings(max_examples=30)
@given(st.dictionaries(words, json_values, max_size=4))
def test_documents_stay_as_they_are(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    rendered("{{ doc }}{% for f in fields reversed %}{{ f }}{% assign v = f.value %}{{ v }}{% endfor %}", document)
    assert document == before


DOG = {"name": "kefir", "age": 3}


def test_strings_are_rendered() -> None:
    value = {"{{ doc.name }}": ["{{ doc.name }} is {{ doc.age }}", 1, None, True, {"x": "", "y": ["{% if doc.b %}b{% endif %}"]}]}
    fragment = JsonTemplate.parse(value)
    assert fragment.value == value
    assert fragment.render(fragment_variables(DOG)) == {"{{ doc.name }}": ["kefir is 3", 1, None, True, {"x": "", "y": [""]}]}
    assert JsonTemplate.parse("{{ doc.name }}").render(fragment_variables(DOG)) == "kefir"


@given(json_values)
def test_values_without_templates_stay(value: Any) -> None:
    try:
        fragment = JsonTemplate.parse(value)
    except TemplateError:  # made of `{{`
        return
    before = copy.deepcopy(value)
    if "{{" not in str(value) and "{%" not in str(value):
        assert fragment.render({}) == value == before
    assert fragment.value is value


def test_errors_have_their_path() -> None:
    with pytest.raises(TemplateError) as parsing:
        JsonTemplate.parse({"a": [1, {"b": "{{ doc.name"}]})
    error = parsing.value
    assert error.path == ("a", 1, "b")
    assert error.while_parsing(".indexingFragments.f").startswith(
        "in `.indexingFragments.f.a[1].b`, error while parsing template: liquid:  --> 1:4\n")
    with pytest.raises(TemplateError) as rendering:
        JsonTemplate.parse(["", "{{ doc.breed }}"]).render(fragment_variables(DOG))
    unknown = "liquid: Unknown index\n  with:\n    variable=doc\n    requested index=breed\n    available indexes=name, age\n"
    assert rendering.value.while_rendering() == f"in `[1]`, error while rendering template: {unknown}"
    with pytest.raises(TemplateError) as alone:
        JsonTemplate.parse("{{ doc.breed }}").render(fragment_variables(DOG))
    assert alone.value.while_rendering("root") == f"error while rendering template: {unknown}"


def test_a_deep_value_is_an_error() -> None:
    value: Any = "x"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(TemplateError, match="nested too deeply"):
        JsonTemplate.parse(value)


def test_variables() -> None:
    document = {**DOG, "_vectors": {}, "_geo": {}, "_geojson": {}}
    assert document_variables(document, {"name"}.__contains__) == {
        "doc": DOG, "fields": [{"name": "name", "value": "kefir", "is_searchable": True},
                               {"name": "age", "value": 3, "is_searchable": False}]}
    assert fragment_variables(document) == {"doc": DOG}
    assert search_variables("dog") == {"q": "dog"} and search_variables(None, {"a": 1}) == {"media": {"a": 1}}
    assert search_variables(None) == {}


documents = st.dictionaries(  # few names, so that templates find them
    st.sampled_from(["a", "b", "size", "first", "_geo"]) | words, json_values, max_size=4)
names = st.sampled_from(["doc", "a", "b", "size", "first", "last", "fields", "nothing", "A1", "_x"])
paths = st.lists(names, min_size=1, max_size=4).map(".".join) | st.just("doc.a")
texts = st.text(st.sampled_from("a {}%-\n"), max_size=5)
templates = st.lists(st.tuples(texts, paths, st.sampled_from(["", " ", "\n "])), max_size=4).map(
    lambda parts: "".join(f"{text}{{{{{blank}{path}{blank}}}}}" for text, path, blank in parts))


def outcome(render: Any, variables: Any) -> tuple[bool, str]:
    try:
        return True, render(variables, Budget())
    except TemplateError as error:
        return False, error.message


@given(templates, documents)
@example("{{doc.a}}: {{ doc.b }}", {"a": 1, "b": [1.0, None, {"x": 1e30}]})
def test_as_the_library(template: str, document: dict[str, Any]) -> None:
    render = plain(template)
    if render is not None:
        variables = document_variables(document)
        assert outcome(render, variables) == outcome(language.parse(template), variables)


@settings(max_examples=50)
@given(documents, st.sets(words, max_size=3))
def test_the_default_template(document: dict[str, Any], unsearchable: set[str]) -> None:
    render = plain(DEFAULT_TEMPLATE)
    assert render is not None
    variables = document_variables(document, lambda name: name not in unsearchable)
    assert outcome(render, variables) == outcome(language.parse(DEFAULT_TEMPLATE), variables)


@pytest.mark.parametrize("template, is_plain", [
    ("", True), ("text", True), ("{{ doc.a }}", True), ("{{doc.a}} and {{\ndoc.b.c }} }}", True), ("{ {doc} }", True), ("{{{ doc.a }}", False),
    ("{{ doc.a | upcase }}", False), ("{{- doc.a }}", False), ("{{ doc['a'] }}", False), ("{{ doc.a[0] }}", False),
    ("{{ nil }}", False), ("{{ true }}", False), ("{{ blank.a }}", False), ("{{ nilly }}", True), ("{% if true %}{% endif %}", False),
    ("{{ doc.a", False), ("{{ 1 }}", False), ("{{ doc.a-b }}", False), ("{{ doc..a }}", False), ("{{ doc.é }}", False),
    ("a" * 100_001, False),
])
def test_what_is_plain(template: str, is_plain: bool) -> None:
    assert (plain(template) is not None) is is_plain


def test_the_library_is_imported_late() -> None:
    script = """
import sys
import svcd.cli.serving, svcd.tasks.runner, svcd.api.app, svcd.embedding
from svcd.templates import JsonTemplate, Template, document_variables
Template.parse("{{ doc.a }}").render(document_variables({"a": 1}))
assert not {"liquid", "dateutil"} & set(sys.modules)
JsonTemplate.parse({"a": "{{ doc.a | upcase }}"})
assert "liquid" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
