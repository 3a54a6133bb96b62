"""Short ways for tests of functions: what a text makes of a document, and what it fails with."""
from __future__ import annotations

import copy
from typing import Any

import pytest

from svcd.rhai import FunctionError, Program

ALIEN = {"id": 1, "title": "Alien", "list": [3, 1, 2], "cast": {"b": "Weaver", "a": "Hurt"},
         "n": 5, "f": 2.5, "no": None}


def run(text: str, document: dict[str, Any] | None = None, context: dict[str, Any] | None = None) -> Any:
    """The document that a text makes of ALIEN, or of another one."""
    return Program(text).edited(copy.deepcopy(ALIEN if document is None else document), context)


def value(expression: str, context: dict[str, Any] | None = None) -> Any:
    """What an expression is worth, beside ALIEN."""
    return run(f"doc.value = {expression}", None, context)["value"]


def error_of(text: str, context: dict[str, Any] | None = None) -> str:
    """What a text fails with."""
    with pytest.raises(FunctionError) as caught:
        run(text, None, context)
    return str(caught.value)
