"""The text of a function cut into tokens.

Knows spelling: names, numbers, texts with their escapes, comments, symbols, and the words that are kept from use.
Refuses to know what may follow what. A text that can't be cut ends in a token that carries the fault, so that
the parser can report an earlier fault first. Source: the language's book.
"""
from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from svcd.rhai.errors import FunctionError, Position
from svcd.rhai.values import MAX_INT, Char

NAME, NUMBER, TEXT, CHAR, SYMBOL, WORD, RESERVED, FAULT, END = (
    "name", "number", "text", "char", "symbol", "word", "reserved", "fault", "end")
# A text up to its first or next `${`; the block and the rest of the text follow as tokens.
TEXT_PART = "text part"

WORDS = frozenset(
    "let const if else switch while until loop do for in continue break return throw try catch fn private true false"
    .split())
RESERVED_WORDS = frozenset(
    "import export as global var static is goto match case public protected new use with module package super "
    "thread spawn go await async sync yield default void null nil".split())
# Functions of the language itself: their names may be called, and mean nothing else.
KEYWORD_FUNCTIONS = frozenset("print debug type_of eval Fn call curry is_shared is_def_fn is_def_var".split())
THIS = "this"

# The longest first: an alternative that is found ends the search.
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
    """kind, what it says (text, number, fault), and where it begins."""

    kind: str
    value: Any
    position: Position


class _Fault(Exception):
    """A text that can't be cut: the sentence and the index."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


def tokens(text: str) -> list[Token]:
    """All tokens of a text; the last is END or FAULT (whose value is a FunctionError)."""
    return list(_Lexer(text).run())


class _Lexer:
    """One walk over one text. _texts: how many braces are open in each text that is interrupted by a block."""

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
        except _Fault as fault:
            position = self._position(fault.index)
            yield Token(FAULT, FunctionError(str(fault), position), position)
            return
        yield Token(END, "", self._position(len(self._text)))

    def _position(self, index: int) -> Position:
        line = bisect_right(self._lines, index)
        return Position(line, index - self._lines[line - 1] + 1)

    def _skip_blank(self) -> bool:
        """Step to the next token; False at the end."""
        while self._at < len(self._text):
            blank = _BLANK.match(self._text, self._at)
            if blank:
                self._at = blank.end()
            elif self._text.startswith("/*", self._at):
                self._skip_comment()
            else:
                return True
        return False

    def _skip_comment(self) -> None:
        """Step over a comment, in which others may nest; one without an end goes to the end of the text."""
        depth = 0
        for mark in re.compile(r"/\*|\*/").finditer(self._text, self._at):
            depth += 1 if mark[0] == "/*" else -1
            if not depth:
                self._at = mark.end()
                return
        self._at = len(self._text)

    def _next(self) -> tuple[str, Any]:
        letter = self._text[self._at]
        if letter.isascii() and letter.isdigit():
            return NUMBER, self._number()
        if letter == '"':
            self._at += 1
            return TEXT, self._quoted('"')
        if letter == "'":
            return CHAR, self._char()
        if letter == "`":
            self._at += 1
            if self._text.startswith("\n", self._at):
                self._at += 1
            return self._backtick(self._at - 1)
        if raw := _RAW.match(self._text, self._at):
            return TEXT, self._raw(raw)
        if name := _NAME.match(self._text, self._at):
            return self._name(name[0])
        return self._symbol()

    def _after_brace(self, kind: str, value: Any) -> Iterator[Token]:
        """Count braces inside an interrupted text; the one that ends the block is followed by the text."""
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
            raise _Fault(f"Variable name is not proper: '{name}'", start)
        if name in WORDS:
            return WORD, name
        if name in RESERVED_WORDS or name in KEYWORD_FUNCTIONS or name == THIS:
            return RESERVED, name
        return NAME, name

    def _symbol(self) -> tuple[str, Any]:
        found = _SYMBOL.match(self._text, self._at)
        if not found:
            raise _Fault(f"Unexpected '{self._text[self._at]}'", self._at)
        symbol = found[0]
        if symbol in _ADVICE:
            raise _Fault(_ADVICE[symbol], self._at)
        if symbol in _UNUSED:
            raise _Fault(f"'{symbol}' is a reserved symbol", self._at)
        self._at = found.end()
        return SYMBOL, symbol

    # Numbers

    def _number(self) -> int | float:
        start = self._at
        if radix := _RADIX.match(self._text, start):
            self._at = radix.end()
            return self._radix_number(radix, start)
        match = _NUMBER.match(self._text, start)
        assert match
        self._at = match.end()
        digits = match[0].replace("_", "")
        if not digits.isdigit():
            return float(digits)
        return int(digits) if len(digits) < 20 and int(digits) <= MAX_INT else float(digits)

    def _radix_number(self, match: re.Match[str], start: int) -> int:
        """A number of another base stands for 64 bits: the highest is the sign."""
        base, digits = _RADIXES[match[1].lower()], match[2].replace("_", "").lstrip("0") or "0"
        if len(digits) > 64 or any(int(digit, 16) >= base for digit in digits):
            raise _Fault(f"Invalid number: '{match[0]}'", start)
        number = int(digits, base)
        if number >> 64:
            raise _Fault(f"Invalid number: '{match[0]}'", start)
        return number - (1 << 64) if number > MAX_INT else number

    # Texts

    def _quoted(self, end: str) -> str:
        """A text with escapes, from behind its first quote; a doubled quote stands for one."""
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
        raise _Fault("Open string is not terminated", start)

    def _escaped(self) -> str:
        start, letter = self._at, self._text[self._at:self._at + 1]
        self._at += 1
        if letter in _HEX_DIGITS:
            return self._code_point(letter, start)
        if letter == "\n":  # the line goes on, behind the blanks that indent it
            while self._text[self._at:self._at + 1] in (" ", "\t"):
                self._at += 1
            return ""
        if letter not in _ESCAPES:
            raise _Fault(f"Invalid escape sequence: '\\{letter}'", start)
        return _ESCAPES[letter]

    def _code_point(self, letter: str, start: int) -> str:
        digits = self._text[self._at:self._at + _HEX_DIGITS[letter]]
        self._at += len(digits)
        is_hex = len(digits) == _HEX_DIGITS[letter] and _HEX.issuperset(digits)
        number = int(digits, 16) if is_hex else -1
        if not 0 <= number <= 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise _Fault(f"Invalid escape sequence: '\\{letter}{digits}'", start)
        return chr(number)

    def _char(self) -> Char:
        start = self._at
        self._at += 1
        text = self._quoted("'")
        if len(text) != 1:
            raise _Fault(f"Invalid character: '{text}'", start)
        return Char(text)

    def _raw(self, opening: re.Match[str]) -> str:
        end = self._text.find('"' + opening[1], opening.end())
        if end < 0:
            raise _Fault("Open string is not terminated", opening.start())
        self._at = end + len(opening[1]) + 1
        return self._text[opening.end():end]

    def _backtick(self, start: int) -> tuple[str, str]:
        """A text up to its back-tick, or to the `{` of its next `${`; nothing is escaped but a doubled back-tick."""
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
        raise _Fault("Open string is not terminated", start)
