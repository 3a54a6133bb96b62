"""Search one index by words: from the text of a query to ranked documents, with the words that found them.

Steps: filter, tokens, query graph, universe, ranking rules, bucket sort (docs/ranking.md). Search by vectors shares the
scope of a search, the attributes and languages of a query, and its distinct attribute.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from svcd.base import tracing
from svcd.base.docids import DocIds, union_of
from svcd.base.errors import ApiError
from svcd.query.counted_words import MOST_PARTS as MOST_COUNTED_PARTS, counted_words, located_parts
from svcd.query.graph import MOST_PARTS, BuiltQuery, Graph, MatchingStrategy, ParsedQuery, build_graph, parse_text, universe
from svcd.query.reader import Reader
from svcd.query.terms import Postings, Term, Terms
from svcd.ranking.bm25 import Scorer
from svcd.ranking.bucket_sort import Hit, Ranking, RankingLimits, chain, rank
from svcd.ranking.distinct import Distinct
from svcd.ranking.rule import RankingContext, Rule
from svcd.ranking.scores import Pinned
from svcd.ranking.sort import SortError, check_sortable, parse_rule
from svcd.ranking.word_postings import scorer_of
from svcd.schema import attributes
from svcd.schema.attributes import attribute_list, is_beneath
from svcd.schema.field_values import normal_form
from svcd.schema.ranking_rules import BM25
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.request import SearchQuery

T = TypeVar("T")
Ranker = Callable[[Sequence[Rule], Graph, DocIds, RankingLimits, Callable[[], bool], "Distinct | None"], Ranking]


class Found(NamedTuple):
    """The ranked documents of a query.

    terms: its terms with their derivations. located: (term, first position, last position) of each term in the query.
    is_semantic: the search used vectors, or might have. vector: of the query, None if none was needed. scorer: of BM25, if the
    search used it.
    """

    ranking: Ranking
    terms: Terms
    located: Sequence[tuple[Term, int, int]]
    is_semantic: bool = False
    vector: array[float] | None = None
    scorer: Scorer | None = None

    def matching_words(self) -> MatchFinder:
        """Return the words that highlighting marks: those derived during ranking (docs/search.md#matched-words)."""
        located = []
        for term, start, end in self.located:
            words = [] if term.exact is None else [term.exact]
            words += [*term.prefix_words, *term.typos.one, *term.typos.two]
            if self.scorer is not None and term.phrase is None:  # BM25 finds words by their stem, and does not list them
                stems = self.terms.stem_words(term.word)
                self.terms.number_words(stems)
                words += stems
            phrases = [phrase for phrase in (term.phrase, *term.synonyms, term.split) if phrase is not None]
            words = sorted(dict.fromkeys(words), key=self.terms.numbers.__getitem__)
            located.append(LocatedTerm((start, end), term.is_prefix, len(term.word), words, phrases))
        return MatchFinder(located)


class Scope(NamedTuple):
    """The documents that a query searches, which meet its filter, and the objects that its rules share. distinct: may be None."""

    reader: Reader
    query: SearchQuery
    docids: DocIds
    distinct: Distinct | None
    restricted: Sequence[str] | None
    context: RankingContext

    def parse(self) -> ParsedQuery:
        """Parse the text of the query into words and phrases."""
        settings = self.reader.settings
        locales = None
        if self.query.locales or settings.localized_attributes:
            locales = locales_of(self.reader, self.query, self.restricted)
        is_bm25 = self.context.strategy is MatchingStrategy.BM25
        return parse_text(self.query.q or "", settings.analyzer, locales, settings.has_prefix_search,
                          MOST_COUNTED_PARTS if is_bm25 else MOST_PARTS)

    def pins(self, parsed: ParsedQuery) -> Sequence[tuple[int, Hit]]:
        """Return the hits that search rules pin, with their positions, in the order of the rules."""
        rules = self.query.rules
        if rules is None:
            return ()
        found = rules.pins(self.reader, parsed, self.query.filter, self.docids)
        return [(position, Hit(docid, (Pinned(position),))) for position, docid in found]

    def excluded(self, parsed: ParsedQuery) -> DocIds:
        """Return the documents that the negated words and phrases of the query exclude."""
        postings = self.context.postings
        return union_of([*map(postings.original, parsed.negative_words), *map(postings.phrase, parsed.negative_phrases)])


def scope_of(reader: Reader, query: SearchQuery) -> Scope:
    """Return the scope of a search of one index.

    Raises invalid_search_filter; invalid_search_sort for a field that is not sortable; invalid_search_distinct for a field
    that is not filterable; invalid_search_attributes_to_search_on for a field that is not searchable.
    """
    settings, field = reader.settings, None
    names = query.attributes_to_search_on
    restricted = None if names is None else restricted_fields(reader, names)
    if query.distinct is not None or settings.distinct_attribute is not None:
        field = distinct_field(reader, query.distinct)
    docids = reader.all_docids() if query.filter is None else filtered_docids(reader, query)
    if query.sort:
        if "sort" not in settings.ranking_rules:
            raise ApiError("invalid_search_sort", "You must specify where `sort` is listed in the rankingRules setting "
                                                  "to use the sort parameter at search time.")
        try:
            check_sortable(map(parse_rule, query.sort), settings.sortable_attributes, settings.displayed_attributes)
        except SortError as error:
            raise ApiError("invalid_search_sort", str(error)) from None
    context = RankingContext(terms_of(reader, restricted), MatchingStrategy(
        query.matching_strategy or settings.default_matching_strategy))
    return Scope(reader, query, docids, None if field is None else Distinct(reader, field), restricted, context)


def terms_of(reader: Reader, restricted: Sequence[str] | None) -> Terms:
    """Return an empty collection of the terms of one query. restricted: the fields that it searches, None for all."""
    settings = reader.settings
    return Terms(Postings(reader, restricted), settings.typo_tolerance, settings.synonyms, settings.stemming,
                 settings.resolved["infixSearch"])


def filtered_docids(reader: Reader, query: SearchQuery) -> DocIds:
    """Return the documents of the filter of a query. Raises invalid_search_filter."""
    if query.filter is None:
        return reader.all_docids()
    from svcd.filters.evaluation import filter_docids  # a first search without a filter need not wait for it

    tracing.begin("evaluate filter")
    docids = filter_docids(reader, query.filter, "invalid_search_filter", is_rewritten=True)
    tracing.end()
    return docids


def keyword_search(reader: Reader, query: SearchQuery, limits: RankingLimits, expired: Callable[[], bool]) -> Found:
    """Rank the documents of one index by the words of a query.

    limits: how far to rank; expired: returns whether the time limit has passed. Raises as scope_of() does.
    """
    scope = scope_of(reader, query)
    tracing.begin("tokenize query")
    parsed = scope.parse()
    return rank_by_words(scope, parsed, limits, expired, () if query.rules is None else scope.pins(parsed))


def rank_by_words(scope: Scope, parsed: ParsedQuery, limits: RankingLimits, expired: Callable[[], bool],
                  pins: Sequence[tuple[int, Hit]] = (), rank: Ranker = rank) -> Found:
    """Rank the documents of a scope by the words of its query, or only by the rules that sort for a query without words.

    pins: hits with their positions, which they take regardless of words and ranking rules. rank: runs the rules.
    """
    tracing.begin("evaluate query")
    context, settings = scope.context, scope.reader.settings
    docids = without_pins(scope.docids, pins) if pins else scope.docids
    if parsed.negative_words or parsed.negative_phrases:
        docids -= scope.excluded(parsed)
    built, is_bm25 = BuiltQuery(empty_graph(), []), context.strategy is MatchingStrategy.BM25
    if parsed.parts and (is_bm25 or BM25 in settings.ranking_rules):
        words = counted_words(context.terms, parsed, settings.common_words)
        context.scorer = scorer_of(scope.reader, context.postings, words, scope.docids, limits.hits)
    if context.scorer is not None and is_bm25:
        built = BuiltQuery(empty_graph(), located_parts(context.terms, parsed, words))
        docids &= context.scorer.docids
        for part in parsed.parts:
            if part.is_phrase:
                docids &= context.postings.phrase(part.words)
    elif parsed.parts:
        built = build_graph(context.terms, parsed)
        docids = universe(built.graph, context.terms, context.strategy, docids)
    rules = chain(context, settings.ranking_rules, scope.query.sort or (), bool(parsed.parts))
    tracing.begin("keyword ranking" if parsed.parts else "placeholder ranking")
    ranking = rank(rules, built.graph, docids, limits, expired, scope.distinct)
    tracing.end()
    return Found(with_pins(ranking, pins, limits.hits) if pins else ranking, context.terms, built.located, scorer=context.scorer)


def empty_graph() -> Graph:
    """Return the graph of a query without words."""
    return Graph([None, None], [[], []])


# Pinned hits (docs/search-rules.md#positions). A pin is (the position that its rule asks for, hit). The hits of one query are
# placed in the order of its rules. When the hits of all queries are merged, the pins are placed again, by position.


def without_pins(docids: DocIds, pins: Sequence[tuple[int, Hit]]) -> DocIds:
    """Return the documents that are not pinned."""
    return docids - DocIds([hit.docid for _, hit in pins])


def by_position(pins: Iterable[tuple[int, T]]) -> list[tuple[int, T]]:
    """Return the pins sorted by position; pins with the same position keep their order."""
    return sorted(pins, key=itemgetter(0))


def placed(organic: Sequence[T], pins: Sequence[tuple[int, T]], end: int) -> list[T]:
    """Return the first `end` hits: at each place the next pin if its position is reached, else the next organic hit.

    When the organic hits run out, the remaining pins follow in their order. A pin that waits for its position delays the pins
    after it.
    """
    found: list[T] = []
    taken = 0
    for position, pin in pins:
        needed = max(position - len(found), 0)
        found += organic[taken:taken + needed]
        taken += needed
        found.append(pin)
    return [*found, *organic[taken:]][:end]


def split_pins(hits: Iterable[Hit]) -> tuple[list[Hit], list[tuple[int, Hit]]]:
    """Return (the organic hits, the pins), each in their order. The score details of a hit say whether it is pinned."""
    organic: list[Hit] = []
    pins: list[tuple[int, Hit]] = []
    for hit in hits:
        first = hit.details[0] if hit.details else None
        if isinstance(first, Pinned):
            pins.append((first.position, hit))
        else:
            organic.append(hit)
    return organic, pins


def with_pins(ranking: Ranking, pins: Sequence[tuple[int, Hit]], most: int) -> Ranking:
    """Put the pins in their places in a ranking of the other documents, `most` hits in all; pinned documents are counted."""
    counted = ranking.counted | DocIds([hit.docid for _, hit in pins])
    return Ranking(counted, placed(ranking.hits, pins, most))


# Attributes and languages


def _searchable_fields(reader: Reader) -> list[str]:
    searchable = reader.settings.searchable
    return [field for field in reader.terms.indexed_fields() if field in searchable]


def restricted_fields(reader: Reader, names: Sequence[str]) -> list[str] | None:
    """Return the fields that attributesToSearchOn selects, None for all (docs/search.md#searched-attributes).

    Raises invalid_search_attributes_to_search_on.
    """
    searchable, listed = dict.fromkeys(_searchable_fields(reader)), reader.settings.searchable
    fields: dict[str, None] = {}
    for name in dict.fromkeys(names):
        if name == attributes.WILDCARD:
            continue
        matching = [name] if name in searchable else []
        if not matching and attributes.WILDCARD in name:
            matching = [field for field in searchable if attributes.matches(field, name)]
        if not matching and not listed.is_everything and not listed.names(name):
            available = attribute_list(list(searchable), reader.settings.displayed_attributes)
            raise ApiError("invalid_search_attributes_to_search_on", f"Attribute `{name}` is not searchable."
                                                                     f" Available searchable attributes are: `{available}`.")
        fields.update(dict.fromkeys(matching))
    return None if attributes.WILDCARD in names else list(fields)


def locales_of(reader: Reader, query: SearchQuery, restricted: Sequence[str] | None) -> list[str] | None:
    """Return the languages of the query: from the request, else from the searched fields; None for any."""
    if query.locales or not reader.settings.localized_attributes:
        return list(query.locales or ()) or None
    of_field = reader.settings.locales_of
    fields = _searchable_fields(reader) if restricted is None else restricted
    return list(dict.fromkeys(locale for field in fields for locale in of_field(field) or ())) or None


# The distinct attribute of a search, and distinct among merged hits (docs/search.md#distinct-by-document-values). Distinct among
# the documents of one index is part of ranking: svcd.ranking.distinct.


def distinct_field(reader: Reader, requested: str | None) -> str | None:
    """Return the distinct field of a search: from the request, else from the setting; None if no document has it.

    Raises invalid_search_distinct if the requested field is not filterable.
    """
    settings = reader.settings
    field = settings.distinct_attribute if requested is None else requested
    if requested is not None and requested not in settings.filterable:
        rule, patterns = settings.filterable.rule(requested), settings.filterable.patterns()
        if rule is not None:
            reason = (
                f"Note: this attribute matches rule #{rule.number} in filterableAttributes, "
                "but this rule does not enable filtering.\n"
                f"Hint: enable filtering in rule #{rule.number} by adding appropriate filter features.\n"
                f"Hint: prepend another rule matching {requested} with filter features before rule #{rule.number}"
            )
        elif patterns:
            available = attribute_list(patterns, settings.displayed_attributes)
            reason = f"Available filterable attributes patterns are: `{available}`."
        else:
            reason = "This index does not have configured filterable attributes."
        raise ApiError("invalid_search_distinct",
                       f"Attribute `{requested}` is not filterable and thus, cannot be used as distinct attribute. {reason}")
    return field if field is not None and field in reader.fields() else None


class DistinctFilter:
    """Accepts documents that share no value of a field with a document accepted earlier."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._seen: set[Hashable] = set()

    def accepts(self, document: Mapping[str, Any] | list[Any]) -> bool:
        """Return whether a document, or one in parts, is accepted; if so, record its values. Without values it always is."""
        values = document_values(document, self._field)
        if not self._seen.isdisjoint(values):
            return False
        self._seen |= values
        return True


def document_values(document: Mapping[str, Any] | list[Any], field: str) -> set[Hashable]:
    """Return the values of a field in a document, or in parts of one, as merged lists compare them.

    Strings and booleans in normal form, numbers as written: 1 and 1.0 differ. Elements of an array are values, elements
    of nested arrays are not.
    """
    return {normal_form(value) if isinstance(value, str) else ("true" if value else "false") if isinstance(value, bool)
            else (repr(value), type(value)) for value in values_at(document, field)}


def values_at(document: Any, field: str) -> Iterator[str | int | float]:
    """Yield the strings, booleans and numbers of a field in a document, or in parts of one; those in an array, too."""
    for leaf in _leaves(document, field):
        for value in leaf if isinstance(leaf, list) else [leaf]:
            if isinstance(value, (str, int, float)):
                yield value


def _leaves(value: Any, field: str, name: str = "") -> Iterator[Any]:
    """Yield the values at a dotted path, through objects and arrays of objects."""
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element, field, name)
    elif isinstance(value, dict):
        for member, inner in value.items():
            path = f"{name}.{member}" if name else member
            if path == field:
                yield inner
            elif is_beneath(field, path):
                yield from _leaves(inner, field, path)
