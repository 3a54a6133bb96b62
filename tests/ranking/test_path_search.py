"""Paths through a graph, against the enumeration of all of them.

What must hold:
1. A document is in the bucket of the cheapest path that it can go, and in no other.
2. The paths kept are, in their order, those that found a document no earlier one had found.
3. A node dropped by a skip is not entered later on the path.
4. The costs are the sums of all paths.
5. The same buckets and paths are found without a step that leads nowhere: looking ahead, and for a few documents.
"""
from __future__ import annotations

from itertools import product
from typing import Iterator

from hypothesis import given
from hypothesis import strategies as st

from svcd.base.bitmaps import DocIds
from svcd.query.graph import END, START, Graph, QueryNode
from svcd.query.terms import Subset, Term
from svcd.ranking.path_search import CheapestPaths, Edge, PathSearch, WeightedEdge, plan

DOCUMENTS = 12
LAYERS = 3


class Fixed:
    """A condition that these documents fulfil."""

    def __init__(self, docids: DocIds) -> None:
        self._docids = docids

    def docids(self, candidates: DocIds) -> DocIds:
        return self._docids & candidates


def layered(widths: list[int]) -> Graph:
    """A graph of layers; each node leads to all nodes of the next layer."""
    stops: list[QueryNode | None] = [None, None]
    layers = [[START]]
    for place, width in enumerate(widths):
        layers.append([])
        for number in range(width):
            layers[-1].append(len(stops))
            stops.append(QueryNode(Subset(Term(f"{place}-{number}", False, 0)), place, place, place, place))
    layers.append([END])
    successors: list[list[int]] = [[] for _ in stops]
    for layer, behind in zip(layers, layers[1:]):
        for node in layer:
            successors[node] = behind
    return Graph(stops, successors)


STEP = st.tuples(st.integers(0, 3), st.integers(0, 2**DOCUMENTS - 1), st.booleans(), st.integers(0, 255))


@st.composite
def walks(draw: st.DrawFn) -> tuple[Graph, dict[int, list[Edge]]]:
    """A graph with the steps into each of its nodes; some of them skip."""
    graph = layered(draw(st.lists(st.integers(1, 2), min_size=1, max_size=LAYERS)))
    steps = {}
    for node, stop in graph.nodes():
        drawn = draw(st.lists(STEP, min_size=1, max_size=3))
        steps[node] = [
            Edge(cost, None, None, dropped << 2) if is_skip else Edge(cost, Fixed(docids), stop)
            for cost, docids, is_skip, dropped in drawn
        ]
    return graph, steps


def all_paths(graph: Graph, steps: dict[int, list[Edge]], node: int = START) -> Iterator[list[tuple[int, Edge]]]:
    """Every path from the node to End, in the order of its steps."""
    for target in graph.successors[node]:
        if target == END:
            yield []
            continue
        for step, rest in product(steps[target], list(all_paths(graph, steps, target))):
            yield [(target, step), *rest]


def ordered_paths(graph: Graph, steps: dict[int, list[Edge]]) -> list[list[tuple[int, Edge]]]:
    return list(all_paths(graph, steps))


def documents_of(path: list[tuple[int, Edge]], candidates: DocIds) -> DocIds:
    """The documents that fulfil all conditions of a path; none when it enters a dropped node."""
    dropped = 0
    for node, step in path:
        if step.condition is None:
            dropped |= step.dropped
        elif dropped >> node & 1:
            return 0
        else:
            candidates &= step.condition.docids(candidates)
    return candidates


@given(walks(), st.integers(0, 2**DOCUMENTS - 1))
def test_buckets_and_paths_equal_those_of_all_paths(
    walk: tuple[Graph, dict[int, list[Edge]]], candidates: DocIds
) -> None:
    graph, steps = walk
    paths = ordered_paths(graph, steps)
    made = plan(graph, lambda node, target: steps[target])
    search = PathSearch(made, candidates)
    left = candidates
    assert list(made.ascending()) == sorted({sum(step.cost for _, step in path) for path in paths})
    for cost in made.ascending():
        bucket, good = 0, []
        for path in paths:
            found = documents_of(path, left & ~bucket)
            if sum(step.cost for _, step in path) == cost and found:
                bucket |= found
                good.append(tuple(step.stop for _, step in path if step.stop is not None))
        left &= ~bucket
        if not search.left:
            return
        assert search.bucket(cost) == (bucket, good)
        assert search.left == left


WAY = st.tuples(st.integers(0, 3), st.integers(0, 2**DOCUMENTS - 1))


@st.composite
def ways(draw: st.DrawFn) -> tuple[Graph, dict[tuple[int, int], list[WeightedEdge]]]:
    """A graph with the ways between its nodes, each with a stop of its own."""
    graph = layered(draw(st.lists(st.integers(1, 3), min_size=1, max_size=LAYERS)))
    between = {}
    for node, following in enumerate(graph.successors):
        for target in following:
            stop = graph.stops[target]
            drawn = draw(st.lists(WAY, max_size=3)) if stop is not None else []
            between[node, target] = [
                WeightedEdge(cost, docids, stop._replace(start=number)) for number, (cost, docids) in enumerate(drawn) if stop
            ]
    return graph, between


@given(ways(), st.integers(0, 2**DOCUMENTS - 1))
def test_cheapest_paths_equal_those_of_walking_all_ways(
    drawn: tuple[Graph, dict[tuple[int, int], list[WeightedEdge]]], candidates: DocIds
) -> None:
    graph, between = drawn
    steps = {pair: [Edge(way.cost, Fixed(way.chosen), way.stop) for way in some] for pair, some in between.items()}
    made = plan(graph, lambda node, target: steps[node, target])
    search, ahead = PathSearch(made, candidates), PathSearch(made, candidates, looks_ahead=True)
    walked = [(cost, *search.bucket(cost)) for cost in made.ascending()]
    assert [(cost, *ahead.bucket(cost)) for cost in made.ascending()] == walked
    found = CheapestPaths(graph, lambda node, target: between[node, target], candidates).buckets()
    assert list(found) == [(cost, docids, good) for cost, docids, good in walked if docids]
