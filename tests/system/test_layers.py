"""What must hold of imports (svcd.LAYERS):

1. A module imports from the rows above its own, and from its own package.
2. Every module and package stands on a row.
3. No modules import each other in a circle, also not by imports inside functions or for type checkers.
"""
from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

import svcd

ROOT = Path(svcd.__file__).parent
ROW = {name: number for number, row in enumerate(svcd.LAYERS) for name in row.split()}
MODULES = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
           for path in ROOT.rglob("*.py")}
# The package itself (version and layers, imports nothing) and the door of `python -m svcd`.
OUTSIDE = {"svcd", "svcd.__main__"}


def imports(path: Path) -> Iterator[str]:
    """Modules of svcd that a file imports, wherever the import stands: in functions, classes and `if` blocks, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "svcd")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "svcd":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def cycles(graph: Mapping[str, Collection[str]]) -> list[frozenset[str]]:
    """The largest groups of modules of which each one reaches all the others by imports. graph: module -> its imports."""
    reached: dict[str, set[str]] = {}
    for module in graph:
        found, ahead = set[str](), [module]
        while ahead:
            new = set(graph[ahead.pop()]) - found
            found |= new
            ahead += new
        reached[module] = found
    groups = {frozenset(other for other in found if module in reached[other]) for module, found in reached.items()}
    return sorted(groups - {frozenset()}, key=sorted)


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
    graph = {module: {name for name in imports(path) if name != module and name in MODULES} for module, path in MODULES.items()}
    found = {frozenset(name.removeprefix("svcd.") for name in group) for group in cycles(graph)}
    assert found == set()


def test_cycles_are_found_whole() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": ["e"], "e": ["d"], "f": ["a", "f"]}
    assert cycles(graph) == [{"b", "c"}, {"d", "e"}, {"f"}]


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("if True:\n import svcd.api.app\n"
                      "class C:\n import svcd.api.csv_reader\n"
                      "def f():\n from svcd.api import keys\n"
                      "async def g():\n def inner():\n  from svcd.api.tasks import ROUTES\n")
    assert set(imports(module)) == {"svcd.api.app", "svcd.api.csv_reader", "svcd.api.keys", "svcd.api.tasks"}


def test_a_wrong_import_is_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "module.py"
    wrong.write_text("from svcd.api import app\nimport svcd.tasks.batching\n")
    assert list(imports(wrong)) == ["svcd.api.app", "svcd.tasks.batching"]
