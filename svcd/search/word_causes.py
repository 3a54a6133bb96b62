"""Which words of a query one document matches, and why it lacks a word that the query requires (docs/guide/explain.md).

The causes come from the words of the document itself, also in attributes that the search does not read.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.docids import DocIds
from svcd.query.graph import END, Graph, MatchingStrategy, QueryNode, removal_groups, universe
from svcd.query.reader import Reader
from svcd.query.terms import Postings, Subset, Term, Terms, first_word
from svcd.query.typos import distance, is_one_edit, typos
from svcd.schema.attributes import is_beneath
from svcd.schema.documents import searchable_values, terms_of_values
from svcd.search.keyword import Found, Scope, terms_of
from svcd.text.analyzer import STOP_WORD
from svcd.text.term_positions import term_position_builder

# Characters of a document that are read for its words.
_MOST_CHARACTERS = 65_536
_MOST_MATCHES, _NEAREST = 10, 5
# The least number of characters of a word that is said to be near to another with one typo, and with two.
_ONE_TYPO, _TWO_TYPOS = 3, 5
# What may find more than another strategy.
_STRATEGIES = (MatchingStrategy.LAST, MatchingStrategy.FREQUENCY)

Cause = dict[str, Any]


class WordSearch(NamedTuple):
    """The stage of words of a search. graph: empty for the strategy `bm25`. expired: ends the look at other strategies."""

    scope: Scope
    graph: Graph
    found: Found
    expired: Callable[[], bool]


class OwnWords(dict[str, list[str]]):
    """Word of a document -> the attributes with it, whether searchable or not."""

    def __init__(self, reader: Reader, document: Mapping[str, Any], docid: int) -> None:
        super().__init__()
        self.reader = reader
        self.docid = docid
        settings, left = reader.settings, _MOST_CHARACTERS
        self.contents = searchable_values(document, lambda _: True)
        builder = term_position_builder(settings.analyzer)
        words: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for field, several in self.contents.items():
            cut = [value[:max(left, 0)] if isinstance(value, str) else value for value in several]
            left -= sum(len(value) for value in several if isinstance(value, str))
            for word in terms_of_values(cut, builder, settings.locales_of(field)):
                if word:
                    words[word][field] = None
        self.update((word, list(fields)) for word, fields in words.items())

    def matches(self, term: Term, terms: Terms, is_searched: Callable[[str], bool], is_bm25: bool = False) -> list[Cause]:
        """Return the words and phrases of the document that a term matches in some attributes, the fewest typos first.

        is_bm25: words with the same stem count as typed.
        """
        tolerance, found = self.reader.settings.typo_tolerance, list[Cause]()
        stems, parts = terms.stem_words(term.word), terms.infix_words(term.word)
        for word, all_fields in self.items():
            kind, typo_count = "typo", 0
            if word == term.word:
                kind = "exact"
            elif term.is_prefix and word.startswith(term.word):
                kind = "prefix"
            elif word in stems:
                kind, typo_count = "stem", 0 if is_bm25 else 1
            elif word in term.typos.one or word in term.typos.two:
                kind, typo_count = "infix" if word in parts else "typo", 1 if word in term.typos.one else 2
            else:
                continue
            fields = [field for field in all_fields if is_searched(field) and not (
                typo_count and any(is_beneath(field, each) for each in tolerance.exact_attributes))]
            if fields:
                # Ranking counts each word of an n-gram as a typo.
                found.append({"text": word, "kind": "joined" if term.is_ngram else kind,
                              "typos": typo_count + len(term.components), "fields": fields})
        phrases = [("phrase", term.phrase), ("split", term.split), *(("synonym", each) for each in term.synonyms)]
        for kind, phrase in phrases:
            if phrase is not None and self.docid in terms.postings.phrase(phrase):
                found.append({"text": " ".join(word or "*" for word in phrase), "kind": kind, "typos": int(kind == "split"),
                              "fields": list(filter(is_searched, self.get(first_word(phrase) or "", ())))})
        return sorted(found, key=lambda match: match["typos"])

    def shown(self, matches: Iterable[Cause]) -> list[Cause]:
        """Return matches as answers show them: without words and names of attributes that are not displayed."""
        found: list[Cause] = []
        for match in matches:
            fields = [field for field in match["fields"] if is_shown(self.reader, field)]
            found.append({**match, "text": match["text"] if fields else "<hidden>", "fields": fields})
        return found[:_MOST_MATCHES]


def is_shown(reader: Reader, field: str) -> bool:
    """Return whether answers may show an attribute."""
    settings = reader.settings
    return settings.is_everything_displayed or any(is_beneath(field, shown) for shown in settings.displayed_attributes)


def matched_words(found: Found, own: OwnWords, postings: Postings) -> list[dict[str, Any]]:
    """Return the words of the query with their matches in the document; words written as one only if they match."""
    searchable = own.reader.settings.searchable
    shown = []
    for term, _, _ in found.located:
        matches = own.matches(term, found.terms, lambda field: field in searchable and postings.looks_into(field),
                              found.scorer is not None and not found.terms.derivations(Subset(term, one=False, two=False)).words)
        if matches or not term.is_ngram:
            shown.append({"word": _typed(term), "matches": own.shown(matches)})
    return shown


def _typed(term: Term) -> str:
    if term.phrase is not None:
        return f'"{" ".join(word or "*" for word in term.phrase)}"'
    return " ".join(term.components) or term.word


# Causes


def missing_cause(asked: WordSearch, own: OwnWords, visible: DocIds | None) -> Cause:
    """Return why the document lacks the first word that the query requires, with all such words in `missing`.

    visible: the documents whose words the answer may show; None for all.
    """
    terms, strategy = asked.found.terms, asked.scope.context.strategy
    if strategy is MatchingStrategy.BM25:
        located = [term for term, _, _ in asked.found.located]
        lacking = [term for term in located if term.phrase is not None and own.docid not in terms.docids(Subset(term))] or located
    else:
        lacking = [node.subset.term for node in _missing_nodes(asked.graph, terms, strategy, own.docid)]
    cause = _cause(asked, own, lacking[0], visible)
    return {**cause, "missing": list(map(_typed, lacking))}


def _missing_nodes(graph: Graph, terms: Terms, strategy: MatchingStrategy, docid: int) -> Sequence[QueryNode]:
    """Return the words that the document lacks on the path of the query with the fewest such words."""
    droppable = {number for group in removal_groups(graph, terms, strategy) for number in group}
    best: dict[int, tuple[float, tuple[QueryNode, ...]]] = {END: (0, ())}
    for number in graph.successors_first:
        cost, lacking = min((best[successor] for successor in graph.successors[number]), key=lambda entry: entry[0])
        node = graph.nodes[number]
        if node is not None and number not in droppable and docid not in terms.docids(node.subset):
            cost, lacking = cost + (1 if node.width == 1 else float("inf")), (node, *lacking)
        best[number] = cost, lacking
    return best[0][1]


def _cause(asked: WordSearch, own: OwnWords, term: Term, visible: DocIds | None) -> Cause:
    """Return why the document does not match a term: the first of the causes below that holds."""
    settings, scope, word = own.reader.settings, asked.scope, _typed(term)
    postings, terms, is_phrase = scope.context.postings, asked.found.terms, term.phrase is not None
    everywhere, is_bm25 = terms_of(own.reader, None), scope.context.strategy is MatchingStrategy.BM25

    def is_searched(field: str) -> bool:
        return field in settings.searchable and postings.looks_into(field)

    if scope.restricted is not None:
        other = everywhere.phrase(term.phrase) if term.phrase is not None else everywhere.word(term.word, term.is_prefix)
        if own.docid in everywhere.docids(Subset(other, one=not is_bm25, two=not is_bm25)):
            fields = _fields(own, own.matches(other, everywhere, lambda field: field in settings.searchable))
            return {"kind": "attributesToSearchOn", "word": word, "fields": fields,
                    "text": f"The document has `{word}` only in attributes that `attributesToSearchOn` leaves out{_in(fields)}."}
    if term.phrase is not None:
        absent = next((each for each in term.phrase if each is not None and own.docid not in postings.original(each)), None)
        if absent is None:
            return {"kind": "phrase", "word": word, "text": f"The document has the words of {word}, but not next to each other."}
        term, word = everywhere.word(absent, False, (), True), absent
        term.is_derived = True  # the words of a phrase must match as typed
    if _is_stop_word(own, term, is_searched):
        return {"kind": "stopWord", "word": word, "text": f"`{term.word}` is in `stopWords`: documents are not found by it."}
    unsearched = own.matches(term, everywhere, lambda field: field not in settings.searchable)
    if unsearched:
        fields = _fields(own, unsearched)
        return {"kind": "searchableAttributes", "word": word, "fields": fields,
                "text": f"The document has `{word}` only in attributes that are not in `searchableAttributes`{_in(fields)}."}
    near = None if is_phrase else _near_word(own, term, is_searched)
    if near is not None:
        (match,) = own.shown([near])
        limit = (f"it may have {_counted(term.budget)}" if near["typos"] > term.budget else
                 "the strategy `bm25` accepts typos only of words that the index lacks" if is_bm25 else
                 "its attribute allows none, or too many words are as near")
        return {"kind": "typoLimit", "word": word, "nearest": [match["text"]], "fields": match["fields"], "typos": near["typos"],
                "allowed": term.budget,
                "text": f"The document has `{match['text']}`, at {_counted(near['typos'])} from `{term.word}`: {limit}."}
    if term.exact is None and not terms.docids(Subset(term)) and not everywhere.docids(Subset(term)):
        nearest = _nearest_words(own.reader, term.word, visible)
        hint = f" Near words are {', '.join(f'`{each}`' for each in nearest)}." if nearest else ""
        return {"kind": "wordNotFound", "word": word, "nearest": nearest,
                "text": f"No document has `{term.word}` or a word that counts as it.{hint}"}
    return _strategy_cause(asked, own.docid, word)


def _strategy_cause(asked: WordSearch, docid: int, word: str) -> Cause:
    """Other documents have the word, this one does not."""
    own, terms = asked.scope.context.strategy, asked.found.terms
    if own is MatchingStrategy.BM25:
        return {"kind": "wordMissing", "word": word, "text": f"The document lacks all words of the query; the first is `{word}`."}
    alone = DocIds([docid])
    others: list[str] = []
    rest = "the other strategies that drop words require it, too"
    for strategy in _STRATEGIES:
        try:
            with asked.scope.reader.limited(asked.expired):
                if strategy is not own and docid in universe(asked.graph, terms, strategy, alone):
                    others.append(strategy.value)
        except TimeoutError:
            rest = f"whether `{strategy.value}` requires it, too, was not found out in time"
    lacks = f"The document lacks `{word}`, which the strategy `{own.value}` requires"
    if others:
        return {"kind": "matchingStrategy", "word": word, "strategies": others,
                "text": f"{lacks}; with `{'` or `'.join(others)}` it matches."}
    return {"kind": "wordMissing", "word": word, "text": f"{lacks}; {rest}."}


def _counted(typo_count: int) -> str:
    return "1 typo" if typo_count == 1 else f"{typo_count or 'no'} typos"


def _fields(own: OwnWords, matches: Iterable[Cause]) -> list[str]:
    return list(dict.fromkeys(field for match in own.shown(matches) for field in match["fields"]))


def _in(fields: Sequence[str]) -> str:
    return f": {', '.join(f'`{field}`' for field in fields)}" if fields else ""


def _is_stop_word(own: OwnWords, term: Term, is_searched: Callable[[str], bool]) -> bool:
    """Return whether a term is a stop word that the document has in the searched attributes."""
    analyzer = own.reader.settings.analyzer
    tokens = analyzer.tokens(term.word)
    if not analyzer.stop_words or not any(token.kind == STOP_WORD for token in tokens):
        return False
    texts = (value for field, several in own.contents.items() if is_searched(field)
             for value in several if isinstance(value, str))
    return any(token.lemma == term.word for text in texts for token in analyzer.tokens(text[:_MOST_CHARACTERS]))


def _near_word(own: OwnWords, term: Term, is_searched: Callable[[str], bool]) -> Cause | None:
    """Return the word of the document with the fewest typos, as ranking counts them: at most 2, fewer for a short word."""
    most = 0 if len(term.word) < _ONE_TYPO else 1 if len(term.word) < _TWO_TYPOS else 2
    best: Cause | None = None
    for word, all_fields in own.items():
        if most and word[0] == term.word[0]:
            typo_count = distance(term.word, word, most, term.is_prefix)
        else:  # another first character counts as two typos
            typo_count = 2 if most == 2 and is_one_edit(term.word, word) else 3
        fields = list(filter(is_searched, all_fields))
        if fields and 0 < typo_count <= most and (best is None or typo_count < best["typos"]):
            best = {"text": word, "typos": typo_count, "fields": fields}
    return best


def _nearest_words(reader: Reader, word: str, visible: DocIds | None) -> list[str]:
    """Return words of the index at one or two typos from a word; without any, words that begin like it."""
    def may_show(near: str) -> bool:
        if visible is None and reader.settings.is_everything_displayed:
            return True
        return any(is_shown(reader, field) and (visible is None or reader.terms.word_field_docids(near, field).intersect(visible))
                   for field in reader.terms.word_fields(near))

    near = typos(reader.vocabulary, word, 2, False, may_show)
    found = [*near.one, *near.two]
    for end in range(len(word) - 1, max(2, len(word) // 2), -1) if not found else ():
        found = list(filter(may_show, reader.vocabulary.words_with_prefix(word[:end], _NEAREST)))
        if found:
            break
    return found[:_NEAREST]
