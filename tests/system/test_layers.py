"""What must hold of imports (svcd.LAYERS):

1. A module imports from the rows above its own, and from its own package.
2. Every module and package stands on a row.
3. There is no cycle among modules.
"""
from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import svcd

ROOT = Path(svcd.__file__).parent
ROW = {name: number for number, row in enumerate(svcd.LAYERS) for name in row.split()}
MODULES = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
           for path in ROOT.rglob("*.py")}
# The package itself (version and layers, imports nothing) and the door of `python -m svcd`.
OUTSIDE = {"svcd", "svcd.__main__"}


def imports(path: Path, at_start: bool = False) -> Iterator[str]:
    """Modules of svcd that a file imports. at_start: not those inside functions or for type checkers."""
    tree = ast.parse(path.read_text())
    if at_start:
        tree.body = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.If))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "svcd")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "svcd":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def top(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("module", sorted(set(MODULES) - OUTSIDE))
def test_imports_go_one_way(module: str) -> None:
    own = top(module)
    wrong = [name for name in imports(MODULES[module]) if name not in OUTSIDE
             and top(name) != own and ROW[top(name)] >= ROW[own]]
    assert not wrong, f"{module} imports {wrong}, which stand on its own row or below"


def test_every_module_stands_on_a_row() -> None:
    assert {top(module) for module in MODULES if module not in OUTSIDE} <= set(ROW)


def test_there_is_no_cycle() -> None:
    graph = {module: [name for name in imports(path, at_start=True) if name != module and name in MODULES]
             for module, path in MODULES.items()}
    list(TopologicalSorter(graph).static_order())


def test_a_wrong_import_is_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "module.py"
    wrong.write_text("from svcd.api import app\nimport svcd.tasks.batching\n")
    assert list(imports(wrong)) == ["svcd.api.app", "svcd.tasks.batching"]
