"""`svcd relevance`: run a file of relevance tests, and try a change of settings on a copy (docs/guide/relevance-tests.md)."""
from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from svcd.api.uploads import NDJSON
from svcd.commands import documents, import_from, instance, output
from svcd.commands.instance import MISUSED, CommandFailed, Instance, index_path, read_object
from svcd.commands.relevance_tests import Outcome, Suite, read_tests

_SHOWN_QUERIES = 5  # of a judged list: the ones that get worse most and the ones that improve most

ABOUT = "Run relevance tests: queries with the documents that they must find, in a file of TOML or JSON."
CHECK = (
    "Run the tests of FILE. Ends with status 1 if one fails. If FILE brings along its documents, and neither --url nor --folder "
    "is given, they are searched in an instance of their own."
)
DIFF = (
    "Show how SETTINGS, a file with settings of an index, would change the results of FILE, tried on a copy. Ends with status 1 "
    "if a test would fail that holds now, or if a figure would fall by more than --tolerance."
)
_TESTS = click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
_JSON = click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")


@click.group("relevance", help=ABOUT)
def command() -> None:
    """The commands below."""


@command.command("check", help=CHECK)
@_TESTS
@instance.options
@_JSON
@click.pass_context
def check(context: click.Context, path: Path, url: str | None, key: str | None, folder: Path | None, is_json: bool) -> int:
    """Run all tests and print their results."""
    suite = read_tests(path)
    with ExitStack() as held:
        if suite.fixtures and url is None and folder is None:
            source = held.enter_context(_own(is_json))
            _fill(source, suite)
        else:
            source = held.enter_context(instance.opened(context, url, key, folder))
        outcomes = list(suite.outcomes(source))
    failed = sum(bool(outcome.failures) for outcome in outcomes)
    if is_json:
        output.print_json({"holds": not failed, "tests": [outcome.as_json() for outcome in outcomes]})
    else:
        print(output.table([_row(outcome) for outcome in outcomes]))
        print(f"{len(outcomes):,} tests, {output.styled(f'{failed:,} failed', 'bad') if failed else 'none failed'}")
    return instance.FAILED if failed else 0


def _row(outcome: Outcome) -> list[str]:
    figures = ", ".join(f"{name} {value:.3f}" for name, value in outcome.figures.items())
    return ["FAILS" if outcome.failures else "holds", output.shortened(outcome.index), output.shortened(outcome.name),
            "; ".join(filter(None, [figures, *outcome.failures]))]


@command.command("diff", help=DIFF)
@click.argument("settings_path", metavar="SETTINGS", type=click.Path(path_type=Path))
@_TESTS
@click.option("--index", help="The index whose settings change, if FILE has tests of several.")
@click.option("--tolerance", default=0.005, show_default=True, type=click.FloatRange(min=0),
              help="A figure may fall by this much.")
@instance.options
@_JSON
@click.pass_context
def diff(context: click.Context, settings_path: Path, path: Path, index: str | None, tolerance: float, url: str | None,
         key: str | None, folder: Path | None, is_json: bool) -> int:
    """Run all tests on a copy, before and after the change."""
    settings, suite = read_object(settings_path), read_tests(path)
    if index is None and len(suite.indexes) > 1 or index is not None and index not in suite.indexes:
        raise CommandFailed(f"{path} has tests of {', '.join(suite.indexes)}: name one of them with --index", MISUSED)
    with _own(is_json) as copy:
        if suite.fixtures and url is None and folder is None:
            _fill(copy, suite)
        else:
            with instance.opened(context, url, key, folder) as source:
                _copy(source, copy, suite.indexes)
        before = list(suite.outcomes(copy))
        copy.finished(copy.call("PATCH", f"{index_path(index or suite.indexes[0])}/settings", settings)["taskUid"])
        after = list(suite.outcomes(copy))
    is_worse = any(_is_worse(old, new, tolerance) for old, new in zip(before, after))
    if is_json:
        output.print_json({"isWorse": is_worse, "tests": [
            {"index": old.index, "test": old.name, "before": old.as_json(), "after": new.as_json()}
            for old, new in zip(before, after)]})
    else:
        print(output.table([row for old, new in zip(before, after) for row in _changes(old, new)]))
        print(output.styled("worse", "bad") if is_worse else "not worse")
    return instance.FAILED if is_worse else 0


def _is_worse(old: Outcome, new: Outcome, tolerance: float) -> bool:
    return bool(new.failures and not old.failures) or any(
        value < old.figures[name] - tolerance for name, value in new.figures.items())


def _changes(old: Outcome, new: Outcome) -> Iterator[list[str]]:
    """Rows of a table: the test, and the queries of a judged list that change most."""
    state = ("still fails" if new.failures else "holds now") if old.failures else "would fail" if new.failures else "holds"
    gains = {name: value - old.figures[name] for name, value in new.figures.items()}
    figures = ", ".join(f"{name} {old.figures[name]:.3f} -> {new.figures[name]:.3f} ({gain:+.3f})"
                        for name, gain in gains.items())
    yield [state, output.shortened(new.index), output.shortened(new.name), "; ".join(filter(None, [figures, *new.failures]))]
    changed = sorted((q for q in new.by_query if new.by_query[q] != old.by_query[q]),
                     key=lambda q: new.by_query[q] - old.by_query[q])
    for q in changed if len(changed) <= 2 * _SHOWN_QUERIES else changed[:_SHOWN_QUERIES] + changed[-_SHOWN_QUERIES:]:
        yield ["", "", f"  {output.shortened(q)}", f"{old.by_query[q]:.3f} -> {new.by_query[q]:.3f}"]


# Instances


@contextmanager
def _own(is_silent: bool) -> Iterator[Instance]:
    """An empty instance that ends with the command."""
    if not is_silent:
        output.remark("filling an instance for the tests ...")
    with (tempfile.TemporaryDirectory(prefix="svcd-relevance-") as work,
          instance.started(Path(work) / "data", must_exist=False) as own):
        yield own


def _fill(target: Instance, suite: Suite) -> None:
    """Index the documents of a file of tests. Raises CommandFailed."""
    tasks: list[int] = []

    def send(method: str, path: str, value: Any) -> None:
        tasks.append(target.call(method, path, value)["taskUid"])

    for uid, fixture in suite.fixtures.items():
        sources = documents.sources_of(fixture.documents)
        send("POST", "/indexes", {"uid": uid, "primaryKey": fixture.primary_key})
        send("PATCH", f"{index_path(uid)}/settings", fixture.settings)
        for source in sources:
            for texts, _ in documents.portions(source, 0, documents.DEFAULT_PORTION):
                if texts:
                    body = "\n".join(texts).encode()
                    tasks.append(target.send("POST", f"{index_path(uid)}/documents", body, NDJSON)["taskUid"])
    for task in tasks:
        target.finished(task)


def _copy(source: Instance, target: Instance, indexes: Sequence[str]) -> None:
    """Copy some indexes. Raises CommandFailed."""
    import_from.copy_features(source, target)
    for uid in indexes:
        copy = import_from.Copy(source, target, target.url, source.call("GET", index_path(uid)))
        try:
            for _ in copy.run():
                pass
            for task in copy.tasks:
                target.finished(task)
        finally:
            copy.place.forget()
