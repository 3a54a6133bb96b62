"""Counts the searches on some indexes in a span of time (GET /analytics/searches)."""
from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from svcd.index.connections import open_reader
from svcd.querylog.reformulations import suggestion
from svcd.querylog.store import TIME_SHIFT

STEPS = 48  # parts of the span in `byTime`
# Pairs of queries that are read for suggestions, the most frequent ones, and how often a suggestion must occur.
_MOST_PAIRS, LEAST_PAIRS = 10_000, 3
_CHOSEN = ("FROM searches JOIN queries ON queries.id = query WHERE searches.id >= :from AND searches.id < :to "
           "AND index_uid IN (SELECT value FROM json_each(:indexes))")
_CLICKED = ("FROM clicks JOIN queries ON queries.id = query WHERE search >= :from AND search < :to "
            "AND index_uid IN (SELECT value FROM json_each(:indexes))")
_QUERIES = f"""
    SELECT index_uid, text, searches, finished, empty, ms, coalesce(clicked, 0) FROM (
        SELECT query, index_uid, text, count(*) AS searches, count(*) - sum(is_typed_on) AS finished, sum(hits = 0) AS empty,
            sum(ms) AS ms, {{0}} AS weight
        {_CHOSEN} AND text != '' GROUP BY query HAVING weight > 0 ORDER BY weight DESC, searches DESC, text LIMIT :limit)
    LEFT JOIN (SELECT query AS of_query, count(DISTINCT search) AS clicked {_CLICKED} GROUP BY query) ON of_query = query
    ORDER BY weight DESC, searches DESC, text"""
_FINISHED = "count(*) - sum(is_typed_on)"
_UNANSWERED = "sum(hits = 0 AND NOT is_typed_on)"


def percentile(counts: Mapping[int, int], share: float) -> int | None:
    """The smallest value that this share of all values does not exceed. counts: value -> how often it occurs."""
    left = share * sum(counts.values())
    for value in sorted(counts):
        left -= counts[value]
        if left <= 1e-9:
            return value
    return None


class _Figures:
    """Searches that are counted together. times: milliseconds -> number."""

    def __init__(self) -> None:
        self.searches = self.finished = self.empty = 0
        self.times: Counter[int] = Counter()

    def add(self, milliseconds: int, searches: int, typed_on: int, empty: int) -> None:
        self.searches += searches
        self.finished += searches - typed_on
        self.empty += empty
        self.times[milliseconds] += searches

    def as_json(self) -> dict[str, Any]:
        return {"searches": self.searches, "finished": self.finished, "withoutHits": self.empty,
                "latencyMs": {"p50": percentile(self.times, 0.5), "p95": percentile(self.times, 0.95),
                              "max": max(self.times, default=None)}}


def report(path: Path, may_see: Callable[[str], bool], from_ms: int, to_ms: int, limit: int) -> dict[str, Any]:
    """The figures of a span. path: of the log; may_see: whether to count an index; limit: length of the lists.

    Raises sqlite3.Error.
    """
    with closing(open_reader(path)) as connection:
        connection.execute("BEGIN")  # all figures are of one state
        indexes = [uid for (uid,) in connection.execute("SELECT DISTINCT index_uid FROM queries") if may_see(uid)]
        step_ms = max(1, -(-(to_ms - from_ms) // STEPS))
        values = {"from": from_ms << TIME_SHIFT, "to": to_ms << TIME_SHIFT, "indexes": json.dumps(indexes), "limit": limit,
                  "start": from_ms, "step": step_ms, "pairs": _MOST_PAIRS}

        def rows(statement: str) -> Iterable[Any]:
            return connection.execute(statement, values)

        every, by_index, by_key = _Figures(), defaultdict[str, _Figures](_Figures), defaultdict[str | None, _Figures](_Figures)
        for index_uid, key, *figures in rows(
                f"SELECT index_uid, (SELECT uid FROM keys WHERE keys.id = key), ms, count(*), sum(is_typed_on), sum(hits = 0) "
                f"{_CHOSEN} GROUP BY index_uid, key, ms"):
            for each in (every, by_index[index_uid], by_key[key]):
                each.add(*figures)
        (clicked, position), = rows(f"SELECT count(DISTINCT search), avg(position) {_CLICKED}")
        steps = [{"at": from_ms + step_ms * number, "searches": 0, "withoutHits": 0, "clicked": 0} for number in range(STEPS)]
        for number, searches, empty in rows(f"SELECT ((searches.id >> {TIME_SHIFT}) - :start) / :step, count(*), sum(hits = 0) "
                                            f"{_CHOSEN} GROUP BY 1"):
            steps[number] |= {"searches": searches, "withoutHits": empty}
        for number, searches in rows(f"SELECT ((search >> {TIME_SHIFT}) - :start) / :step, count(DISTINCT search) "
                                     f"{_CLICKED} GROUP BY 1"):
            steps[number]["clicked"] = searches
        return {
            **every.as_json(), "clicked": clicked, "averageClickPosition": position, "byTime": steps,
            "byIndex": {uid: figures.as_json() for uid, figures in sorted(by_index.items())},
            "byKey": [{"key": key, **figures.as_json()} for key, figures in sorted(by_key.items(), key=lambda row: row[0] or "")],
            "queries": _queries(rows(_QUERIES.format(_FINISHED))),
            "queriesWithoutHits": _queries(rows(_QUERIES.format(_UNANSWERED))),
            "suggestions": _suggestions(rows(
                "SELECT source.index_uid, source.text, target.text, count(*) FROM replaced JOIN queries AS source ON "
                "source.id = failed JOIN queries AS target ON target.id = replacing WHERE search >= :from AND search < :to AND "
                "source.index_uid IN (SELECT value FROM json_each(:indexes)) GROUP BY failed, replacing ORDER BY 4 DESC "
                "LIMIT :pairs"))[:limit],
        }


def _queries(rows: Iterable[Any]) -> list[dict[str, Any]]:
    return [{"indexUid": index_uid, "query": text, "searches": searches, "finished": finished, "withoutHits": empty,
             "clicked": clicked, "averageMs": round(ms / searches, 1)}
            for index_uid, text, searches, finished, empty, ms, clicked in rows]


def _suggestions(pairs: Iterable[Any]) -> list[dict[str, Any]]:
    counts: Counter[Any] = Counter()
    for index_uid, failed, replacing, count in pairs:
        if found := suggestion(failed, replacing):
            counts[index_uid, found] += count
    return [{"indexUid": index_uid, "kind": found.kind, "words": found.words, "instead": found.instead, "count": count}
            for (index_uid, found), count in counts.most_common() if count >= LEAST_PAIRS]


def oldest_ms(path: Path) -> int | None:
    """The time of the oldest search; None without one. Raises sqlite3.Error."""
    with closing(open_reader(path)) as connection:
        (number,) = connection.execute("SELECT min(id) FROM searches").fetchone()
    return None if number is None else number >> TIME_SHIFT
