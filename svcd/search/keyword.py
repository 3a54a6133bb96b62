"""One query on one index: from its text to ranked documents and the words that found them.

Steps: filter, parse, build the query graph, universe, ranking rules, bucket sort (docs/ranking.md).
"""
from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

from svcd.base import tracing
from svcd.base.bitmaps import DocIds
from svcd.base.errors import ApiError
from svcd.filters.requests import filter_docids
from svcd.query.graph import BuiltQuery, Graph, MatchingStrategy, build_graph, universe
from svcd.query.parser import ParsedQuery, parse_text
from svcd.query.postings import Postings
from svcd.query.reader import Reader
from svcd.query.terms import Term, Terms
from svcd.ranking.bucket_sort import Ranking, RankingLimits, chain, rank
from svcd.ranking.distinct import Distinct
from svcd.ranking.rule import RankingContext
from svcd.ranking.sort import SortError, check_sortable, parse_rule
from svcd.schema import attributes
from svcd.schema.index_settings import IndexSettings
from svcd.search.distinct import distinct_field
from svcd.search.matches import LocatedTerm, MatchFinder
from svcd.search.request import SearchQuery


class KeywordResult(NamedTuple):
    """The ranked documents of a query. terms, located: its terms with their derivations and positions in the query."""

    ranking: Ranking
    terms: Terms
    located: Sequence[tuple[Term, int, int]]

    def matching_words(self) -> MatchFinder:
        """The words that highlighting marks: those derived during ranking (docs/search.md#matched-words)."""
        return MatchFinder([_located_term(self.terms, *place) for place in self.located])


def keyword_search(
    reader: Reader,
    query: SearchQuery,
    limits: RankingLimits,
    expired: Callable[[], bool],
    candidates: DocIds | None = None,
) -> KeywordResult:
    """Rank the documents of one index.

    limits: how far to rank; expired: has the time limit passed? candidates: restricts the search to these, None for all.
    Raises invalid_search_filter, invalid_search_sort for a field that is not sortable, invalid_search_distinct for one that
    is not filterable, invalid_search_attributes_to_search_on for one that is not searchable.
    """
    settings = reader.settings
    restricted = restricted_fields(reader, query.attributes_to_search_on)
    field = distinct_field(reader, query.distinct)
    if query.filter is not None:
        tracing.begin("evaluate filter")
    docids = filter_docids(reader, query.filter, "invalid_search_filter", is_rewritten=True)
    tracing.end()
    _check_sort(settings, query.sort or ())
    tracing.begin("tokenize query")
    terms = Terms(Postings(reader, restricted), settings.typo_tolerance, settings.synonyms)
    locales = locales_of(reader, query, restricted)
    parsed = parse_text(query.q or "", settings.analyzer, locales, settings.has_prefix_search)
    tracing.begin("evaluate query")
    context = RankingContext(terms, MatchingStrategy(query.matching_strategy))
    if candidates is not None:
        docids &= candidates
    docids &= ~_excluded(terms.postings, parsed)
    built = build_graph(terms, parsed) if parsed.parts else BuiltQuery(Graph([None, None], [[], []]), [])
    if parsed.parts:
        docids = universe(built.graph, terms, context.strategy, docids)
    rules = chain(context, settings.ranking_rules, query.sort or (), bool(parsed.parts))
    tracing.begin("keyword ranking" if parsed.parts else "placeholder ranking")
    ranking = rank(rules, built.graph, docids, limits, expired, None if field is None else Distinct(reader, field))
    tracing.end()
    return KeywordResult(ranking, terms, built.located)


def _excluded(postings: Postings, parsed: ParsedQuery) -> DocIds:
    """The documents that the negated words and phrases of the query exclude."""
    docids = 0
    for word in parsed.negative_words:
        docids |= postings.original(word)
    for phrase in parsed.negative_phrases:
        docids |= postings.phrase(phrase)
    return docids


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
    searchable = _searchable_fields(reader)
    fields: dict[str, None] = {}
    for name in names:
        fields.update(dict.fromkeys(_fields_named(reader, name, searchable)))
    return None if attributes.WILDCARD in names else list(fields)


def _fields_named(reader: Reader, name: str, searchable: Sequence[str]) -> list[str]:
    if name == attributes.WILDCARD:
        return []
    matching = [field for field in searchable if field == name]
    if not matching and attributes.WILDCARD in name:
        matching = [field for field in searchable if attributes.matches(field, name)]
    listed = reader.settings.searchable
    if not matching and not listed.is_everything and not listed.names(name):
        raise _not_searchable(reader.settings, name, searchable)
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
