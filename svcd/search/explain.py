"""Explain one document in a search: its place with the reasons, or the first cause that keeps it off the page.

The search itself ranks, and its own parts are asked what they did with the document, stage by stage in the order of a search:
filter, words, threshold, distinct, time limit, page (docs/guide/explain.md). svcd.search.word_causes explains the stage of words.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from svcd.base.docids import EMPTY, DocIds
from svcd.base.errors import ApiError
from svcd.base.json_text import loads
from svcd.filters.evaluation import filter_docids
from svcd.filters.tree import And, Comparison, Condition, In, canonical_text, in_order
from svcd.query.graph import Graph
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Details, Hit, Ranking, RankingLimits, follow, rank
from svcd.ranking.distinct import Distinct
from svcd.ranking.rule import Rule
from svcd.ranking.scores import Pinned, Skipped, score, score_details
from svcd.schema.ranking_rules import BM25, is_attribute_split
from svcd.search.keyword import Found, by_position, empty_graph, placed, rank_by_words, scope_of, split_pins, values_at
from svcd.search.request import Embed, Federation, IndexedQuery
from svcd.search.search import Kind, Search, Timer, cutoff_ms, ranking_limits, search, split_distinct
from svcd.search.word_causes import OwnWords, WordSearch, is_shown, matched_words, missing_cause

# A place beyond the page is counted for this time, in milliseconds; then it is unknown.
_COUNTING_MS = 15
# BM25 scores all documents to count the better ones: above this number the place is unknown.
_MOST_SCORED = 10_000
# Documents that share values of the distinct attribute, also through each other, are ranked together up to this number.
_MOST_LINKED = 1000

# Name of a rule in score details -> the documents it prefers.
_PREFERS = {
    "words": "more words of the query",
    "typo": "fewer typos",
    "proximity": "words of the query nearer to each other",
    "attribute": "words in an attribute that is listed earlier, or nearer to its beginning",
    "attributeRank": "words in an attribute that is listed earlier",
    "wordPosition": "words nearer to the beginning of the attribute",
    "exactness": "more words exactly as typed, or an attribute that equals the query or begins with it",
    "bm25": "a higher BM25 score: rare words of the query, more often, in a shorter document",
    "vectorSort": "a vector nearer to the query's",
    "fusion": "better places in the lists by words and by vectors",
}


class Clause(NamedTuple):
    """A condition that every hit must meet. text: in canonical form; kind: `filter` or `tenantFilter`, the cause if it fails."""

    text: str
    condition: Condition
    kind: str


class Question(NamedTuple):
    """A document, and the search to explain it in.

    clauses: of the filter of the query. visible: the documents that the bearer may see, None for all. timer: see search();
    clock: the same for work that is not part of the search.
    """

    indexed: IndexedQuery
    federation: Federation
    docid: int
    clauses: Sequence[Clause]
    visible: DocIds | None
    timer: Timer
    clock: Timer
    embed: Embed


def clauses_of(condition: Condition | None, kind: str, resolve: Callable[[Condition], Condition]) -> Iterator[Clause]:
    """Yield the conditions that a filter joins by AND. resolve: replaces conditions on other indexes."""
    if isinstance(condition, And):
        for part in condition.parts:
            yield from clauses_of(part, kind, resolve)
    elif condition is not None:
        yield Clause(canonical_text(condition), resolve(condition), kind)


def explain(reader: Reader, question: Question) -> dict[str, Any]:
    """Return the members of the answer about the document. Raises the codes of search parameters."""
    return _Explanation(reader, question).answer()


class _Explanation:
    """A search and its intermediate results. rules, graph, universe: of the ranking by words; empty without one."""

    def __init__(self, reader: Reader, question: Question) -> None:
        self._reader = reader
        self._question = question
        self._query = question.indexed.query
        self._docid = question.docid
        self._kind = Search(reader, self._query, question.embed).kind
        try:
            self._scope = scope_of(reader, self._query)
        except ApiError as error:
            raise error.inside(f"Index `{question.indexed.index_uid}`") from None
        self._parsed = self._scope.parse()
        self._pins = self._scope.pins(self._parsed)
        self._rules: Sequence[Rule] = ()
        self._graph: Graph = empty_graph()
        self._universe = EMPTY
        self._end = min(question.federation.window[1], reader.settings.max_total_hits)
        (text,) = reader.documents([self._docid])
        self._document = loads(text)

    def answer(self) -> dict[str, Any]:
        """Ask each stage of the search, in order, until one has a cause."""
        members: dict[str, Any] = {"isHit": False, "place": None, "score": None, "rules": {}, "words": [], "next": None}
        cause = self._filter_cause()
        if cause is not None:
            return {**members, "cause": cause}
        found = self._searched_words()
        own = OwnWords(self._reader, self._document, self._docid)
        if found is not None:
            members["words"] = matched_words(found, own, self._scope.context.postings)
        if self._docid not in DocIds([hit.docid for _, hit in self._pins]):
            cause = self._excluded_cause()
            if cause is None and self._kind is Kind.KEYWORD and found is not None and self._docid not in self._universe:
                cause = missing_cause(WordSearch(self._scope, self._graph, found, self._question.clock(_COUNTING_MS)), own,
                                      self._question.visible)
            if cause is not None:
                return {**members, "cause": cause}
        hits = (self._hits_by_words(found) if found is not None and self._kind is Kind.KEYWORD else
                self._hits(self._end, self._query.ranking_score_threshold))
        place = _place(hits, self._docid)
        if place is not None:
            details, there = hits[place - 1].details, self._hit_before(hits, place)
            cause = None if place > self._question.federation.window[0] else self._page_cause(place)
        elif self._kind is Kind.KEYWORD:
            place, details, there, cause = self._outside(hits, found)
        else:
            place, details, there, cause = self._outside_by_vectors()
        return {**members, "isHit": cause is None, "place": place, "score": score(details), "rules": self._shown(details, found),
                "next": None if there is None else self._next(details, *there), "cause": cause}

    # Stages before ranking

    def _filter_cause(self) -> dict[str, Any] | None:
        """Return the clauses that the document does not meet."""
        if self._docid in self._scope.docids:
            return None
        failing: list[Clause] = []
        for clause in self._question.clauses:
            try:
                docids = filter_docids(self._reader, clause.condition, "invalid_search_filter", is_rewritten=True)
            except ApiError:  # the search, too, evaluates no further clause once no document is left
                break
            if self._docid not in docids:
                failing.append(clause)
        first = failing[0]
        fields = dict.fromkeys(condition.field.text for condition in in_order(first.condition)
                               if isinstance(condition, (Comparison, In)))
        values = {field: list(values_at(self._document, field)) for field in fields if is_shown(self._reader, field)}
        held = "".join(f"; its `{field}` is {', '.join(map(str, values[field]))}" if values[field] else f"; it has no `{field}`"
                       for field in values)
        name = "filter" if first.kind == "filter" else "filter of the tenant"
        return {"kind": first.kind, "text": f"The document does not meet the {name} `{first.text}`{held}.", "clause": first.text,
                "clauses": [clause.text for clause in failing], "values": values}

    def _searched_words(self) -> Found | None:
        """Run a search by words, for other searches only up to the ranking; None for a search by vectors alone.

        A document that does not match the words needs no ranking, either.
        """
        def ranked(rules: Sequence[Rule], graph: Graph, universe: DocIds, limits: RankingLimits, expired: Callable[[], bool],
                   distinct: Distinct | None) -> Ranking:
            self._rules, self._graph, self._universe = rules, graph, universe
            if self._kind is Kind.KEYWORD and (self._pins or self._docid in universe):
                return rank(rules, graph, universe, limits, expired, distinct)
            return Ranking(universe)

        if self._kind is Kind.SEMANTIC:
            return None
        limits = ranking_limits(self._reader, self._query, self._question.federation)._replace(hits=max(self._end, 1))
        expired = self._question.timer(cutoff_ms(self._reader))
        return rank_by_words(self._scope, self._parsed, limits, expired, self._pins, ranked)

    def _excluded_cause(self) -> dict[str, Any] | None:
        if self._kind is Kind.SEMANTIC or self._docid not in self._scope.excluded(self._parsed):
            return None
        postings, parsed = self._scope.context.postings, self._parsed
        found = [word for word in parsed.negative_words if self._docid in postings.original(word)]
        found += [" ".join(word or "" for word in phrase) for phrase in parsed.negative_phrases
                  if self._docid in postings.phrase(phrase)]
        return {"kind": "excludedWord", "text": f"The query excludes `-{found[0]}`, and the document has it.", "word": found[0]}

    # Ranking

    def _hits_by_words(self, found: Found) -> Sequence[Hit]:
        """Return the hits up to the end of the page, as search() makes them of the same ranking."""
        hits, pins = split_pins(found.ranking.hits)
        if self._query.distinct is not None:
            hits, _ = split_distinct(self._reader, self._query.distinct, hits)
        return placed(hits, by_position(pins), self._end)

    def _hits(self, end: int, threshold: float | None) -> Sequence[Hit]:
        """Run a search with vectors up to a number of hits."""
        plain = self._query._replace(attributes_to_retrieve=None, attributes_to_highlight=None, attributes_to_crop=None,
                                     show_matches_position=False, retrieve_vectors=False, show_ranking_score_details=True,
                                     ranking_score_threshold=threshold)
        indexed, question = self._question.indexed._replace(query=plain), self._question
        page = Federation(page=1, hits_per_page=end) if question.federation.is_paged else Federation(limit=end)
        return search({indexed.index_uid: self._reader}, [indexed], page, question.timer, question.embed).ranked

    def _outside(self, hits: Sequence[Hit], found: Found | None
                 ) -> tuple[int | None, Details, tuple[Details, int] | None, dict[str, Any]]:
        """Return (place, details, next better bucket, cause) of a document that ranking by words puts beyond the page."""
        alone = DocIds([self._docid])
        has_scores = found is not None and found.scorer is not None and len(self._universe) > _MOST_SCORED
        expired, better, place = self._question.clock(_COUNTING_MS), None, None
        details: Details = (Skipped(),)
        if not has_scores:
            try:
                with self._reader.limited(expired):
                    details, before, better = follow(self._rules, self._graph, self._universe, self._docid, expired)
                place = before + 1
            except TimeoutError:
                pass
        if any(isinstance(detail, Skipped) for detail in details):
            details, place = follow(self._rules, self._graph, alone, self._docid, lambda: False).details, None
        if place is not None:
            for position, _ in by_position(self._pins):
                place += position < place
        threshold = self._query.ranking_score_threshold
        if threshold is not None and score(details) < threshold:
            return None, details, better, self._threshold_cause(details, threshold)
        rival = self._rival(hits)
        if rival is not None:
            return None, details, better, rival
        is_cut = any(isinstance(detail, Skipped) for hit in hits for detail in hit.details)
        if is_cut and (place is None or place <= self._end):
            return place, details, better, {
                "kind": "cutOff", "text": "The time limit `searchCutoffMs` ended the ranking before the document had its place."}
        if self._scope.distinct is not None:
            place = None  # documents with values of better ones were counted, too
        return place, details, better, self._page_cause(place)

    def _outside_by_vectors(self) -> tuple[int | None, Details, tuple[Details, int] | None, dict[str, Any]]:
        """The same for a search that uses vectors: by a search up to maxTotalHits without threshold."""
        hits, threshold = self._hits(self._reader.settings.max_total_hits, None), self._query.ranking_score_threshold
        place = _place(hits, self._docid)
        details: Details = () if place is None else hits[place - 1].details
        there = None if place is None else self._hit_before(hits, place)
        if place is not None and threshold is not None and score(details) < threshold:
            return None, details, there, self._threshold_cause(details, threshold)
        if place is None and (rival := self._rival(hits)) is not None:
            return None, details, there, rival
        return place, details, there, self._page_cause(place)

    def _rival(self, hits: Sequence[Hit]) -> dict[str, Any] | None:
        """Return the better document that shares a value of the distinct attribute."""
        distinct, universe = self._scope.distinct, self._universe or self._scope.docids
        if distinct is None:
            return None

        def sharing(docids: DocIds) -> DocIds:
            return distinct.having(value for _, values in distinct.values_of(docids.to_array()) for value in values) & universe

        group = sharing(DocIds([self._docid]))
        rival = next((hit.docid for hit in hits if hit.docid in group and not _is_pinned(hit)), None)
        if rival is None and self._kind is Kind.KEYWORD:
            # Documents compete only with documents that are linked to them by shared values.
            linked, grown = group, EMPTY
            while linked != grown and len(linked) <= _MOST_LINKED:
                linked, grown = linked | sharing(linked), linked
            # Of many more, the best one that shares a value is taken.
            are_few = len(linked) <= _MOST_LINKED
            kept = rank(self._rules, self._graph, linked if are_few else group, RankingLimits(len(linked) if are_few else 1),
                        self._question.clock(_COUNTING_MS), distinct if are_few else None).hits
            if all(hit.docid != self._docid for hit in kept):
                rival = next((hit.docid for hit in kept if hit.docid in group), None)
        if rival is None:
            return None
        field = self._query.distinct or self._reader.settings.distinct_attribute or ""
        name, key = field if is_shown(self._reader, field) else "<hidden>", self._reader.primary_key
        (text,) = self._reader.documents([rival])
        shown = next(map(str, values_at(loads(text), key)), None) if key is not None and is_shown(self._reader, key) else None
        better = "A better document" if shown is None else f"The better document `{shown}`"
        return {"kind": "distinct", "text": f"{better} has the same value of `{name}`, and `distinct` keeps one of them.",
                "attribute": name, "documentId": shown}

    def _threshold_cause(self, details: Details, threshold: float) -> dict[str, Any]:
        return {"kind": "threshold",
                "text": f"The ranking score {score(details):.4g} is below `rankingScoreThreshold`, {threshold:g}."}

    def _page_cause(self, place: int | None) -> dict[str, Any]:
        first, end = self._question.federation.window
        most = self._reader.settings.max_total_hits
        page = f"the page shows places {first + 1} to {end}" if end > first else "the page shows no hits"
        at = "beyond the page" if place is None else f"at place {place}"
        limit = f"; no page goes beyond `maxTotalHits`, {most}" if place is not None and place > most else ""
        return {"kind": "pagination", "text": f"The document is {at}; {page}{limit}."}

    # Scores

    def _shown(self, details: Details, found: Found | None = None) -> dict[str, Any]:
        """Return the score details as a search shows them."""
        settings = self._reader.settings
        view = score_details(details, is_attribute_split(settings.ranking_rules),
                             lambda field: not settings.is_everything_displayed and field not in settings.displayed_attributes)
        if found is not None and found.scorer is not None and BM25 in view:
            view[BM25]["words"] = found.scorer.parts(self._docid)
        return view

    def _hit_before(self, hits: Sequence[Hit], place: int) -> tuple[Details, int] | None:
        """Return the details of the nearest better hit up to the first difference, and the number of hits with them."""
        own = hits[place - 1].details
        earlier = next((hit.details for hit in reversed(hits[:place - 1]) if hit.details != own and not _is_pinned(hit)), None)
        if earlier is None or _is_pinned(hits[place - 1]):
            return None
        level = next((level for level, pair in enumerate(zip(earlier, own)) if pair[0] != pair[1]), min(len(earlier), len(own)))
        there = earlier[:level + 1]
        return there, sum(hit.details[:level + 1] == there for hit in hits[:place - 1])

    def _next(self, details: Details, there: Details, documents: int) -> dict[str, Any] | None:
        """Return what distinguishes the next better bucket. there: its details up to the rule that found it better."""
        here, better = self._shown(details[:len(there)]), self._shown(there)
        rule = next((name for name, value in better.items() if here.get(name) != value), None)
        if rule is None:
            return None
        own, other = here.get(rule), better[rule]
        wanted, given = (None if view is None else view.get("distance", view.get("value")) for view in (other, own))
        asks = _PREFERS.get(rule) or f"{wanted} to {given}"
        return {"rule": rule, "documents": documents, "here": own, "there": other, "text": f"`{rule}` prefers {asks}."}


def _place(hits: Sequence[Hit], docid: int) -> int | None:
    return next((place for place, hit in enumerate(hits, 1) if hit.docid == docid), None)


def _is_pinned(hit: Hit) -> bool:
    return bool(hit.details) and isinstance(hit.details[0], Pinned)
