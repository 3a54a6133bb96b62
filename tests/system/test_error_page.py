"""The page to which the links of errors lead. What must hold:

1. It has a section for each code, which is the anchor of the link, and none else.
2. Each section says when the code occurs and what to do; those that svcd never answers are the ones of docs/compatibility.md.
3. Every link of an error, of answers and tasks, begins with the URL that --error-docs-url sets.
4. What it links to exists (tests/system/test_docs.py looks at all pages).
"""
from __future__ import annotations

import re

import pytest

from svcd.base.errors import DOCUMENTATION, DOCUMENTATION_VARIABLE, ERRORS, ApiError, error_object
from svcd.cli.options import BY_NAME
from svcd.reference import error_page, error_texts
from tests.system.test_completeness import WITHOUT_EFFECT

TEXTS = error_texts()


def test_every_link_leads_to_a_section() -> None:
    assert re.findall(r"^## (.*)$", error_page(), re.M) == [error_object(code, "")["link"].partition("#")[2] for code in ERRORS]


def test_every_code_has_its_occasion_and_what_to_do() -> None:
    assert TEXTS.when.keys() == ERRORS.keys()
    assert all(TEXTS.action(code).endswith(".") and TEXTS.when[code].endswith(".") for code in ERRORS)


def test_every_action_is_that_of_a_code() -> None:
    used = {next(pattern for pattern, _ in TEXTS.remedies if re.fullmatch(pattern, code))
            for code in ERRORS if not TEXTS.is_never(code)}
    assert [pattern for pattern, _ in TEXTS.remedies if pattern not in used] == []


def test_codes_that_never_occur_are_those_of_the_page_of_compatibility() -> None:
    never = {name.removeprefix("code ") for name in WITHOUT_EFFECT if name.startswith("code ")}
    assert {code for code in ERRORS if TEXTS.is_never(code)} >= never


def test_one_option_sets_where_all_links_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BY_NAME["error_docs_url"].variable == DOCUMENTATION_VARIABLE
    assert ApiError("internal", "x").as_json()["link"] == f"{DOCUMENTATION}#internal"
    monkeypatch.setenv(DOCUMENTATION_VARIABLE, "https://wiki.example.com/errors")
    assert ApiError("internal", "x").as_json()["link"] == "https://wiki.example.com/errors#internal"
    assert error_object("index_not_found", "x")["link"] == "https://wiki.example.com/errors#index_not_found"
