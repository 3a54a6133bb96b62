"""Stop words of languages: words so frequent that they say nothing about the subject of a text (docs/ranking.md#bm25).

The lists are short on purpose: only articles, pronouns, prepositions, conjunctions and auxiliary verbs. Languages without a list
have no stop words.
"""
from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from svcd.text.analyzer import whole_lemma
from svcd.text.scripts import read_table

_SAME_LIST = {"nor": "nob"}


@cache
def _lists() -> dict[str, str]:
    return read_table("stop-words")


@cache
def _of_language(language: str) -> frozenset[str]:
    return frozenset(map(whole_lemma, _lists().get(_SAME_LIST.get(language, language), "").split()))


def stop_words(languages: Iterable[str]) -> frozenset[str]:
    """Return the lemmas of the stop words of some languages."""
    return frozenset().union(*map(_of_language, languages))
