"""Relevance as tests: a file of queries with the documents that they must find, and the comparison with the hits of an instance.

Format: docs/guide/relevance-tests.md. Figures are means over the queries of a judged list: nDCG@10, recall@100, and MRR (1 / rank
of the first relevant hit).
"""
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from svcd.base.errors import ApiError
from svcd.commands.instance import MISUSED, CommandFailed, Instance, index_path, read_object
from svcd.validation import (
    Field, any_object, array_of, decode_value, index_uid, map_of, number, object_of, parsed, string,
)
from svcd.validation.checks import anything

FIGURES = ("nDCG@10", "recall@100", "MRR")
_RANKED, _JUDGED = 10, 100  # hits that nDCG and recall read
_ALL = 1000  # hits for `above` and `absent`: as far as a search pages by default


def _identifier(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("a document id is an integer or a string")
    return str(value)


def _identifiers(value: Any) -> list[str]:
    return [_identifier(each) for each in (value if isinstance(value, list) else [value])]


def _pair(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("expected two document ids, the better one first")
    return _identifiers(value)


def _places(value: Any) -> int:
    if not str(value).isdecimal() or not 0 < int(value) <= _ALL:
        raise ValueError(f"`{value}` is not a number of hits from 1 to {_ALL}")
    return int(value)


def _within(value: Mapping[str, Any]) -> dict[int, list[str]]:
    return {_places(places): _identifiers(wanted) for places, wanted in value.items()}


def _figures(value: Mapping[str, float]) -> Mapping[str, float]:
    for name in value:
        if name not in FIGURES:
            raise ValueError(f"`{name}` is not a figure: expected one of {', '.join(FIGURES)}")
    return value


_IDS = parsed(anything, _identifiers)
_WHERE = {"index": Field(index_uid), "search": Field(any_object, default={})}
_QUERY = {"q": Field(string, required=True), **_WHERE, "first": Field(_IDS, default=()), "absent": Field(_IDS, default=()),
          "within": Field(parsed(any_object, _within), default={}), "above": Field(array_of(parsed(anything, _pair)), default=())}
_LIST = {"queries": Field(map_of(string), default={}), "relevant": Field(map_of(map_of(number)), required=True)}
_JUDGEMENTS = {"name": Field(string), **_WHERE, "file": Field(string),
               **{name: Field(each.check) for name, each in _LIST.items()},
               "least": Field(parsed(map_of(number), _figures), default={})}
_FILE = object_of({**_WHERE, "queries": Field(array_of(object_of(_QUERY)), default=()),
                   "judged": Field(array_of(object_of(_JUDGEMENTS)), default=()),
                   "indexes": Field(map_of(object_of({"documents": Field(string, required=True), "primaryKey": Field(string),
                                                      "settings": Field(any_object, default={})})), default={})})


@dataclass(frozen=True)
class Outcome:
    """The result of one test. failures: texts; figures, by_query: of a judged list, nDCG@10 of each query by its text."""

    index: str
    name: str
    failures: list[str]
    figures: Mapping[str, float] = field(default_factory=dict)
    by_query: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The result for scripts."""
        shown = {"index": self.index, "test": self.name, "holds": not self.failures, "failures": self.failures}
        return shown | ({"figures": self.figures, "queries": self.by_query} if self.figures else {})


@dataclass(frozen=True)
class QueryTest:
    """One query, and where documents must be among its hits. search: further parameters; within: number of hits -> ids."""

    index: str
    q: str
    search: Mapping[str, Any]
    first: Sequence[str]
    within: Mapping[int, Sequence[str]]
    above: Sequence[Sequence[str]]
    absent: Sequence[str]

    def outcome(self, searches: Searches) -> Outcome:
        """Search once and compare."""
        most = _ALL if self.above or self.absent else max(_RANKED, len(self.first), *self.within)
        found = searches.ids(self.index, self.q, self.search, most)
        rank_of = {identifier: rank for rank, identifier in reversed(list(enumerate(found, 1)))}

        def place(identifier: str) -> str:
            return f"at {rank_of[identifier]}" if identifier in rank_of else "not among the hits"

        failures = [f"{identifier} must be at {rank}, and is {place(identifier)}"
                    for rank, identifier in enumerate(self.first, 1) if rank_of.get(identifier) != rank]
        failures += [f"{identifier} must be within {most}, and is {place(identifier)}" for most, wanted in self.within.items()
                     for identifier in wanted if rank_of.get(identifier, _ALL + 1) > most]
        failures += [f"{better} must be above {worse}, and is {place(better)}, {worse} {place(worse)}"
                     for better, worse in self.above if better not in rank_of or rank_of[better] >= rank_of.get(worse, _ALL + 1)]
        failures += [f"{identifier} must be absent, and is {place(identifier)}" for identifier in self.absent
                     if identifier in rank_of]
        return Outcome(self.index, self.q, failures)


@dataclass(frozen=True)
class JudgedList:
    """Queries with the grades of their relevant documents. texts: query -> q, if they differ; relevant: query -> id -> grade;
    least: figure -> bound.
    """

    index: str
    name: str
    search: Mapping[str, Any]
    texts: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, float]]
    least: Mapping[str, float]

    def outcome(self, searches: Searches) -> Outcome:
        """Search every query, compute the figures and compare them."""
        rows = {query: judge(searches.ids(self.index, self.texts.get(query, query), self.search, _JUDGED), grades)
                for query, grades in self.relevant.items()}
        figures = {name: fmean(column) for name, column in zip(FIGURES, zip(*rows.values()))}
        failures = [f"{name} must be at least {bound:g}, and is {figures[name]:.4f}" for name, bound in self.least.items()
                    if figures[name] < bound]
        return Outcome(self.index, self.name, failures, figures,
                       {self.texts.get(query, query): row[0] for query, row in rows.items()})


def judge(found: Sequence[str], grades: Mapping[str, float]) -> tuple[float, float, float]:
    """The FIGURES of one query. found: ids, best first; grades: id -> grade; at least one is above 0."""
    good = sorted((grade for grade in grades.values() if grade > 0), reverse=True)

    def gain(values: Sequence[float]) -> float:
        return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(values[:_RANKED], 1))

    hits = [max(grades.get(identifier, 0), 0) for identifier in found]
    return (gain(hits) / gain(good), sum(grade > 0 for grade in hits) / len(good),
            next((1 / rank for rank, grade in enumerate(hits, 1) if grade > 0), 0.0))


@dataclass(frozen=True)
class Fixture:
    """An index that a file of tests brings along. documents: a path."""

    documents: str
    primary_key: str | None
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Suite:
    """A file of tests."""

    each: Sequence[QueryTest | JudgedList]
    fixtures: Mapping[str, Fixture]

    @property
    def indexes(self) -> list[str]:
        """The uids of the indexes that are searched."""
        return list(dict.fromkeys(test.index for test in self.each))

    def outcomes(self, instance: Instance) -> Iterator[Outcome]:
        """Run one test after the other. Raises CommandFailed when a search is refused."""
        searches = Searches(instance)
        for test in self.each:
            yield test.outcome(searches)


class Searches:
    """Searches that return document ids."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._primary_keys: dict[str, str] = {}

    def ids(self, index: str, q: str, search: Mapping[str, Any], limit: int) -> list[str]:
        """The ids of the first hits, best first. Raises CommandFailed."""
        path = index_path(index)
        if index not in self._primary_keys:
            self._primary_keys[index] = self._instance.call("GET", path)["primaryKey"] or "id"
        key = self._primary_keys[index]
        found = self._instance.call("POST", f"{path}/search", {"q": q, **search, "limit": limit, "attributesToRetrieve": [key]})
        if any(key not in hit for hit in found["hits"]):
            raise CommandFailed(f"{index}: hits lack the primary key `{key}`; add it to the setting displayedAttributes")
        return [str(hit[key]) for hit in found["hits"]]


def read_tests(path: Path) -> Suite:
    """The tests of a file. Raises CommandFailed with the place of a fault."""
    asked = _checked(path, read_object(path), _FILE)
    folder, tests = path.parent, list[QueryTest | JudgedList]()

    def wrong(fault: str) -> CommandFailed:
        return CommandFailed(f"{path}: {fault}", MISUSED)

    def where(test: dict[str, Any], place: str) -> tuple[str, dict[str, Any]]:
        index = test.pop("index", asked.get("index"))
        if index is None:
            raise wrong(f"missing field `index` at `{place}`, or once for the file")
        return index, asked["search"] | test.pop("search")

    for place, query in enumerate(asked["queries"]):
        index, search = where(query, f".queries[{place}]")
        if not (query["first"] or query["within"] or query["above"] or query["absent"]):
            raise wrong(f"`.queries[{place}]` expects nothing: give `first`, `within`, `above` or `absent`")
        tests.append(QueryTest(index=index, search=search, **query))
    for place, judged in enumerate(asked["judged"]):
        index, search = where(judged, f".judged[{place}]")
        source = folder / judged["file"] if "file" in judged else path
        if "file" in judged:
            judged |= _checked(source, read_object(source), object_of(_LIST, is_open=True))
        if not judged.get("relevant"):
            raise wrong(f"`.judged[{place}]` lacks judged queries: give `relevant`, or a `file` with it")
        for query, grades in judged["relevant"].items():
            if not any(grade > 0 for grade in grades.values()):
                raise CommandFailed(f"{source}: `relevant.{query}` needs a document with a grade above 0, or remove it", MISUSED)
        tests.append(JudgedList(index, judged.get("name", judged.get("file", f"judged[{place}]")), search,
                                judged.get("queries", {}), judged["relevant"], judged["least"]))
    if not tests:
        raise wrong("contains nothing to test: add `queries` or `judged`")
    return Suite(tests, {uid: Fixture(str(folder / each["documents"]), each.get("primaryKey"), each["settings"])
                         for uid, each in asked["indexes"].items()})


def _checked(path: Path, value: Any, check: Any) -> Any:
    try:
        return decode_value(value, check)
    except ApiError as wrong:
        raise CommandFailed(f"{path}: {wrong.message}", MISUSED) from None
