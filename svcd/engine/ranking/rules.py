"""The rules that look at words: what each step through the query costs, and who may take it.

Knows the costs of words, typo, proximity, attribute rank, word position and exactness (relevance.md
3.4 to 3.11); refuses to know how paths are walked and in which order rules come. A rule supplies its
steps; each begins with its costs.
"""
from __future__ import annotations

from bisect import bisect_left
from typing import Hashable, Iterator, NamedTuple, Protocol, Sequence, TypeVar

from svcd.engine.documents import bucketed_position
from svcd.engine.postings import Postings, first_word
from svcd.engine.query import Phrase
from svcd.engine.querygraph import Graph, MatchingStrategy, Stop, from_paths, removal_groups
from svcd.engine.ranking.graph import Condition, Path, PathSearch, Plan, Step, plan
from svcd.engine.ranking.scores import (
    ATTRIBUTE_RANK,
    EXACT_ATTRIBUTE,
    EXACT_MATCH,
    EXACT_WORDS,
    MATCHES_START,
    NO_EXACT_MATCH,
    PROXIMITY,
    TYPO,
    WORD_POSITION,
    WORDS,
    Detail,
    Ranked,
    Sorted,
)
from svcd.engine.reader import DocIds
from svcd.engine.searchable import Searchable
from svcd.engine.terms import EXACT, NONE, Subset, Terms

Made = TypeVar("Made")

COUNTED_WORDS = 30  # fields with more words are in no set of `field_count_docids`


class Bucket(NamedTuple):
    """Documents that a rule holds equal, what it says of them, and the graph for the next rule."""

    docids: DocIds
    detail: Detail
    graph: Graph


class Rule(Protocol):
    """Splits candidates into buckets, best first; buckets are disjoint subsets of the candidates."""

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """Lazily: a bucket is worked out when it is asked for. Empty buckets are left out."""


class Shared:
    """What the rules of one search remember together: conditions, and graphs by their paths."""

    def __init__(self, terms: Terms, strategy: MatchingStrategy) -> None:
        self.terms = terms
        self.strategy = strategy
        self._graphs: dict[tuple[Path, ...], Graph] = {}
        self._conditions: dict[Hashable, Condition] = {}

    @property
    def postings(self) -> Postings:
        """The words of the index."""
        return self.terms.postings

    def graph(self, paths: Sequence[Path]) -> Graph:
        """The graph of these paths, the same one for the same paths."""
        key = tuple(paths)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = from_paths(key)
        return graph

    def condition(self, kind: type[_ConditionOf], *parts: Hashable) -> Condition:
        """The condition of this kind and these parts, the same one each time."""
        key = (kind, *parts)
        condition = self._conditions.get(key)
        if condition is None:
            condition = self._conditions[key] = kind(self.terms, *parts)
        return condition

    def matching(self, subset: Subset) -> Condition:
        """The condition to match a subset anywhere."""
        return self.condition(_Matching, subset)


class _ConditionOf:
    """A condition on the words of an index; made by Shared alone."""

    def __init__(self, terms: Terms, *parts: Hashable) -> None:
        self.terms = terms
        self.postings = terms.postings
        self._set(*parts)

    def _set(self, *parts: Hashable) -> None:
        """Keep the parts."""

    def docids(self, candidates: DocIds) -> DocIds:
        """No document, if the kind does not say otherwise: a step that only sets the scale."""
        return 0


class _Matching(_ConditionOf):
    def _set(self, subset: Subset) -> None:  # type: ignore[override]
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        return self.terms.docids(self._subset)


class GraphRule:
    """A rule whose buckets are the costs of paths."""

    name: str

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.terms = shared.terms

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        """One bucket for each cost that some document has."""
        made = self._plan(graph, candidates)
        most = 1 + made.highest + self._extra(graph)
        search = PathSearch(made, candidates)
        for cost in made.ascending():
            if not search.left:
                return
            docids, paths = search.bucket(cost)
            if docids:
                yield Bucket(docids, Ranked(self.name, most - cost, most), self.shared.graph(paths))

    def _plan(self, graph: Graph, candidates: DocIds) -> Plan:
        made = graph.plans.get(self.name)
        if not isinstance(made, Plan):
            made = graph.plans[self.name] = plan(graph, self._steps_of(graph, candidates))
        return made

    def _steps_of(self, graph: Graph, candidates: DocIds) -> _StepsInto:
        """By default the steps into a node do not depend on where they come from."""
        into = {node: self.steps(stop, candidates) for node, stop in graph.nodes()}
        return lambda node, target: into[target]

    def _extra(self, graph: Graph) -> int:
        return 0

    def steps(self, stop: Stop, candidates: DocIds) -> list[Step]:
        """The steps into a node."""
        raise NotImplementedError


class _StepsInto(Protocol):
    def __call__(self, node: int, target: int, /) -> Sequence[Step]: ...


class Words(GraphRule):
    """Costs: a word that is there 0, a dropped one as many as the query words it covers."""

    name = WORDS

    def _steps_of(self, graph: Graph, candidates: DocIds) -> _StepsInto:
        into: dict[int, list[Step]] = {}
        dropped = 0
        for group in removal_groups(graph, self.terms, self.shared.strategy):
            for node in group:
                into[node] = [Step(_stop(graph, node).width, None, None, dropped)]
            dropped |= sum(1 << node for node in group)
        for node, stop in graph.nodes():
            into.setdefault(node, []).append(Step(0, self.shared.matching(stop.subset), stop))
        return lambda node, target: into[target]

    def _extra(self, graph: Graph) -> int:
        """The words of phrases cannot be dropped, but count among the words to match."""
        phrases = [stop.subset.term.phrase for _, stop in graph.nodes()]
        words = [word for phrase in phrases if phrase for word in phrase if word is not None]
        return max(0, len(words) - 1)


class Typo(GraphRule):
    """Costs: the typos; written as one word, also 2 for two words and 3 for three."""

    name = TYPO

    def steps(self, stop: Stop, candidates: DocIds) -> list[Step]:
        base = 0 if stop.width == 1 else stop.width
        return [self._step(stop, base, typo_count) for typo_count in range(_most_typos(stop.subset) + 1)]

    def _step(self, stop: Stop, base: int, typo_count: int) -> Step:
        subset = stop.subset
        kept = subset._replace(
            zero=subset.zero if typo_count == 0 else NONE,
            one=subset.one and typo_count == 1,
            two=subset.two and typo_count == 2,
        )
        return Step(base + typo_count, self.shared.matching(kept), stop._replace(subset=kept))


def _most_typos(subset: Subset) -> int:
    """By what is allowed, not by what exists; without budget there is still the split, at one typo."""
    budget = subset.term.budget
    if budget == 0:
        return 0 if subset.term.phrase is not None else 1
    if budget == 2 and subset.two:
        return 2
    return 1 if subset.one else 0


class Proximity(GraphRule):
    """Costs: 0, 1, 2 for words near each other, 3 for anywhere; an n-gram its own gaps besides.

    Words in the wrong order count as one further apart. Where the query itself has no neighbours
    (start, dropped words, hard separators) anywhere costs nothing.
    """

    name = PROXIMITY
    FAR = 3

    def _steps_of(self, graph: Graph, candidates: DocIds) -> _StepsInto:
        return lambda node, target: self._between(graph.stops[node], _stop(graph, target))

    def _between(self, left: Stop | None, right: Stop) -> list[Step]:
        own = right.width - 1
        anywhere = self.shared.matching(right.subset)
        if left is None or left.end + 1 != right.start:
            return [Step(own, anywhere, right)]
        steps = [
            Step(own + distance - 1, self.shared.condition(_Near, left, right, distance), right)
            for distance in range(1, self.FAR + 1)
        ]
        return [*steps, Step(own + self.FAR, anywhere, right)]


class _Near(_ConditionOf):
    """A word of one stop and a word of the next one at a distance, or at one less the other way round."""

    def _set(self, left: Stop, right: Stop, distance: int) -> None:  # type: ignore[override]
        self._left = left.subset
        self._right = right.subset
        self._distance = distance

    def docids(self, candidates: DocIds) -> DocIds:
        lefts = _ends(self.terms, self._left, last=True)
        rights = _ends(self.terms, self._right, last=False)
        docids = 0
        for word, phrase in lefts:
            docids |= self._near_prefix(word, phrase, candidates)
        for word, phrase in lefts:
            if len(rights) > 1 and not candidates & self._of(word, phrase):
                continue
            within = candidates if phrase is None else candidates & self.postings.phrase(phrase)
            if not self.postings.is_by_attribute:
                within &= self.postings.reader.word_docids(word)
            docids |= self._near_words(word, phrase is None, rights, within)
        return docids

    def _of(self, word: str, phrase: Phrase | None) -> DocIds:
        return self.postings.original(word) if phrase is None else self.postings.phrase(phrase)

    def _near_prefix(self, word: str, phrase: Phrase | None, candidates: DocIds) -> DocIds:
        prefix = self._right.cached_prefix
        if prefix is None:
            return 0
        within = candidates if phrase is None else candidates & self.postings.phrase(phrase)
        if not within:
            return 0
        docids = within & self._prefix_pair(word, prefix, within)
        if phrase is None and self._distance > 1:
            docids |= within & self.postings.pair(self._distance - 1, prefix, word, within)
        return docids

    def _prefix_pair(self, word: str, prefix: str, within: DocIds) -> DocIds:
        postings = self.postings
        if not postings.is_by_attribute:
            return postings.reader.prefix_pair_docids(self._distance, word, prefix, within)
        docids = 0
        for continued in postings.reader.words_with_prefix(prefix):
            docids |= postings.pair(self._distance, word, continued, within)
        return docids

    def _near_words(
        self, left: str, is_word: bool, rights: Sequence[tuple[str, Phrase | None]], candidates: DocIds
    ) -> DocIds:
        postings = self.postings
        docids = 0
        for right, phrase in rights:
            within = candidates if phrase is None else candidates & postings.phrase(phrase)
            if not postings.is_by_attribute:
                within &= postings.reader.word_docids(right)
            if not within:
                continue
            docids |= within & postings.pair(self._distance, left, right, within)
            if is_word and phrase is None and self._distance > 1:
                docids |= within & postings.pair(self._distance - 1, right, left, within)
        return docids


def _ends(terms: Terms, subset: Subset, last: bool) -> list[tuple[str, Phrase | None]]:
    """The words that can stand next to another term: single ones, and the end of each phrase."""
    ends: list[tuple[str, Phrase | None]] = [(word, None) for word in terms.words(subset)]
    for phrase in terms.phrases(subset):
        word = phrase[-1 if last else 0]
        if word is not None:
            ends.append((word, phrase))
    return ends


class AttributeRank(GraphRule):
    """Costs: the weight of the field, for each query word. By default all fields weigh nothing."""

    name = ATTRIBUTE_RANK

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._searchable = Searchable.of(shared.postings.reader.settings)

    def steps(self, stop: Stop, candidates: DocIds) -> list[Step]:
        if self._searchable.is_everything and self.shared.postings.is_plain:
            # Each document of a subset has it in some field, and all fields cost the same.
            self.terms.words(stop.subset)
            return [Step(0, self.shared.matching(stop.subset), stop)]
        fields: dict[int, list[str]] = {}
        for field in self._fields(stop.subset):
            weight = self._searchable.weight(field)
            if weight is not None:
                fields.setdefault(weight, []).append(field)
        steps = [
            Step(weight * stop.width, self.shared.condition(_InFields, stop.subset, tuple(fields[weight])), stop)
            for weight in sorted(fields)
        ]
        if not self._searchable.is_everything and max(fields, default=-1) < self._searchable.heaviest:
            steps.append(Step(self._searchable.heaviest * stop.width, self.shared.condition(_ConditionOf), stop))
        return steps

    def _fields(self, subset: Subset) -> list[str]:
        """All fields that hold a word of the subset, or of its phrases."""
        postings = self.shared.postings
        words = self.terms.words(subset) + [
            word for phrase in self.terms.phrases(subset) for word in phrase if word is not None
        ]
        fields = dict.fromkeys(field for word in dict.fromkeys(words) for field in postings.fields_of(word))
        if subset.cached_prefix is not None:
            fields.update(dict.fromkeys(postings.fields_of_prefix(subset.cached_prefix)))
        return list(fields)


class _InFields(_ConditionOf):
    def _set(self, subset: Subset, fields: tuple[str, ...]) -> None:  # type: ignore[override]
        self._subset = subset
        self._fields = fields
        self._found: DocIds | None = None

    def docids(self, candidates: DocIds) -> DocIds:
        if self._found is None:
            self._found = self._find()
        return self._found

    def _find(self) -> DocIds:
        docids = 0
        for field in self._fields:
            docids |= self._in_field(field)
        return docids

    def _in_field(self, field: str) -> DocIds:
        postings, prefix = self.postings, self._subset.cached_prefix
        docids = 0 if prefix is None else postings.prefix_in_field(prefix, field)
        for word in self.terms.words(self._subset):
            docids |= postings.in_field(word, field)
        for phrase in self.terms.phrases(self._subset):
            docids |= postings.phrase_in_field(phrase, field)
        return docids


class WordPosition(GraphRule):
    """Costs: by how far the word stands from its place in the query, for each word of an n-gram."""

    name = WORD_POSITION
    # A distance up to REACHES[c] costs c; any further one 10.
    REACHES = (0, 1, 4, 7, 11, 16, 24, 64, 256, 1024)
    FARTHEST = len(REACHES)

    def steps(self, stop: Stop, candidates: DocIds) -> list[Step]:
        positions: dict[int, list[int]] = {self.FARTHEST * stop.width: []}
        for position in self._positions(stop.subset):
            positions.setdefault(self._cost(position, stop), []).append(position)
        return [
            Step(cost, self.shared.condition(_AtPositions, stop.subset, tuple(positions[cost])), stop)
            for cost in sorted(positions)
        ]

    def _cost(self, position: int, stop: Stop) -> int:
        distance = abs(position - stop.start)
        return sum(bisect_left(self.REACHES, distance + step) for step in range(stop.width))

    def _positions(self, subset: Subset) -> list[int]:
        """All positions at which a word of the subset, or the first one of its phrases, stands."""
        reader = self.shared.postings.reader
        positions: set[int] = set()
        for word in dict.fromkeys(self.terms.words(subset)):
            positions.update(reader.word_positions(word))
        for phrase in self.terms.phrases(subset):
            word = first_word(phrase)
            positions.update(reader.word_positions(word) if word is not None else ())
        if subset.cached_prefix is not None:
            positions.update(reader.prefix_positions(subset.cached_prefix))
        return sorted(positions)


class _AtPositions(_ConditionOf):
    def _set(self, subset: Subset, positions: tuple[int, ...]) -> None:  # type: ignore[override]
        self._subset = subset
        self._positions = positions
        self._found: DocIds | None = None

    def docids(self, candidates: DocIds) -> DocIds:
        if self._found is None:
            self._found = self._find()
        return self._found

    def _find(self) -> DocIds:
        docids = 0
        for position in self._positions:
            docids |= self._at(position)
        return docids

    def _at(self, position: int) -> DocIds:
        reader, prefix = self.postings.reader, self._subset.cached_prefix
        docids = 0 if prefix is None else reader.prefix_position_docids(prefix, position)
        for word in self.terms.words(self._subset):
            docids |= reader.word_position_docids(word, position)
        for phrase in self.terms.phrases(self._subset):
            word = first_word(phrase)
            if word is not None:
                docids |= self.postings.phrase(phrase) & reader.word_position_docids(word, position)
        return docids


class ExactWords(GraphRule):
    """Costs: a word exactly as typed 0, any other way one for each query word."""

    name = EXACT_WORDS

    def steps(self, stop: Stop, candidates: DocIds) -> list[Step]:
        subset = stop.subset
        anyhow = Step(stop.width, self.shared.matching(subset), stop)
        if subset.exact_phrase is None:
            return [anyhow]
        exact = Subset(subset.term, EXACT, False, False, True)
        condition = self.shared.condition(_Exact, subset)
        return [Step(0, condition, stop._replace(subset=exact)), anyhow]


class _Exact(_ConditionOf):
    def _set(self, subset: Subset) -> None:  # type: ignore[override]
        self._subset = subset

    def docids(self, candidates: DocIds) -> DocIds:
        return self.terms.exact_docids(self._subset)


class ExactAttribute:
    """Three buckets: a field that is the query and nothing else, one that begins with it, the rest."""

    name = EXACT_ATTRIBUTE

    def __init__(self, shared: Shared) -> None:
        self._postings = shared.postings

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        exact, starting = self._split(graph, candidates)
        by_rank = (
            (EXACT_MATCH, exact),
            (MATCHES_START, starting & ~exact),
            (NO_EXACT_MATCH, candidates & ~(exact | starting)),
        )
        for rank, docids in by_rank:
            if docids:
                yield Bucket(docids, Ranked(EXACT_ATTRIBUTE, rank, EXACT_MATCH), graph)

    def _split(self, graph: Graph, candidates: DocIds) -> tuple[DocIds, DocIds]:
        """The documents with a field that is the query, and those with one that begins with it."""
        stops = _exact_stops(graph)
        if not stops:
            return 0, 0
        words: list[str] = []
        for stop, phrase in stops:
            for offset, word in enumerate(phrase):
                if word is not None:
                    words.append(word)
                    bucketed = bucketed_position(stop.start + offset)
                    candidates &= self._postings.reader.word_position_docids(word, bucketed)
        length = sum(stop.end - stop.start + 1 for stop, _ in stops)
        return self._by_field(words, length, candidates) if candidates else (0, 0)

    def _by_field(self, words: Sequence[str], length: int, candidates: DocIds) -> tuple[DocIds, DocIds]:
        reader = self._postings.reader
        searchable = Searchable.of(reader.settings)
        exact = starting = 0
        for field in reader.indexed_fields():
            docids = candidates if field in searchable else 0
            for word in words:
                docids &= self._postings.in_field(word, field)
            counted = reader.field_count_docids(field, length) if length <= COUNTED_WORDS else 0
            exact |= docids & counted
            starting |= docids & ~counted
        return exact, starting


def _exact_stops(graph: Graph) -> list[tuple[Stop, Phrase]]:
    """The exact terms from the first one on, one for each place; none when one is missing between.

    That a last one is missing goes unnoticed (3.10: quirk).
    """
    found: dict[int, tuple[Stop, Phrase]] = {}
    for _, stop in graph.nodes():
        phrase = stop.subset.exact_phrase
        if phrase is not None:
            found.setdefault(stop.first, (stop, phrase))
    stops = [found[first] for first in sorted(found)]
    expected = 0
    for stop, _ in stops:
        if stop.first != expected:
            return []
        expected = stop.last + 1
    return stops


class Sort:
    """Buckets of equal values of a field; keeps the graph as it is."""

    def __init__(self, shared: Shared, field: str, ascending: bool) -> None:
        self._reader = shared.postings.reader
        self._field = field
        self._ascending = ascending

    def buckets(self, graph: Graph, candidates: DocIds) -> Iterator[Bucket]:
        for value, docids in self._reader.sort_buckets(self._field, self._ascending, candidates):
            if docids:
                yield Bucket(docids, Sorted(self._field, self._ascending, value), graph)


def _stop(graph: Graph, node: int) -> Stop:
    stop = graph.stops[node]
    assert stop is not None
    return stop
