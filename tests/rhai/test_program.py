"""Running a function. What must hold:

1. `doc` at the end is the document; `()` deletes it; anything but an object map is rejected.
2. `context` is a constant, and undefined if the request has none.
3. Variables and elements do not share values; closures share captured variables; `this` is the value itself.
4. Integers have 64 bits and never wrap; an integer beside a float is converted; strings concatenate with anything.
5. A missing member is `()`; `()` has no members, but `?.`, `?[` and `??` pass it on.
6. The value of statements is that of the last; loops end with `break`, functions with `return`.
7. Errors have the position of the function, operator, index, member or condition, and the calls they came through.
8. What a function does to one document affects neither the next one nor the context.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.rhai import FunctionError, NotAnObject, Program
from tests.support.rhai_programs import ALIEN, error_of, run, value


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("doc.title = `✨ ${doc.title.to_upper()} ✨`", {"title": "✨ ALIEN ✨"}),
        ("doc.title = doc.title.to_upper()", {"title": "ALIEN"}),
        ('doc.status = "archived"', {"status": "archived"}),
        ('if doc.n == 0 { doc.stock = "out" } else { doc.stock = "in" }', {"stock": "in"}),
        ("doc.full = `${doc.cast.a} ${doc.cast.b}`", {"full": "Hurt Weaver"}),
        ("doc.f = doc.f * 0.8", {"f": 2.0}),
        ('doc.list[1] = "new"', {"list": [3, "new", 2]}),
        ('doc["a b"] = 1; doc.cast.c = #{d: [1]}; doc.cast.c.d[0] += 1;',
         {"a b": 1, "cast": {"a": "Hurt", "b": "Weaver", "c": {"d": [2]}}}),
        ("if doc.id >= 1 { doc.n -= 1; doc.n *= 4; doc.n /= 3; doc.n %= 4; }", {"n": 1}),
        ("doc.list.push(4); doc.list.sort(); doc.list[-1] = 9", {"list": [1, 2, 3, 9]}),
        ("doc.title[0] = 'a'; doc.title.make_upper()", {"title": "ALIEN"}),
        ("let doc = #{id: 1}; doc.n = 2", None),
        ("", {}), ("// nothing", {}), ("return; doc.n = 0", {}), ("doc.n = 1; exit(); doc.n = 2", {"n": 1}),
    ],
)
def test_documents_are_changed(text: str, change: dict[str, Any] | None) -> None:
    assert run(text) == ({"id": 1, "n": 2} if change is None else {**ALIEN, **change})


def test_members_come_sorted_by_name() -> None:
    assert list(run("doc.z = #{b: 1, a: 2}; doc.a = 1")) == ["a", "cast", "f", "id", "list", "n", "no", "title", "z"]
    assert list(run("doc.z = #{b: 1, a: 2}")["z"]) == ["a", "b"]


def test_the_document_may_be_removed() -> None:
    assert run("if doc.id % 2 == 1 { doc = () }") is None
    assert run("if doc.id % 2 == 0 { doc = () }") == ALIEN
    assert run('doc.remove("title")') == {name: each for name, each in ALIEN.items() if name != "title"}


@pytest.mark.parametrize("text", ["doc = 1", "doc = [doc]", "let doc = \"a\"", "doc = true"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(NotAnObject):
        run(text)


def test_what_json_does_not_have_is_refused() -> None:
    assert "Fn (expecting a value that a document can hold)" in error_of("doc.f = |x| x")
    assert "range (expecting" in error_of("doc.f = 1..2")
    assert run("doc.f = (0.0 / 0.0); doc.g = 'x'")["f"] is None


def test_the_context_is_a_constant() -> None:
    context = {"max": 50, "tags": [1, [2]], "m": {"x": 1}}
    assert run("if doc.id < context.max { doc.tags = context.tags }", None, context)["tags"] == [1, [2]]
    assert error_of("context.max = 1", context) == "Cannot modify constant context (line 1, position 1)"
    assert error_of("context = 1", context) == "Cannot modify constant context (line 1, position 1)"
    message = "Non-pure method 'push' cannot be called on constant (line 1, position 17)"
    assert error_of("context.tags[1].push(1)", context) == message
    assert error_of("doc.a = context.max") == "Variable not found: context (line 1, position 9)"


@pytest.mark.parametrize("text", [
    "let c = context.tags; c[1].push(3); doc.c = c",
    "for t in context.tags { if type_of(t) == \"array\" { t.push(3) } }",
    "let x = context.tags.filter(|t| true); x[1].push(3)", "context.tags.map(|| this.push(1))",
    "let c = context.tags + []; c[1].push(1)", "(if true { context.tags } else { 1 })[1].push(1)",
    "let f = || context.tags; let g = f.call(); g[1].push(3)", "fn f(x) { x[1].push(1) } f(context.tags)",
    "let m = context.m + #{}; m.x = 2", "doc.mixin(context); doc.tags[1].push(2); doc.m.x = 3",
    "context.tags.extract(0)[1].push(1)", "context.tags.get(1).push(1)", "let x = [context.tags]; x[0][1].push(1)",
    "try { throw context } catch (c) { c.m = 1 }", "push(context.tags, 1)", "context.m.values()[0]",
    "context.tags.reduce(|a, b| { b.push(1); a }, [])",
])
def test_the_context_stays_as_it_is(text: str) -> None:
    context = {"tags": [1, [2]], "m": {"x": 1}}
    try:
        run(text, None, context)
    except FunctionError:
        pass
    assert context == {"tags": [1, [2]], "m": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let a = [1]; let b = a; b.push(2); [a, b]", [[1], [1, 2]]),
        ("let a = #{x: [1]}; let b = a.x; b.push(2); [a, b]", [{"x": [1]}, [1, 2]]),
        ("let a = [1]; let b = [a, a]; b[0].push(2); [a, b]", [[1], [[1, 2], [1]]]),
        ("let a = [[1]]; for x in a { x.push(2) } a", [[1]]),
        ("fn f(x) { x.push(2); x } let a = [1]; let b = f(a); [a, b]", [[1], [1, 2]]),
        ("fn f() { this.push(2); this = [this, 1]; } let a = [1]; a.f(); a", [[1, 2], 1]),
        ("fn f() { this += 1; } let a = 1; a.f(); a", 2),
        ("let n = 1; let f = || n += 1; f.call(); f.call(); n", 3),
        ("let n = 1; let f = |x| x + n; n = 10; f.call(1)", 11),
        ("let fs = []; for i in 0..3 { let j = i; fs.push(|| j) } fs.map(|f| f.call())", [0, 1, 2]),
        ("let f = |x| x * 2; [f(1), f.call(2), call(f, 3), f.curry(4).call()]", [2, 4, 6, 8]),
        ("fn double(x) { x * 2 } let f = Fn(\"double\"); f.call(4)", 8),
        ("let m = #{n: 3, f: |x| this.n + x}; m.f(4)", 7),
        ("fn f(x) { x } [is_def_fn(\"f\", 1), is_def_fn(\"f\", 2), is_def_fn(\"f\", [1])]", [True, False, False]),
        ("let x = 1; [is_def_var(\"doc\"), is_def_var(\"x\"), is_def_var(\"y\")]", [True, True, False]),
        ("fn fib(n) { if n < 2 { n } else { fib(n - 1) + fib(n - 2) } } fib(10)", 55),
        ("let f = |n| { let g = |m| m + n; g.call(1) }; f.call(2)", 3),
        ("let a = [1, 2, 3]; a.for_each(|| this *= 2); a", [2, 4, 6]),
        ("const A = [1]; let b = A; b.push(2); b", [1, 2]),
        ("let s = \"a\"; let t = s; t += \"b\"; t.make_upper(); [s, t]", ["a", "AB"]),
    ],
)
def test_values_and_variables(text: str, expected: Any) -> None:
    *before, last = text.rsplit("; ", 1) if "; " in text else ("", text)
    if "} " in last:
        head, _, last = last.rpartition("} ")
        before = [*before, head + "}"]
    assert run(f"{'; '.join(before)}; doc.v = {last}")["v"] == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7 / 2", 3), ("-7 / 2", -3), ("-7 % 3", -1), ("7.0 / 2", 3.5), ("1 + 1.5", 2.5), ("2 ** 10", 1024),
        ("2 ** 0.5", 2**0.5),
        ("1 << 62", 1 << 62), ("-8 >> 1", -4), ("6 & 3", 2), ("6 | 3", 7), ("6 ^ 3", 5), ("true & false", False),
        ("1 == 1.0", True), ("1 == \"1\"", False), ("1 != \"1\"", True), ("1 < \"1\"", False), ("'a' == \"a\"", True),
        ("[1, [2.0]] == [1, [2]]", True), ("#{a: 1, b: 2} == #{b: 2, a: 1}", True), ("() == ()", True),
        ("() < 1", False),
        ("\"a\" + 1 + 2.0 + 'c' + () + true + [1, \"x\", ()] + #{b: 1, a: 'q'}",
         "a12.0ctrue[1, \"x\", ()]#{\"a\": 'q', \"b\": 1}"),
        ("1 + \"a\"", "1a"), ("() + \"a\"", "a"), ("'a' + 'b'", "ab"), ("\"hello\" - \"l\"", "heo"),
        ("[1] + [2]", [1, 2]),
        ("#{a: 1} + #{b: 2}", {"a": 1, "b": 2}), ("!true || false", False), ("\"b\" in #{b: 1}", True),
        ("2 in [1, 2]", True),
        ("\"lie\" in \"Alien\"", True), ("5 in 1..5", False), ("5 in 1..=5", True), ("3 !in [1]", True),
        ("1e20 + \"\"", "1e20"), ("1.5e-14 + \"\"", "1.5e-14"), ("0.00001 + \"\"", "0.00001"),
        ("1e13 + \"\"", "10000000000000.0"),
        ("`${1}${()}${\"a\"}`", "1a"), ("0.1 + 0.2", 0.1 + 0.2),
        ("type_of(1.0) + type_of(()) + type_of(|| 1)", "f64()Fn"),
        ("type_of('a') + doc.type_of() + type_of(1..2) + type_of(1..=2)", "charmaprangerange="),
        ("doc.missing", None), ("doc.missing?.a?.b", None), ("doc.missing?[0]", None), ("doc.no ?? 3", 3),
        ("doc.n ?? 3", 5),
        ("{ 1; 2; }", 2), ("{ }", None), ("if false { 1 }", None), ("{ let x = 1 }", None),
        ("switch doc.n { 1 | 5 => \"a\", _ => \"b\" }", "a"),
        ("switch doc.n { 1..=4 => 1, 5..9 if doc.id == 2 => 2, 5..9 => 3 }", 3),
        ("switch doc.title { \"alien\" => 1, \"Alien\" => 2 }", 2), ("switch 1.0 { 1 => 1, 1.0 => 2 }", 2),
        ("switch [1, \"a\"] { [1, \"b\"] => 1, [1, \"a\"] => 2 }", 2), ("switch 7 { 1 => 1 }", None),
        ("loop { break 3; }", 3), ("while true { break }", None), ("\"abc\"[1]", "b"), ("\"abc\"[-1]", "c"),
        ("do { 1 } while false", None), ("doc.title.len", 5), ("doc.list.len()", 3), ("7.5.floor", 7.0),
    ],
)
def test_expressions(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for i in 0..5 { doc.n += i }", 15), ("for i in range(0, 10, 3) { doc.n += i }", 23),
        ("for (x, i) in doc.list { doc.n += x * i }", 10),
        ("let i = 0; while i < 3 { i += 1; if i == 2 { continue } doc.n += i }", 9),
        ("do { doc.n += 1 } until doc.n > 7", 8), ("loop { doc.n += 1; if doc.n > 9 { break } }", 10),
        ("for c in \"abc\".chars() { doc.n += 1 }", 8),
        ("fn f(x) { for i in 0..9 { if i == x { return i; } } -1 } doc.n = f(3) + f(20)", 2),
        ("try { doc.n = 1; doc.list[9]; doc.n = 2 } catch (e) { doc.n += e.line + e.position }", 29),
        ("try { throw 4 } catch (e) { doc.n += e }", 9), ("try { nope() } catch { doc.n = 0 }", 0),
    ],
)
def test_loops_and_leaving_them(text: str, expected: int) -> None:
    assert run(text)["n"] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("doc.a = x", "Variable not found: x (line 1, position 9)"),
        ("doc.a =\n  nope(1, \"a\", 'c')",
         "Function not found: nope (i64, &str | ImmutableString | String, char) (line 2, position 3)"),
        ("doc.title.nope(1.0)",
         "Function not found: nope (&str | ImmutableString | String, f64) (line 1, position 11)"),
        ("1 + ()", "Function not found: + (i64, ()) (line 1, position 3)"),
        ("-doc", "Function not found: - (map) (line 1, position 1)"),
        ("[1] < [2]", "Function not found: < (array, array) (line 1, position 5)"),
        ("doc.n += ()", "Function not found: + (i64, ()) (line 1, position 7)"),
        ("doc.list[7]", "Array index 7 out of bounds: only 3 elements in array (line 1, position 10)"),
        ("[1][1]", "Array index 1 out of bounds: only 1 element in array (line 1, position 5)"),
        ("let x = []; x[0] = 1", "Array index 0 out of bounds: array is empty (line 1, position 15)"),
        ("doc.title[5]", "String index 5 out of bounds: only 5 characters in string (line 1, position 11)"),
        ("doc.list[\"a\"]", "Data type incorrect: string (expecting i64) (line 1, position 10)"),
        ("doc[1]", "Data type incorrect: i64 (expecting string) (line 1, position 5)"),
        ("doc.no.x", "Unknown property 'x' - a getter is not registered for type '()' (line 1, position 8)"),
        ("doc.no.x = 1",
         "No writable property 'x' - a setter is not registered for type '()' to handle 'i64' (line 1, position 8)"),
        ("doc.n[0]", "Indexer unavailable: i64 [i64] (line 1, position 7)"),
        ("if doc.n { }", "Data type incorrect: i64 (expecting bool) (line 1, position 7)"),
        ("doc.n && true", "Data type incorrect: i64 (expecting bool) (line 1, position 4)"),
        ("for x in 5 {}", "For loop expects iterable type (line 1, position 10)"),
        ("1 / 0", "Division by zero: 1 / 0 (line 1, position 3)"),
        ("9223372036854775807 + 1", "Addition overflow: 9223372036854775807 + 1 (line 1, position 21)"),
        ("doc.n *= 9223372036854775807", "Multiplication overflow: 5 * 9223372036854775807 (line 1, position 7)"),
        ("2 ** 64", "Exponential overflow: 2 ** 64 (line 1, position 3)"),
        ("parse_int(\"x\")", "Error parsing integer number 'x': invalid digit found in string (line 1, position 1)"),
        ("throw", "Runtime error (line 1, position 1)"), ("throw \"bad\"", "Runtime error: bad (line 1, position 1)"),
        ("const A = 1; A += 1", "Cannot assign to constant A (line 1, position 14)"),
        ("fn f(a) {\n  a.nope()\n}\nfn g() { f(1) }\n g()",
         "Function not found: nope (i64) (line 2, position 5)\nin call to function 'f' (line 4, position 10)\n"
         "in call to function 'g' (line 5, position 2)"),
        ("doc.list.map(|x| y)", "Variable not found: y (line 1, position 18)\nin closure call (line 1, position 10)"),
        ("fn f() { doc } f()",
         "Variable not found: doc (line 1, position 10)\nin call to function 'f' (line 1, position 16)"),
        ("fn f() { this } f()",
         "'this' not bound (line 1, position 10)\nin call to function 'f' (line 1, position 17)"),
    ],
)
def test_errors_say_where(text: str, message: str) -> None:
    assert error_of(text) == message


def test_what_one_run_leaves_does_not_reach_the_next() -> None:
    program = Program("let seen = []; seen.push(doc.id); doc.seen = seen; let f = || doc.id; doc.f = f.call()")
    assert [program.edited({"id": n}) for n in (1, 2)] == [{"id": n, "seen": [n], "f": n} for n in (1, 2)]
