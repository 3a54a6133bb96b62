"""The tables of facts in tests/contract: names, codes, permissions, settings, options, cases with their answers.

In members.json `[]` are the elements of a list, `{}` the values of free names, `=` a value of an enumeration, `@` a shape.

They hold what clients of the interface rely on, and answers that the reference engine gave for small indexes. A table is
changed only with the interface.
"""
from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "contract"


@cache
def table(name: str) -> Any:
    """A table by its file name without `.json`; shared by all tests, so not to be changed."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
