"""How a query text is read, and the graph that is made of it.

What must hold:
1. Words stand at positions one apart, eight apart with a hard separator between them.
2. Only the very last token may be a prefix; a space, a dot or a quote after it completes it.
3. A stop word is dropped, but as the last token it is a term; in a phrase it is a position gap.
4. Quotes open and close phrases; an open one ends with the query; a hard separator parts one into two.
5. A dash after white space and before a word or phrase excludes it; any other dash is a separator.
6. Ten parts are read, what follows is ignored; a thousand tokens are read.
7. Terms at contiguous positions are joined to 2- and 3-grams; phrases are not.
8. Each node leads to all nodes that begin with the next term.
9. Words are dropped from the last to the second one, by `frequency` the most frequent first, by `all` never;
   phrases are kept, and then the first word may be dropped too.
10. Synonyms of a key are phrases; keys of the same words are one; long and empty ones are ignored.
11. Paths that end alike share the nodes of their ends.
"""
from __future__ import annotations

import pytest

from svcd.query.graph import (
    END, LONGEST_TEXT, START, Graph, MatchingStrategy, ParsedQuery, Part, QueryNode, build_graph, from_paths, parse, parse_text,
    removal_groups,
)
from svcd.query.terms import Postings, Subset, Term, Terms
from svcd.text.analyzer import Analyzer
from tests.support.dict_reader import DictReader
from tests.support.searching import titled

ANALYZER = Analyzer(stop_words=["the", "of"])


def parsed(q: str, has_prefix: bool = True) -> ParsedQuery:
    return parse(ANALYZER.tokens(q), has_prefix)


def parts(q: str) -> list[tuple[str, int, int]]:
    """(words with - for a position gap, start, end) of the parts."""
    return [(" ".join(word or "-" for word in part.words), part.start, part.end) for part in parsed(q).parts]


def prefixes(q: str) -> list[bool]:
    return [part.is_prefix for part in parsed(q).parts]


def test_positions_count_words_and_hard_separators() -> None:
    assert parts("new york") == [("new", 0, 0), ("york", 1, 1)]
    assert parts("new. york") == [("new", 0, 0), ("york", 8, 8)]
    assert parts("! new") == [("new", 7, 7)]


@pytest.mark.parametrize("q", ["star wars ", "star wars.", 'star "wars"', "star wars!"])
def test_what_follows_ends_the_last_word(q: str) -> None:
    assert not any(prefixes(q))


def test_only_the_last_word_is_a_prefix() -> None:
    assert prefixes("star wars") == [False, True]
    assert [part.is_prefix for part in parsed("star", has_prefix=False).parts] == [False]


def test_stop_words() -> None:
    assert parts("the king of the") == [("king", 1, 1), ("the", 3, 3)]
    assert prefixes("king the") == [False, True]
    assert parts("king the ") == [("king", 0, 0)]
    assert parts('"lord of the rings" x') == [("lord - - rings", 0, 3), ("x", 4, 4)]
    assert parts('"the rings of"') == [("- rings -", 1, 2)]
    assert parts('"the of"') == []


def test_quotes() -> None:
    assert parts('"a b" c') == [("a b", 0, 1), ("c", 2, 2)]
    assert parts('"a b') == [("a b", 0, 1)]
    assert parts('a "" b') == [("a", 0, 0), ("b", 1, 1)]
    assert parts('"a, b" c') == [("a", 0, 0), ("b", 8, 8), ("c", 9, 9)]


def test_negative_parts() -> None:
    query = parsed('a -b -"c d" e')
    assert [part.words for part in query.parts] == [("a",), ("e",)]
    assert (query.negative_words, query.negative_phrases) == (["b"], [("c", "d")])
    assert parsed("-the").negative_words == ["the"]


@pytest.mark.parametrize("q", ["a-b", "a- b", "a --b", "a - b"])
def test_other_dashes_separate(q: str) -> None:
    assert parts(q) == [("a", 0, 0), ("b", 1, 1)]


def test_ten_parts_are_read() -> None:
    query = parsed("a b c d e f g h i j k -l")
    assert len(query.parts) == 10
    assert query.negative_words == []
    assert [part.is_prefix for part in query.parts] == [False] * 10


def test_a_thousand_tokens_are_read() -> None:
    assert parts("- " * 500 + "x") == []
    assert parts("- " * 498 + "x y") == [("x", 0, 0), ("y", 1, 1)]


# the graph


def terms_of(reader: DictReader) -> Terms:
    return Terms(Postings(reader), reader.settings.typo_tolerance, reader.settings.synonyms)


def graph_of(q: str, reader: DictReader | None = None) -> tuple[Graph, Terms]:
    reader = reader or titled("x")
    terms = terms_of(reader)
    return build_graph(terms, parse(reader.settings.analyzer.tokens(q))).graph, terms


def labels(graph: Graph) -> list[str]:
    found = []
    for _, node in graph.term_nodes:
        phrase = node.subset.term.phrase
        found.append(node.subset.term.word if phrase is None else f'"{" ".join(word or "-" for word in phrase)}"')
    return found


def test_ngrams() -> None:
    assert labels(graph_of("a b c d")[0]) == ["a", "b", "ab", "c", "bc", "abc", "d", "cd", "bcd"]
    assert labels(graph_of("a. b c")[0]) == ["a", "b", "c", "bc"]
    assert labels(graph_of('a "b c" d')[0]) == ["a", '"b c"', "d"]
    assert labels(graph_of(f"{'a' * 200} {'b' * 51}")[0]) == ["a" * 200, "b" * 51]


def test_budget_of_ngrams_is_lower() -> None:
    graph, _ = graph_of("some thing good")
    budgets = {node.subset.term.word: node.subset.term.budget for _, node in graph.term_nodes}
    assert budgets == {"some": 0, "thing": 1, "something": 1, "good": 0, "thinggood": 1, "somethinggood": 0}


def test_each_node_leads_to_all_that_begin_with_the_next_term() -> None:
    graph, _ = graph_of("a b c")  # nodes: a 2, b 3, ab 4, c 5, bc 6, abc 7
    assert [list(successors) for successors in graph.successors] == [
        [2, 4, 7], [], [3, 6], [5], [5], [END], [END], [END]]


def dropped(q: str, strategy: MatchingStrategy, reader: DictReader | None = None) -> list[list[str]]:
    graph, terms = graph_of(q, reader)
    names = dict(zip((number for number, _ in graph.term_nodes), labels(graph)))
    return [[names[node] for node in group] for group in removal_groups(graph, terms, strategy)]


def test_last_words_are_dropped_first() -> None:
    assert dropped("a b c", MatchingStrategy.LAST) == [["c"], ["b", "bc"]]
    assert dropped("a", MatchingStrategy.LAST) == []
    assert dropped('a "b c" d', MatchingStrategy.LAST) == [["d"], ["a"]]


def test_frequent_words_are_dropped_first() -> None:
    reader = titled("a b", "b", "b c", "a")
    assert dropped("a. b. c", MatchingStrategy.FREQUENCY, reader) == [["b"], ["a"]]
    assert dropped("a. nowhere", MatchingStrategy.FREQUENCY, reader) == [["nowhere"]]


def test_all_words_are_kept() -> None:
    assert dropped("a b c", MatchingStrategy.ALL) == []


def test_synonyms_of_a_term_are_capped() -> None:
    many = titled("x", synonyms={"x": [f"{number:03} b c" for number in range(60)]})
    term = terms_of(many).word("x", False)
    assert len(term.synonyms) == 33  # 100 words of 3 a phrase
    many = titled("x", synonyms={"x": [f"{number:03}" for number in range(60)]})
    assert len(terms_of(many).word("x", False).synonyms) == 50


def test_paths_share_their_ends() -> None:
    a, b, c, d = (QueryNode(Subset(Term(word, False, 0)), place, place, place) for place, word in enumerate("abcd"))
    graph = from_paths([(a, c, d), (b, c, d), (a, d), (d,)])
    assert [node for _, node in graph.term_nodes] == [a, c, d, b, a]
    assert [list(successors) for successors in graph.successors] == [[2, 4, 5, 6], [], [3], [4], [END], [3], [4]]
    assert graph.nodes[START] is None and graph.nodes[END] is None


def test_paths_without_steps_lead_to_the_end() -> None:
    graph = from_paths([()])
    assert graph.term_nodes == []
    assert list(graph.successors[START]) == [END]


def test_part_defaults() -> None:
    assert Part(("a",), 0, 0) == Part(("a",), 0, 0, is_phrase=False, is_prefix=False)


def test_a_long_text_is_parsed_as_if_all_of_it_were_tokenized() -> None:
    for text in ("star wars " * 10_000, '"a b" - ' * 20_000, "日本 " * 40_000, "Ա ա " * 30_000, "- " * 70_000):
        assert parse_text(text, ANALYZER) == parse(ANALYZER.tokens(text))
    assert parse_text("star wa", ANALYZER).parts[-1].is_prefix


def test_a_word_that_is_cut_is_no_prefix() -> None:
    parts = parse_text("x" * LONGEST_TEXT + "y", ANALYZER).parts
    assert [part.is_prefix for part in parts] == [False]
