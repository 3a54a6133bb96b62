"""What must hold of JSON that is read and printed:

1. A faulty text is rejected with the message, line and column (in bytes) of serde_json.
2. What only the standard library accepts is rejected, or read as serde_json reads it.
3. The fast decoder and the scanner agree on which texts are correct.
4. What is printed is read back unchanged, and floats have the form of serde_json.
5. Skimming differs from parsing only where it is documented.
6. Malicious texts take linear time.
"""
from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from svcd.base import json_text
from svcd.base.json_text import (
    MAX_WRAPPED_DEPTH, JsonError, TooDeep, dumps, dumps_begin, fault_in, has_at_most, is_too_deep, loads, loads_wrapped, value_end,
)
from tests.support.pace import is_within

FAULTS = [
    ("", "EOF while parsing a value at line 1 column 0"),
    (" \n ", "EOF while parsing a value at line 2 column 1"),
    ("{id: 2}", "key must be a string at line 1 column 2"),
    ('{"a": 1, b: 2}', "key must be a string at line 1 column 10"),
    ('[{"id": 1}, {id: 2}]', "key must be a string at line 1 column 14"),
    ("[1,]", "trailing comma at line 1 column 4"),
    ('{"a":1,}', "trailing comma at line 1 column 8"),
    ("[,1]", "expected value at line 1 column 2"),
    ("[1", "EOF while parsing a list at line 1 column 2"),
    ("[1,", "EOF while parsing a value at line 1 column 3"),
    ("[", "EOF while parsing a list at line 1 column 1"),
    ("{", "EOF while parsing an object at line 1 column 1"),
    ('{"a"', "EOF while parsing an object at line 1 column 4"),
    ('{"a":', "EOF while parsing a value at line 1 column 5"),
    ('{"a":1', "EOF while parsing an object at line 1 column 6"),
    ('{"a":1,', "EOF while parsing a value at line 1 column 7"),
    ('"abc', "EOF while parsing a string at line 1 column 4"),
    ('"ab\\', "EOF while parsing a string at line 1 column 4"),
    ('"\\u12"', "EOF while parsing a string at line 1 column 6"),
    ("tru", "EOF while parsing a value at line 1 column 3"),
    ("nulx", "expected ident at line 1 column 4"),
    ("True", "expected value at line 1 column 1"),
    ("'a'", "expected value at line 1 column 1"),
    ("01", "invalid number at line 1 column 2"),
    ("-", "EOF while parsing a value at line 1 column 1"),
    ("-x", "invalid number at line 1 column 2"),
    ("+1", "expected value at line 1 column 1"),
    (".5", "expected value at line 1 column 1"),
    ("1.", "EOF while parsing a value at line 1 column 2"),
    ("[1.]", "invalid number at line 1 column 4"),
    ("1e+", "EOF while parsing a value at line 1 column 3"),
    ("[1ex]", "invalid number at line 1 column 4"),
    ("[1 2]", "expected `,` or `]` at line 1 column 4"),
    ('{"a" 1}', "expected `:` at line 1 column 6"),
    ('{"a":1 "b":2}', "expected `,` or `}` at line 1 column 8"),
    ('{"a":1]', "expected `,` or `}` at line 1 column 7"),
    ("[1}", "expected `,` or `]` at line 1 column 3"),
    ("1 2", "trailing characters at line 1 column 3"),
    ("{}}", "trailing characters at line 1 column 3"),
    ('"\x01"', "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 2"),
    ('"a\nb"', "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"),
    ('"\\q"', "invalid escape at line 1 column 3"),
    ('"\\u12g4"', "invalid escape at line 1 column 7"),
    ('"\\ud800"', "unexpected end of hex escape at line 1 column 8"),
    ('"\\ud800\\n"', "unexpected end of hex escape at line 1 column 9"),
    ('"\\ud800\\u0041"', "lone leading surrogate in hex escape at line 1 column 13"),
    ('"\\udc00"', "lone leading surrogate in hex escape at line 1 column 7"),
    ('["\\\\\\ud800"]', "unexpected end of hex escape at line 1 column 11"),
    ("NaN", "expected value at line 1 column 1"),
    ('{"a":Infinity}', "expected value at line 1 column 6"),
    ("[-Infinity]", "invalid number at line 1 column 3"),
    ("1e999", "number out of range at line 1 column 5"),
    ("[-1e400,1]", "number out of range at line 1 column 7"),
    ("1e99999999999", "number out of range at line 1 column 12"),
    ("1e2147483648", "number out of range at line 1 column 12"),
    ("1e2147483647", "number out of range at line 1 column 12"),
    ("9" * 100_000, "number out of range at line 1 column 100000"),
    ("\ufeff1", "expected value at line 1 column 1"),
    ("\x00", "expected value at line 1 column 1"),
    ("[\x00]", "expected value at line 1 column 2"),
    ("[1\x0c]", "expected `,` or `]` at line 1 column 3"),
    ('["é", é]', "expected value at line 1 column 8"),
    ('{"a":\r\n "é",\n x}', "key must be a string at line 3 column 2"),
    ("[" * 128, "recursion limit exceeded at line 1 column 128"),
    ('{"a":' * 130, "recursion limit exceeded at line 1 column 636"),
    ("[" * 127 + "{}" + "]" * 127, "recursion limit exceeded at line 1 column 128"),
    (b'"\xff"', "invalid unicode code point at line 1 column 3"),
    (b'["a\xc3("]', "invalid unicode code point at line 1 column 6"),
    (b"\xff", "expected value at line 1 column 1"),
    (b'"\xed\xa0\x80"', "invalid unicode code point at line 1 column 5"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS, ids=[str(at) for at in range(len(FAULTS))])
def test_a_fault_has_the_words_and_the_place_of_serde(text: str | bytes, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        loads(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("0.5e-400", 0.0),
        ("0e999", 0.0),
        ("0" + ".0" * 1 + "e99999999999", 0.0),
        ('{"x":1,"y":2,"x":3}', {"x": 3, "y": 2}),
        ('"\\ud83d\\ude00 \\/ \\\\ud800"', "😀 / \\ud800"),
        (b'"\xf0\x9f\x98\x80"', "😀"),
        ("[" * 127 + "]" * 127, None),
        ('"\x7f"', "\x7f"),
        (" [ 1 , 2 ] \r\n\t", [1, 2]),
        ("0." + "1" * 100_000, 0.1111111111111111),
    ],
)
def test_right_texts(text: str, value: object) -> None:
    read = loads(text)
    assert value is None or read == value
    assert fault_in(text if isinstance(text, bytes) else text.encode()) is None


@pytest.mark.parametrize("digits", ["18446744073709551616", "-9223372036854775809", "1" * 300, "-0"])
def test_what_no_integer_holds_becomes_a_float(digits: str) -> None:
    for text in (digits, f'{{"a":[{digits}]}}', f"[{digits} ,1]"):
        value = loads(text)
        number = value["a"][0] if isinstance(value, dict) else value[0] if isinstance(value, list) else value
        assert isinstance(number, float) and number == float(digits)
    assert math.copysign(1, loads("-0")) == -1


def test_a_text_that_only_looks_odd_is_read_as_it_is() -> None:
    text = '{"-0 ":"1e999","n":[10,-7,2.5,1e3],"s":"%s"}' % ("9" * 40)
    assert loads(text) == json.loads(text)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda children: st.lists(children) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), children),
    max_leaves=20,
)


@given(json_values)
def test_what_is_printed_is_read_back(value: object) -> None:
    text = dumps(value)
    assert repr(loads(text)) == repr(value)
    assert loads(json.dumps(value, indent=1).encode()) == value
    assert fault_in(text.encode()) is None


@given(json_values, st.data())
def test_quick_decoder_and_scanner_agree_on_damaged_texts(value: object, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode()
    at = data.draw(st.integers(0, len(text)))
    kept = data.draw(st.integers(0, len(text) - at))
    damage = data.draw(st.sampled_from([b"", b",", b"]", b"}", b"0", b"-", b'"', b"\\", b"e9", b"\x00", b"\xc3", b"x", b" "]))
    damaged = text[:at] + damage + text[at + kept :]
    fault = fault_in(damaged)
    try:
        loads(damaged)
    except JsonError as error:
        assert str(error) == str(fault)
    else:
        assert fault is None


@given(json_values)
def test_skimming_finds_the_end_of_a_value(value: object) -> None:
    text = dumps(value).encode()
    assert value_end(b" " + text + b" ,", skim=True) == len(text) + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1,]", "expected value at line 1 column 4"),
        ('{"a":1,}', "key must be a string at line 1 column 8"),
        ('{"a":1,', "EOF while parsing an object at line 1 column 7"),
        ("[1,", "EOF while parsing a value at line 1 column 3"),
        ('"\x01"', "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 1"),
        ("[1.", "invalid number at line 1 column 3"),
        ('{"a":"\\ud800"}', "unexpected end of hex escape at line 1 column 13"),
        (b'{"a":"\xff","b":1} ', "invalid unicode code point at line 1 column 15"),
    ],
)
def test_skimming_has_words_of_its_own(text: str | bytes, message: str) -> None:
    with pytest.raises(JsonError) as caught:
        value_end(text if isinstance(text, bytes) else text.encode(), skim=True)
    assert str(caught.value) == message


def test_a_fault_can_be_shifted_to_its_place_in_a_longer_text() -> None:
    assert str(JsonError("expected value", 1, 4).shifted(2, 10)) == "expected value at line 3 column 14"
    assert str(JsonError("expected value", 2, 4).shifted(2, 10)) == "expected value at line 4 column 4"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e16"),
        (1.5e300, "1.5e300"),
        (0.001, "0.001"),
        (1e-05, "0.00001"),
        (1.25e-05, "0.0000125"),
        (-1e-07, "-1e-7"),
        (1.5e-10, "1.5e-10"),
        ({"1e+16": [1e16, "2e-05", '"3e-07']}, '{"1e+16":[1e16,"2e-05","\\"3e-07"]}'),
        ("\x1f\x7f\u2028é/\\\"\n", '"\\u001f\x7f\u2028é/\\\\\\"\\n"'),
        ({}, "{}"),
    ],
)
def test_printed_as_serde_prints(value: object, text: str) -> None:
    assert dumps(value) == text


def test_not_a_number_is_never_printed() -> None:
    with pytest.raises(ValueError):
        dumps([math.nan])


@pytest.mark.parametrize(
    "text",
    [b"[" * 3_000_000, b'{"a":[' * 500_000, b'"' + b"\\u00e9" * 300_000, b"[" + b"12," * 700_000 + b"x]", b'["' + b"a" * 3_000_000],
    ids=["lists", "objects", "escapes", "numbers", "string"],
)
def test_hostile_texts_take_linear_time(text: bytes) -> None:
    started = time.perf_counter()
    with pytest.raises(JsonError):
        loads(text)
    assert is_within(time.perf_counter() - started, 1)


@pytest.mark.parametrize(("text", "most", "fits"), [
    (b"[1,2,3]", 3, True), (b"[1,2,3]", 2, False), (b'[",,,\\",[{",2,3]', 3, True), (b'[",,,\\",[{",2,3]', 2, False),
    (b'{"a":[]}', 2, True), (b'{"a":[]}', 1, False), (b'",,,', 1, True), (b"[1,2,3,x", 2, False),
])
def test_values_are_counted_outside_of_texts(text: bytes, most: int, fits: bool) -> None:
    assert has_at_most(text, most) is fits


def test_an_error_before_too_many_values_is_reported() -> None:
    with pytest.raises(JsonError, match="expected value at line 1 column 4"):
        has_at_most(b"[1,x,2,3]", 2)


@given(json_values)
def test_the_beginning_of_a_value_is_that_of_its_text(value: object) -> None:
    text = dumps(value)
    assert dumps_begin(value, len(text) + 1) == text
    assert len(dumps_begin(value, 5)) >= min(5, len(text))


# Depth


class _Decoder:
    """In place of a decoder of the standard library: nothing may reach it."""

    def decode(self, text: str) -> object:
        raise AssertionError(f"{len(text)} characters are decoded unchecked")


@pytest.mark.parametrize("text", [
    "[" * 9000 + "]" * 9000, '{"a":' * 9000 + "1" + "}" * 9000, "[" * 9000, '["[\\"]",' * 200 + "1" + "]" * 200, '[{"a":[],"b":' * 64 + "1" + "}]" * 64,
    '["\\\\",' * 128 + "1" + "]" * 128, '["\\\\\\"[",' * 128 + "1" + "]" * 128,
])
def test_what_is_too_deep_never_reaches_a_decoder_that_recurses(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(json_text, "quick", _Decoder())
    monkeypatch.setattr(json_text, "careful", _Decoder())
    for source in (text, text.encode()):
        with pytest.raises(JsonError, match="recursion limit exceeded"):
            loads(source)
    with pytest.raises(ValueError):
        json_text.decoded_together([text.encode(), b"1"])


def _depth(value: object) -> int:
    if not isinstance(value, (list, dict)):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


odd_texts = st.text(st.sampled_from('[]{}"\\,:a é'), max_size=6)
deep_values = st.recursive(odd_texts | st.integers(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_texts, inner, max_size=3), max_leaves=30)


@given(deep_values, st.integers(0, 12), st.booleans(), st.sampled_from([None, 1]))
def test_the_depth_of_a_text_is_that_of_its_value(value: object, most: int, is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    assert is_too_deep(text, most) == (_depth(value) > most)


@given(st.lists(st.sampled_from(["[", "]", "{", "}", '"', "\\", ",", ":", "a", '"a":', '["', "1"]), max_size=40).map("".join), st.integers(0, 8))
@example("[]]", 0)
def test_a_wrong_text_counts_at_least_up_to_its_fault(text: str, most: int) -> None:
    """As deep as the decoder goes: where it finds nothing wrong before."""
    fault = fault_in(text.encode())
    valid = text.encode()[:fault.index - 1] if fault else text.encode()
    open_ = {"[": 1, "{": 1, "]": -1, "}": -1}
    depth = deepest = 0
    is_string, before = False, ""
    for character in valid.decode():
        is_escaped = is_string and before == "\\"
        before = "" if is_escaped else character
        if character == '"' and not is_escaped:
            is_string = not is_string
        elif not is_string:
            depth += open_.get(character, 0)
            deepest = max(deepest, depth)
    assert is_too_deep(text.encode(), most) or deepest <= most


def test_what_peers_write_may_be_some_levels_deeper() -> None:
    deepest = "[" * MAX_WRAPPED_DEPTH + "]" * MAX_WRAPPED_DEPTH
    assert loads_wrapped(deepest) == loads_wrapped(deepest.encode()) == json.loads(deepest)
    for text in (f"[{deepest}]", f'{{"a":{deepest}}}', "[" * 100_000):
        with pytest.raises(TooDeep):
            loads_wrapped(text)
    for text in (b"\xff", "[", "\ufeff1"):
        with pytest.raises(ValueError):
            loads_wrapped(text)


def test_the_depth_of_a_long_text_is_found_soon() -> None:
    for text in (b"[]," * 200_000, b"[" * 200_000, (b"[" * 127 + b"]" * 127) * 800, b'"[\\"",' * 100_000, b'"' * 300_000 + b"[" * 200):
        begin = time.perf_counter()
        is_too_deep(text)
        assert is_within(time.perf_counter() - begin, 1)
