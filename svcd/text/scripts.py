"""Cut a text at changes of script, and detect the language of a group of one script.

Follows docs/text-analysis.md#scripts and docs/text-analysis.md#languages. This module also has the tables of characters for
scripts, separators and normalization; the first use of a table reads it from `data/`.
"""
from __future__ import annotations

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from svcd.validation.names import long_form

LATIN, CYRILLIC, ARABIC, HEBREW, GREEK = "Latin", "Cyrillic", "Arabic", "Hebrew", "Greek"
CJ, HANGUL, THAI, KHMER, GEORGIAN = "Cj", "Hangul", "Thai", "Khmer", "Georgian"
ARMENIAN, OTHER = "Armenian", "Other"
MANDARIN, HIRAGANA, KATAKANA = "Mandarin", "Hiragana", "Katakana"

# In the initial order of the counters of a group; ranges are inclusive. The first row that contains a character decides.
# Armenian does not separate groups: grouping treats its letters as characters without a script.
_RANGES = (
    (LATIN, "0041-005A 0061-007A 0080-024F 0250-02AF 1D00-1D7F 1D80-1DBF 1E00-1EFF 2100-214F 2C60-2C7F A720-A7FF AB30-AB6F"),
    (CYRILLIC, "0400-0484 0487-052F 2DE0-2DFF A640-A69D A69F"),
    (ARABIC, "0600-06FF 0750-07FF 08A0-08FF FB50-FDFF FE70-FEFF 10E60-10E7F 1EE00-1EEFF"),
    (MANDARIN, "2E80-2E99 2E9B-2EF3 2F00-2FD5 3005 3007 3021-3029 3038-303B 3400-4DB5 4E00-9FCC F900-FA6D FA70-FAD9"),
    ("Devanagari", "0900-097F A8E0-A8FF 1CD0-1CFF"), (HEBREW, "0590-05FF"), ("Ethiopic", "1200-139F 2D80-2DDF AB00-AB2F"),
    (GEORGIAN, "10A0-10FF"), ("Bengali", "0980-09FF"),
    (HANGUL, "AC00-D7AF 1100-11FF 3130-318F 3200-32FF A960-A97F D7B0-D7FF FF00-FFEF"),
    (HIRAGANA, "3040-309F"), (KATAKANA, "30A0-30FF"), (GREEK, "0370-03FF"), ("Kannada", "0C80-0CFF"), ("Tamil", "0B80-0BFF"),
    (THAI, "0E00-0E7F"), ("Gujarati", "0A80-0AFF"), ("Gurmukhi", "0A00-0A7F"), ("Telugu", "0C00-0C7F"),
    ("Malayalam", "0D00-0D7F"), ("Oriya", "0B00-0B7F"), ("Myanmar", "1000-109F"), ("Sinhala", "0D80-0DFF"),
    (KHMER, "1780-17FF 19E0-19FF"), (ARMENIAN, "0530-058F FB13-FB17"),
)
COUNTED = tuple(name for name, _ in _RANGES)
_GROUPED_AS = {MANDARIN: CJ, HIRAGANA: CJ, KATAKANA: CJ}

# Characters whose script is kept: about as many as Chinese texts use. All characters would take 78 MB.
CACHED_CHARACTERS = 8192

# Grouping maps a text to a string of marks, one for each character: a letter for its script, or one of these marks for
# characters that do not separate groups.
_NEUTRAL, _ARMENIAN = " ", "."
_MARK_OF = {name: chr(ord("A") + row) for row, name in enumerate(COUNTED)}
_MARK_OF |= {OTHER: _NEUTRAL, ARMENIAN: _ARMENIAN, HIRAGANA: _MARK_OF[MANDARIN], KATAKANA: _MARK_OF[MANDARIN]}
_SCRIPT_OF = {mark: _GROUPED_AS.get(name, name) for name, mark in _MARK_OF.items()}
_SCRIPTED = re.compile(rf"[^{_NEUTRAL}{_ARMENIAN}]")

# Characters that may belong to a script other than Latin. Most texts contain only Latin letters, marks, punctuation and symbols,
# and are one group; searching for this pattern is faster than checking each character.
_PERHAPS_NOT_LATIN = re.compile("[^\x00-\u036f\u1d00-\u1dff\u1e00-\u1eff\u2000-\u2c5f]")
_LATIN_LETTER = re.compile("[A-Za-z\x80-\u02af\u1d00-\u1dbf\u1e00-\u1eff\u2100-\u214f]")

_CHINESE = frozenset({"cmn", "zho"})
_ARABIC_LETTERED = ("ara", "urd", "pes")

# A text of Han characters with a larger proportion of kana is Japanese.
_KANA_SHARE = 0.05
_MAX_RANKED_TRIGRAMS = 600  # of a text
_PROFILE_TRIGRAMS = 300  # of a language profile; also the distance of a trigram that the text lacks
_MAX_DISTANCE = 90_000  # of a text from a profile
_NO_LETTERS = {point: " " for span in ((0x00, 0x40), (0x5B, 0x60), (0x7B, 0x7E)) for point in range(span[0], span[1] + 1)}


class Group(NamedTuple):
    """A part of a text in one script; start and end in characters."""

    start: int
    end: int
    script: str


def groups(text: str) -> list[Group]:
    """Cut a text at changes of script. Characters without a script belong to the group before them."""
    if text.isascii() or not _PERHAPS_NOT_LATIN.search(text):
        return [Group(0, len(text), LATIN if _LATIN_LETTER.search(text) else OTHER)] if text else []
    marks = text.translate(_MARKS)
    found = []
    start = 0
    while start < len(text):
        scripted = _SCRIPTED.search(marks, start)
        mark = scripted[0] if scripted else _NEUTRAL
        change = _change_from(mark).search(marks, scripted.end()) if scripted else None
        end = change.start() if change else len(text)
        script = _SCRIPT_OF[mark]
        if _ARMENIAN in marks[start:end]:  # only Armenian letters can outnumber the letters of the group's script
            script = main_script(text[start:end])
        found.append(Group(start, end, _GROUPED_AS.get(script, script)))
        start = end
    return found


@lru_cache(CACHED_CHARACTERS)
def script_of(character: str) -> str:
    """Return the script of one character; Mandarin, Hiragana and Katakana are separate scripts."""
    point = ord(character)
    for first, last, name in _SPANS:
        if first <= point <= last:
            return name
    return OTHER


def script_of_whole(text: str) -> str:
    """Return the script of a text as a whole, without cutting it."""
    if text.isascii() or not _PERHAPS_NOT_LATIN.search(text):
        return LATIN if _LATIN_LETTER.search(text) else OTHER
    script = main_script(text)
    return _GROUPED_AS.get(script, script)


def count_scripts(text: str) -> list[tuple[str, int]]:
    """Return (script, number of characters) in the final order of the counters: each hit moves a counter one place forward."""
    order, counts = list(COUNTED), dict.fromkeys(COUNTED, 0)
    for script in map(script_of, text):
        if script in counts:
            counts[script] += 1
            place = order.index(script)
            if place:
                order[place - 1], order[place] = script, order[place - 1]
    return [(script, counts[script]) for script in order]


def main_script(text: str) -> str:
    """Return the script with the highest counter; among equal counters, the first one."""
    name, count = max(count_scripts(text), key=lambda counter: counter[1])
    return name if count else OTHER


@cache
def _change_from(mark: str) -> re.Pattern[str]:
    return re.compile(rf"[^{_NEUTRAL}{_ARMENIAN}{mark}]")


def _ranges(text: str) -> list[tuple[int, int]]:
    """Parse ranges of hexadecimal code points: `0041-005A A69F` -> (first, last) of each."""
    spans = (span.partition("-") for span in text.split())
    return [(int(first, 16), int(last or first, 16)) for first, _, last in spans]


class _Marks(dict[int, str]):
    """Map a code point to its mark; filled on demand, and emptied when it is full."""

    def __missing__(self, point: int) -> str:
        if len(self) >= CACHED_CHARACTERS:
            self.clear()
        mark = self[point] = _MARK_OF[script_of(chr(point))]
        return mark


_SPANS = [(first, last, name) for name, ranges in _RANGES for first, last in _ranges(ranges)]
_MARKS = _Marks()


# Languages

def detect_language(text: str, script: str, locales: Sequence[str] | None) -> str | None:
    """Return the language (ISO 639-3) of a group of one script, or None. locales: allowed languages; None or empty for all."""
    if not locales and script not in (CJ, ARABIC):
        return None
    allowed = [long_form(locale) for locale in locales or ()]
    if len(allowed) == 1:
        return allowed[0]
    if script == CJ:
        counts = count_scripts(text)
        winner = max(counts, key=lambda counter: counter[1])[0]
        of = dict(counts)
        kana = of[HIRAGANA] + of[KATAKANA]
        if winner != MANDARIN or (allowed and _CHINESE.isdisjoint(allowed)):
            return "jpn"
        return "jpn" if kana / (of[MANDARIN] + kana) > _KANA_SHARE else "cmn"
    if script == ARABIC:
        candidates = [language for language in _ARABIC_LETTERED if not allowed or language in allowed]
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        # The language whose frequent trigrams the text shares the most.
        letters = f" {text.lower().translate(_NO_LETTERS)} "
        trigrams: Counter[str] = Counter()
        for start in range(len(letters) - 2):
            trigram = letters[start : start + 3]
            if trigram[1] != " " or (trigram[0] != " " and trigram[2] != " "):
                trigrams[trigram] += 1
        common = sorted(trigrams, key=lambda trigram: (trigrams[trigram], trigram), reverse=True)[:_MAX_RANKED_TRIGRAMS]
        ranks = {trigram: rank for rank, trigram in enumerate(common)}

        def similarity(language: str) -> float:
            distance = sum(abs(ranks[trigram] - rank) if trigram in ranks else _PROFILE_TRIGRAMS
                           for trigram, rank in arabic_trigrams()[language].items())
            distance -= max(0, _PROFILE_TRIGRAMS - len(ranks)) * _PROFILE_TRIGRAMS
            worst = _PROFILE_TRIGRAMS * len(ranks)
            return max(0.0, (worst - min(distance, _MAX_DISTANCE)) / worst) if worst else 0.0

        return max(candidates, key=similarity)
    return None


# Tables of characters

def read_table(name: str) -> dict[str, Any]:
    """Return a table of this package."""
    content = pkgutil.get_data(__package__, f"data/{name}.json")
    assert content is not None, name  # the data is part of the package
    table: dict[str, Any] = json.loads(content)
    return table


@cache
def default_separators() -> frozenset[str]:
    """Return the default separators: 1,052 strings."""
    separators = read_table("separators")
    return frozenset(separators["single"]) | frozenset(separators["longer"])


@cache
def hard_separators() -> frozenset[str]:
    """Return the hard separators."""
    hard = read_table("separators")["hard"]
    return frozenset(hard["single"]) | frozenset(hard["longer"])


@cache
def nonspacing_marks() -> frozenset[str]:
    """Return the characters that normalization removes as marks; not the whole category Mn."""
    ranges = _ranges(read_table("nonspacing-marks")["ranges"])
    return frozenset(chr(code) for first, last in ranges for code in range(first, last + 1))


@cache
def alphabetic_marks() -> str:
    """Return the alphabetic characters that are not letters (such as vowel signs), as ranges for a character set of a pattern."""
    ranges = _ranges(read_table("alphabetic-marks")["ranges"])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def ideograph_variants() -> dict[int, int]:
    """Return Han character -> indexed variant, for str.translate(): 4,000 pairs."""
    variants = read_table("kvariants")
    return str.maketrans(variants["from"], variants["to"])


@cache
def arabic_trigrams() -> dict[str, dict[str, int]]:
    """Return language -> trigram -> rank, for languages in Arabic script."""
    return {language: {letters[start : start + 3]: start // 3 for start in range(0, len(letters), 3)}
            for language, letters in read_table("arabic-trigrams").items()}
