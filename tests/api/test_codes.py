"""1. No code that svcd raises is unknown to the catalogue.
2. Where the shared contract is at hand, the catalogue is its.
"""
from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.base.errors import ERRORS

ROOT = Path(__file__).parents[2]
CONTRACT = ROOT.parent / "shared" / "contract" / "errors.json"


def raised_codes() -> Iterator[tuple[str, str]]:
    """(place, code) of every ApiError that is made with a literal code."""
    for file in sorted((ROOT / "svcd").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            name = node.func if isinstance(node, ast.Call) else None
            if isinstance(name, ast.Name) and name.id == "ApiError" and isinstance(node.args[0], ast.Constant):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node.args[0].value


def test_raised_codes_are_in_the_catalogue() -> None:
    raised = list(raised_codes())
    assert len(raised) > 20
    assert [(place, code) for place, code in raised if code not in ERRORS] == []


def test_the_catalogue_is_that_of_the_contract() -> None:
    if not CONTRACT.exists():
        pytest.skip("the shared contract is not beside this repository")
    rows = json.loads(CONTRACT.read_text())
    assert {code: (row["type"], row["status"]) for code, row in rows.items()} == ERRORS
