"""Text without spaces by pairs of characters, without word lists (docs/text-analysis.md#pairs-of-characters).

A run of such characters has one token for each character. Its lemma is the character with the one after it, so that a query finds
any part of a run as the phrase of its pairs; the last token of a run has its character alone.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

# Chinese, Japanese (with half-width forms), Korean, Thai, Lao, Burmese and Khmer. Not compiled here: that takes 2 ms.
UNSPACED = (
    "([\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u19e0-\u19ff\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua9e0-\ua9ff\uaa60-\uaa7f\uac00-\ud7ff"
    "\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff]+)"
)


# Marks of Katakana and Hiragana, which half-width text has as characters of their own.
_VOICING = "\u3099\u309a"


class Pair(NamedTuple):
    """One character of a run with its marks. has_next: whether the lemma includes the next character."""

    text: str
    lemma: str
    has_next: bool


def pairs(run: str, lemma_of: Callable[[str], str]) -> Iterator[Pair]:
    """Yield the pairs of a run of characters without spaces; their texts cover the run. Marks belong to the character before."""
    texts: list[str] = []
    lemmas: list[str] = []
    for character in run:
        lemma = lemma_of(character)
        if not texts or lemma and lemma not in _VOICING:
            texts.append(character)
            lemmas.append(lemma)
        else:
            texts[-1] += character
            lemmas[-1] += lemma
    last = len(texts) - 1
    for number, (text, lemma) in enumerate(zip(texts, lemmas)):
        yield Pair(text, lemma + lemmas[number + 1] if number < last else lemma, number < last)


# Width (setting `foldWidth`)

_FULL_WIDTH_ASCII = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
_HALF_WIDTH = dict(zip(range(0xFF65, 0xFFA0), (
    "・ヲァィゥェォャュョッーアイウエオカキクケコサシスセソタチツテトナニヌネノハヒフヘホマミムメモヤユヨラリルレロワン\u3099\u309a")))
_FOLDED = str.maketrans({**_FULL_WIDTH_ASCII, **_HALF_WIDTH, 0x3000: " "})


def folded_width(text: str) -> str:
    """Return a text of the same length with full-width letters, digits and signs as ASCII, half-width Katakana as Katakana."""
    return text.translate(_FOLDED)
