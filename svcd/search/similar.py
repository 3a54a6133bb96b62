"""Find similar documents: those whose vectors are nearest to the vectors of one document (docs/search.md#similar-documents)."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from svcd.base.docids import DocIds
from svcd.query.reader import Reader
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.ranking.scores import VectorSorted
from svcd.schema.embedder_settings import distribution_of
from svcd.search.hits import paged
from svcd.search.keyword import Found, terms_of
from svcd.search.request import FormattingBudget, SearchQuery
from svcd.vectors.vector import similarity


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
               for each in reader.vectors.nearest(query.embedder, vector, universe, most + 1)]
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


def render_similar(reader: Reader, shown: SearchQuery, ranking: Ranking) -> Sequence[str]:
    """Return the JSON texts of the hits, as a LongPage if they are many or long. shown: the options of rendering."""
    return paged(reader, shown, Found(ranking, terms_of(reader, None), []), ranking.hits, FormattingBudget())
