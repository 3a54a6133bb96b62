"""Short ways for tests of the engine: an index of titles, and what a search of it gives."""
from __future__ import annotations

import json
from typing import Any, Callable, Mapping

from svcd.search.search import Federation, IndexedQuery, SearchQuery, SearchResult, search
from tests.support.dict_reader import DictReader

UID = "films"


def titled(*titles: str, **settings: Any) -> DictReader:
    """An index of documents with ids 1, 2, 3... and these titles; settings by their names."""
    documents = [{"id": number, "title": title} for number, title in enumerate(titles, 1)]
    return DictReader(documents, {"searchableAttributes": ["title"], **settings})


def never(milliseconds: int) -> Callable[[], bool]:
    """A clock by which the time is never over."""
    return lambda: False


def answer(
    reader: DictReader,
    q: str | None,
    federation: Federation | None = None,
    timer: Callable[[int], Callable[[], bool]] = never,
    **asked: Any,
) -> SearchResult:
    """The answer to one query; further members of the query by their names."""
    query = IndexedQuery(UID, SearchQuery(q=q, **asked))
    return search({UID: reader}, [query], federation or Federation(limit=1000), timer)


def hits(reader: DictReader, q: str | None, *args: Any, **asked: Any) -> list[dict[str, Any]]:
    """The hits, as values."""
    return [json.loads(hit) for hit in answer(reader, q, *args, **asked).hits]


def found_ids(reader: DictReader, q: str | None, *args: Any, **asked: Any) -> list[int]:
    """The ids of the hits, best first."""
    return [hit["id"] for hit in hits(reader, q, *args, **asked)]


def details_of(reader: DictReader, q: str, **asked: Any) -> dict[int, Mapping[str, Any]]:
    """id -> score details."""
    found = hits(reader, q, show_ranking_score_details=True, **asked)
    return {hit["id"]: hit["_rankingScoreDetails"] for hit in found}
