"""The lexer. What must hold:

1. A token has its line and column, in characters, from 1; the end is after the last character.
2. Integers have 64 bits, in four bases, with underscores; a larger number, or one with a point or an exponent, is a float.
3. Strings: escapes in quotes, none in back-ticks but a doubled one, raw ones between `#"` and `"#`.
4. A back-tick string is split at each `${`, whatever braces and strings are in the block.
5. Comments nest and count as white space.
6. Lexing ends at the first error, which says what and where.
"""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.rhai.tokens import ERROR, tokens
from svcd.rhai.values import Char


def cut(text: str) -> list[tuple[str, object]]:
    return [(token.kind, token.value) for token in tokens(text)[:-1]]


def values(text: str) -> list[object]:
    return [token.value for token in tokens(text)[:-1]]


def test_tokens_know_where_they_begin() -> None:
    found = tokens("let é\n".replace("é", "x") + "  = `é`;")
    assert [tuple(token.position) for token in found] == [(1, 1), (1, 5), (2, 3), (2, 5), (2, 8), (2, 9)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("1_000", 1000), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", 2.0**63),
        ("0xff", 255), ("0b1_01", 5), ("0o17", 15), ("0xffffffffffffffff", -1), ("1.5", 1.5), ("1e3", 1000.0),
        ("2.5e-3", 0.0025), ("1.", 1.0), ('"a"', "a"), ("'a'", Char("a")),
        ('"a\\tb\\x41\\u00e9\\U0001F600\\\\"', "a\tbAé😀\\"),
        ('"say ""hi"""', 'say "hi"'), ("'\\n'", Char("\n")), ('"a\\\n   b"', "ab"), ("`a\\n``b`", "a\\n`b"),
        ("`\nline`", "line"), ('#"a"b"#', 'a"b'), ('##"a"#b"##', 'a"#b'), ("'\"'", Char('"')),
    ],
)
def test_literals(text: str, value: object) -> None:
    assert values(text) == [value] and type(values(text)[0]) is type(value)


def test_an_integer_keeps_its_methods_and_ranges() -> None:
    assert values("1.abs() 0..5 1..=2") == [1, ".", "abs", "(", ")", 0, "..", 5, 1, "..=", 2]


def test_a_text_is_cut_at_its_blocks() -> None:
    assert cut("`a ${x + `b${y}`} c` + #{}") == [
        ("text part", "a "), ("symbol", "{"), ("name", "x"), ("symbol", "+"), ("text part", "b"), ("symbol", "{"),
        ("name", "y"), ("symbol", "}"), ("text", ""), ("symbol", "}"), ("text", " c"), ("symbol", "+"),
        ("symbol", "#{"), ("symbol", "}")]
    assert values("`${ if a { #{b: 1} } }!`")[-2:] == ["}", "!"]


def test_comments_are_blanks() -> None:
    assert values("a // b\n /* c /* d */ e */ f /// g") == ["a", "f"]
    assert values("a /* open") == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('let x = "abc', "Open string is not terminated (line 1, position 9)"),
        ('"abc\n"', "Open string is not terminated (line 1, position 1)"),
        ("\n`abc ${1}", "Open string is not terminated (line 2, position 10)"),
        ('"\\q"', "Invalid escape sequence: '\\q' (line 1, position 3)"),
        ('"\\ud800"', "Invalid escape sequence: '\\ud800' (line 1, position 3)"),
        ("'ab'", "Invalid character: 'ab' (line 1, position 1)"),
        ("0b12", "Invalid number: '0b12' (line 1, position 1)"),
        ("0x1ffffffffffffffff", "Invalid number: '0x1ffffffffffffffff' (line 1, position 1)"),
        ("a é", "Unexpected 'é' (line 1, position 3)"),
        ("__ = 1", "Variable name is not proper: '__' (line 1, position 1)"),
        ("a === b", "'===' is not a valid operator. This is not JavaScript! Should it be '=='? (line 1, position 3)"),
        ("a ++", "'++' is a reserved symbol (line 1, position 3)"),
    ],
)
def test_an_error_says_what_and_where(text: str, message: str) -> None:
    last = tokens(text)[-1]
    assert last.kind == ERROR and str(last.value) == message


@given(st.text())
def test_any_text_is_cut(text: str) -> None:
    found = tokens(text)
    assert [token.position for token in found] == sorted(token.position for token in found)
