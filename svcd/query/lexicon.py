"""What the settings of an index say about words, ready for queries: synonyms, words without typos.

Knows how the entries of these settings are tokenised (relevance.md 2.5.2, 2.7); refuses to know
where settings are kept. Made once per settings object: thousands of synonyms take a while.
"""
from __future__ import annotations

from collections import OrderedDict
from typing import Any, Mapping, Sequence

from svcd.query.parser import Phrase
from svcd.query.terms import TypoRules
from svcd.text.analyzer import WORD, Analyzer, analyzer_of, whole_lemma

LONGEST_KEY = 500  # bytes of the words of a synonym key, plus one for each word

# Indexes searched at a time whose settings are kept ready.
_REMEMBERED = 32


class Lexicon:
    """The tokenizer, the synonyms and the typo budgets of one index."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.analyzer = analyzer_of(settings)
        self.typo_rules = _typo_rules(settings)
        self.synonyms = _synonyms(self.analyzer, settings.get("synonyms") or {})


_lexicons: OrderedDict[int, Lexicon] = OrderedDict()


def lexicon_of(settings: Mapping[str, Any]) -> Lexicon:
    """The lexicon of a settings object, which must not change afterwards.

    Found again by the identity of the object, which the lexicon keeps alive: to compare or hash
    the settings for each search would cost as much as the search. Two threads may make it twice.
    """
    lexicon = _lexicons.get(id(settings))
    if lexicon is None:
        lexicon = _lexicons[id(settings)] = Lexicon(settings)
        while len(_lexicons) > _REMEMBERED:
            _lexicons.popitem(last=False)
    return lexicon


def _typo_rules(settings: Mapping[str, Any]) -> TypoRules:
    typo_tolerance = settings.get("typoTolerance") or {}
    words = typo_tolerance.get("disableOnWords") or ()
    return TypoRules(typo_tolerance, frozenset(map(whole_lemma, words)))


def _synonyms(
    analyzer: Analyzer, setting: Mapping[str, Sequence[str]]
) -> dict[tuple[str, ...], list[Phrase]]:
    """Words of a key -> its phrases, sorted; keys of the same words are one."""
    merged: dict[tuple[str, ...], set[Phrase]] = {}
    for text, alternatives in setting.items():
        key = _words(analyzer, text)
        phrases = {words for words in (_words(analyzer, value) for value in alternatives) if words}
        size = sum(len(word.encode()) for word in key) + len(key)
        if key and phrases and size < LONGEST_KEY:
            merged.setdefault(key, set()).update(phrases)
    return {key: sorted(phrases) for key, phrases in merged.items()}


def _words(analyzer: Analyzer, text: str) -> tuple[str, ...]:
    return tuple(token.lemma for token in analyzer.tokens(text) if token.kind == WORD and token.lemma)
