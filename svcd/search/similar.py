"""Similar documents: those whose vectors are nearest to the vectors of one document (docs/search.md#similar-documents)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from svcd.base.docids import DocIds
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.ranking.scores import VectorSorted
from svcd.schema.distributions import distribution_of
from svcd.search.hits import paged, render_hits
from svcd.search.keyword import Found, terms_of
from svcd.search.matches import FormattingBudget
from svcd.search.request import SearchQuery
from svcd.search.stored_strings import LongStrings
from svcd.vectors.vector import similarity


class SimilarQuery(NamedTuple):
    """Which documents are wanted: those similar to one document by the vectors of an embedder, from `offset` on."""

    docid: int
    embedder: str
    offset: int = 0
    limit: int = 20
    threshold: float | None = None


def similar_documents(reader: Reader, query: SimilarQuery, candidates: DocIds) -> Ranking:
    """The most similar candidates, and those that count: all of them, or down to the threshold.

    candidates: documents that a filter leaves. The document itself is not among the hits. Candidates without vectors are no
    hits, but they count.
    """
    universe = candidates - DocIds([query.docid])
    shift = distribution_of(reader.settings.embedders[query.embedder])
    hits: list[Hit] = []
    seen: list[int] = []
    for distance, docid in _nearest(reader, query, universe):
        if len(seen) == query.offset + query.limit:
            break
        score = VectorSorted(similarity(distance, shift))
        seen.append(docid)
        if len(seen) <= query.offset:
            continue
        if query.threshold is not None and score.score < query.threshold:
            return Ranking(DocIds(seen[:-1]), hits)
        hits.append(Hit(docid, (score,)))
    return Ranking(universe, hits)


def render_similar(reader: Reader, shown: SearchQuery, ranking: Ranking) -> Sequence[str]:
    """The JSON texts of the hits, a LongPage if they are many or long. shown: says what is shown of each."""
    found, budget, long_strings = Found(ranking, terms_of(reader, None), []), FormattingBudget(), LongStrings()

    def render(found: Found, some: Sequence[Hit]) -> Sequence[str]:
        return render_hits(reader, shown, found, some, budget, long_strings)

    return paged(reader, shown, found, ranking.hits, long_strings, render)


def _nearest(reader: Reader, query: SimilarQuery, universe: DocIds) -> Iterator[tuple[float, int]]:
    """(distance, docid) of the nearest documents of any of the vectors, nearest first, each document once."""
    own = dict(reader.vectors.document_vectors([query.docid], query.embedder)).get(query.docid)
    dimensions = reader.vectors.dimensions(query.embedder)
    count = query.offset + query.limit + 1
    found = [each for vector in (own.vectors if own is not None else ()) if len(vector) == dimensions  # else they are outdated
             for each in reader.vectors.nearest(query.embedder, vector, universe, count)]
    seen: set[int] = set()
    for distance, docid in sorted(found):
        if docid not in seen:
            seen.add(docid)
            yield distance, docid
