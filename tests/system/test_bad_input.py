"""What must hold of a daemon whatever it is sent.

1. Each bad body gets its documented error: code, status, message.
2. It gets it within a second.
3. Nothing is half applied: tasks, documents and the folder of uploads are what they were before.
4. A task that its documents make impossible fails with its documented error, and leaves the documents as they were.
5. A body of the wrong JSON type is refused on every route that takes one.
6. A body of megabytes that means nothing costs neither its parsed form nor seconds; nor do its error, and a long `q`.
7. Odd paths, query strings, headers and methods get an answer of HTTP, never a 5xx.
8. Whatever stands in `q` is text: no operator of the storage beneath shows through.
9. Memory stays flat, and the log speaks of no bug.
"""
from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import brotli
import pytest

from svcd.api.all_routes import ROUTES
from svcd.api.bodies import MAX_SEARCH_VALUES
from svcd.api.openapi import operation_id
from svcd.api.routes import Fields, Route, Value
from svcd.base.errors import ERRORS
from svcd.validation import bounds
from tests.support.daemon import Daemon, Reply, memory_watched
from tests.support.pace import is_within

SOON_S = 1.0
FLAT_MB = 16.0
DOCUMENTS = "/indexes/films/documents"
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
CSV = {"content-type": "text/csv"}
FILMS = [{"id": n, "title": title} for n, title in enumerate(
    ["Star Wars", "The Empire", "~7c | tilde", "AND OR NOT NEAR", "\U0001f3ac clapper", "שלום עולם", "c1 c2"])]
MB = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def films(daemon: Daemon) -> None:
    """An index with a few films."""
    assert daemon.done(daemon.post(DOCUMENTS, FILMS))["status"] == "succeeded"


def state(daemon: Daemon) -> tuple[int, bytes, int]:
    """Tasks, documents, uploads."""
    daemon.drain()
    documents = daemon.call("GET", f"{DOCUMENTS}?limit=1000").body
    return daemon.get("/tasks?limit=0")["total"], documents, len(list((daemon.data / "payloads").iterdir()))


def assert_refused(reply: Reply, code: str, message: str | None = None) -> None:
    assert (reply.code, reply.status) == (code, ERRORS[code][1]), reply.body[:300]
    assert message is None or reply.json["message"] == message
    assert is_within(reply.seconds, SOON_S)


class Bad(NamedTuple):
    """A body that is refused. message: whole, or what stands in the place of `...` of the usual one."""

    name: str
    content: bytes
    message: str
    headers: dict[str, str] = JSON
    code: str = "malformed_payload"


def _json(name: str, content: str | bytes, fault: str, headers: dict[str, str] = JSON) -> Bad:
    kind = "json" if headers is JSON else "ndjson"
    message = f"The `{kind}` payload provided is malformed. `Couldn't serialize document value: {fault}`."
    return Bad(name, content.encode() if isinstance(content, str) else content, message, headers)


def _csv(name: str, content: bytes, fault: str) -> Bad:
    return Bad(name, content, f"The `csv` payload provided is malformed: `{fault}`.", CSV)


def _coded(name: str, coding: str, content: bytes) -> Bad:
    incomplete = "The provided payload is incomplete and cannot be parsed"
    return Bad(name, content, incomplete, {**JSON, "content-encoding": coding}, "bad_request")


def _missing(name: str, headers: dict[str, str], kind: str) -> Bad:
    return Bad(name, b"", f"A {kind} payload is missing.", headers, "missing_payload")


NO_DOCUMENTS = "data are neither an object nor a list of objects"
PLAIN = json.dumps([{"id": 100 + n, "title": "x" * 50} for n in range(2000)]).encode()
RAW_DEFLATE = zlib.compressobj(wbits=-15)
BAD_BODIES = [
    _coded("truncated gzip", "gzip", gzip.compress(PLAIN)[:-10]),
    _coded("gzip without its trailer", "gzip", gzip.compress(PLAIN)[:-8]),
    _coded("gzip with a wrong check sum", "gzip", gzip.compress(PLAIN)[:-8] + b"\0" * 8),
    _coded("junk behind gzip", "gzip", gzip.compress(PLAIN) + b"junk"),
    _coded("no gzip at all", "gzip", PLAIN),
    _coded("truncated brotli", "br", brotli.compress(PLAIN)[:-10]),
    _coded("broken brotli", "br", b"\xff" * 1000),
    _coded("truncated deflate", "deflate", zlib.compress(PLAIN)[:-10]),
    _coded("deflate without a header", "deflate", RAW_DEFLATE.compress(PLAIN) + RAW_DEFLATE.flush()),
    _coded("gzip in gzip, the inner one cut", "gzip, gzip", gzip.compress(gzip.compress(PLAIN)[:-10])),
    _json("NaN", '[{"id":9,"a":NaN}]', "expected value at line 1 column 14"),
    _json("Infinity", '[{"id":9,"a":Infinity}]', "expected value at line 1 column 14"),
    _json("-Infinity", '[{"id":9,"a":-Infinity}]', "invalid number at line 1 column 15"),
    _json("NaN in the second line", '{"id":9}\n{"id":NaN}', "expected value at line 2 column 7", NDJSON),
    _json("half a character", r'[{"id":9,"a":"\ud800"}]', "unexpected end of hex escape at line 1 column 21"),
    _json("the other half", r'[{"id":9,"a":"\udc00"}]', "lone leading surrogate in hex escape at line 1 column 20"),
    _json("half a character as a name", r'[{"id":9,"\udc00":1}]', "lone leading surrogate in hex escape at line 1 column 16"),
    _json("half a character, raw", b'[{"id":9,"a":"\xed\xa0\x80"}]', "invalid unicode code point at line 1 column 19"),
    _json("no UTF-8", b'[{"id":9,"a":"\xff"}]', "invalid unicode code point at line 1 column 17"),
    _json("UTF-16", '[{"id":9}]'.encode("utf-16"), "expected value at line 1 column 1"),
    _json("a byte order mark", b'\xef\xbb\xbf[{"id":9}]', "expected value at line 1 column 1"),
    _json("1e999", '[{"id":9,"a":1e999}]', "number out of range at line 1 column 18"),
    _json("100,000 digits", '[{"id":9,"a":' + "9" * 100_000 + "}]", "number out of range at line 1 column 100013"),
    _json("100,000 digits as id", '[{"id":' + "9" * 100_000 + "}]", "number out of range at line 1 column 100007"),
    _json("a raw NUL", b'[{"id":9,"a":"\0"}]',
          "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 14"),
    _json("a NUL between", b'[{"id":9}\0]', "expected `,` or `]` at line 1 column 10"),
    _json("128 lists deep", '[{"id":9,"a":' + "[" * 128 + "]" * 128 + "}]",
          "recursion limit exceeded at line 1 column 140"),
    _json("100,000 objects deep", '{"id":9,"a":' + '{"a":' * 100_000 + "1" + "}" * 100_001,
          "recursion limit exceeded at line 1 column 643"),
    _json("a number", "5", NO_DOCUMENTS), _json("a text", '"x"', NO_DOCUMENTS), _json("null", "null", NO_DOCUMENTS),
    _json("lists in a list", "[[]]", NO_DOCUMENTS), _json("a number behind a document", '[{"id":9},5]', NO_DOCUMENTS),
    _json("a list in NDJSON", '[{"id":9}]', NO_DOCUMENTS, NDJSON),
    _json("blanks", "  ", "EOF while parsing a value at line 1 column 2"),
    _json("an open list", '[{"id":9}', "EOF while parsing a list at line 1 column 9"),
    _json("a comma too many", '[{"id":9},]', "trailing comma at line 1 column 11"),
    _json("two texts", '[{"id":9}][]', "trailing characters at line 1 column 11"),
    _json("a last line cut off", '{"id":9}\n{"id":10', "EOF while parsing an object at line 2 column 8", NDJSON),
    _csv("more fields", b"id,a\n9,b,c\n",
         "CSV error: record 1 (line: 2, byte: 5): found record with 3 fields, but the previous record has 2 fields"),
    _csv("fewer fields", b"id,a\n9,b\n10\n",
         "CSV error: record 2 (line: 3, byte: 9): found record with 1 fields, but the previous record has 2 fields"),
    _csv("a broken quote that swallows a comma", b'id,a\n9,"b\n10,c\n11,"d,e\n',
         "CSV error: record 1 (line: 2, byte: 5): found record with 3 fields, but the previous record has 2 fields"),
    _csv("CSV without UTF-8", b"id,a\n9,\xff\n", "CSV parse error: record 1 (line 2, field: 1, byte: 5): "
         "invalid utf-8: invalid UTF-8 in field 1 near byte index 0"),
    _csv("no number", b"id,a:number\n9,abc\n", 'Error parsing number "abc" at line 1: invalid float literal'),
    _missing("no JSON", JSON, "json"), _missing("no NDJSON", NDJSON, "ndjson"), _missing("no CSV", CSV, "csv"),
    _missing("gzip of nothing", {**JSON, "content-encoding": "gzip"}, "json"),
]


@pytest.mark.parametrize("bad", BAD_BODIES, ids=lambda bad: bad.name)
def test_a_bad_body_is_refused_and_leaves_no_trace(daemon: Daemon, bad: Bad) -> None:
    before = state(daemon)
    reply = daemon.call("POST", DOCUMENTS, bad.content, bad.headers)
    assert_refused(reply, bad.code, bad.message)
    assert state(daemon) == before


def bomb(coding: str) -> bytes:
    """One MB over the limit of the daemon, packed."""
    if coding == "br":
        packer = brotli.Compressor(quality=1)
        return b"".join(packer.process(b" " * MB) for _ in range(101)) + packer.finish()
    packed = zlib.compressobj(1, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    return b"".join(packed.compress(b" " * MB) for _ in range(101)) + packed.flush()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, gzip"])
def test_a_bomb_is_refused_where_it_passes_the_limit(daemon: Daemon, coding: str) -> None:
    content = gzip.compress(bomb("gzip")) if coding == "gzip, gzip" else bomb(coding)
    before = state(daemon)
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", DOCUMENTS, content, {**JSON, "content-encoding": coding})
    limit = "The provided payload reached the size limit. The maximum accepted payload size is 100 MB."
    assert_refused(reply, "payload_too_large", limit)
    assert memory[1] - memory[0] < FLAT_MB
    assert state(daemon) == before


def brackets() -> Iterator[bytes]:
    """50 MB of `[`, in pieces."""
    return (b"[" * MB for _ in range(50))


@pytest.mark.parametrize("headers", [JSON, NDJSON, {**JSON, "content-encoding": "gzip"}], ids=["json", "ndjson", "gzip"])
def test_50_mb_of_brackets_are_refused_unread(daemon: Daemon, headers: dict[str, str]) -> None:
    content = gzip.compress(b"".join(brackets()), 1) if "content-encoding" in headers else brackets()
    before = state(daemon)
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", DOCUMENTS, content, headers)
    assert_refused(reply, "malformed_payload")
    assert "recursion limit exceeded at line 1 column 12" in reply.json["message"]
    assert memory[1] - memory[0] < FLAT_MB
    assert state(daemon) == before


@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/indexes"), ("POST", "/indexes/films/search"), ("PATCH", "/indexes/films/settings"),
    ("POST", f"{DOCUMENTS}/delete-batch"), ("POST", "/swap-indexes")])
def test_50_mb_of_brackets_are_refused_elsewhere_and_not_kept(daemon: Daemon, method: str, path: str) -> None:
    before, memory = state(daemon), daemon.anonymous_mb()
    assert_refused(daemon.call(method, path, brackets()), "malformed_payload",
                   "The json payload provided is malformed. `recursion limit exceeded at line 1 column 128`.")
    assert daemon.anonymous_mb() - memory < FLAT_MB
    assert state(daemon) == before


@pytest.mark.parametrize("depth", [1000, 9000, 200_000])
@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/indexes/films/search"), ("PATCH", "/indexes/films/settings"), ("POST", DOCUMENTS), ("POST", f"{DOCUMENTS}/delete-batch"), ("POST", "/multi-search")])
def test_nested_objects_are_refused_at_any_depth(daemon: Daemon, method: str, path: str, depth: int) -> None:
    reply = daemon.call(method, path, '[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2))
    assert_refused(reply, "malformed_payload")
    assert daemon.call("GET", "/health").status == 200


LONG_LISTS = {
    "sorts": {"sort": ["id:asc", "id:desc"] * (bounds.SORT.most // 2)},
    "points": {"sort": [f"_geoPoint({n % 90},{n % 180}):asc" for n in range(bounds.SORT.most)]},
    "members": {"fields": ["title", *(f"a.b{n}" for n in range(bounds.NAMES.most - 1))]},
}


@pytest.mark.parametrize("wanted", LONG_LISTS.values(), ids=LONG_LISTS)
def test_long_lists_of_what_is_wanted_are_met_within_a_second(daemon: Daemon, wanted: dict[str, Any]) -> None:
    assert daemon.done(daemon.post("/indexes/places/documents", [
        {"id": n, "title": "x", "a": {"b7": n, "c": n}, "_geo": {"lat": n % 90, "lng": n}} for n in range(100)]))
    daemon.done(daemon.call("PUT", "/indexes/places/settings/sortable-attributes", json.dumps(["id", "_geo"])))
    reply = daemon.post("/indexes/places/documents/fetch", {**wanted, "limit": 100})
    assert reply.status == 200 and is_within(reply.seconds, SOON_S)
    shown = reply.json["results"]
    assert len(shown) == 100
    if "fields" in wanted:
        assert shown[3] == {"title": "x", "a": {"b7": 3}}


LARGE = 20 * MB
MANY_VALUES = {"numbers": b"0,", "texts": b'"ab",', "objects": b'{"a":1},', "lists": b"[[[]]],"}


@pytest.mark.parametrize("unit", MANY_VALUES.values(), ids=MANY_VALUES)
@pytest.mark.parametrize(("method", "path", "most"), [
    ("POST", "/indexes/films/search", MAX_SEARCH_VALUES), ("PUT", "/indexes/films/settings/stop-words", 1_000_000),
    ("POST", f"{DOCUMENTS}/delete-batch", 2_000_000)])
def test_millions_of_values_are_refused_before_they_are_built(
        daemon: Daemon, method: str, path: str, most: int, unit: bytes) -> None:
    content = b"[" + unit * (LARGE // len(unit)) + b"0]"
    before = state(daemon)
    with memory_watched(daemon) as memory:
        reply = daemon.call(method, path, content)
    assert_refused(reply, "payload_too_large", "The provided payload reached the size limit. The maximum accepted number "
                   f"of values in a payload of this kind is {most}.")
    assert memory[1] - memory[0] < 2 * LARGE / MB
    assert state(daemon) == before


@pytest.mark.parametrize(("path", "content"), [
    ("/indexes/films/search", b'"' + b"a," * (LARGE // 2) + b'"'), ("/indexes/films/search", b'{"' + b"a," * (LARGE // 2) + b'":1}'),
    (f"{DOCUMENTS}/delete-batch", b'"' + b"a," * (LARGE // 2) + b'"'), ("/indexes/films/search", b'{"q":"' + b"a" * LARGE)],
    ids=["a text", "a name", "no list", "without an end"])
def test_a_long_text_is_refused_in_few_words(daemon: Daemon, path: str, content: bytes) -> None:
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", path, content)
    assert reply.status == 400 and is_within(reply.seconds, SOON_S)
    assert len(reply.body) < 110_000
    assert memory[1] - memory[0] < 5 * LARGE / MB


@pytest.mark.parametrize("content", [b"," * LARGE, b"id\n" + b"x" * LARGE, b'id\n"' + (b"x" * 99 + b"\n") * (LARGE // 100),
                                     b"," * 80_000 + b"\n"], ids=["commas", "one line", "no closing quote", "fields"])
def test_a_csv_record_beyond_all_bounds_is_refused(daemon: Daemon, content: bytes) -> None:
    before = state(daemon)
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", DOCUMENTS, content, CSV)
    assert_refused(reply, "malformed_payload")
    assert "found record of more than" in reply.json["message"]
    assert memory[1] - memory[0] < 60
    assert state(daemon) == before


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_csv_of_empty_lines_is_skipped(daemon: Daemon, end: bytes) -> None:
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", "/indexes/blank/documents", b"id" + end * (LARGE // len(end)) + b"1" + end, CSV)
    assert is_within(reply.seconds, SOON_S) and memory[1] - memory[0] < FLAT_MB
    assert daemon.done(reply)["details"] == {"receivedDocuments": 1, "indexedDocuments": 1}


@pytest.mark.parametrize("words", ["star wa ", "x", "日本", "Ա ", "كتاب "], ids=ascii)
def test_a_query_of_megabytes_is_read_as_far_as_it_counts(daemon: Daemon, words: str) -> None:
    text = words * (bounds.TEXT.most // len(words))
    daemon.post("/indexes/films/search", {"q": words})  # the word list of a language is loaded once
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", "/indexes/films/search", json.dumps({"q": text}, ensure_ascii=False).encode())
    assert reply.status == 200 and is_within(reply.seconds, SOON_S)
    assert reply.json["query"] == text
    assert memory[1] - memory[0] < 60


def test_a_million_documents_are_deleted_in_one_request(daemon: Daemon) -> None:
    path = "/indexes/many/documents"
    daemon.done(daemon.post(path, [{"id": "0000007"}, {"id": "x"}]))
    with memory_watched(daemon) as memory:
        reply = daemon.call("POST", f"{path}/delete-batch", "[" + ",".join(f'"{n:07d}"' for n in range(MB)) + "]")
        task = daemon.done(reply)
    assert is_within(reply.seconds, SOON_S)
    assert task["details"] == {"providedIds": MB, "deletedDocuments": 1, "originalFilter": None}
    assert memory[1] - memory[0] < 400


ID_RULE = ("is invalid. A document identifier can be of type integer or string, only composed of alphanumeric characters "
           "(a-z A-Z 0-9), hyphens (-) and underscores (_), and can not be more than 511 bytes.")
BAD_IDS = ["1.5", '""', '" "', '"a b"', '"é"', '"a/b"', r'"\u0000"', "true", "null", "[1]", '{"a":1}', "1e3",
           "18446744073709551616", '"' + "x" * 512 + '"']


@pytest.mark.parametrize("identifier", BAD_IDS, ids=lambda text: text[:20])
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_bad_identifier_fails_its_task_alone(daemon: Daemon, method: str, identifier: str) -> None:
    before = state(daemon)
    task = daemon.done(daemon.call(method, DOCUMENTS, f'[{{"id":200}},{{"id":{identifier}}}]'))
    assert (task["status"], task["error"]["code"]) == ("failed", "invalid_document_id")
    assert ID_RULE in task["error"]["message"]
    assert task["details"] == {"receivedDocuments": 2, "indexedDocuments": 0}
    assert state(daemon)[1:] == before[1:]


@pytest.mark.parametrize(("content", "headers"), [
    ('[{"id":200},{"title":"x"}]', JSON), ('{"id":200}\n{}', NDJSON), ("title,year\nx,1\n", CSV),
], ids=["json", "ndjson", "csv"])
def test_a_missing_identifier_fails_its_task_alone(daemon: Daemon, content: str, headers: dict[str, str]) -> None:
    before = state(daemon)
    task = daemon.done(daemon.call("POST", DOCUMENTS, content, headers))
    assert (task["status"], task["error"]["code"]) == ("failed", "missing_document_id")
    assert state(daemon)[1:] == before[1:]


def test_too_many_fields_fail_the_task_alone(daemon: Daemon) -> None:
    before = state(daemon)
    task = daemon.done(daemon.post(DOCUMENTS, [{"id": 200, **{f"f{n}": n for n in range(65_536)}}]))
    assert (task["status"], task["error"]["code"]) == ("failed", "max_fields_limit_exceeded")
    assert state(daemon)[1:] == before[1:]


def test_of_equal_identifiers_the_last_document_wins(daemon: Daemon) -> None:
    path = "/indexes/twice/documents"
    task = daemon.done(daemon.call("POST", path, '[{"id":1,"a":1},{"id":"1","a":2},{"id":2,"id":3},{"id":1,"b":3}]'))
    assert task["details"] == {"receivedDocuments": 4, "indexedDocuments": 2}
    assert daemon.get(path)["results"] == [{"id": 1, "b": 3}, {"id": 3}]


def test_odd_documents_come_back_as_they_went_in(daemon: Daemon) -> None:
    odd: list[dict[str, Any]] = [
        {"id": 1, "": "no name", "a\0b": "a NUL", "a.b": 1, "a": {"b": 2}, "c0": "column", "'\"`": "quotes"},
        {"id": 2, "text": "".join(map(chr, range(1, 256))) + "\ufffe\uffff\U0010ffff" + "\0" + "~7c|\x07"},
        {"id": 3, "long": "w" * 100_000, "k" * 10_000: "x", "max": 2**64 - 1, "min": -2**63, "tiny": 5e-324},
        {"id": 4, "rowid": 1, "rank": 2, "terms": "x", "deep": json.loads("[" * 125 + "]" * 125)},
    ]
    task = daemon.done(daemon.post("/indexes/odd/documents", odd))
    assert task["status"] == "succeeded", task["error"]
    assert daemon.get("/indexes/odd/documents")["results"] == odd
    assert daemon.done(daemon.call("PUT", "/indexes/odd/settings/stop-words", '["w"]'))["status"] == "succeeded"
    assert daemon.done(daemon.call("DELETE", "/indexes/odd/documents"))["details"] == {"deletedDocuments": 4}


# Keys are refused whatever the body says where there is no master key.
WITH_OBJECT = [row for row in ROUTES if isinstance(row.body, Fields) and row.tag != "Keys"]
WITH_VALUE = [row for row in ROUTES if isinstance(row.body, Value)]
SCALARS = {"null": "null", "true": "a boolean: `true`", "5": "a positive integer: `5`", "-1": "a negative integer: `-1`",
           "1.5": "a number: `1.5`", '"x"': 'a string: `"x"`', "[]": "an array: `[]`", "[{}]": "an array: `[{}]`"}


def path_of(row: Route) -> str:
    named = {"index_uid": "scratch", "document_id": "1", "task_id": "0", "batch_id": "0", "workspace_uid": "w", "uid": "r",
             "uuid": "0f2d3c4b-0000-4000-8000-000000000000"}
    return row.path.format(**{name: named[name] for name in row.parameters})


@pytest.mark.parametrize("row", WITH_OBJECT, ids=operation_id)
def test_what_is_no_object_is_refused_where_an_object_is_due(daemon: Daemon, row: Route) -> None:
    for content, found in SCALARS.items():
        reply = daemon.call(row.method, path_of(row), content)
        assert_refused(reply, "bad_request", f"Invalid value type: expected an object, but found {found}")
    assert_refused(daemon.call(row.method, path_of(row), "{"), "malformed_payload")
    assert_refused(daemon.call(row.method, path_of(row), ""), "missing_payload")


@pytest.mark.parametrize("row", WITH_VALUE, ids=operation_id)
def test_a_value_of_the_wrong_type_is_refused(daemon: Daemon, row: Route) -> None:
    assert isinstance(row.body, Value)
    refused = 0
    for content in (*SCALARS, '{"doggo":1}'):
        reply = daemon.call(row.method, path_of(row), content)
        assert reply.status in (202, 400) and is_within(reply.seconds, SOON_S), reply.body
        refused += reply.status == 400
        assert reply.status == 202 or reply.code in (row.body.code, "missing_swap_indexes", "feature_not_enabled")
    assert refused >= 6
    assert_refused(daemon.call(row.method, path_of(row), "nul"), "malformed_payload")
    assert_refused(daemon.call(row.method, path_of(row), ""), "missing_payload")


@pytest.mark.parametrize(("content", "found"), [
    ("null", "null"), ("5", "integer `5`"), ("1.5", "floating point `1.5`"), ('"x"', 'string "x"'), ("{}", "map")])
def test_delete_batch_takes_a_list_alone(daemon: Daemon, content: str, found: str) -> None:
    reply = daemon.call("POST", f"{DOCUMENTS}/delete-batch", content)
    assert_refused(reply, "bad_request")
    assert f"invalid type: {found}, expected a sequence" in reply.json["message"]


ODD_PATHS = {
    "/indexes/%00": "invalid_index_uid", "/indexes/a%2fb": "invalid_index_uid", "/indexes/a%00b/search": "invalid_index_uid",
    "/indexes/%ff": "invalid_index_uid", "/indexes/%": "invalid_index_uid", "/indexes/%zz": "invalid_index_uid",
    "/indexes/..%2f..%2fetc%2fpasswd/stats": "invalid_index_uid", "/indexes/" + "x" * 401: "invalid_index_uid",
    "/indexes/" + "x" * 60_000: "invalid_index_uid", "/indexes/%ED%A0%80": "invalid_index_uid",
    "/tasks/" + "9" * 5000: "invalid_task_uids", "/tasks/-1": "invalid_task_uids", "/tasks/%00": "invalid_task_uids",
    "/tasks/1_0": "invalid_task_uids", "/tasks/4294967295": "task_not_found", "/batches/1e3": "invalid_batch_uids",
    "/indexes/films/documents/%00": "document_not_found", "/indexes/films/documents/a%2fb": "document_not_found",
    "/indexes/films/documents/" + "9" * 5000: "document_not_found", "/indexes/none/documents/1": "index_not_found",
    "/indexes?limit=" + "9" * 5000: "invalid_index_limit", "/indexes?limit=-1": "invalid_index_limit",
    "/indexes?limit=%00": "invalid_index_limit", "/tasks?uids=99999999999999999999": "invalid_task_uids",
    "/tasks?limit=%EF%BC%91": "invalid_task_limit", "/tasks?reverse=maybe": "invalid_task_reverse",
    "/tasks?statuses=": "invalid_task_statuses", "/tasks?indexUids=%00": "invalid_index_uid",
    "/tasks?afterEnqueuedAt=9999999-01-01": "invalid_task_after_enqueued_at", "/tasks?doggo=1": "bad_request",
    "/tasks?%ff=1": "bad_request", "/tasks?uids[]=1": "bad_request",
    "/indexes/films/search?rankingScoreThreshold=nan": "invalid_search_ranking_score_threshold",
    "/indexes/films/search?limit=1.5": "invalid_search_limit",
    "/indexes/films/documents?sort=:::": "invalid_document_sort",
}


@pytest.mark.parametrize("path", ODD_PATHS, ids=lambda path: path[:40])
def test_an_odd_path_gets_its_error(daemon: Daemon, path: str) -> None:
    assert_refused(daemon.call("GET", path), ODD_PATHS[path])


@pytest.mark.parametrize("path", [
    "//indexes//films//", "/indexes/%66ilms", "/indexes/films?doggo", "/indexes?limit=1&limit=2", "/tasks?uids=1&uids=2",
    "/tasks?&&&", "/tasks?uids=" + ",".join(["1"] * 20_000), "/tasks?limit=%31", "/tasks?afterEnqueuedAt=9999-12-31",
    "/indexes?offset=18446744073709551615", f"{DOCUMENTS}?offset=18446744073709551615&limit=18446744073709551615",
    "/indexes/films/search?offset=18446744073709551615&limit=18446744073709551615",
    "/indexes/films/search?page=18446744073709551615&hitsPerPage=18446744073709551615",
    "/indexes/films/search?q=%00", "/indexes/films/search?q=%ff%fe", "/indexes/films/search?q=%", "/indexes/films/search?q=%zz",
    "/indexes/films/search?q=a&q=b", f"/indexes/films/search?q={quote('🎬' * 4000)}",
], ids=lambda path: path[:50])
def test_an_odd_path_that_means_something_is_answered(daemon: Daemon, path: str) -> None:
    reply = daemon.call("GET", path)
    assert reply.status == 200 and is_within(reply.seconds, SOON_S), reply.body


RAW = {
    "a header of 20 kB": (b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", 431),
    "200 kB of headers": (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X-%d: " % 1 + (b"y" * 100 + b"\r\nX: ") * 2000, 431),
    "101 headers": (b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
    "a path of 70 kB": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
    "a line without an end": (b"GET /" + b"a" * 70_000, 414),
    "a NUL in the path": (b"GET /indexes/\0 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a blank in the path": (b"GET /indexes/a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a NUL in a header": (b"GET /health HTTP/1.1\r\nHost: x\r\nX: \0\r\n\r\n", 400),
    "an unknown method": (b"BREW /indexes HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "a method in lower case": (b"get /indexes HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    "an unknown path": (b"GET /coffee HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    "no method": (b" /health HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "HTTP/9": (b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", 505),
    "two lengths": (b"POST /indexes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "a negative length": (b"POST /indexes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    "a length of 30 digits": (b"POST /indexes HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "a length over the limit": (b"POST /indexes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                                b"Content-Length: 100000001\r\n\r\n", 413),
    "a chunk of a bad size": (b"POST /indexes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                              b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
    "a body that ends early": (b"POST /indexes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                               b"Content-Length: 10\r\n\r\n{}", 400),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500 + b"\r\n\r\n", 400),
}


@pytest.mark.parametrize("name", RAW)
def test_broken_http_gets_an_answer(daemon: Daemon, name: str) -> None:
    request, status = RAW[name]
    answer = daemon.raw(request)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:200]


ODD_QUERIES = [
    '"', '""', '"star', '*', "star*", "NEAR(", "NEAR(star wars, 2)", "star AND", "star OR wars", "NOT star", "^star", "{c1}: star",
    "c1:star", "{c1 c2}:", "- star", "-star", '-"star wars"', "star + wars", "'", "';DROP TABLE documents;--", "star\0wars", "\0",
    "|", "~", "~7c", "\\", "%", "_", "(", "))))", "\U0001f3ac", "👩‍👩‍👧‍👦", "שלום", "\u202eabc", "\uffff",
    "\ufffe", "\U0010ffff", "\u200b", "\ufeff", "E\u0301", "日本語", "ไทย", "x" * 250, "x" * 251, "é" * 126, "x" * 100_000,
    "-" * 10_000, '"' * 10_000, '" ' * 10_000, "star " * 10_000, " ".join(f"w{n}" for n in range(10_000)),
    '"' + "the " * 10_000 + '"', "-the " * 10_000, '"a b" ' * 1000,
]


@pytest.mark.parametrize("words", ODD_QUERIES, ids=lambda words: ascii(words[:20]))
def test_any_words_may_be_searched(daemon: Daemon, words: str) -> None:
    reply = daemon.post("/indexes/films/search", {
        "q": words, "attributesToHighlight": ["*"], "attributesToCrop": ["*"], "showMatchesPosition": True,
        "showRankingScoreDetails": True})
    assert reply.status == 200 and is_within(reply.seconds, SOON_S), reply.body[:300]
    assert reply.json["query"] == words


@pytest.mark.parametrize(("words", "found"), [
    ("NOT", [3]), ("near", [3]), ("tilde", [2]), ("c2", [6]), ("עולם", [5]), ("star OR", [0]), ('"star wars"', [0]),
    ('"wars star"', []), ("clapper", [4])])
def test_an_operator_is_a_word_like_any_other(daemon: Daemon, words: str, found: list[int]) -> None:
    hits = daemon.post("/indexes/films/search", {"q": words}).json["hits"]
    assert [hit["id"] for hit in hits] == found


def test_memory_is_flat_after_all_this(daemon: Daemon) -> None:
    """Daemon and indexing process together; the film index is tiny, so this is what either needs to live.

    Of it 8 MB are what searches found (api.answers), which the many odd ones here have filled.
    """
    daemon.drain()
    assert daemon.anonymous_mb() < 112
