"""What must hold of the checks that `make check` runs over the sources:

1. `make test` begins with them, and their tools are extras of development.
2. Where a type checker is not believed, it is said which finding, and why.
"""
from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
_REASONED = re.compile(r"# type: ignore\[[a-z-]+\]  # .")


def test_the_sources_are_checked_before_the_tests() -> None:
    rules = (ROOT / "Makefile").read_text()
    assert "\ntest: check\n" in rules
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    assert {"mypy", "ruff"} <= {re.split("[~=>]", extra)[0] for extra in extras}


def test_each_finding_that_is_passed_over_has_its_code_and_a_reason() -> None:
    passed_over = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
                   for path in sorted((ROOT / "svcd").rglob("*.py"))
                   for number, line in enumerate(path.read_text().splitlines(), 1)
                   if "# type: ignore" in line and not _REASONED.search(line)]
    assert not passed_over
