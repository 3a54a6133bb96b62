"""Tables of characters in `data/`, each read when it is first used (docs/text-analysis.md)."""
from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Any


def _read(name: str) -> dict[str, Any]:
    content = pkgutil.get_data(__package__, f"data/{name}.json")
    assert content is not None, name  # the data is part of the package
    table: dict[str, Any] = json.loads(content)
    return table


@cache
def default_separators() -> frozenset[str]:
    """The default separators: 1,052 strings."""
    separators = _read("separators")
    return frozenset(separators["single"]) | frozenset(separators["longer"])


@cache
def hard_separators() -> frozenset[str]:
    """The separators that are hard ones."""
    hard = _read("separators")["hard"]
    return frozenset(hard["single"]) | frozenset(hard["longer"])


@cache
def nonspacing_marks() -> frozenset[str]:
    """The characters that normalization removes as marks; not the whole category Mn."""
    return frozenset(chr(code) for first, last in _ranges("nonspacing-marks") for code in range(first, last + 1))


@cache
def alphabetic_marks() -> str:
    """The characters that are alphabetic but no letters (vowel signs ...), as ranges for the set of a pattern."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in _ranges("alphabetic-marks"))


def _ranges(name: str) -> list[tuple[int, int]]:
    """The first and last code points of a table's ranges."""
    spans = (span.partition("-") for span in _read(name)["ranges"].split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in spans]


@cache
def ideograph_variants() -> dict[int, int]:
    """Han character -> the variant that is indexed, for str.translate(): 4,000 pairs."""
    variants = _read("kvariants")
    return str.maketrans(variants["from"], variants["to"])


@cache
def arabic_trigrams() -> dict[str, dict[str, int]]:
    """Language -> trigram -> rank, for languages in Arabic script."""
    profiles = _read("arabic-trigrams")
    return {language: _ranks(letters) for language, letters in profiles.items()}


def _ranks(letters: str) -> dict[str, int]:
    return {letters[start : start + 3]: start // 3 for start in range(0, len(letters), 3)}
