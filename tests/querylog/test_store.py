"""The file of the query log. What must hold:

1. Counts are those of a plain count of the same searches, whatever writes come together.
2. A click counts for its search, on its index and with its key, also if it is written first; twice the same is once.
3. The oldest searches are deleted by age and by size, with all that belongs to them.
4. With a secret the file has no text of a query, and the counts are the same.
5. A search that cannot be written is no error of the search; a damaged file is set aside.
"""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.api.answers import uuid7
from svcd.querylog import report, store
from svcd.querylog.recorder import Click, Recorder, Search
from svcd.querylog.store import FILE, QueryLog, normalized, number_of

ALL = 1 << 62 >> store.TIME_SHIFT
NOW_MS = 1_800_000_000_000


def search(text: str, hits: int = 1, index_uid: str = "films", at: int | None = None, **others: Any) -> Search:
    uid = uuid7() if at is None else f"{at:012x}"[:8] + "-" + f"{at:012x}"[8:] + uuid7()[13:]
    return Search(**{"request_uid": uid, "index_uid": index_uid, "text": text, "hits": hits, "milliseconds": 2, "key_uid": None,
                     "client": uid, **others})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[QueryLog]:
    made = QueryLog(tmp_path / FILE, 100 << 20, 10_000)
    yield made
    made.close()


def counted(folder: Path, limit: int = 100) -> dict[str, Any]:
    return report.report(folder / FILE, lambda uid: uid != "hidden", 0, ALL, limit)


def test_counts_are_those_of_a_plain_count(log: QueryLog, tmp_path: Path) -> None:
    chance = random.Random(1)
    rows = [search(chance.choice(["Star  Wars", "star wars", "ＳＴＡＲ wars", "dune", "", "alien"]), chance.randrange(3),
                   chance.choice(["films", "books", "hidden"]), at=NOW_MS + number // 5, milliseconds=chance.randrange(20),
                   key_uid=chance.choice([None, "a", "b"])) for number in range(2000)]
    rows += [row._replace(index_uid="books") for row in rows[:200]]  # the searches of a multi-search have one uid
    begin = 0
    while begin < len(rows):
        end = begin + chance.randrange(1, 200)
        log.write(rows[begin:end])
        begin = end
    seen = [row for row in rows if row.index_uid != "hidden"]
    found = counted(tmp_path)
    assert (found["searches"], found["withoutHits"]) == (len(seen), sum(not row.hits for row in seen))
    assert {uid: each["searches"] for uid, each in found["byIndex"].items()} == Counter(row.index_uid for row in seen)
    assert {each["key"]: each["searches"] for each in found["byKey"]} == Counter(row.key_uid for row in seen)
    times = sorted(row.milliseconds for row in seen)
    assert found["latencyMs"] == {"p50": times[(len(times) - 1) // 2], "p95": times[-(-len(times) * 95 // 100) - 1], "max": times[-1]}
    expected = Counter((row.index_uid, normalized(row.text)) for row in seen if row.text)
    assert {(each["indexUid"], each["query"]): each["searches"] for each in found["queries"]} == expected
    assert [each["searches"] for each in found["queries"]] == sorted(expected.values(), reverse=True)
    empty = Counter((row.index_uid, normalized(row.text)) for row in seen if row.text and not row.hits)
    assert {(each["indexUid"], each["query"]): each["withoutHits"] for each in found["queriesWithoutHits"]} == empty
    assert sum(step["searches"] for step in found["byTime"]) == len(seen)
    part = report.report(tmp_path / FILE, lambda uid: uid == "films", NOW_MS + 100, NOW_MS + 200, 5)
    assert part["searches"] == sum(row.index_uid == "films" and NOW_MS + 100 <= number_of(row.request_uid) >> store.TIME_SHIFT
                                   < NOW_MS + 200 for row in rows)


def click(of: Search, document_id: str, position: int = 1, **others: Any) -> Click:
    return Click(**{"at": NOW_MS, "request_uid": of.request_uid, "index_uid": of.index_uid, "document_id": document_id,
                    "position": position, "key_uid": of.key_uid, **others})


def test_a_click_counts_for_its_search(tmp_path: Path) -> None:
    log = QueryLog(tmp_path / FILE, 100 << 20, 10_000, now_ms=lambda: NOW_MS)
    first, second, late = search("a", key_uid="k"), search("b"), search("c")
    log.write([first, second, first._replace(index_uid="books"), click(first, "1", 3), click(first, "1", 3), click(first, "2", 5),
               click(late, "9", 1), click(second, "1", key_uid="k"), click(second, "1", index_uid="books")])
    log.write([late])
    found = counted(tmp_path)
    assert {(each["indexUid"], each["query"]): each["clicked"] for each in found["queries"]} == {
        ("films", "a"): 1, ("films", "b"): 0, ("films", "c"): 1, ("books", "a"): 0}
    assert (found["clicked"], found["averageClickPosition"]) == (2, 3)
    log.close()


def test_the_oldest_searches_are_deleted_by_age_and_by_size(tmp_path: Path) -> None:
    now = [NOW_MS]
    log = QueryLog(tmp_path / FILE, 1 << 20, 10, now_ms=lambda: now[0])
    log.write([search("old", 0, at=NOW_MS), search("new", at=NOW_MS + 100, client="x")])
    now[0] += 10 * 86_400_000 + 50
    log._looked_at = 0
    log.write([])
    assert [each["query"] for each in counted(tmp_path)["queries"]] == ["new"]
    for portion in range(20):
        log.write([search(f"query {portion} {number}" + "x" * 100, at=now[0] + portion) for number in range(500)])
    kept = counted(tmp_path)["searches"]
    assert (tmp_path / FILE).stat().st_size < 1.3 * (1 << 20) and 1000 < kept < 10_000
    assert [each["query"][:9] for each in counted(tmp_path, 10_000)["queries"] if each["query"].startswith("query 19")]
    (texts,) = log._connection.execute("SELECT count(*) FROM queries").fetchone()
    assert texts == kept
    log.close()


def test_with_a_secret_the_file_has_no_text(tmp_path: Path) -> None:
    log = QueryLog(tmp_path / FILE, 1 << 20, 10_000, b"a-master-key-of-some-length")
    log.write([search("Secret Word"), search("secret  word", 0), search("other")])
    found = counted(tmp_path)["queries"]
    assert [each["searches"] for each in found] == [2, 1] and all(each["query"].startswith("#") for each in found)
    log.close()
    assert b"ecret" not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_reformulations_become_suggestions(log: QueryLog, tmp_path: Path) -> None:
    for number in range(3):
        log.write([search("red settee", 0, client=f"c{number}"), search("red sofa", client=f"c{number}")])
        log.write([search("couc", client=f"d{number}"), search("couch", client=f"d{number}")])
    found = counted(tmp_path)
    assert found["suggestions"] == [{"indexUid": "films", "kind": "synonym", "words": "settee", "instead": "sofa", "count": 3}]
    assert {each["query"]: each["finished"] for each in found["queries"]} == {"couch": 3, "red settee": 3, "red sofa": 3}


def test_a_recorder_passes_everything_on_in_order() -> None:
    passed: list[Any] = []
    recorder = Recorder(passed.extend)
    for number in range(1000):
        recorder.note(uuid7(), "films", str(number), b',"limit":20,"offset":0,"estimatedTotalHits":%d' % number, 1, None, "c")
    recorder.note(uuid7(), "films", None, 7, 1, None, "c")
    recorder.stop()
    assert [row.text for row in passed] == [*map(str, range(1000)), ""]
    assert [row.hits for row in passed] == [*range(1000), 7]


def test_a_failing_file_does_not_fail_searches() -> None:
    def write(_: Any) -> None:
        raise OSError("no space left on device")

    recorder = Recorder(write)
    recorder.note(uuid7(), "films", "a", 1, 1, None, "c")
    recorder.stop()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    log = store.opened(tmp_path / FILE, 1 << 20, 1, None)
    log.close()
    assert (tmp_path / f"{FILE}.damaged").exists() and counted(tmp_path)["searches"] == 0
