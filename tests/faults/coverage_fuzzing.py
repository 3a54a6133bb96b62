"""Fuzzing that is guided by coverage, for the targets of test_fuzzing.py that need no application: `pip install atheris` first.

    python -m tests.faults.coverage_fuzzing NAME [options of libFuzzer, as -max_total_time=60]

It ends with status 0 when nothing was found, else with the exception and the bytes that lead to it.
"""
from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["svcd"]):
    from tests.faults.test_fuzzing import PURE, TARGETS

from hypothesis import given, settings
from hypothesis import strategies as st

if __name__ == "__main__":
    name = sys.argv.pop(1)
    assert name in PURE, f"choose one of {', '.join(PURE)}"

    @settings(database=None)
    @given(st.data())
    def fuzz(data: st.DataObject) -> None:
        TARGETS[name][0](None, data)  # type: ignore[arg-type]

    atheris.Setup(sys.argv, fuzz.hypothesis.fuzz_one_input)
    atheris.Fuzz()
