"""1. No code that svcd raises is unknown to the catalogue.
2. The catalogue is that of tests/contract/codes.json.
"""
from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from svcd.base.errors import ERRORS
from tests.support.contract import table

ROOT = Path(__file__).parents[2]


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


# Of what the interface has not: a cluster, and extensions of searches and settings.
OWN_CODES = {"changes_gone", "cluster_behind", "cluster_unavailable", "index_corrupted", "instance_corrupted", "node_not_found", "not_in_cluster",
             "invalid_search_hybrid_fusion", "invalid_settings_bm25", "invalid_settings_cjk",
             "invalid_settings_default_matching_strategy", "invalid_settings_fold_width", "invalid_settings_infix_search",
             "invalid_settings_stemming"}


def test_the_catalogue_is_that_of_the_contract_and_our_own() -> None:
    others = {code: row for code, row in ERRORS.items() if code not in OWN_CODES}
    assert {code: tuple(row) for code, row in table("codes").items()} == others and ERRORS.keys() >= OWN_CODES
