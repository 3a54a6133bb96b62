"""Templates that need no library. What must hold:

1. They are rendered exactly as the library renders them, errors included.
2. The default template is one of them, whatever the document.
3. Text with nothing but variables is one of them; everything else goes to the library.
4. The library is imported for what needs it, and not before.
"""
from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from svcd.schema.embedder_settings import DEFAULT_TEMPLATE
from svcd.templates import TemplateError, document_variables, language
from svcd.templates.limits import Budget
from svcd.templates.plain import plain
from tests.templates.test_templates import json_values, words

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
