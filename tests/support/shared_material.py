"""The contract's cases and the plain oracle beside the repository, for the tests that compare with them."""
from __future__ import annotations

import importlib.util
import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared"
CONTRACT = SHARED / "contract"
ORACLE = SHARED / "conformance" / "naive"

needs_contract = pytest.mark.skipif(not CONTRACT.is_dir(), reason="the shared contract is not beside the repository")
needs_oracle = pytest.mark.skipif(not ORACLE.is_dir(), reason="the shared oracle is not beside the repository")


def contract(name: str) -> Any:
    """A file of the contract."""
    return json.loads((CONTRACT / name).read_text(encoding="utf-8"))


def oracle(name: str) -> ModuleType:
    """A module of the oracle. Its modules import each other by bare names, so these are kept apart here."""
    for needed in ("ranking", "formatting", "generators"):
        if needed not in sys.modules:
            _load(needed)
        if needed == name:
            break
    return sys.modules[name]


def _load(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, ORACLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its files to the garbage collector
        spec.loader.exec_module(module)
