"""Parse a query text, and build the query graph: all ways to read the query, from its first word to its last.

The text is parsed into words, phrases, excluded words and excluded phrases (docs/ranking.md#query-parsing). A node of the graph
(docs/ranking.md#query-graph) is a subset of the derivations of a term; its edges lead to all nodes that start with the next word.
Nodes are numbered: 0 is Start and 1 is End, both without a term (None). A path is a sequence of nodes without Start and End.
"""
from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from svcd.base.docids import EMPTY, DocIds
from svcd.query.terms import Phrase, Subset, Term, Terms
from svcd.text.analyzer import HARD, LAST, STOP_WORD, WORD, Analyzer, Token

MOST_PARTS = 10
MOST_TOKENS = 1000

# Maximum number of characters to read from a query text: 65 for each token. In a longer text, only the detected script and
# language, and the word at the cut, can differ.
LONGEST_TEXT = 65_536

# A hard separator puts its neighbours 8 positions apart: 7 here, and 1 for the word itself.
_HARD_STEP = 7


class Part(NamedTuple):
    """A word or a phrase of the query; start and end are word positions in the query. is_exact: the word may have no typo."""

    words: Phrase
    start: int
    end: int
    is_phrase: bool = False
    is_prefix: bool = False
    is_exact: bool = False


@dataclass(slots=True)
class ParsedQuery:
    """A parsed query text; without parts it is a placeholder search."""

    parts: list[Part] = field(default_factory=list)
    negative_words: list[str] = field(default_factory=list)
    negative_phrases: list[Phrase] = field(default_factory=list)


def parse_text(text: str, analyzer: Analyzer, locales: Sequence[str] | None = None,
               has_prefix: bool = True, most_parts: int = MOST_PARTS) -> ParsedQuery:
    """Parse a query text. A text of megabytes is tokenized only up to the limits of a query."""
    most = max(MOST_TOKENS, 2 * most_parts)  # a separator follows each word
    tokens = analyzer.tokens(text[:LONGEST_TEXT], locales, most=most)
    is_cut = len(text) > LONGEST_TEXT and len(tokens) < most
    return parse(tokens, has_prefix and not is_cut, most_parts)


def parse(tokens: Sequence[Token], has_prefix: bool = True, most_parts: int = MOST_PARTS) -> ParsedQuery:
    """Parse the tokens of a query text, from left to right.

    tokens: with stop words marked. has_prefix: whether the last word may be the beginning of a longer word. most_parts: more
    than MOST_PARTS for BM25, for which the pairs of a run without spaces are words: a question is often one run.
    """
    most = max(MOST_TOKENS, 2 * most_parts)
    run: list[tuple[str, int]] = []  # (pair, position) of the open run without spaces
    parsed, position = ParsedQuery(), -1
    phrase: list[tuple[str | None, int]] | None = None  # (word, position) of the open phrase; None outside of quotes
    is_phrase_negative = is_next_negative = False
    after_space = True
    last = min(len(tokens), most) - 1
    for number, token in enumerate(tokens[:most]):
        lemma = token.lemma
        if not lemma:
            continue
        if len(parsed.parts) >= most_parts:
            return parsed
        if token.kind == WORD or token.kind == STOP_WORD:
            position += 1
            is_word = token.kind == WORD
            if token.pair is not None:
                run.append((lemma, position))
                if token.pair == LAST:
                    is_next_negative = _add_run(parsed, run, phrase, is_next_negative, most_parts > MOST_PARTS)
                    run = []
            elif phrase is not None:
                phrase.append((lemma if is_word else None, position))
            elif is_next_negative:
                parsed.negative_words.append(lemma)
                is_next_negative = False
            elif is_word or number == last:  # a stop word at the end may be the beginning of another word
                parsed.parts.append(Part((lemma,), position, position, is_prefix=number == last and has_prefix))
        else:
            if token.kind == HARD:
                position += _HARD_STEP
                if phrase is not None:
                    _add_phrase(parsed, phrase, is_phrase_negative)
                    phrase = []
            quotes = lemma.count('"')
            if quotes and phrase is not None:
                _add_phrase(parsed, phrase, is_phrase_negative)
                phrase = None
                quotes -= 1
            if quotes % 2:
                phrase = []
                is_phrase_negative = is_next_negative
            is_next_negative = lemma == "-" and after_space and phrase is None
        after_space = lemma[-1].isspace()
    if phrase is not None:
        _add_phrase(parsed, phrase, is_phrase_negative)
    return parsed


def _add_run(parsed: ParsedQuery, run: Sequence[tuple[str, int]], phrase: list[tuple[str | None, int]] | None,
             is_negative: bool, is_split: bool) -> bool:
    """Add a run without spaces: the phrase of its pairs, or a prefix if it is one character. Return whether the next part is
    excluded.

    run: (lemma, position); the last lemma is a character that the pair before it includes. phrase: the open one, to which the
    run belongs. is_split: the pairs become words.
    """
    pairs, (lemma, place) = run[:-1], run[-1]
    if phrase is not None:
        phrase += [*pairs, (None if pairs else lemma, place)]
        return is_negative
    words = tuple(word for word, _ in pairs)
    if is_negative:
        if pairs:
            parsed.negative_phrases.append(words)
        else:
            parsed.negative_words.append(lemma)
    elif not pairs:
        parsed.parts.append(Part((lemma,), place, place, is_prefix=True))
    elif is_split:
        parsed.parts += [Part((word,), at, at, is_exact=True) for word, at in pairs]
    else:
        parsed.parts.append(Part(words, pairs[0][1], pairs[-1][1], len(pairs) > 1, is_exact=len(pairs) == 1))
    return False


def _add_phrase(parsed: ParsedQuery, phrase: Sequence[tuple[str | None, int]], is_negative: bool) -> None:
    """Add a closed phrase to the query, unless it has no words. phrase: (word, position); None for a stop word."""
    places = [position for word, position in phrase if word is not None]
    if not places:
        return
    words = tuple(word for word, _ in phrase)
    if is_negative:
        parsed.negative_phrases.append(words)
    else:
        parsed.parts.append(Part(words, places[0], phrase[-1][1], is_phrase=True))


# The graph

START, END = 0, 1
LONGEST_NGRAM = 3

# Replaces the document count of a word without documents in the strategy `frequency`; higher than any real count.
_NO_DOCUMENT = 1 << 62


class MatchingStrategy(Enum):
    """The order in which a search may drop words from a query."""

    LAST = "last"
    ALL = "all"
    FREQUENCY = "frequency"
    BM25 = "bm25"  # drops no word: any word of the query is enough (docs/ranking.md#bm25)


class QueryNode(NamedTuple):
    """A subset of a term at its position in the query.

    start, end: first and last position. first: number of the first word or phrase that the node covers. width: the number of
    query words that it covers; more than 1 for an n-gram.
    """

    subset: Subset
    start: int
    end: int
    first: int
    width: int = 1


class Graph:
    """Nodes by number, and the numbers of the successors of each node, ascending.

    term_nodes: (number, node) of all nodes except Start and End, ascending. steps: (number, successor, node or None for Start,
    node of the successor), for each successor except End. successors_first: the numbers of all nodes except End, each after its
    successors; Start is the last. plans: results that ranking rules cache for this graph, under their own keys.
    """

    def __init__(self, nodes: Sequence[QueryNode | None], successors: Sequence[Sequence[int]]) -> None:
        self.nodes = nodes
        self.successors = successors
        self.plans: dict[Hashable, Any] = {}
        self.term_nodes: list[tuple[int, QueryNode]] = []
        self.steps: list[tuple[int, int, QueryNode | None, QueryNode]] = []
        self.successors_first: list[int] = []
        for number, node in enumerate(nodes):
            if node is not None:
                self.term_nodes.append((number, node))
            for successor in successors[number]:
                if (right := nodes[successor]) is not None:
                    self.steps.append((number, successor, node, right))
        seen, open_nodes = {END}, [(START, iter(successors[START]))]
        while open_nodes:
            number, following = open_nodes[-1]
            for successor in following:
                if successor not in seen:
                    seen.add(successor)
                    open_nodes.append((successor, iter(successors[successor])))
                    break
            else:
                self.successors_first.append(number)
                open_nodes.pop()


class BuiltQuery(NamedTuple):
    """A query in one index: its graph, and its terms with their first and last positions; n-grams last."""

    graph: Graph
    located: list[tuple[Term, int, int]]


# Building


def build_graph(terms: Terms, parsed: ParsedQuery) -> BuiltQuery:
    """Return the graph of all parts of a query and their n-grams."""
    # All single terms are created before the first n-gram: highlighting depends on the order of creation.
    located: list[tuple[Term, int, int]] = []
    for part in parsed.parts:
        term = terms.phrase(part.words) if part.is_phrase else terms.word(part.words[0] or "", part.is_prefix, (), part.is_exact)
        located.append((term, part.start, part.end))
    nodes: list[QueryNode | None] = [None, None]
    ngrams: list[tuple[Term, int, int]] = []
    starting_with: dict[int, list[int]] = {}  # number of a part -> the nodes that start with it
    for number, (term, start, end) in enumerate(located):
        starting_with.setdefault(number, []).append(len(nodes))
        nodes.append(QueryNode(Subset(term), start, end, number))
        # The 2-gram and the 3-gram that end with this part, if it can be joined with the parts before it.
        part = right = parsed.parts[number]
        words: tuple[str, ...] = (part.words[0] or "",)
        for first in range(number - 1, max(number - LONGEST_NGRAM, -1), -1):
            left = parsed.parts[first]
            if right.is_phrase or left.is_phrase or left.end + 1 != right.start:
                break
            words, right = (left.words[0] or "", *words), left
            ngram = terms.ngram(words, part.is_prefix)
            if ngram is not None:
                starting_with[first].append(len(nodes))
                nodes.append(QueryNode(Subset(ngram), left.start, end, first, len(words)))
                ngrams.append((ngram, left.start, end))
    # Each node leads to all nodes that start with the next word, or to End.
    to_end = [END]
    successors = [starting_with.get(0, to_end), []]
    for node in nodes[2:]:
        assert node is not None
        successors.append(starting_with.get(node.first + node.width, to_end))
    return BuiltQuery(Graph(nodes, successors), located + ngrams)


def from_paths(paths: Iterable[Sequence[QueryNode]]) -> Graph:
    """Return the graph of exactly these paths; paths with the same last nodes share these nodes.

    Nodes are numbered in order of first appearance along the paths.
    """
    nodes: list[QueryNode | None] = [None, None]
    successors: list[list[int]] = [[], []]
    known: dict[tuple[QueryNode, int], int] = {}  # by node and number of its successor, which identifies the rest of the path
    for path in paths:
        joint, new = END, len(path)
        while new and (path[new - 1], joint) in known:
            new -= 1
            joint = known[path[new], joint]
        base = len(nodes)
        chain = [*range(base, base + new), joint]
        for place in range(new):
            known[path[place], chain[place + 1]] = chain[place]
            successors.append([chain[place + 1]])
        nodes.extend(path[:new])
        if chain[0] not in successors[START]:
            successors[START].append(chain[0])
    successors[START].sort()
    return Graph(nodes, successors)


# Dropping words


def removal_groups(graph: Graph, terms: Terms, strategy: MatchingStrategy) -> list[list[int]]:
    """Return the groups of nodes (by number) that may be dropped, in the order of dropping.

    See docs/ranking.md#universe-and-dropped-words.
    """
    known: list[list[int]] | None = graph.plans.get(strategy)
    if known is not None:
        return known
    nodes = graph.term_nodes
    covered: set[int] = set()
    for _, node in nodes:
        covered.update(range(node.first, node.first + node.width))
    if len(covered) < 2 or strategy is MatchingStrategy.ALL:
        graph.plans[strategy] = []
        return []
    if strategy is MatchingStrategy.LAST:
        last = max(covered)
        costs = {number: 1 + last - number for number in covered}
    else:
        costs = _costs_by_frequency(nodes, terms, sorted(covered))
    groups: dict[int, list[int]] = {}
    has_undroppable = False
    for number, node in nodes:
        if node.subset.term.phrase is not None or node.subset.is_mandatory:
            has_undroppable = True
        else:
            cost = max(map(costs.__getitem__, range(node.first, node.first + node.width)))
            groups.setdefault(cost, []).append(number)
    ordered = [groups[cost] for cost in sorted(groups)]
    # Some node must remain: if all nodes may be dropped, the group with the highest cost stays.
    known = graph.plans[strategy] = ordered if has_undroppable else ordered[:-1]
    return known


def _costs_by_frequency(nodes: Sequence[tuple[int, QueryNode]], terms: Terms, covered: Sequence[int]) -> dict[int, int]:
    """Return costs by word: 1 for the word with most documents, then 2 and so on; equal counts cost the same."""
    docids = dict.fromkeys(covered, EMPTY)
    for _, node in nodes:
        for number in range(node.first, node.first + node.width):
            docids[number] |= terms.docids(node.subset)
    counts = {number: len(found) or _NO_DOCUMENT for number, found in docids.items()}
    costs = {count: cost for cost, count in enumerate(sorted(set(counts.values()), reverse=True), 1)}
    return {number: costs[count] for number, count in counts.items()}


def universe(graph: Graph, terms: Terms, strategy: MatchingStrategy, candidates: DocIds) -> DocIds:
    """Return the candidates that match the query after all droppable words are dropped."""
    droppable: set[int] = set()
    droppable.update(*removal_groups(graph, terms, strategy))
    reached = [EMPTY] * len(graph.nodes)
    reached[START] = candidates
    # build_graph() numbers nodes so that they ascend along every path.
    for number, successors in enumerate(graph.successors):
        node = graph.nodes[number]
        if node is not None and number not in droppable:
            reached[number] &= terms.docids(node.subset)
        for successor in successors:
            reached[successor] |= reached[number]
    return reached[END]
