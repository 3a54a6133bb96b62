"""The parser. What must hold:

1. Operators bind by precedence, all to the left but `**`; unary operators bind tighter than any of them.
2. `if`, `switch`, blocks and loops are expressions; only statements that end with a block need no semicolon.
3. Each error says what was expected, and where; the first one is reported.
4. No text raises anything but FunctionError; what is nested too deep or too large is rejected.
"""
from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from svcd.rhai import FunctionError, syntax, values
from svcd.rhai.parser import parse
from tests.support.rhai_words import texts_of_words


def only(text: str) -> syntax.Node:
    [node] = parse(text).statements
    return node


def shape(node: syntax.Node) -> object:
    """An expression as nested tuples."""
    if isinstance(node, syntax.Operation):
        return (node.operator, *map(shape, node.operands))
    if isinstance(node, syntax.Logic):
        return (node.operator, shape(node.left), shape(node.right))
    return node.value if isinstance(node, syntax.Literal) else getattr(node, "name", type(node).__name__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", ("+", 1, ("*", 2, 3))), ("1 - 2 - 3", ("-", ("-", 1, 2), 3)),
        ("2 ** 3 ** 4", ("**", 2, ("**", 3, 4))),
        ("-2 ** 2", ("**", -2, 2)), ("-a * b", ("*", ("-", "a"), "b")),
        ("!a && b || c", ("||", ("&&", ("!", "a"), "b"), "c")),
        ("a == b && c < d + 1", ("&&", ("==", "a", "b"), ("<", "c", ("+", "d", 1)))),
        ("a ?? b + 1", ("??", "a", ("+", "b", 1))),
        ("a in b == c", ("==", ("contains", "b", "a"), "c")), ("a !in b", ("!", ("contains", "b", "a"))),
        ("1..2 + 3", ("..", 1, ("+", 2, 3))), ("1 << 2 * 3", ("*", ("<<", 1, 2), 3)),
        ("(1 + 2) * 3", ("*", ("+", 1, 2), 3)),
        ("a | b & c", ("|", "a", ("&", "b", "c"))), ("+1", 1), ("()", None),
    ],
)
def test_operators_bind_by_precedence(text: str, expected: object) -> None:
    assert shape(only(text)) == expected


def test_statements_that_end_by_themselves() -> None:
    assert len(parse("if a {} while b {} { } for c in d {} switch e { _ => 1 } try {} catch {} -f").statements) == 7
    assert len(parse("a; b; ;; c").statements) == 3
    with pytest.raises(FunctionError, match="Expecting ';' to terminate this statement"):
        parse("let x = if a { 1 } let y = 2")


def test_expressions_of_statements() -> None:
    parse("let x = if a { 1 } else if b { 2 } else { 3 }; f(switch x { 1 => { 2 } _ => 3 });")
    parse("let y = loop { break 1; }; let f = |a, b| { a + b }; let g = || 1; let h = |x| x = 2;")
    parse("[1, 2,].map(|v| #{a: v, \"b c\": 1,}); x?.y?[0][1].z()")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("let", "Expecting name of a variable (line 1, position 4)"),
        ("let x = ", "Script is incomplete (line 1, position 9)"),
        ("let if = 1", "Expecting name of a variable (line 1, position 5)"),
        ("let var = 1", "'var' is a reserved keyword (line 1, position 5)"),
        ("doc.a = ;", "Unexpected ';' (line 1, position 9)"),
        ("a b", "Expecting ';' to terminate this statement (line 1, position 3)"),
        ("doc.1", "Expecting name of a property (line 1, position 5)"),
        ("doc.new = 1", "'new' is a reserved keyword (line 1, position 5)"),
        ("if a = 1 {}", "Possibly a typo of '=='? (line 1, position 6)"),
        ("if a += 1 {}", "Expecting a boolean expression, not an assignment (line 1, position 6)"),
        ("if {}", "Expecting a boolean expression (line 1, position 4)"),
        ("if a b", "Expecting '{' to start a statement block (line 1, position 6)"),
        ("{ a", "Expecting ';' to terminate this statement (line 1, position 4)"),
        ("f(1", "Expecting ')' to close the arguments list of this function call 'f' (line 1, position 4)"),
        ("f(1 2)", "Expecting ',' to separate the arguments to function call 'f' (line 1, position 5)"),
        ("[1, 2", "Expecting ']' to end this array literal (line 1, position 6)"),
        ("[1 2]", "Expecting ',' to separate the items of this array literal (line 1, position 4)"),
        ("x[1", "Expecting ']' for a matching [ in this index expression (line 1, position 4)"),
        ("x[1.5]", "Array access expects integer index, not a float (line 1, position 3)"),
        ("(1", "Expecting ')' for a matching ( in this expression (line 1, position 3)"),
        ("#{a 1}", "Expecting ':' to follow the property 'a' in this object map literal (line 1, position 5)"),
        ("#{a: 1, a: 2}", "Duplicated property for object map literal: a (line 1, position 9)"),
        ("#{a: 1", "Expecting '}' to end this object map literal (line 1, position 7)"),
        ("1 = 2", "Cannot assign to a constant value (line 1, position 1)"),
        ("f() = 2", "Expression cannot be assigned to (line 1, position 1)"),
        ("x.f() = 2", "Expression cannot be assigned to (line 1, position 3)"),
        ("a && b = 2", "Possibly a typo of '=='? (line 1, position 8)"),
        ("break", "Break statement should only be used inside a loop (line 1, position 1)"),
        ("loop { || break }", "Break statement should only be used inside a loop (line 1, position 11)"),
        ("this.x", "'this' can only be used in functions (line 1, position 1)"),
        ("fn f(a, a) {}", "Duplicated parameter a for function f (line 1, position 9)"),
        ("fn f() {} fn f() {}", "Function f with no parameters already exists (line 1, position 11)"),
        ("fn f", "Expecting parameters for function f (line 1, position 5)"),
        ("fn f() 1", "Expecting body statement block for function f (line 1, position 8)"),
        ("fn () {}", "Expecting function name in function declaration (line 1, position 4)"),
        ("{ fn f() {} }", "Function definitions must be at global level and cannot be inside a block or another "
                          "function (line 1, position 3)"),
        ("do {} x", "Expecting 'while' for the do statement (line 1, position 7)"),
        ("for x y", "Expecting 'in' after the iteration variable (line 1, position 7)"),
        ("for (x, x) in y {}", "Duplicated variable name: x (line 1, position 9)"),
        ("try {}", "Expecting 'catch' for the 'try' statement (line 1, position 7)"),
        ("switch x { _ => 1, 2 => 3 }", "Default switch case must be the last (line 1, position 20)"),
        ("switch x { y => 1 }", "Expecting a literal expression (line 1, position 12)"),
        ("switch x { _ if y => 1 }", "This switch case cannot have a condition (line 1, position 14)"),
        ("switch x { 1 => 2 3 => 4 }",
         "Expecting ',' to separate the items in this switch block (line 1, position 19)"),
        ("\n\n  @", "'@' is a reserved symbol (line 3, position 3)"),
    ],
)
def test_an_error_says_what_and_where(text: str, message: str) -> None:
    with pytest.raises(FunctionError) as caught:
        parse(text)
    assert str(caught.value) == message


def test_a_syntax_error_before_a_lexical_one_is_reported_first() -> None:
    with pytest.raises(FunctionError, match="Expecting ';'"):
        parse('a b "open')


@pytest.mark.parametrize("text", [
    "(" * 1000, "[" * 1000, "- " * 1000 + "1", "{" * 1000, "1" + "+1" * 1000, "|x| " * 1000, "if a {" * 500,
    "`${" * 500,
    "f(" * 1000, "x[" * 1000, "#{a:" * 1000, "switch a { 1 => " * 500,
])
def test_what_is_nested_too_deep_is_refused(text: str) -> None:
    with pytest.raises(FunctionError, match="Expression exceeds maximum complexity|Number of functions"):
        parse(text)


def test_long_is_not_deep() -> None:
    parse("doc.a = 1;" * 500)
    parse("x" + ".y" * 500)
    parse("if a {} " + "else if b {}" * 500)
    parse("[" + "1," * values.ARRAY_LENGTH + "]")


def test_too_much_is_refused() -> None:
    for text, message in (
        ("a" * (values.TEXT_LENGTH + 1), "Length of function exceeds the maximum limit"),
        ("[" + "1," * (values.ARRAY_LENGTH + 1) + "]", "Size of array literal exceeds the maximum limit"),
        ("".join(f"fn f{n}() {{}}" for n in range(31)), "Number of functions defined exceeds maximum limit"),
    ):
        with pytest.raises(FunctionError, match=message):
            parse(text)


@given(st.text() | texts_of_words)
@example("`${")
@example("switch")
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        parse(text)
    except FunctionError as error:
        assert str(error)
