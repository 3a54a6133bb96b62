"""Normalization: from the text of a token to its lemma (docs/text-analysis.md#normalization).

All steps work on *parts*: the normalized form of each character of the token, in order. Joined, the parts are the lemma;
separately, they tell which characters became the beginning of a lemma.
"""
from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping

from svcd.text import scripts
from svcd.text.scripts import ARABIC, ARMENIAN, CJ, CYRILLIC, GEORGIAN, GREEK, HEBREW, LATIN, THAI

Parts = list[str]

# Control characters (Cc) except white space.
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_BICAMERAL = frozenset({LATIN, CYRILLIC, GREEK, GEORGIAN, ARMENIAN})
_CHINESE = frozenset({None, "cmn", "zho"})

_PERSIAN = str.maketrans(
    {
        **dict.fromkeys("يیىۀ", "ی"),
        **dict.fromkeys("كک", "ک"),
        **{chr(0x06F0 + digit): str(digit) for digit in range(10)},
        "،": ",",
        "؟": "?",
        "\ufdfc": "RIAL",
        "\u200c": "",
    }
)
_ARABIC_LETTERS = str.maketrans({"ـ": "", "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ى": "ي", "ة": "ه"})
_LATIN_QUOTES_AND_LIGATURES = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201b": "'", "œ": "oe", "Œ": "oe", "æ": "ae", "Æ": "ae"}
)
# Vietnamese and Turkish letters, mapped after the removal of marks.
_LATIN_LETTERS = str.maketrans({"Ð": "d", "Đ": "d", "đ": "d", "ð": "d", "ı": "i"})


def decompose(text: str) -> str:
    """Return a text decomposed and without control characters: the form for comparing stop words and separators."""
    if text.isascii():
        return _CONTROL.sub("", text)
    return "".join(_decomposed(text))


def lemma_of(text: str, script: str, language: str | None) -> str:
    """Return the lemma of the text of a token."""
    if text.isascii() and script != ARABIC:
        plain = _CONTROL.sub("", text)
        return plain.lower() if script in _BICAMERAL else plain
    return "".join(parts_of(text, script, language))


def parts_of(text: str, script: str, language: str | None) -> Parts:
    """Return the normalized form of each character of a token; may be \"\"."""
    parts = _decomposed(text)
    if script == ARABIC and language == "pes":
        parts = _translated(parts, _PERSIAN)
    if script in _BICAMERAL and any(map(_has_upper, parts)):
        parts = ["".join(map(str.lower, part)) for part in parts]  # letter by letter, to avoid the final sigma
    steps = _STEPS.get(script)
    if steps is not None:
        parts = steps(parts, language)
    return parts


def _decomposed(text: str) -> Parts:
    return [_CONTROL.sub("", unicodedata.normalize("NFKD", character)) for character in text]


def _has_upper(part: str) -> bool:
    return any(map(str.isupper, part))


def _translated(parts: Parts, table: Mapping[int, str | int]) -> Parts:
    return [part.translate(table) for part in parts]


def _without_marks(parts: Parts) -> Parts:
    marks = scripts.nonspacing_marks()
    return ["".join([character for character in part if character not in marks]) for part in parts]


def _latin(parts: Parts, language: str | None) -> Parts:
    parts = _without_marks(_translated(parts, _LATIN_QUOTES_AND_LIGATURES))
    return _translated(parts, _LATIN_LETTERS)


def _ideographs(parts: Parts, language: str | None) -> Parts:
    return _translated(parts, scripts.ideograph_variants()) if language in _CHINESE else parts


def _greek(parts: Parts, language: str | None) -> Parts:
    filled = [place for place, part in enumerate(parts) if part]
    if filled and parts[filled[-1]].endswith("ς"):
        parts[filled[-1]] = parts[filled[-1]][:-1] + "σ"
    return _without_marks(parts)


def _arabic(parts: Parts, language: str | None) -> Parts:
    return _without_marks(_translated(parts, _ARABIC_LETTERS))


def _marks_only(parts: Parts, language: str | None) -> Parts:
    return _without_marks(parts)


_STEPS: dict[str, Callable[[Parts, str | None], Parts]] = {
    LATIN: _latin,
    CJ: _ideographs,
    GREEK: _greek,
    ARABIC: _arabic,
    HEBREW: _marks_only,
    THAI: _marks_only,
}
