"""Which language a group of text is in, as far as segmenting and letter variants ask for it.

Knows how Chinese is told from Japanese and Arabic from Persian and Urdu (relevance contract 1.4).
Refuses to know what is done with a language. Latin text gets a language only from an allow-list of
one: the statistics that would tell several apart change nothing but German compounds.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from svcd.text import character_tables
from svcd.text.scripts import ARABIC, CJ, HIRAGANA, KATAKANA, LATIN, MANDARIN, count_scripts
from svcd.validation.names import long_form

_CHINESE = frozenset({"cmn", "zho"})
_ARABIC_LETTERED = ("ara", "urd", "pes")

# More kana than this share makes a text Japanese, however many ideographs it has.
_KANA_SHARE = 0.05
_TRIGRAMS = 600  # of a text that are ranked
_PROFILE = 300  # trigrams of a profile, and the distance of one that a text lacks
_FARTHEST = 90_000
_STOPS = {point: " " for span in ((0x00, 0x40), (0x5B, 0x60), (0x7B, 0x7E)) for point in range(span[0], span[1] + 1)}


def detect(text: str, script: str, locales: Sequence[str] | None) -> str | None:
    """The language (ISO 639-3) of a group of one script, or None. `locales`: the allowed ones; None or empty: all."""
    allowed = [long_form(locale) for locale in locales or ()]
    if len(allowed) == 1:
        return allowed[0]
    if script == LATIN:
        return None
    if script == CJ:
        return _chinese_or_japanese(text, allowed)
    if script == ARABIC:
        return _arabic_lettered(text, allowed)
    return None


def _chinese_or_japanese(text: str, allowed: Collection[str]) -> str:
    counts = count_scripts(text)
    winner = max(counts, key=lambda counter: counter[1])[0]
    of = dict(counts)
    kana = of[HIRAGANA] + of[KATAKANA]
    if winner != MANDARIN or (allowed and _CHINESE.isdisjoint(allowed)):
        return "jpn"
    return "jpn" if kana / (of[MANDARIN] + kana) > _KANA_SHARE else "cmn"


def _arabic_lettered(text: str, allowed: Collection[str]) -> str | None:
    candidates = [language for language in _ARABIC_LETTERED if not allowed or language in allowed]
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    ranks = _trigram_ranks(text)
    profiles = character_tables.arabic_trigrams()
    return max(candidates, key=lambda language: _similarity(ranks, profiles[language]))


def _trigram_ranks(text: str) -> dict[str, int]:
    letters = f" {text.lower().translate(_STOPS)} "
    counts: Counter[str] = Counter()
    for start in range(len(letters) - 2):
        trigram = letters[start : start + 3]
        if trigram[1] != " " or (trigram[0] != " " and trigram[2] != " "):
            counts[trigram] += 1
    common = sorted(counts, key=lambda trigram: (counts[trigram], trigram), reverse=True)[:_TRIGRAMS]
    return {trigram: rank for rank, trigram in enumerate(common)}


def _similarity(ranks: dict[str, int], profile: dict[str, int]) -> float:
    distance = sum(abs(ranks[trigram] - rank) if trigram in ranks else _PROFILE for trigram, rank in profile.items())
    distance -= max(0, _PROFILE - len(ranks)) * _PROFILE
    worst = _PROFILE * len(ranks)
    return max(0.0, (worst - min(distance, _FARTHEST)) / worst) if worst else 0.0
