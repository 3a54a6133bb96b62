"""Lexer: turns the text of a function into tokens.

Covers names, numbers, strings with escapes and interpolation, comments, symbols and reserved words. At the first lexical
error the list of tokens ends with an ERROR token, so that the parser can report an earlier syntax error first. Wording of
errors: that of Rhai's own lexer.
"""
from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from svcd.rhai.values import MAX_INT, Char, FunctionError, Position

NAME, NUMBER, TEXT, CHAR, SYMBOL, WORD, RESERVED, ERROR, END = (
    "name", "number", "text", "char", "symbol", "word", "reserved", "error", "end")
# A string up to its first or next `${`; the tokens of the block and the rest of the string follow.
TEXT_PART = "text part"

WORDS = frozenset(
    "let const if else switch while until loop do for in continue break return throw try catch fn private true false"
    .split())
RESERVED_WORDS = frozenset(
    "import export as global var static is goto match case public protected new use with module package super "
    "thread spawn go await async sync yield default void null nil".split())
# Builtin functions whose names are reserved: they can be called, but not be used as variables.
KEYWORD_FUNCTIONS = frozenset("print debug type_of eval Fn call curry is_shared is_def_fn is_def_var".split())
THIS = "this"

# Longest first, because a regular expression takes the first alternative that matches.
_SYMBOLS = (*"**= <<= >>= ..= ... === !==".split(),
            *"#{ ** << >> .. ?? ?. ?[ && || == != <= >= => += -= *= /= %= &= |= ^= -> <- := :: ++ -- (* *)".split(),
            *"+-*/%=<>!&|^()[]{},;:.?#~@$\\")
_ADVICE = {
    "===": "'===' is not a valid operator. This is not JavaScript! Should it be '=='?",
    "!==": "'!==' is not a valid operator. This is not JavaScript! Should it be '!='?",
    "->": "'->' is not a valid symbol. This is not C or C++!",
    "<-": "'<-' is not a valid symbol. This is not Go! Should it be '<='?",
    ":=": "':=' is not a valid assignment operator. This is not Go or Pascal! Should it be simply '='?",
    "::": "'::' is not a valid symbol. This is not Rust! Should it be '.'?",
    "(*": "'(* .. *)' is not a valid comment format. This is not Pascal! Should it be '/* .. */'?",
    "*)": "'(* .. *)' is not a valid comment format. This is not Pascal! Should it be '/* .. */'?",
    "#": "'#' is not a valid symbol. Should it be '#{'?",
}
_UNUSED = frozenset({"...", "++", "--", "?", "~", "@", "$", "\\"})

_BLANK = re.compile(r"\s+|//[^\n]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RADIX = re.compile(r"0([xXoObB])([0-9A-Fa-f_]+)")
_NUMBER = re.compile(r"[0-9][0-9_]*(?:\.(?![.A-Za-z_])(?:[0-9][0-9_]*)?)?(?:[eE][+-]?[0-9][0-9_]*)?")
_SYMBOL = re.compile("|".join(map(re.escape, _SYMBOLS)))
_RAW = re.compile(r'(#+)"')
_RADIXES = {"x": 16, "o": 8, "b": 2}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\", '"': '"', "'": "'"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class Token:
    """kind: one of the constants above; value: its text, number or error; position: where it begins."""

    kind: str
    value: Any
    position: Position


class _LexerError(Exception):
    """A lexical error: its message, and the index of the character."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def tokens(text: str) -> list[Token]:
    """Return the tokens of a text; the last one is END, or ERROR with a FunctionError as its value."""
    return list(_Lexer(text).run())


class _Lexer:
    """One pass over one text. _texts: the number of open braces for each string that a `${` block interrupts."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self._texts: list[int] = []

    def run(self) -> Iterator[Token]:
        try:
            while self._skip_blank():
                start = self._at
                kind, value = self._next()
                yield Token(kind, value, self._position(start))
                yield from self._after_brace(kind, value)
        except _LexerError as fault:
            position = self._position(fault.index)
            yield Token(ERROR, FunctionError(str(fault), position), position)
            return
        yield Token(END, "", self._position(len(self._text)))

    def _position(self, index: int) -> Position:
        line = bisect_right(self._lines, index)
        return Position(line, index - self._lines[line - 1] + 1)

    def _skip_blank(self) -> bool:
        """Advance to the next token; False at the end of the text."""
        while self._at < len(self._text):
            blank = _BLANK.match(self._text, self._at)
            if blank:
                self._at = blank.end()
            elif self._text.startswith("/*", self._at):
                depth, end = 0, len(self._text)  # comments nest, and an unclosed comment reaches to the end of the text
                for mark in re.compile(r"/\*|\*/").finditer(self._text, self._at):
                    depth += 1 if mark[0] == "/*" else -1
                    if not depth:
                        end = mark.end()
                        break
                self._at = end
            else:
                return True
        return False

    def _next(self) -> tuple[str, Any]:
        letter = self._text[self._at]
        if letter.isascii() and letter.isdigit():
            return NUMBER, self._number()
        if letter == '"':
            self._at += 1
            return TEXT, self._quoted('"')
        if letter == "'":
            start = self._at
            self._at += 1
            text = self._quoted("'")
            if len(text) != 1:
                raise _LexerError(f"Invalid character: '{text}'", start)
            return CHAR, Char(text)
        if letter == "`":
            self._at += 1
            if self._text.startswith("\n", self._at):
                self._at += 1
            return self._backtick(self._at - 1)
        if opening := _RAW.match(self._text, self._at):
            end = self._text.find('"' + opening[1], opening.end())
            if end < 0:
                raise _LexerError("Open string is not terminated", opening.start())
            self._at = end + len(opening[1]) + 1
            return TEXT, self._text[opening.end():end]
        if name := _NAME.match(self._text, self._at):
            return self._name(name[0])
        found = _SYMBOL.match(self._text, self._at)
        if not found:
            raise _LexerError(f"Unexpected '{letter}'", self._at)
        symbol = found[0]
        if symbol in _ADVICE:
            raise _LexerError(_ADVICE[symbol], self._at)
        if symbol in _UNUSED:
            raise _LexerError(f"'{symbol}' is a reserved symbol", self._at)
        self._at = found.end()
        return SYMBOL, symbol

    def _after_brace(self, kind: str, value: Any) -> Iterator[Token]:
        """Count braces inside an interpolated string, which continues after the closing brace of the block."""
        if kind == TEXT_PART:
            self._texts.append(0)
        elif self._texts and kind == SYMBOL and value in ("{", "#{"):
            self._texts[-1] += 1
        elif self._texts and kind == SYMBOL and value == "}":
            self._texts[-1] -= 1
            if not self._texts[-1]:
                self._texts.pop()
                start = self._at
                rest, text = self._backtick(start)
                yield Token(rest, text, self._position(start))
                yield from self._after_brace(rest, text)

    def _name(self, name: str) -> tuple[str, Any]:
        start = self._at
        self._at += len(name)
        if name == "_":
            return SYMBOL, name
        if name[0] == "_" and not name.lstrip("_")[:1].isalpha():
            raise _LexerError(f"Variable name is not proper: '{name}'", start)
        if name in WORDS:
            return WORD, name
        if name in RESERVED_WORDS or name in KEYWORD_FUNCTIONS or name == THIS:
            return RESERVED, name
        return NAME, name

    # Numbers

    def _number(self) -> int | float:
        start = self._at
        if radix := _RADIX.match(self._text, start):
            # Numbers in base 2, 8 and 16 are 64 bits in two's complement.
            self._at = radix.end()
            base, digits = _RADIXES[radix[1].lower()], radix[2].replace("_", "").lstrip("0") or "0"
            is_valid = len(digits) <= 64 and all(int(digit, 16) < base for digit in digits)
            number = int(digits, base) if is_valid else 1 << 64
            if number >> 64:
                raise _LexerError(f"Invalid number: '{radix[0]}'", start)
            return number - (1 << 64) if number > MAX_INT else number
        match = _NUMBER.match(self._text, start)
        assert match
        self._at = match.end()
        digits = match[0].replace("_", "")
        if not digits.isdigit():
            return float(digits)
        return int(digits) if len(digits) < 20 and int(digits) <= MAX_INT else float(digits)

    # Texts

    def _quoted(self, end: str) -> str:
        """Read a string with escapes, from after its opening quote; a doubled quote means one quote."""
        start = self._at - 1
        pieces: list[str] = []
        while self._at < len(self._text):
            letter = self._text[self._at]
            self._at += 1
            if letter == end:
                if not self._text.startswith(end, self._at):
                    return "".join(pieces)
                self._at += 1
                pieces.append(end)
            elif letter == "\\":
                pieces.append(self._escaped())
            elif letter == "\n":
                break
            else:
                pieces.append(letter)
        raise _LexerError("Open string is not terminated", start)

    def _escaped(self) -> str:
        start, letter = self._at, self._text[self._at:self._at + 1]
        self._at += 1
        if letter in _HEX_DIGITS:
            digits = self._text[self._at:self._at + _HEX_DIGITS[letter]]
            self._at += len(digits)
            is_hex = len(digits) == _HEX_DIGITS[letter] and _HEX.issuperset(digits)
            number = int(digits, 16) if is_hex else -1
            if not 0 <= number <= 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                raise _LexerError(f"Invalid escape sequence: '\\{letter}{digits}'", start)
            return chr(number)
        if letter == "\n":  # line continuation: skip the indentation of the next line
            while self._text[self._at:self._at + 1] in (" ", "\t"):
                self._at += 1
            return ""
        if letter not in _ESCAPES:
            raise _LexerError(f"Invalid escape sequence: '\\{letter}'", start)
        return _ESCAPES[letter]

    def _backtick(self, start: int) -> tuple[str, str]:
        """Read a back-tick string up to its end, or to the `{` of its next `${`. A doubled back-tick is the only escape."""
        pieces = []
        for mark in re.compile(r"``|`|\$\{").finditer(self._text, self._at):
            pieces.append(self._text[self._at:mark.start()])
            self._at = mark.end()
            if mark[0] == "``":
                pieces.append("`")
            elif mark[0] == "`":
                return TEXT, "".join(pieces)
            else:
                self._at -= 1
                return TEXT_PART, "".join(pieces)
        raise _LexerError("Open string is not terminated", start)
