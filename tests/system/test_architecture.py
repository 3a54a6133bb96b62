"""What must hold of the table "Where is it decided?" in docs/architecture.md:

1. Each symbol that it names with a module is defined in that module.
2. It answers the questions of a newcomer: each with a symbol and its module, and what the answer claims is so.
"""
from __future__ import annotations

import ast
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from svcd.base.docids import DocIds
from svcd.index.bitmap_blocks import blocks_of
from svcd.ranking.rule import GraphRule
from svcd.schema.ranking_rules import RULE_NAMES

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = dict(re.findall(r"^\| (.*?\?) \| (.*) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.M))
_NAMED = re.compile(r"`([A-Za-z_]\w*)` (?:in|of) `(svcd/[\w/]+\.py)`")

# question -> symbols of its answer by module, and what must be so of each
PROBES: dict[str, dict[tuple[str, str], Callable[[Any], bool]]] = {
    "Where is the cost of a typo decided?": {
        ("svcd/ranking/typo.py", "Typo"): lambda rule: issubclass(rule, GraphRule) and rule.name == "typo"},
    "Where is a filter operator defined?": {
        ("svcd/filters/parser.py", "_OPERATOR"): lambda match: match(">=", 0)[0] == ">=",
        ("svcd/filters/evaluation.py", "_OPERATORS"): lambda table: {">=", "TO", "CONTAINS", "EXISTS"} <= set(table)},
    "What happens to a task when the process is killed after its commit?": {
        ("svcd/index/batch_outcomes.py", "BatchOutcomes"): lambda outcomes: callable(outcomes.outcome)},
    "Where is a ranking rule added?": {
        ("svcd/schema/ranking_rules.py", "RULE_NAMES"): lambda names: "typo" in names,
        ("svcd/ranking/bucket_sort.py", "_RULES"): lambda rules: set(rules) == set(RULE_NAMES) - {"sort"}},
    "Where is the block size of stored sets decided?": {
        ("svcd/index/bitmap_blocks.py", "BLOCK_BITS"): lambda bits: [
            block for block, _ in blocks_of(DocIds([(1 << bits) - 1, 1 << bits]))] == [0, 1]},
    "Where does a search worker get its sockets?": {
        ("svcd/cli/serving.py", "WorkerConfiguration"): lambda told: "listeners" in told.__annotations__,
        ("svcd/http/worker_sharing.py", "PeerProcesses"): lambda peers: callable(peers.hand_off)},
    "Which thread sends a webhook?": {
        ("svcd/remote/webhook_delivery.py", "_DeliveryThread"): lambda delivery: "thread" in delivery.__annotations__},
    "What decides an ETag?": {
        ("svcd/api/context.py", "Context"): lambda context: callable(context.etag),
        ("svcd/api/routes.py", "Route"): lambda route: "etag" in route.__annotations__},
    "Where is a search logged?": {
        ("svcd/api/answers.py", "text_after_hits"): callable,
        ("svcd/querylog/recorder.py", "Recorder"): lambda recorder: callable(recorder.note),
        ("svcd/api/app.py", "App"): lambda app: callable(app.answer)},
    "Where would an infix index go?": {
        ("svcd/index/schema.py", "INDEX"): lambda kind: callable(kind[0]),
        ("svcd/index/value_reader.py", "containing_docids"): callable,
        ("svcd/index/term_reader.py", "words_with_prefix"): callable},
}


def defined(module: str) -> set[str]:
    """The names that a module defines itself: functions, classes, methods, constants."""
    nodes = list(ast.walk(ast.parse((ROOT / module).read_text())))
    functions = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return functions | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def symbol(module: str, name: str) -> Any:
    """The object with a name in a module, or in one of its classes."""
    found = import_module(module.removesuffix(".py").replace("/", "."))
    places = [found, *(value for value in vars(found).values() if isinstance(value, type) and value.__module__ == found.__name__)]
    return next(getattr(place, name) for place in places if name in vars(place))


def test_named_symbols_are_defined_where_the_page_says() -> None:
    named = [(question, module, name) for question, answer in ANSWERS.items() for name, module in _NAMED.findall(answer)]
    assert len(named) > 15
    assert [row for row in named if row[2] not in defined(row[1])] == []


@pytest.mark.parametrize("question", PROBES)
def test_questions_of_newcomers_are_answered(question: str) -> None:
    expected = PROBES[question]
    assert {(module, name) for name, module in _NAMED.findall(ANSWERS[question])} == set(expected)
    assert [place for place, holds in expected.items() if not holds(symbol(*place))] == []
