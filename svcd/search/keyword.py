"""Runs one query on one index by its words: from its text to ranked documents, with the words that found them.

Steps: filter, tokens, query graph, universe, ranking rules, bucket sort (docs/ranking.md). What a search by vectors has in common
with it is here, too: the scope of a search, the attributes and languages of a query, and its distinct attribute.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base import tracing
from svcd.base.docids import DocIds, union_of
from svcd.base.errors import ApiError
from svcd.filters.evaluation import filter_docids
from svcd.query.graph import BuiltQuery, Graph, MatchingStrategy, build_graph, universe
from svcd.query.parser import ParsedQuery, parse_text
from svcd.query.postings import Postings
from svcd.query.reader import Reader
from svcd.query.terms import Term, Terms
from svcd.ranking.bucket_sort import Hit, Ranking, RankingLimits, chain, rank
from svcd.ranking.distinct import Distinct
from svcd.ranking.rule import RankingContext
from svcd.ranking.sort import SortError, check_sortable, parse_rule
from svcd.schema import attributes
from svcd.schema.attributes import attribute_list, is_beneath
from svcd.schema.field_values import normal_form
from svcd.schema.index_settings import IndexSettings
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.request import SearchQuery

_NONE_FILTERABLE = "This index does not have configured filterable attributes."


class Found(NamedTuple):
    """The ranked documents of a query.

    terms: its terms with their derivations. located: (term, first position, last position) of each term in the query.
    is_semantic: was it a search by vectors, or might it have been? vector: that of the query, None if none was needed.
    """

    ranking: Ranking
    terms: Terms
    located: Sequence[tuple[Term, int, int]]
    is_semantic: bool = False
    vector: array[float] | None = None

    def matching_words(self) -> MatchFinder:
        """The words that highlighting marks: those derived during ranking (docs/search.md#matched-words)."""
        return MatchFinder([_located_term(self.terms, *place) for place in self.located])


class Scope(NamedTuple):
    """What a query searches: the documents that its filter leaves, and what its rules share. distinct: None without."""

    reader: Reader
    query: SearchQuery
    docids: DocIds
    distinct: Distinct | None
    restricted: Sequence[str] | None
    context: RankingContext

    def parse(self) -> ParsedQuery:
        """The words and phrases of the query."""
        settings = self.reader.settings
        locales = locales_of(self.reader, self.query, self.restricted)
        return parse_text(self.query.q or "", settings.analyzer, locales, settings.has_prefix_search)

    def pins(self, parsed: ParsedQuery) -> Sequence[tuple[int, Hit]]:
        """The hits that search rules pin, with their positions, as the rules name them."""
        rules = self.query.rules
        if rules is None:
            return ()
        from svcd.search.pins import pinned_hit  # imported late: most instances have no search rules

        found = rules.pins(self.reader, parsed, self.query.filter, self.docids)
        return [(position, pinned_hit(docid, position)) for position, docid in found]

    def excluded(self, parsed: ParsedQuery) -> DocIds:
        """The documents that the negated words and phrases of the query exclude."""
        postings = self.context.postings
        return union_of([*map(postings.original, parsed.negative_words), *map(postings.phrase, parsed.negative_phrases)])


def scope_of(reader: Reader, query: SearchQuery) -> Scope:
    """The scope of a search of one index.

    Raises invalid_search_filter, invalid_search_sort for a field that is not sortable, invalid_search_distinct for one that
    is not filterable, invalid_search_attributes_to_search_on for one that is not searchable.
    """
    settings = reader.settings
    restricted = restricted_fields(reader, query.attributes_to_search_on)
    field = distinct_field(reader, query.distinct)
    docids = filtered_docids(reader, query)
    _check_sort(settings, query.sort or ())
    context = RankingContext(terms_of(reader, restricted), MatchingStrategy(query.matching_strategy))
    return Scope(reader, query, docids, None if field is None else Distinct(reader, field), restricted, context)


def terms_of(reader: Reader, restricted: Sequence[str] | None) -> Terms:
    """The terms of one query, none yet. restricted: the fields that it searches, None for all."""
    return Terms(Postings(reader, restricted), reader.settings.typo_tolerance, reader.settings.synonyms)


def filtered_docids(reader: Reader, query: SearchQuery) -> DocIds:
    """The documents that the filter of a query leaves. Raises invalid_search_filter."""
    if query.filter is None:
        return reader.all_docids()
    tracing.begin("evaluate filter")
    docids = filter_docids(reader, query.filter, "invalid_search_filter", is_rewritten=True)
    tracing.end()
    return docids


def keyword_search(reader: Reader, query: SearchQuery, limits: RankingLimits, expired: Callable[[], bool]) -> Found:
    """Rank the documents of one index by the words of a query.

    limits: how far to rank; expired: has the time limit passed? Raises as scope_of() does.
    """
    scope = scope_of(reader, query)
    tracing.begin("tokenize query")
    parsed = scope.parse()
    return rank_by_words(scope, parsed, limits, expired, scope.pins(parsed))


def rank_by_words(scope: Scope, parsed: ParsedQuery, limits: RankingLimits, expired: Callable[[], bool],
                  pins: Sequence[tuple[int, Hit]] = ()) -> Found:
    """Rank the documents of a scope by the words of its query; of a query without words by the rules that sort.

    pins: with their positions; they take their places, whatever the words and the ranking rules say.
    """
    tracing.begin("evaluate query")
    context, settings = scope.context, scope.reader.settings
    docids = without_pins(scope.docids, pins) - scope.excluded(parsed)
    built = build_graph(context.terms, parsed) if parsed.parts else BuiltQuery(empty_graph(), [])
    if parsed.parts:
        docids = universe(built.graph, context.terms, context.strategy, docids)
    rules = chain(context, settings.ranking_rules, scope.query.sort or (), bool(parsed.parts))
    tracing.begin("keyword ranking" if parsed.parts else "placeholder ranking")
    ranking = rank(rules, built.graph, docids, limits, expired, scope.distinct)
    tracing.end()
    return Found(among_pins(ranking, pins, limits), context.terms, built.located)


def without_pins(docids: DocIds, pins: Sequence[tuple[int, Hit]]) -> DocIds:
    """Documents without the pinned ones."""
    return docids - DocIds([hit.docid for _, hit in pins]) if pins else docids


def among_pins(ranking: Ranking, pins: Sequence[tuple[int, Hit]], limits: RankingLimits) -> Ranking:
    """A ranking of documents that are not pinned, with the pins in their places."""
    if not pins:
        return ranking
    from svcd.search.pins import with_pins

    return with_pins(ranking, pins, limits.hits)


def empty_graph() -> Graph:
    """The graph of a query without words."""
    return Graph([None, None], [[], []])


def _located_term(terms: Terms, term: Term, start: int, end: int) -> LocatedTerm:
    words = [] if term.exact is None else [term.exact]
    words += [*term.prefix_words, *term.typos.one, *term.typos.two]
    phrases = [phrase for phrase in (term.phrase, *term.synonyms, term.split) if phrase is not None]
    return LocatedTerm((start, end), term.is_prefix, len(term.word), terms.interner.ordered(words), phrases)


# Attributes and languages


def _searchable_fields(reader: Reader) -> list[str]:
    searchable = reader.settings.searchable
    return [field for field in reader.terms.indexed_fields() if field in searchable]


def restricted_fields(reader: Reader, names: Sequence[str] | None) -> list[str] | None:
    """The fields that attributesToSearchOn selects, None for all (docs/search.md#searched-attributes).

    Raises invalid_search_attributes_to_search_on.
    """
    if names is None:
        return None
    searchable = dict.fromkeys(_searchable_fields(reader))
    fields: dict[str, None] = {}
    for name in dict.fromkeys(names):
        fields.update(dict.fromkeys(_fields_named(reader, name, searchable)))
    return None if attributes.WILDCARD in names else list(fields)


def _fields_named(reader: Reader, name: str, searchable: Mapping[str, None]) -> list[str]:
    if name == attributes.WILDCARD:
        return []
    matching = [name] if name in searchable else []
    if not matching and attributes.WILDCARD in name:
        matching = [field for field in searchable if attributes.matches(field, name)]
    listed = reader.settings.searchable
    if not matching and not listed.is_everything and not listed.names(name):
        raise _not_searchable(reader.settings, name, list(searchable))
    return matching


def _check_sort(settings: IndexSettings, sort: Sequence[str]) -> None:
    """Raises invalid_search_sort for sort expressions that the settings do not allow."""
    if not sort:
        return
    if "sort" not in settings.ranking_rules:
        raise ApiError("invalid_search_sort", "You must specify where `sort` is listed in the rankingRules setting "
                                              "to use the sort parameter at search time.")
    try:
        check_sortable(map(parse_rule, sort), settings.sortable_attributes, settings.displayed_attributes)
    except SortError as error:
        raise ApiError("invalid_search_sort", str(error)) from None


def _not_searchable(settings: IndexSettings, name: str, searchable: Sequence[str]) -> ApiError:
    message = (
        f"Attribute `{name}` is not searchable."
        f" Available searchable attributes are: `{attributes.attribute_list(searchable, settings.displayed_attributes)}`."
    )
    return ApiError("invalid_search_attributes_to_search_on", message)


def locales_of(reader: Reader, query: SearchQuery, restricted: Sequence[str] | None) -> list[str] | None:
    """The languages of the query: those of the request, else those of the searched fields; None for any."""
    if query.locales or not reader.settings.localized_attributes:
        return list(query.locales or ()) or None
    of_field = reader.settings.locales_of
    fields = _searchable_fields(reader) if restricted is None else restricted
    return list(dict.fromkeys(locale for field in fields for locale in of_field(field) or ())) or None


# The distinct attribute of a search, and distinct among merged hits (docs/search.md#distinct-by-document-values). Distinct among
# the documents of one index is part of ranking: svcd.ranking.distinct.


def distinct_field(reader: Reader, requested: str | None) -> str | None:
    """The distinct field of a search: that of the request, else of the setting; None if no document has it.

    Raises invalid_search_distinct if the requested field is not filterable.
    """
    if requested is None:
        field = reader.settings.distinct_attribute
    else:
        _check_filterable(reader.settings, requested)
        field = requested
    return field if field is not None and field in reader.fields() else None


def _check_filterable(settings: IndexSettings, field: str) -> None:
    if field not in settings.filterable:
        reason = _why_not(settings, field)
        raise ApiError("invalid_search_distinct",
                       f"Attribute `{field}` is not filterable and thus, cannot be used as distinct attribute. {reason}")


def _why_not(settings: IndexSettings, field: str) -> str:
    rule = settings.filterable.rule(field)
    if rule is not None:
        return (
            f"Note: this attribute matches rule #{rule.number} in filterableAttributes, "
            "but this rule does not enable filtering.\n"
            f"Hint: enable filtering in rule #{rule.number} by adding appropriate filter features.\n"
            f"Hint: prepend another rule matching {field} with filter features before rule #{rule.number}"
        )
    patterns = settings.filterable.patterns()
    if not patterns:
        return _NONE_FILTERABLE
    return f"Available filterable attributes patterns are: `{attribute_list(patterns, settings.displayed_attributes)}`."


class DistinctFilter:
    """Accepts documents that share no value of a field with an earlier accepted one."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._seen: set[Hashable] = set()

    def accepts(self, document: Mapping[str, Any] | list[Any]) -> bool:
        """Is a document, or one in parts, accepted? If so, its values count as seen. One without values is always accepted."""
        values = document_values(document, self._field)
        if not self._seen.isdisjoint(values):
            return False
        self._seen |= values
        return True


def document_values(document: Mapping[str, Any] | list[Any], field: str) -> set[Hashable]:
    """The values of a field in a document, or in parts of one, as merged lists compare them.

    Strings and booleans in normal form, numbers as written: 1 and 1.0 differ. Elements of an array are values, elements
    of nested arrays are not.
    """
    return set(map(_key, values_at(document, field)))


def values_at(document: Any, field: str) -> Iterator[str | int | float]:
    """The strings, booleans and numbers of a field in a document, or in parts of one; those in an array, too."""
    for leaf in _leaves(document, field):
        for value in leaf if isinstance(leaf, list) else [leaf]:
            if isinstance(value, (str, int, float)):
                yield value


def _leaves(value: Any, field: str, name: str = "") -> Iterator[Any]:
    """The values at a dotted path, through objects and arrays of objects."""
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


def _key(value: str | int | float) -> Hashable:
    if isinstance(value, str):
        return normal_form(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value), type(value)
