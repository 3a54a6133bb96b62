"""What must hold of uploads:

1. Each format becomes one JSON object a line; numbers keep their text.
2. However the stream is cut, the result and the error are the same.
3. A faulty upload is refused with the words, line and column of the reference.
4. Nothing stays on disk after an error, whoever raised it.
5. What serde_json would refuse later is refused now: lone surrogates, depth, numbers out of range.
6. Memory does not follow the size of the upload, and hostile uploads are refused quickly.
"""
from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.api import uploads
from svcd.api.uploads import CSV, JSON, NDJSON, payload_format, receive
from svcd.base.errors import ApiError
from tests.support.pace import is_within

NO_OBJECTS = "data are neither an object nor a list of objects"


def cut(content: bytes, size: int = 65_536) -> Iterator[bytes]:
    return (content[at:at + size] for at in range(0, len(content), size))


def received(folder: Path, content: bytes, content_type: str, size: int = 65_536, delimiter: str | None = None) -> str:
    """The lines that an upload becomes; the code and message of the error when it is refused."""
    try:
        payload = receive(cut(content, size), content_type, folder, csv_delimiter=delimiter)
    except ApiError as error:
        assert list(folder.iterdir()) == []
        return f"{error.code}: {error.message}"
    text = payload.path.read_text()
    assert payload.documents == text.count("\n") and payload.bytes == len(text.encode())
    payload.path.unlink()
    return text


GOOD = [
    (JSON, b'{"id":1}', '{"id":1}\n'),
    (JSON, b' [ {"id" : 1 } ,\n\t{"id":2}\r\n] \n', '{"id" : 1 }\n{"id":2}\n'),
    (JSON, b"[]", ""),
    (JSON, b"{}", "{}\n"),
    (JSON, b'[{"a":\n  [1,\r\n   2],\n  "b": "x\\n  y"\n}]', '{"a":[1,2],"b": "x\\n  y"}\n'),
    (JSON, '[{"é":"😀\u2028"}]'.encode(), '{"é":"😀\u2028"}\n'),
    (JSON, b'{"a":"\\ud83d\\ude00 \\\\ud800"}', '{"a":"\\ud83d\\ude00 \\\\ud800"}\n'),
    (JSON, b'[{"n":[1.0,1e2,-0,18446744073709551616,0.10]}]', '{"n":[1.0,1e2,-0,18446744073709551616,0.10]}\n'),
    (JSON, b'{"a":1,"a":2}', '{"a":1,"a":2}\n'),
    (JSON, b'[{"a":' + b"[" * 126 + b"]" * 126 + b"}]", '{"a":' + "[" * 126 + "]" * 126 + "}\n"),
    (NDJSON, b"", "missing_payload: A ndjson payload is missing."),
    (NDJSON, b" \n\n", ""),
    (NDJSON, b'{"a":1}\n{"b":2}\r\n\n{"c":3}', '{"a":1}\n{"b":2}\n{"c":3}\n'),
    (NDJSON, b'{"a":1}{"b":2} {"c":\n3}', '{"a":1}\n{"b":2}\n{"c":3}\n'),
    (CSV, b"#id,name\n0,jean\n1,", '{"#id":"0","name":"jean"}\n{"#id":"1","name":null}\n'),
    (CSV, b"id:number,a:boolean,b:string,c:x\n 5 , true ,,y\n,,s,\n",
     '{"id":5,"a":true,"b":null,"c:x":"y"}\n{"id":null,"a":null,"b":"s","c:x":null}\n'),
    (CSV, b"n:number\n2.5\n-2\n+7\n1e3\n9223372036854775808\ninf\n.5\n",
     '{"n":2.5}\n{"n":-2}\n{"n":7}\n{"n":1000.0}\n{"n":9.223372036854776e18}\n{"n":null}\n{"n":0.5}\n'),
    (CSV, b'id,b\n1,"a ""b""\r\nc"\n\n\n2,x"y"\n3,"p"q\n',
     '{"id":"1","b":"a \\"b\\"\\r\\nc"}\n{"id":"2","b":"x\\"y\\""}\n{"id":"3","b":"pq"}\n'),
    (CSV, b"\xef\xbb\xbfid\r1\r\n2", '{"id":"1"}\n{"id":"2"}\n'),
    (CSV, b"id,id\n1,2\n", '{"id":"2"}\n'),
    (CSV, b'id,b\n1,"abc\n2,3\n', '{"id":"1","b":"abc\\n2,3\\n"}\n'),
    (CSV, b"id\n", ""),
    (CSV, b"\n\n", ""),
]
JSON_FAULTS = [
    (JSON, b"[{\"id\": 1}, {id: 2}]", "key must be a string at line 1 column 14"),
    (NDJSON, b'{"id": 1}\n{id: 2}', "key must be a string at line 2 column 2"),
    (JSON, b'"0123456789m"', NO_OBJECTS),
    (JSON, b"12x", NO_OBJECTS),
    (JSON, b'[{"a":1},\n5,{]', NO_OBJECTS),
    (JSON, b'[["a"]]', NO_OBJECTS),
    (NDJSON, b'[{"a":1}]', NO_OBJECTS),
    (NDJSON, b'{"a":1}\nnull', NO_OBJECTS),
    (JSON, b" ", "EOF while parsing a value at line 1 column 1"),
    (JSON, b"hello", "expected value at line 1 column 1"),
    (JSON, b"nope", "expected ident at line 1 column 2"),
    (JSON, b"[", "EOF while parsing a list at line 1 column 1"),
    (JSON, b'[{"a":1}', "EOF while parsing a list at line 1 column 8"),
    (JSON, b'[{"a":1},', "EOF while parsing a value at line 1 column 9"),
    (JSON, b'[{"a":1},\n ]', "trailing comma at line 2 column 2"),
    (JSON, b'[{"a":1,}]', "key must be a string at line 1 column 9"),
    (JSON, b'{"a":1,}', "trailing comma at line 1 column 8"),
    (JSON, b'[{"a":[1,]}]', "expected value at line 1 column 10"),
    (JSON, b'[{"a":1} {"b":2}]', "expected `,` or `]` at line 1 column 10"),
    (JSON, b'{"a":1} x', "trailing characters at line 1 column 9"),
    (JSON, b'[{"a":1}]]', "trailing characters at line 1 column 10"),
    (JSON, b'{"a":1}{"b":2}', "trailing characters at line 1 column 8"),
    (NDJSON, b'{"a":1},{"b":2}', "expected value at line 1 column 8"),
    (NDJSON, b'{"a":1\n"b":2}', "expected `,` or `}` at line 2 column 1"),
    (JSON, '[{"é": é}]'.encode(), "expected value at line 1 column 9"),
    (NDJSON, b'{"a":NaN}', "expected value at line 1 column 6"),
    (NDJSON, b'{"a":1}\n{"a":-Infinity}', "invalid number at line 2 column 7"),
    (NDJSON, b'{"a":1}\n{"a":1e999}\n{"b":2}', "number out of range at line 2 column 10"),
    (NDJSON, b'{"a":' + b"1" * 100_000 + b"}", "number out of range at line 1 column 100005"),
    (JSON, b'[{"a":1},{"a":"\\ud800"}]', "unexpected end of hex escape at line 1 column 22"),
    (JSON, b'[{"a":"\\udc00"}]', "lone leading surrogate in hex escape at line 1 column 13"),
    (NDJSON, b'{"a":"x\xff"}\n', "invalid unicode code point at line 1 column 10"),
    (NDJSON, b'{"a":"\x01"}', "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 6"),
    (JSON, b"[[[[", "EOF while parsing a list at line 1 column 4"),
    (NDJSON, b'{"a":' + b"[" * 127 + b"]" * 127 + b"}", "recursion limit exceeded at line 1 column 132"),
    (JSON, b"\xef\xbb\xbf{}", "expected value at line 1 column 1"),
    (JSON, b'{"a":"\\', "EOF while parsing a string at line 1 column 7"),
]
CSV_FAULTS = [
    (b"id, content\n1234, hello, world\n12, hello world",
     "CSV error: record 1 (line: 2, byte: 12): found record with 3 fields, but the previous record has 2 fields"),
    (b"a,b\n1,2\n\n\n3\n", "CSV error: record 2 (line: 3, byte: 8): found record with 1 fields, but the previous record has 2 fields"),
    (b"a,b\r\n1,2\r\n3\r\n", "CSV error: record 2 (line: 2, byte: 9): found record with 1 fields, but the previous record has 2 fields"),
    (b'a,b,c\n1,"x,y\n2,3,4\n',
     "CSV error: record 1 (line: 2, byte: 6): found record with 2 fields, but the previous record has 3 fields"),
    (b"#id:number,a:boolean\n0,doggo", 'Error parsing boolean "doggo" at line 1: provided string was not `true` or `false`'),
    (b"a:number\n1\n\nx \"y\t\n", 'Error parsing number "x \\"y\\t" at line 2: invalid float literal'),
    (b"a:number\n1_000\n", 'Error parsing number "1_000" at line 1: invalid float literal'),
    (b"a:number\n0x1\n", 'Error parsing number "0x1" at line 1: invalid float literal'),
    (b"a:boolean\nTrue\n", 'Error parsing boolean "True" at line 1: provided string was not `true` or `false`'),
    (b"a,b\n1,2\n3,x\xc3\x28y\n",
     "CSV parse error: record 2 (line 3, field: 1, byte: 8): invalid utf-8: invalid UTF-8 in field 1 near byte index 1"),
]


@pytest.mark.parametrize("size", [65_536, 1, 3])
@pytest.mark.parametrize(("content_type", "content", "lines"), GOOD)
def test_documents_become_lines(tmp_path: Path, content_type: str, content: bytes, lines: str, size: int) -> None:
    assert received(tmp_path, content, content_type, size) == lines


@pytest.mark.parametrize("size", [65_536, 1, 7])
@pytest.mark.parametrize(("content_type", "content", "reason"), JSON_FAULTS)
def test_faulty_json(tmp_path: Path, content_type: str, content: bytes, reason: str, size: int) -> None:
    if len(content) > 10_000 and size == 1:
        size = 1000
    name = "json" if content_type == JSON else "ndjson"
    message = f"The `{name}` payload provided is malformed. `Couldn't serialize document value: {reason}`."
    assert received(tmp_path, content, content_type, size) == f"malformed_payload: {message}"


@pytest.mark.parametrize("size", [65_536, 1, 2])
@pytest.mark.parametrize(("content", "reason"), CSV_FAULTS)
def test_faulty_csv(tmp_path: Path, content: bytes, reason: str, size: int) -> None:
    message = f"The `csv` payload provided is malformed: `{reason}`."
    assert received(tmp_path, content, CSV, size) == f"malformed_payload: {message}"


@pytest.mark.parametrize(("delimiter", "content"), [("|", b"a|b\n1|x,y\n"), (";", b'a;b\n1;"x,y"\n'), ("\t", b"a\tb\n1\tx,y\n")])
def test_columns_may_be_parted_by_another_character(tmp_path: Path, delimiter: str, content: bytes) -> None:
    assert received(tmp_path, content, CSV, delimiter=delimiter) == '{"a":"1","b":"x,y"}\n'


@pytest.mark.parametrize("delimiter", [chr(code) for code in range(128)])
def test_no_delimiter_is_an_accident(tmp_path: Path, delimiter: str) -> None:
    outcome = received(tmp_path, b'a,b\n1,"2\r\n', CSV, delimiter=delimiter)
    assert outcome.startswith(("{", "malformed_payload")) or outcome == ""


documents = st.lists(st.dictionaries(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    st.recursive(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
                 lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3), max_leaves=6),
    max_size=4), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(documents, st.integers(1, 40), st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_what_goes_in_comes_out_however_it_is_cut(
    tmp_path: Path, given: list[dict], size: int, is_list: bool, indent: int | None, is_ascii: bool
) -> None:
    texts = [json.dumps(document, indent=indent, ensure_ascii=is_ascii) for document in given]
    content = f"[{', '.join(texts)}]" if is_list else "\r\n".join(texts) + "\n"
    lines = received(tmp_path, content.encode(), JSON if is_list else NDJSON, size)
    assert [json.loads(line) for line in lines.split("\n")[:-1]] == given


@pytest.mark.parametrize(("content_type", "name"), [(JSON, "json"), (NDJSON, "ndjson"), (CSV, "csv")])
def test_an_empty_upload_is_missing(tmp_path: Path, content_type: str, name: str) -> None:
    assert received(tmp_path, b"", content_type) == f"missing_payload: A {name} payload is missing."


class Broken(Exception):
    pass


@pytest.mark.parametrize("content_type", [JSON, NDJSON, CSV])
def test_nothing_stays_when_the_stream_breaks(tmp_path: Path, content_type: str) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"a":1}\n'
        raise Broken

    with pytest.raises(Broken):
        receive(chunks(), content_type, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content_type", "delimiter", "outcome"),
    [
        ("application/json", None, JSON),
        ("Application/JSON; charset=utf-8", None, JSON),
        ("text/csv;header=present", ";", CSV),
        (None, ";", "missing_content_type: A Content-Type header is missing. Accepted values for the Content-Type header "
                    "are: `application/json`, `application/x-ndjson`, `text/csv`"),
        ("doggo", None, "invalid_content_type: The Content-Type `doggo` is invalid. Accepted values for the Content-Type "
                        "header are: `application/json`, `application/x-ndjson`, `text/csv`"),
        ("text/plain; charset=x", "a", "invalid_content_type: The Content-Type `text/plain` is invalid. Accepted values "
                                       "for the Content-Type header are: `application/json`, `application/x-ndjson`, `text/csv`"),
        ("application/x-ndjson", "a", "invalid_content_type: The Content-Type `application/x-ndjson` does not support the "
                                      "use of a csv delimiter. The csv delimiter can only be used with the Content-Type `text/csv`."),
    ],
)
def test_the_content_type_names_the_format(content_type: str | None, delimiter: str | None, outcome: str) -> None:
    try:
        found = payload_format(content_type, delimiter)
    except ApiError as error:
        found = f"{error.code}: {error.message}"
    assert found == outcome


def repeated(part: bytes, count: int, before: bytes = b"", after: bytes = b"") -> Callable[[], Iterable[bytes]]:
    def chunks() -> Iterator[bytes]:
        yield before
        for _ in range(count):
            yield part
        yield after

    return chunks


@pytest.mark.parametrize(
    ("chunks", "content_type"),
    [
        (repeated(b'{"id":1,"text":"some words of a text"}\n' * 1000, 60), NDJSON),
        (repeated(b'{"id":1,"text":"some words of a text"},' * 1000, 60, b"[", b'{"id":2}]'), JSON),
        (repeated(b"1,some words of a text\n" * 1000, 60, b"id,text\n"), CSV),
        (repeated(b"[" * 65_536, 760), JSON),
        (repeated(b" " * 65_536, 60), NDJSON),
        (repeated(b"\n" * 65_536, 4), CSV),
    ],
    ids=["ndjson", "json", "csv", "brackets", "blanks", "empty lines"],
)
def test_memory_does_not_follow_the_upload(tmp_path: Path, chunks: Callable[[], Iterator[bytes]], content_type: str) -> None:
    tracemalloc.start()
    try:
        receive(chunks(), content_type, tmp_path)
    except ApiError as error:
        assert error.code == "malformed_payload"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1_200_000


def test_fifty_megabytes_of_brackets_are_refused_at_once(tmp_path: Path) -> None:
    started = time.perf_counter()
    assert "recursion limit exceeded" in received(tmp_path, b"[" * 50_000_000, JSON)
    assert is_within(time.perf_counter() - started, 1)


def test_a_quote_that_never_closes_ends_before_memory_does(tmp_path: Path) -> None:
    content = b'id,text\n1,"open\n' + b"2,more text\n" * 900_000
    message = received(tmp_path, content, CSV)
    assert message.startswith("malformed_payload: The `csv` payload provided is malformed: `CSV error: record 1 (line: 2, byte: 8)")
    assert "closing quote" in message


@pytest.mark.parametrize("content_type", [JSON, NDJSON])
def test_a_large_document_does_not_slow_down_later_ones(tmp_path: Path, content_type: str) -> None:
    large, small = '{"a":"' + "x" * 1_500_000 + '"}', '{"b":[1,2]}'
    texts = [small, large, *[small] * 100_000, large, small]
    content = "[" + ",\n".join(texts) + "]" if content_type == JSON else "\n".join(texts)
    started = time.perf_counter()
    assert received(tmp_path, content.encode(), content_type) == "".join(f"{text}\n" for text in texts)
    assert is_within(time.perf_counter() - started, 5)


@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_empty_csv_lines_change_nothing_but_places(tmp_path: Path, size: int) -> None:
    content = b"\n\r\nid,a\r\n\r\n\n1,x\r\r2,\"y\n\n\r\"\n\n\n"
    assert received(tmp_path, content, CSV, size) == '{"id":"1","a":"x"}\n{"id":"2","a":"y\\n\\n\\r"}\n'
    assert "record 3 (line: 9, byte: 26)" in received(tmp_path, content + b"3\n", CSV, size)


def test_csv_fields_are_counted_outside_of_quotes(tmp_path: Path) -> None:
    many = b"," * 65_535
    assert "more than 65535 fields" in received(tmp_path, many + b"\n", CSV)
    assert "more than 65535 fields" in received(tmp_path, b'"a""b\n"' + many + b"\n", CSV)
    assert received(tmp_path, b'id,"' + many + b'"\n1,"' + many + b'\n"\n', CSV).startswith('{"id":"1",",,')
    assert received(tmp_path, many[1:] + b"\n", CSV) == ""


@pytest.mark.parametrize("size", [65_536, 1000])
@pytest.mark.parametrize("content_type", [JSON, NDJSON])
@pytest.mark.parametrize("before", [0, 1, 5000])
def test_no_deep_document_reaches_the_scanner_that_recurses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content_type: str, before: int, size: int
) -> None:
    scan = uploads._scan

    def checked(text: str, at: int) -> object:
        assert text.count('{"b":', at) < 128, "nested objects reach the scanner"
        return scan(text, at)

    monkeypatch.setattr(uploads, "_scan", checked)
    texts = ['{"a":[1]}'] * before + ['{"b":' * 9000 + "1" + "}" * 9000]
    content = ",".join(texts).join("[]") if content_type == JSON else "\n".join(texts)
    assert "recursion limit exceeded" in received(tmp_path, content.encode(), content_type, size)


def test_many_small_documents_before_a_deep_one_are_read_quickly(tmp_path: Path) -> None:
    content = b'{"a":"' + b"x" * 900_000 + b'"}\n' + b'{"b":1}\n' * 100_000 + b'{"c":' * 9000
    begin = time.perf_counter()
    assert "recursion limit exceeded at line 100002" in received(tmp_path, content, NDJSON)
    assert is_within(time.perf_counter() - begin, 5)
