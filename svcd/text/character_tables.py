"""The tables of characters that come with the package, read when they are first asked for.

Knows where they lie and how they are packed; refuses to know what they are good for.
"""
from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any


def _read(name: str) -> dict[str, Any]:
    content = pkgutil.get_data(__package__, f"data/{name}.json")
    assert content is not None, name  # package data is part of the package
    table: dict[str, Any] = json.loads(content)
    return table


@cache
def default_separators() -> frozenset[str]:
    """The strings at which text is cut when nothing is configured (1,052)."""
    separators = _read("separators")
    return frozenset(separators["single"]) | frozenset(separators["longer"])


@cache
def hard_separators() -> frozenset[str]:
    """The strings that make a separator a hard one."""
    hard = _read("separators")["hard"]
    return frozenset(hard["single"]) | frozenset(hard["longer"])


@cache
def nonspacing_marks() -> frozenset[str]:
    """The characters removed as marks; not the whole category Mn (relevance contract 1.7)."""
    return frozenset(chr(code) for first, last in _ranges("nonspacing-marks") for code in range(first, last + 1))


@cache
def alphabetic_marks() -> str:
    """The characters that are alphabetic without being letters (vowel signs ...), as the inside of a pattern's set."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in _ranges("alphabetic-marks"))


def _ranges(name: str) -> list[tuple[int, int]]:
    """The first and last code points of a table's ranges."""
    spans = (span.partition("-") for span in _read(name)["ranges"].split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in spans]


@cache
def ideograph_variants() -> dict[int, int]:
    """Ideograph -> the one it is indexed as, for str.translate (4,000 pairs: only with such text)."""
    variants = _read("kvariants")
    return str.maketrans(variants["from"], variants["to"])


@cache
def arabic_trigrams() -> dict[str, dict[str, int]]:
    """Language -> trigram -> rank, to tell apart those written in Arabic letters."""
    profiles = _read("arabic-trigrams")
    return {language: _ranks(letters) for language, letters in profiles.items()}


def _ranks(letters: str) -> dict[str, int]:
    return {letters[start : start + 3]: start // 3 for start in range(0, len(letters), 3)}
