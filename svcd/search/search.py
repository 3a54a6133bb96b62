"""Run a search of one query: rank the documents that its page needs, render the hits, count facets (docs/search.md).

The module also decides whether a query is ranked by words, by vectors or by both, runs facet searches, and finds similar
documents. Documents stay JSON texts, and are not parsed unless parts of them are requested (docs/search.md#members-of-a-hit).
"""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import repeat
from operator import attrgetter, contains
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from svcd.base import tracing
from svcd.base.docids import EMPTY, DocIds
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps, loads
from svcd.facets.distribution import check_facets, facets_of
from svcd.facets.value_search import FacetHit, FacetQuery, check_enabled, search_values
from svcd.query.reader import Reader
from svcd.ranking import scores
from svcd.ranking.bucket_sort import Hit, Ranking, RankingLimits
from svcd.ranking.scores import Fused, VectorSorted
from svcd.ranking.sort import sorted_from, with_distance
from svcd.schema.attributes import WILDCARD
from svcd.schema.embedder_settings import distribution_of, has_passages
from svcd.schema.ranking_rules import BM25, is_attribute_split
from svcd.search.formatting import Formatter
from svcd.search.hits import LONG_BYTES, LongPage, LongStrings, RepeatedValues, page_of_texts
from svcd.search.keyword import DistinctFilter, Found, by_position, filtered_docids, keyword_search, placed, split_pins, terms_of
from svcd.search.matches import MatchFinder
from svcd.search.request import (
    Embed, Federation, FormattingBudget, IndexedQuery, Reranking, SearchQuery, SearchResult, no_embedding,
)
from svcd.search.shown_vectors import VECTORS_MEMBER, average_bytes, with_or_without_vectors
from svcd.vectors.vector import similarity

if TYPE_CHECKING:
    from svcd.search.semantic import QueryTarget

__all__ = ["FacetHit", "FacetQuery", "Federation", "IndexedQuery", "SearchQuery", "SearchResult", "facet_search", "search"]

DEFAULT_CUTOFF_MS = 1500
# Formatting ends after this share of the time limit. Writing the response also takes time: a third of a second for 20 MB of text.
_FORMATTING_PERCENT = 75

# A page up to this size, in bytes of documents, is rendered at once; a longer one in portions.
MAX_PAGE_BYTES = 1 << 18

LOCAL = tracing.span("execute local search")
# Starts a clock for a number of milliseconds; returns a predicate: whether the time has passed.
Timer = Callable[[int], Callable[[], bool]]

T = TypeVar("T")
_docid_of = attrgetter("docid")


class Kind(Enum):
    """The kind of a search: by words, by vectors, or by both (docs/search.md#kinds-of-search)."""

    KEYWORD = "keyword"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


def kind_of(query: SearchQuery) -> Kind:
    """Return the kind of a search. Raises missing_search_hybrid, invalid_search_media_and_vector."""
    if query.media is not None and query.vector is not None:
        raise ApiError("invalid_search_media_and_vector", "Invalid request: both `media` and `vector` parameters are present.")
    if query.hybrid is None:
        if query.media is not None or query.vector is not None:
            raise ApiError("missing_search_hybrid",
                           "Invalid request: missing `hybrid` parameter when `vector` or `media` are present.")
        return Kind.KEYWORD
    if query.hybrid.ratio == 0 or query.q is None and query.vector is None and query.media is None:
        return Kind.KEYWORD
    return Kind.SEMANTIC if query.hybrid.ratio == 1 or query.q is None else Kind.HYBRID


class Search:
    """A query on one index, with its kind. The constructor raises as kind_of() and QueryTarget() do."""

    def __init__(self, reader: Reader, query: SearchQuery, embed: Embed) -> None:
        self._reader = reader
        self._query = query
        self.kind = kind_of(query)
        self._target: QueryTarget | None = None  # the vector to compare documents with; None for a search by words
        if query.hybrid is not None and self.kind is not Kind.KEYWORD:
            from svcd.search.semantic import QueryTarget  # not loaded for a first search (svcd.cli.serving)

            self._target = QueryTarget(reader, query, query.hybrid, embed)

    def run(self, limits: RankingLimits, expired: Callable[[], bool], index_uid: str) -> Found:
        """Rank the documents. Raises vector_embedding_error, and the codes of search parameters, whose messages begin with the
        index."""
        # Embedding stays outside the `try`: its error does not name the index. A hybrid search ignores that error.
        target = self._target.get(is_needed=True) if self._target is not None and self.kind is Kind.SEMANTIC else None
        try:
            if self._target is None:
                return keyword_search(self._reader, self._query, limits, expired)
            from svcd.search.semantic import hybrid_search, semantic_search

            if target is not None:
                return semantic_search(self._reader, self._query, target, limits, expired)
            return hybrid_search(self._reader, self._query, self._target, limits, expired)
        except ApiError as error:
            raise error.inside(f"Index `{index_uid}`") from None


def search(readers: Mapping[str, Reader], queries: Sequence[IndexedQuery], federation: Federation, timer: Timer,
           embed: Embed = no_embedding, reranking: Reranking | None = None) -> SearchResult:
    """Run one query, and return the requested page.

    readers: index uid -> reader, for the index of the query; queries: exactly one; embed: makes vectors of queries; reranking:
    orders the hits of the page. Raises the codes of search parameters, with messages that begin with the index, and
    invalid_search_facets.
    """
    (indexed,) = queries
    reader, query = readers[indexed.index_uid], indexed.query
    expired, budget = start_clocks(reader, timer)
    with LOCAL:
        wanted = Search(reader, query, embed)
        # Ranking skips rules for a bucket of one document if nothing depends on them. Scores, a threshold and vectors do; so
        # do matched words, which the rules derive. With proximity by attribute, the order of later buckets does.
        is_order_enough = reranking is None and wanted.kind is Kind.KEYWORD and not (
            query.show_ranking_score or query.show_ranking_score_details or query.ranking_score_threshold is not None
            or reader.settings.is_proximity_by_attribute or shows_matches(query))
        found = wanted.run(ranking_limits(reader, query, federation, is_order_enough), expired, indexed.index_uid)
        hits: Sequence[Hit] = found.ranking.hits
        counted = found.ranking.counted
        pins: Sequence[tuple[int, Hit]] = ()
        if query.rules is not None:
            hits, pins = split_pins(hits)
        if query.distinct is not None:
            hits, rejected = split_distinct(reader, query.distinct, hits)
            counted -= DocIds([hit.docid for hit in rejected])
    first, end = federation.window
    patterns = federation.facets.get(indexed.index_uid)
    if reranking is not None:
        check_facets(reader.settings, patterns or ())  # before svcd calls the service that orders the hits

        def documents(some: Sequence[Hit]) -> list[str]:
            shown = [federation_member(indexed.index_uid, 0, scores.score(hit.details)) for hit in some]
            return plain_documents(reader, query, found, some, shown if reranking.shows_source else ())

        hits = reranked(hits, federation.window, reranking, documents)
    with LOCAL:
        if pins:
            hits = placed(hits, by_position(pins), end)
        ranked = hits[first:end]
        page = paged(reader, query, found, ranked, budget)
        return SearchResult(page, federation.pagination(len(counted)),
                            {} if patterns is None else {indexed.index_uid: facets_of(reader, patterns, counted)},
                            count_semantic(ranked) if found.is_semantic else None,
                            {0: found.vector} if query.retrieve_vectors and found.vector is not None else {}, ranked)


def count_semantic(hits: Iterable[Hit]) -> int:
    """Count the hits that were found by their vectors."""
    return sum(any(isinstance(detail, VectorSorted) or isinstance(detail, Fused) and detail.has_vector for detail in hit.details)
               for hit in hits)


def cutoff_ms(reader: Reader) -> int:
    """Return the time limit of a search of this index in milliseconds (docs/search.md#time-limit)."""
    cutoff = reader.settings.search_cutoff_ms
    return DEFAULT_CUTOFF_MS if cutoff is None else cutoff


def start_clocks(reader: Reader, timer: Timer) -> tuple[Callable[[], bool], FormattingBudget]:
    """Start the clocks of a search; return (a predicate: whether its time has passed, the budget for formatting, which ends
    earlier)."""
    cutoff = cutoff_ms(reader)
    return timer(cutoff), FormattingBudget(timer(cutoff * _FORMATTING_PERCENT // 100))


def required_hits(reader: Reader, federation: Federation) -> int:
    """Return the number of hits of an index that the page needs: up to its end, at most maxTotalHits."""
    return min(federation.window[1], reader.settings.max_total_hits)


def ranking_limits(reader: Reader, query: SearchQuery, federation: Federation, order_only: bool = False) -> RankingLimits:
    """Return how far the documents of one query must be ranked for the page."""
    most = reader.settings.max_total_hits
    required, threshold = min(federation.window[1], most), query.ranking_score_threshold
    # The exact total of a page-numbered request needs all scores for the threshold, up to maxTotalHits hits.
    to_the_end = federation.is_paged and threshold is not None and required < most
    return RankingLimits(required, threshold, to_the_end, order_only, federation.is_paged)


def split_distinct(reader: Reader, field: str, hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """Split hits into (the hits that share no value of the field with an earlier hit, the rest)."""
    texts = reader.documents([hit.docid for hit in hits])
    distinct = DistinctFilter(field)
    kept: list[Hit] = []
    rejected: list[Hit] = []
    for hit, text in zip(hits, texts):
        (kept if distinct.accepts(loads(text)) else rejected).append(hit)
    return kept, rejected


# Facet search (docs/search.md#facet-search-over-a-query)


def facet_search(reader: Reader, facet: FacetQuery, query: SearchQuery, is_exhaustive: bool, timer: Timer) -> list[FacetHit]:
    """Return the values that a facet query matches, with their counts over the documents of an ordinary query.

    is_exhaustive: apply `distinct` to all documents, not only to the first page. A search by vectors counts all
    documents of the filter, and needs no vector. Raises facet_search_disabled, invalid_facet_search_facet_name and the codes of
    search parameters.
    """
    kind = Search(reader, query, no_embedding).kind
    check_enabled(reader.settings)
    # The search runs first: its errors come before errors about the facet name.
    if kind is not Kind.KEYWORD:
        return search_values(reader, facet, filtered_docids(reader, query))
    has_threshold = query.ranking_score_threshold is not None
    if has_threshold or reader.settings.distinct_attribute is not None:
        # Page 0 is empty, but has an exact total.
        federation = Federation(page=0) if is_exhaustive else Federation()
        limits = ranking_limits(reader, query, federation, order_only=not has_threshold)
    else:
        limits = RankingLimits(0)  # ranking excludes no document from the count
    result = keyword_search(reader, query, limits, timer(cutoff_ms(reader)))
    return search_values(reader, facet, result.ranking.counted)


# Pages of hits


def render_hits(reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit], budget: FormattingBudget,
                long_strings: LongStrings, extra_members: Sequence[str] = ()) -> Sequence[str]:
    """Return the JSON texts of hits.

    budget: for the page that contains the hits. long_strings: receives the strings of the hits that are replaced by
    placeholders. extra_members: for each hit, members to insert after the members of its document, as text; () for none.
    """
    tracing.begin("format")
    docids = list(map(_docid_of, hits))
    texts: Sequence[str] = [document.decode() if len(document) < LONG_BYTES else long_strings.extract(document)
                            for document in reader.documents_utf8(docids)]
    members = [extra_members] if extra_members else []
    retrieved, settings = query.attributes_to_retrieve, reader.settings
    retrieves_all = retrieved is None or WILDCARD in retrieved
    if not (retrieves_all and settings.is_everything_displayed) or shows_matches(query):
        budget.renew()
        texts, formatted = _formatted(reader, query, found, texts, budget, long_strings)
        members.append(formatted)
    if query.retrieve_vectors or any(map(contains, texts, repeat(VECTORS_MEMBER))):
        texts = with_or_without_vectors(reader, query.retrieve_vectors, docids, texts)
    if query.sort and (origin := sorted_from(query.sort)):
        texts = [with_distance(text, origin) for text in texts]
    if query.show_ranking_score or query.show_ranking_score_details:
        members.append(_scores(reader, query, found, hits))
    if found.vector is not None and query.hybrid is not None and has_passages(settings.embedders[query.hybrid.embedder]):
        from svcd.search.matched_passages import matched_passages  # few indexes have passages

        members.append(matched_passages(reader, query.hybrid.embedder, found.vector, docids))
    if not members:
        return texts
    return ["{" + ",".join(filter(None, (text[1:-1], *extra))) + "}" for text, *extra in zip(texts, *members)]


def shows_matches(query: SearchQuery) -> bool:
    """Return whether the answer depends on the words that matched (highlight, crop, match positions)."""
    return bool(query.attributes_to_highlight or query.attributes_to_crop or query.show_matches_position)


def _formatted(reader: Reader, query: SearchQuery, found: Found, texts: Sequence[str], budget: FormattingBudget,
               long_strings: LongStrings) -> tuple[Sequence[str], Sequence[str]]:
    """Return (the requested parts of the documents, their `_formatted` and `_matchesPosition` members), as texts."""
    settings = reader.settings
    words = found.matching_words() if shows_matches(query) else MatchFinder()
    formatter = Formatter(query, fields=reader.fields(), displayed=settings.displayed_attributes, analyzer=settings.analyzer,
                          locales_of=settings.locales_of, words=words, budget=budget, long_strings=long_strings)
    documents, members = [], []
    for text in texts:
        hit = formatter.hit(loads(text))
        extra = {"_formatted": hit.formatted, "_matchesPosition": hit.matches_position}
        documents.append(text if formatter.retrieves_all else dumps(hit.document))
        members.append(dumps({name: value for name, value in extra.items() if value is not None})[1:-1])
    return documents, members


def _scores(reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit]) -> list[str]:
    """Return the score members of each hit, as text, computed once for hits with equal details."""
    settings = reader.settings
    known: dict[tuple[scores.Detail, ...], str] = {}
    texts = []
    for hit in hits:
        if hit.details in known:
            texts.append(known[hit.details])
            continue
        members: dict[str, Any] = {}
        if query.show_ranking_score:
            members["_rankingScore"] = scores.score(hit.details)
        if query.show_ranking_score_details:
            members["_rankingScoreDetails"] = scores.score_details(
                hit.details, is_attribute_split(settings.ranking_rules),
                lambda field: not settings.is_everything_displayed and field not in settings.displayed_attributes)
            if found.scorer is not None and BM25 in members["_rankingScoreDetails"]:
                # These parts may differ between documents with equal scores.
                members["_rankingScoreDetails"][BM25]["words"] = found.scorer.parts(hit.docid)
                texts.append(dumps(members)[1:-1])
                continue
        known[hit.details] = dumps(members)[1:-1]
        texts.append(known[hit.details])
    return texts


# Reranking (docs/personalization.md)


def reranked(hits: Sequence[T], window: tuple[int, int], reranking: Reranking,
             documents: Callable[[Sequence[T]], Sequence[str]]) -> list[T]:
    """Return the hits up to the end of the page, with the hits of the page in the order for the user.

    window: (first, end) of the page. documents: makes the JSON texts of hits, as plain_documents().
    """
    first, end = window
    page = hits[first:end]
    with tracing.span("merge results"), tracing.span("personalization"):
        with tracing.recording(None):
            texts = documents(page)
        return [*hits[:first], *(page[position] for position in reranking.order(texts))]


def plain_documents(reader: Reader, query: SearchQuery, found: Found, hits: Sequence[Hit],
                    extra_members: Sequence[str] = ()) -> list[str]:
    """Return the JSON texts of hits with extra_members, but without formatted parts and scores."""
    plain = query._replace(attributes_to_highlight=None, attributes_to_crop=None, show_matches_position=False,
                           show_ranking_score=False, show_ranking_score_details=False)
    long_strings = LongStrings()
    texts = render_hits(reader, plain, found, hits, FormattingBudget(), long_strings, extra_members)
    return list(map(long_strings.restored, texts))


def federation_member(index_uid: str, position: int, weighted_score: float) -> str:
    """Return the member `_federation`, as text: index, query and weighted score of a hit."""
    member = {"indexUid": index_uid, "queriesPosition": position, "weightedRankingScore": weighted_score}
    return dumps({"_federation": member})[1:-1]


def average_hit_size(reader: Reader, query: SearchQuery) -> int:
    """Return about how many bytes a hit has."""
    return reader.average_document_size() + (average_bytes(reader) if query.retrieve_vectors else 0)


def paged(reader: Reader, query: SearchQuery, result: Found, hits: Sequence[Hit], budget: FormattingBudget) -> Sequence[str]:
    """Return the JSON texts of the hits of a page, as a LongPage if they are many or long. budget: for the page."""
    long_strings = LongStrings()
    size = average_hit_size(reader, query) if len(hits) > 1 else 0
    if len(hits) * size <= MAX_PAGE_BYTES:
        texts = render_hits(reader, query, result, hits, budget, long_strings)
        return page_of_texts(texts, long_strings) if long_strings else texts
    needs_details = query.show_ranking_score or query.show_ranking_score_details
    docids = array("I", (hit.docid for hit in hits))
    details = RepeatedValues([hit.details if needs_details else () for hit in hits])
    without_ranking = without_ranking_hits(result)

    def render_between(first: int, end: int) -> Sequence[str]:
        long_strings.clear()
        some = [Hit(docids[place], details[place]) for place in range(first, end)]
        return render_hits(reader, query, without_ranking, some, budget, long_strings)

    return LongPage(len(hits), size, render_between, long_strings)


def without_ranking_hits(result: Found) -> Found:
    """Return the result without its list of hits (150 bytes each), which rendering does not need."""
    return result._replace(ranking=Ranking(EMPTY))


# Similar documents


class SimilarQuery(NamedTuple):
    """A request for documents similar to one document by the vectors of an embedder, from `offset` on."""

    docid: int
    embedder: str
    offset: int = 0
    limit: int = 20
    threshold: float | None = None


def similar_documents(reader: Reader, query: SimilarQuery, candidates: DocIds) -> Ranking:
    """Return the most similar candidates; the ranking counts all candidates, or those down to the threshold.

    candidates: the documents of the filter. The document itself is not among the hits. Candidates without vectors count, but are
    not hits.
    """
    universe = candidates - DocIds([query.docid])
    shift = distribution_of(reader.settings.embedders[query.embedder])
    own = dict(reader.vectors.document_vectors([query.docid], query.embedder)).get(query.docid)
    dimensions = reader.vectors.dimensions(query.embedder)
    most = query.offset + query.limit
    nearest = [each for vector in (own.vectors if own is not None else ()) if len(vector) == dimensions  # else they are outdated
               for each in _nearest_documents(reader, query.embedder, vector, universe, most + 1)]
    hits: list[Hit] = []
    seen: dict[int, None] = {}  # a document may be near to several vectors
    for distance, docid in sorted(nearest):
        if len(seen) == most:
            break
        if docid in seen:
            continue
        score = VectorSorted(similarity(distance, shift))
        if len(seen) >= query.offset:
            if query.threshold is not None and score.score < query.threshold:
                return Ranking(DocIds(list(seen)), hits)
            hits.append(Hit(docid, (score,)))
        seen[docid] = None
    return Ranking(universe, hits)


def _nearest_documents(reader: Reader, embedder: str, vector: array[float], universe: DocIds, count: int
                       ) -> list[tuple[float, int]]:
    found = list(reader.vectors.nearest(embedder, vector, universe, count))
    while has_passages(reader.settings.embedders[embedder]) and len(found) < count:  # several may be of one document
        more = reader.vectors.nearest(embedder, vector, universe - DocIds([docid for _, docid in found]), count)
        if not more:
            break
        found += more
    return found


def render_similar(reader: Reader, shown: SearchQuery, ranking: Ranking) -> Sequence[str]:
    """Return the JSON texts of the hits, as a LongPage if they are many or long. shown: the options of rendering."""
    return paged(reader, shown, Found(ranking, terms_of(reader, None), []), ranking.hits, FormattingBudget())
