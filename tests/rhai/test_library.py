"""Builtin functions. What must hold:

1. Negative positions count from the end; slices beyond the ends are clamped.
2. A builtin that modifies its value modifies the variable or member it is called on; others have no side effects.
3. Callbacks on arrays get the element, then its index; sorting is stable.
4. Numbers are parsed exactly, and rejected with a message.
"""
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.rhai import Program
from tests.support.rhai_programs import error_of, run, value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("\"Alien\".len()", 5), ("\"é😀\".len", 2), ("\"é\".bytes", 2), ("\"\".is_empty()", True),
        ("\"ß\".to_upper()", "SS"),
        ("\"ABC\".to_lower()", "abc"), ("\"abc\".contains(\"b\")", True), ("\"abc\".contains('z')", False),
        ("\"abc\".starts_with(\"ab\")", True), ("\"abc\".ends_with('c')", True), ("\"abcb\".index_of('b')", 1),
        ("\"abcb\".index_of(\"b\", 2)", 3), ("\"abcb\".index_of(\"b\", -1)", 3), ("\"abc\".index_of(\"z\")", -1),
        ("\"abcdef\".sub_string(2)", "cdef"), ("\"abcdef\".sub_string(-3, 2)", "de"),
        ("\"abc\".sub_string(1, 99)", "bc"),
        ("\"abc\".sub_string(9)", ""), ("\"abc\".sub_string(1, -1)", ""), ("\"abcdef\".sub_string(1..3)", "bc"),
        ("\"abcdef\".sub_string(1..=3)", "bcd"), ("\"a,b,c\".split(\",\")", ["a", "b", "c"]),
        ("\"a,b,c\".split(',', 2)", ["a", "b,c"]),
        ("\"a,b,c\".split_rev(\",\")", ["c", "b", "a"]), ("\" a  b \".split()", ["a", "b"]),
        ("\"abc\".split(1)", ["a", "bc"]),
        ("\"abc\".chars()", ["a", "b", "c"]), ("\"abcd\".chars(1, 2)", ["b", "c"]), ("\"abc\".get(1)", "b"),
        ("\"abc\".get(7)", None),
        ("\"12\".parse_int() + 1", 13), ("\"ff\".parse_int(16)", 255), ("\" -7 \".parse_int()", -7),
        ("parse_int(\"000\")", 0),
        ("\"-9223372036854775808\".parse_int() + 1", -(2**63) + 1), ("\"1.5\".parse_float()", 1.5),
        ("\"1e3\".parse_float()", 1000.0),
        ("1.to_string()", "1"), ("\"a\".to_debug()", '"a"'), ("'a'.to_upper()", "A"), ("'a'.to_int()", 97),
        ("min(\"a\", \"b\")", "a"),
        ("parse_json(`{\"a\": [1, 2.5, null]}`)", {"a": [1, 2.5, None]}),
        ("#{b: 1, a: [()]}.to_json()", '{"a":[null],"b":1}'),
        ("-5.abs()", -5), ("(-5).abs()", 5), ("(-2.5).abs()", 2.5), ("(-3).sign()", -1), ("2.5.round()", 3.0),
        ("(-2.5).round()", -3.0),
        ("2.1.ceiling()", 3.0), ("(-2.1).floor()", -3.0), ("2.9.to_int()", 2), ("(-2.9).to_int()", -2),
        ("2.to_float()", 2.0),
        ("min(1, 2.5)", 1.0), ("max(1, 2)", 2), ("2.75.fraction", 0.75), ("2.75.int", 2.0), ("sqrt(16.0)", 4.0),
        ("255.to_hex()", "ff"),
        ("5.is_odd()", True), ("PI().to_int()", 3), ("(-1).to_binary().len()", 64), ("2.0.log(2.0)", 1.0),
        ("0.0.ln() < 0.0", True),
    ],
)
def test_texts_and_numbers(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("v.trim()", "a b"), ("v.make_upper()", " A B "), ("v.clear()", ""), ("v.truncate(2)", " a"),
        ("v.pop()", " a b"),
        ("v.pop(2)", " a "), ("v.crop(1, 3)", "a b"), ("v.crop(-2)", "b "), ("v.crop(1..2)", "a"),
        ("v.replace(\" \", \"_\")", "_a_b_"),
        ("v.remove(' ')", "ab"), ("v.append(1)", " a b 1"), ("v.pad(7, \"xy\")", " a b xy"), ("v.set(1, 'c')", " c b "),
        ("v += 1.0", " a b 1.0"), ("v -= \"a\"", "  b "), ("trim(v)", "a b"), ("v.to_upper()", " a b "),
        ("v[1] = 'z'", " z b "),
    ],
)
def test_texts_change_in_place(statement: str, expected: str) -> None:
    assert run(f"let v = \" a b \"; {statement}; doc.v = v")["v"] == expected
    if not statement.startswith("trim"):
        assert run(f"doc.m = [#{{v: \" a b \"}}]; doc.m[0].{statement}; doc.v = doc.m[0].v")["v"] == expected


@pytest.mark.parametrize(
    ("statement", "answer", "after"),
    [
        ("l.push(4)", None, [3, 1, 2, 4]), ("l.pop()", 2, [3, 1]), ("l.shift()", 3, [1, 2]),
        ("l.insert(1, 9)", None, [3, 9, 1, 2]),
        ("l.insert(-1, 9)", None, [3, 1, 9, 2]), ("l.insert(99, 9)", None, [3, 1, 2, 9]), ("l.remove(1)", 1, [3, 2]),
        ("l.remove(-1)", 2, [3, 1]), ("l.remove(9)", None, [3, 1, 2]), ("l.clear()", None, []),
        ("l.reverse()", None, [2, 1, 3]),
        ("l.sort()", None, [1, 2, 3]), ("l.sort(|a, b| b - a)", None, [3, 2, 1]), ("l.sort_desc()", None, [3, 2, 1]),
        ("l.order()", [1, 2, 3], [3, 1, 2]), ("l.truncate(1)", None, [3]), ("l.chop(1)", None, [2]),
        ("l.pad(5, 0)", None, [3, 1, 2, 0, 0]),
        ("l.append([7])", None, [3, 1, 2, 7]), ("l.extract(1)", [1, 2], [3, 1, 2]),
        ("l.extract(-2, 1)", [1], [3, 1, 2]),
        ("l.extract(0..2)", [3, 1], [3, 1, 2]), ("l.split(1)", [1, 2], [3]),
        ("l.splice(0, 1, [8, 9])", None, [8, 9, 1, 2]),
        ("l.splice(1..3, [])", None, [3]), ("l.drain(|x| x > 1)", [3, 2], [1]), ("l.retain(|x| x > 1)", [1], [3, 2]),
        ("l.drain(0, 2)", [3, 1], [2]),
        ("l.retain(0..1)", [1, 2], [3]), ("l.filter(|x| x > 1)", [3, 2], [3, 1, 2]),
        ("l.filter(|x, i| i > 0)", [1, 2], [3, 1, 2]),
        ("l.map(|x, i| x * i)", [0, 1, 4], [3, 1, 2]), ("l.map(|| this + 1)", [4, 2, 3], [3, 1, 2]),
        ("l.some(|x| x == 2)", True, [3, 1, 2]),
        ("l.all(|x| x > 1)", False, [3, 1, 2]), ("l.find(|x| x < 3)", 1, [3, 1, 2]),
        ("l.find(|x| x > 3)", None, [3, 1, 2]),
        ("l.find_map(|x| if x < 3 { x * 10 })", 10, [3, 1, 2]), ("l.index_of(2)", 2, [3, 1, 2]),
        ("l.index_of(|x| x < 3)", 1, [3, 1, 2]),
        ("l.index_of(3, 1)", -1, [3, 1, 2]), ("l.reduce(|a, x| a + x, 0)", 6, [3, 1, 2]),
        ("l.reduce(|a, x| (a ?? 0) + x)", 6, [3, 1, 2]),
        ("l.reduce_rev(|a, x| a + x, \"\")", "213", [3, 1, 2]), ("l.contains(1)", True, [3, 1, 2]),
        ("l.get(-1)", 2, [3, 1, 2]),
        ("l.set(0, 9)", None, [9, 1, 2]), ("l.len", 3, [3, 1, 2]), ("l.zip([1, 2], |a, b| a * b)", [3, 2], [3, 1, 2]),
        ("l.map(|x| `${x}`).join(\"-\")", "3-1-2", [3, 1, 2]), ("l += 5", None, [3, 1, 2, 5]),
        ("l += [5, 6]", None, [3, 1, 2, 5, 6]),
        ("l += l", None, [3, 1, 2, 3, 1, 2]), ("l[-1] = 9", None, [3, 1, 9]),
    ],
)
def test_arrays(statement: str, answer: Any, after: list[int]) -> None:
    is_assignment = " = " in statement or "+=" in statement
    act = f"{statement}; doc.v = ()" if is_assignment else f"doc.v = {statement}"
    found = run(f"let l = [3, 1, 2]; {act}; doc.l = l")
    assert (found["v"], found["l"]) == (answer, after)


def test_neighbours_that_repeat() -> None:
    assert run("let l = [1, 1, 2, 1]; l.dedup(); doc.l = l")["l"] == [1, 2, 1]
    assert run("let l = [1, 3, 2, 5]; l.dedup(|a, b| a % 2 == b % 2); doc.l = l")["l"] == [1, 2, 5]


@pytest.mark.parametrize(
    ("statement", "answer", "after"),
    [
        ("m.keys()", ["a", "b"], {"b": 1, "a": 2}), ("m.values()", [2, 1], {"b": 1, "a": 2}),
        ("m.len()", 2, {"b": 1, "a": 2}),
        ("m.len", None, {"b": 1, "a": 2}), ("m.remove(\"a\")", 2, {"b": 1}),
        ("m.remove(\"z\")", None, {"b": 1, "a": 2}),
        ("m.contains(\"a\")", True, {"b": 1, "a": 2}), ("m.clear()", None, {}),
        ("m.mixin(#{a: 9, c: 3})", None, {"a": 9, "b": 1, "c": 3}),
        ("m.fill_with(#{a: 9, c: 3})", None, {"a": 2, "b": 1, "c": 3}), ("m.get(\"b\")", 1, {"b": 1, "a": 2}),
        ("m.set(\"c\", 3)", None, {"a": 2, "b": 1, "c": 3}),
        ("m.filter(|k, v| v > 1)", {"a": 2}, {"b": 1, "a": 2}), ("m.drain(|k, v| v > 1)", {"a": 2}, {"b": 1}),
        ("m.retain(|k, v| k == \"a\")", {"b": 1}, {"a": 2}),
    ],
)
def test_object_maps(statement: str, answer: Any, after: dict[str, int]) -> None:
    found = run(f"let m = #{{b: 1, a: 2}}; doc.v = {statement}; doc.m = m")
    assert (found["v"], found["m"]) == (answer, after)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\"\".parse_int()", "cannot parse integer from empty string"),
        ("\"9223372036854775808\".parse_int()", "number too large to fit"),
        ("\"-9223372036854775809\".parse_int()", "number too small to fit"),
        ("\"1_0\".parse_int()", "invalid digit found"),
        ("\"12\".parse_int(99)", "Invalid radix: '99'"), ("\"abc\".parse_float()", "invalid float literal"),
        ("1e300.to_int()", "Integer overflow: to_int(1e300)"), ("[1, \"a\"].order()", "expecting elements of one type"),
        ("parse_json(\"{\")", "Syntax error: EOF while parsing an object"),
        ("range(0, 5, 0)", "step value cannot be zero"),
    ],
)
def test_errors_have_their_message(text: str, reason: str) -> None:
    assert reason in error_of(text)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers())))
def test_sorting_keeps_ties(pairs: list[tuple[int, int]]) -> None:
    rows = [{"k": key, "v": at} for at, (key, _) in enumerate(pairs)]
    sorted_by_function = Program("doc.rows.sort(|a, b| a.k - b.k)").edited({"rows": [dict(row) for row in rows]})
    assert sorted_by_function == {"rows": sorted(rows, key=lambda row: row["k"])}


_scalars = (st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
            | st.floats(allow_nan=False, allow_infinity=False))


@given(st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_values_that_are_not_touched_stay(held: Any) -> None:
    assert Program("let x = doc.held; doc.copy = x").edited({"held": held}) == {"held": held, "copy": held}
