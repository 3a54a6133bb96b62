"""Paths through a graph, against the enumeration of all of them.

What must hold:
1. A document is in the bucket of the cheapest path that it can take, and in no other.
2. The paths kept are, in their order, those that found a document no earlier one had found.
3. A node dropped by a skip is not entered later on the path.
4. The costs are the sums of all paths.
5. The same buckets and paths are found without trying an edge that leads nowhere: looking ahead, and for a few documents.
6. The same buckets and paths are found when each condition is computed for the documents that reached it.
"""
from __future__ import annotations

from itertools import product
from typing import Iterator
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from svcd.base.docids import DocIds
from svcd.query.graph import END, START, Graph, QueryNode
from svcd.query.terms import Subset, Term
from svcd.ranking import rule
from svcd.ranking.rule import CheapestPaths, Condition, Edge, PathSearch, Plan, WeightedEdge
from tests.support.sets import of_bits

DOCUMENTS = 12
LAYERS = 3


def fixed(docids: DocIds) -> Condition:
    """A condition that these documents meet."""
    return lambda candidates: docids & candidates


def layered(widths: list[int]) -> Graph:
    """A graph of layers; each node leads to all nodes of the next layer."""
    nodes: list[QueryNode | None] = [None, None]
    layers = [[START]]
    for place, width in enumerate(widths):
        layers.append([])
        for number in range(width):
            layers[-1].append(len(nodes))
            nodes.append(QueryNode(Subset(Term(f"{place}-{number}", False, 0)), place, place, place))
    layers.append([END])
    successors: list[list[int]] = [[] for _ in nodes]
    for layer, following in zip(layers, layers[1:]):
        for number in layer:
            successors[number] = following
    return Graph(nodes, successors)


EDGE = st.tuples(st.integers(0, 3), st.integers(0, 2**DOCUMENTS - 1), st.booleans(), st.integers(0, 255))


@st.composite
def graphs_with_edges(draw: st.DrawFn) -> tuple[Graph, dict[int, list[Edge]]]:
    """A graph with the edges into each of its nodes; some of them skip."""
    graph = layered(draw(st.lists(st.integers(1, 2), min_size=1, max_size=LAYERS)))
    edges = {}
    for number, node in graph.term_nodes:
        drawn = draw(st.lists(EDGE, min_size=1, max_size=3))
        edges[number] = [
            Edge(cost, None, None, dropped << 2) if is_skip else Edge(cost, fixed(of_bits(docids)), node)
            for cost, docids, is_skip, dropped in drawn
        ]
    return graph, edges


def all_paths(graph: Graph, edges: dict[int, list[Edge]], node: int = START) -> Iterator[list[tuple[int, Edge]]]:
    """Every path from the node to End, in the order of its edges."""
    for target in graph.successors[node]:
        if target == END:
            yield []
            continue
        for edge, rest in product(edges[target], list(all_paths(graph, edges, target))):
            yield [(target, edge), *rest]


def ordered_paths(graph: Graph, edges: dict[int, list[Edge]]) -> list[list[tuple[int, Edge]]]:
    return list(all_paths(graph, edges))


def documents_of(path: list[tuple[int, Edge]], candidates: DocIds) -> DocIds:
    """The documents that meet all conditions of a path; none when it enters a dropped node."""
    dropped = 0
    for node, edge in path:
        if edge.condition is None:
            dropped |= edge.dropped
        elif dropped >> node & 1:
            return DocIds()
        else:
            candidates &= edge.condition(candidates)
    return candidates


@given(graphs_with_edges(), st.integers(0, 2**DOCUMENTS - 1), st.booleans())
def test_buckets_and_paths_equal_those_of_all_paths(
    walk: tuple[Graph, dict[int, list[Edge]]], bits: int, narrows: bool
) -> None:
    graph, edges = walk
    paths = ordered_paths(graph, edges)
    plan = Plan(graph, {(number, successor): edges[successor] for number, successor, _, _ in graph.steps})
    left = of_bits(bits)
    search = PathSearch(plan, left, narrows=narrows)
    assert plan.path_costs == sorted({sum(edge.cost for _, edge in path) for path in paths})
    for cost in plan.path_costs:
        bucket, good = DocIds(), []
        for path in paths:
            found = documents_of(path, left - bucket)
            if sum(edge.cost for _, edge in path) == cost and found:
                bucket |= found
                good.append(tuple(edge.node for _, edge in path if edge.node is not None))
        left -= bucket
        if not search.left:
            return
        with patch.object(rule, "WORTH_NARROWING", 0):
            assert search.bucket(cost) == (bucket, good)
        assert search.left == left


WEIGHTED_EDGE = st.tuples(st.integers(0, 3), st.integers(0, 2**DOCUMENTS - 1))


@st.composite
def graphs_with_weighted_edges(draw: st.DrawFn) -> tuple[Graph, dict[tuple[int, int], list[WeightedEdge]]]:
    """A graph with the edges between its nodes, each with a node of its own."""
    graph = layered(draw(st.lists(st.integers(1, 3), min_size=1, max_size=LAYERS)))
    between = {}
    for number, following in enumerate(graph.successors):
        for target in following:
            node = graph.nodes[target]
            drawn = draw(st.lists(WEIGHTED_EDGE, max_size=3)) if node is not None else []
            between[number, target] = [
                WeightedEdge(cost, docids, node._replace(start=place)) for place, (cost, docids) in enumerate(drawn) if node
            ]
    return graph, between


@given(graphs_with_weighted_edges(), st.integers(0, 2**DOCUMENTS - 1))
def test_cheapest_paths_equal_those_of_trying_all_paths(
    drawn: tuple[Graph, dict[tuple[int, int], list[WeightedEdge]]], bits: int
) -> None:
    (graph, between), candidates = drawn, of_bits(bits)
    edges = {pair: [Edge(edge.cost, fixed(of_bits(edge.documents)), edge.node) for edge in some] for pair, some in between.items()}
    plan = Plan(graph, edges)
    search, ahead = PathSearch(plan, candidates), PathSearch(plan, candidates, looks_ahead=True)
    walked = [(cost, *search.bucket(cost)) for cost in plan.path_costs]
    assert [(cost, *ahead.bucket(cost)) for cost in plan.path_costs] == walked
    found = CheapestPaths(graph, between, bits).buckets()
    assert [(cost, of_bits(documents), paths) for cost, documents, paths in found] == [(cost, docids, good) for cost, docids, good in walked if docids]
