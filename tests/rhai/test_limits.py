"""The limits of functions. What must hold:

1. A function that does not end is stopped, whatever it does: loops, calls, sorting, copies, strings, catching.
2. No value exceeds the limits, and one that would is rejected before it is made.
3. A limit cannot be caught, and its error has the position of the outermost call.
4. Functions raise only FunctionError or NotAnObject; so does every builtin, for any arguments.
"""
from __future__ import annotations

import copy
import math
import time

import pytest
from hypothesis import given

from svcd.rhai import FunctionError, NotAnObject, values
from svcd.rhai.compiler import Compiler
from svcd.rhai.interpreter import ANY, LIBRARY, Interpreter
from svcd.rhai.parser import parse
from svcd.rhai.values import MAX_INT, MIN_INT, Char, FnPointer, Range, Value, type_name
from tests.support.rhai_programs import error_of, run
from tests.support.rhai_words import texts_of_words

_BIG_TEXT = 'let s = ""; s.pad(16000000, "a"); '
_BIG_LIST = "let l = []; l.pad(9999, 1); "


@pytest.mark.parametrize("text", [
    "loop {}", "for i in 0..9223372036854775807 {}", "fn f(n) { if n > 0 { f(n - 1) + f(n - 1) } else { 1 } } f(50)",
    "loop { try { loop {} } catch { } }", "let m = []; " + _BIG_LIST + "loop { m.push(l); }",
    _BIG_LIST + "loop { let m = l; }",
    _BIG_LIST + "loop { l.sort(|a, b| b - a); }", _BIG_LIST + "loop { l.contains(2) }",
    _BIG_TEXT + "loop { s.contains(\"b\") }",
    _BIG_TEXT + "loop { s.trim(); }", _BIG_TEXT + "loop { s.pop(); }", _BIG_TEXT + "loop { s[0] = 'b'; }",
    _BIG_TEXT + "loop { s += \"\"; }",
    _BIG_TEXT + "loop { `${s}` }", "let s = \"\"; loop { s += \"b\"; }",
    "let m = #{}; for i in 0..100000 { m[`k${i}`] = m; }",
    "let s = \"[\"; s.pad(3000000, \"[],\"); s += \"1]\"; s.parse_json()", _BIG_LIST + "loop { l.to_string() }",
    _BIG_LIST + "let m = []; loop { m.push(l.map(|x| `${x}`)); }",
])
def test_a_function_that_does_not_end_is_stopped(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "OPERATIONS", 200_000)
    started = time.process_time()
    assert "Too many operations" in error_of(text)
    assert time.process_time() - started < 20  # below a second on any machine; without a limit it would be hours


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("let s = \"ab\"; loop { s += s; }", "Length of string too large"),
        ("let s = \"ab\"; s.pad(1000000000, \"c\")", "Length of string too large"),
        ("let s = \"\"; s.pad(1000000, \"a\"); s.replace(\"a\", \"0123456789012345678901234567890\")",
         "Length of string too large"),
        ("let l = []; loop { l.push(1); }", "Size of array too large"),
        ("let l = []; l.pad(1000000000, 1)", "Size of array too large"),
        ("let l = [1]; loop { l += l; }", "Size of array too large"),
        ("let s = \"\"; s.pad(20000, \"a,\"); s.split(\",\")", "Size of array too large"),
        ("let m = #{}; let i = 0; loop { m[`${i}`] = 1; i += 1; }", "Size of object map too large"),
        ("let x = [1]; loop { x = [x]; }", "Depth of value too large"),
        ("let x = [1]; for i in 0..126 { x = [x]; } doc.x = [x, [x]]; doc.y = [doc.x]", "Depth of value too large"),
        ("fn f() { f() } f()", "Stack overflow"), ("let f = |g| g.call(g); f.call(f)", "Stack overflow"),
    ],
)
def test_no_value_exceeds_the_limits(text: str, message: str) -> None:
    assert error_of(text).startswith(message)


@pytest.mark.parametrize("text", ["let f = 1; " + "f(" * 60 + "1" + ")" * 60, "f(" * 60 + "1" + ")" * 60,
                                  "let f = 1; " + "f(|| " * 28 + "1" + ")" * 28, "x" + "[x" * 60 + "]" * 60])
def test_nested_calls_are_compiled_once(text: str) -> None:
    assert error_of(text)


def test_an_error_stays_short() -> None:
    assert len(error_of(_BIG_TEXT + "throw s")) < 5000 and len(error_of(_BIG_TEXT + "s.parse_int()")) < 5000


def test_a_limit_has_the_position_of_the_outermost_call() -> None:
    assert error_of("fn f() { loop {} }\n fn g() { f() }\n g()") == "Too many operations (line 3, position 2)"


@given(texts_of_words)
def test_no_function_raises_anything_else(text: str) -> None:
    try:
        run(text, None, {"a": [1]})
    except (FunctionError, NotAnObject) as error:
        assert str(error) or isinstance(error, NotAnObject)


_SAMPLES: dict[type, list[Value]] = {
    int: [0, 1, -1, 3, 64, 10_001, MIN_INT, MAX_INT],
    float: [0.0, -0.0, 1.5, -2.5, 1e300, -1e300, math.inf, -math.inf, math.nan, 9.3e18],
    str: ["", "a", "Ab c", "é😀ß", "-7", "1.5", "[1,{}]", "x" * 500],
    Char: [Char("a"), Char("ß")], bool: [True, False], type(None): [None],
    list: [[], [3, 1, 2], ["b", "a"], [1, "a", None, [1]], [1.5, math.nan]],
    dict: [{}, {"a": 1}, {"b": [1], "a": {"c": 2}}],
    Range: [Range(0, 3), Range(3, 0), Range(-5, 2, True), Range(MIN_INT, MAX_INT, True), Range(5, -5, step=-2)],
}
_CLOSURES = ("|x| x", "|x, y| x == y", "|x, y, z| x + y", "|| this", "|a, b| 1", "|x| throw 1", "|| ()")


def _pointers(runtime: Interpreter) -> list[Value]:
    made = []
    for text in _CLOSURES:
        body, scope = Compiler(runtime).program(parse(text), ())
        made.append(body([None] * scope.slots))
    return [*made, FnPointer("to_upper", None, None), FnPointer("nope", None, None)]


@pytest.mark.parametrize("name", sorted({name for name, _ in LIBRARY}))
def test_no_builtin_raises_anything_else(name: str) -> None:
    runtime = Interpreter()
    samples = {**_SAMPLES, FnPointer: _pointers(runtime)}
    anything = [value for values in samples.values() for value in values]
    for kinds in (kinds for known, kinds in LIBRARY if known == name):
        choices = [anything if kind is ANY else samples[kind] for kind in kinds]
        for turn in range(max(map(len, choices), default=1) * 3):
            arguments = [copy.deepcopy(each[(turn * (at * 7 + 1)) % len(each)]) for at, each in enumerate(choices)]
            runtime.reset()
            try:
                assert type_name(runtime.call(name, arguments))
            except FunctionError as error:
                assert str(error)
