"""Values of headers, taken apart.

1. Only spaces and tabs are blank; every other character of Latin-1 is part of a name.
2. svcd.http uses nothing else: what str.strip() and str.split() take by themselves is more.
"""
from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd import http
from svcd.http.headers import elements, media_type, trimmed

LATIN_1 = "".join(map(chr, range(256)))
OTHERS = LATIN_1.replace(" ", "").replace("\t", "")
TAKING_MORE = {"strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "isspace"}


@pytest.mark.parametrize("blank", [" ", "\t", " \t\t "])
def test_spaces_and_tabs_are_trimmed(blank: str) -> None:
    assert trimmed(f"{blank}a{blank}b{blank}") == f"a{blank}b"
    assert elements(f"{blank}Close{blank},{blank}TE") == ["close", "te"]
    assert media_type(f"{blank}Text/CSV{blank};{blank}charset=utf-8") == "text/csv"


def test_nothing_else_is_trimmed() -> None:
    for character in OTHERS:
        assert trimmed(f"{character}a{character}") == f"{character}a{character}"


@given(st.text(LATIN_1))
def test_elements_are_those_of_the_grammar(value: str) -> None:
    """Against the grammar on bytes, where no character has a meaning by itself."""
    expected = [re.sub(rb"\A[ \t]+|[ \t]+\Z", b"", part) for part in value.lower().encode("latin-1").split(b",")]
    assert [element.encode("latin-1") for element in elements(value)] == expected


@pytest.mark.parametrize("module", sorted(Path(http.__path__[0]).glob("*.py")), ids=lambda path: path.stem)
def test_no_module_leaves_it_to_python_what_is_blank(module: Path) -> None:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            assert node.func.attr not in TAKING_MORE, f"line {node.lineno}"
