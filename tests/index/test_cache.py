"""What must hold of the cache:

1. The least recently used entries go once what is held exceeds the limit.
2. What takes more than the limit by itself is not held, pushes nothing out, and takes the place of what its key had.
3. A text in a key counts; nothing is held under a key with a text of megabytes.
4. Another process can load the entries used last, up to a limit, with what they take and their order; not those that pickle refuses.
"""
from __future__ import annotations

from io import BytesIO

from svcd.base.docids import DocIds
from svcd.index.read_transaction import Cache


def test_the_least_recently_used_goes_first() -> None:
    cache = Cache(3000)
    for key in "abc":
        cache.put(key, bytes(500))
    assert cache.peek("a") is not None
    cache.put("d", bytes(500))
    cache.put("e", bytes(500))
    assert [key for key in "abcde" if cache.peek(key) is not None] == ["a", "c", "d", "e"]


def test_what_takes_all_the_room_pushes_nothing_out() -> None:
    cache = Cache(3000)
    cache.put("a", bytes(500))
    cache.put("b", bytes(500))
    cache.put("b", bytes(5000))
    assert cache.peek("a") is not None
    assert cache.peek("b") is None
    assert len(cache.get("c", lambda: bytes(5000))) == 5000
    cache.put("b", bytes(1500))
    assert cache.peek("a") is not None and cache.peek("b") is not None


def test_nothing_is_held_under_a_key_of_megabytes() -> None:
    cache = Cache(3_000_000)
    cache.put(("facet", 1, "containing", "x" * 1_000_000), bytes(500))
    assert cache.bytes == 0
    cache.put(("facet", 1, "containing", "x" * 50_000), bytes(500))
    assert cache.bytes > 50_000


def test_another_process_loads_what_was_used_last() -> None:
    cache, other, file = Cache(1 << 20), Cache(0), BytesIO()
    for number in range(200):
        cache.put(("index", number), (1, DocIds(range(number))))
    cache.put("settings", lambda: 0)
    cache.peek(("index", 3))
    entries, limit = cache.items(), cache.bytes // 2
    cache.dump(file, limit)
    file.seek(0)
    other.load(file)
    loaded = other.items()
    assert loaded == [entry for entry in entries if entry[0] != "settings"][-len(loaded):]
    assert loaded[-1][0] == ("index", 3) and 50 < len(loaded) < 199
    assert limit - 3000 < other.bytes == other.limit <= limit
    whole = other.bytes
    other.put("one more", bytes(500))
    assert other.bytes <= whole and other.peek(loaded[0][0]) is None
