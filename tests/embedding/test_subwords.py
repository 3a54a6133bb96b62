"""What must hold of pieces of words: WordPiece takes the longest piece from the left, unigram the best sum of all divisions."""
from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings, strategies as st

from svcd.embedding.subwords import Unigram, WordPiece

WORD = st.text("abc", max_size=7)


def test_wordpiece_takes_the_longest_piece() -> None:
    names = ["[UNK]", "un", "##want", "##wanted", "runn", "##ing", "##w", "r"]
    model = WordPiece({name: number for number, name in enumerate(names)}, longest=12)
    assert {word: [names[number] for number in model.pieces(word)] for word in ("unwanted", "running", "rw", "unwantedx", "un" * 7, "")} == {
        "unwanted": ["un", "##wanted"], "running": ["runn", "##ing"], "rw": ["r", "##w"], "unwantedx": ["[UNK]"], "un" * 7: ["[UNK]"],
        "": []}


def divisions(word: str, pieces: set[str]) -> Iterator[list[str]]:
    """All divisions of a word into pieces, and characters that are no piece."""
    if not word:
        yield []
    for end in range(1, len(word) + 1):
        if word[:end] in pieces or end == 1:
            yield from ([word[:end], *rest] for rest in divisions(word[end:], pieces))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(-30, -1), min_size=1, max_size=10), WORD)
def test_unigram_finds_the_best_sum(scores: dict[str, int], word: str) -> None:
    scored = [("<unk>", 0.0), *scores.items()]
    model = Unigram(scored, 0)
    unknown = min(0.0, *scores.values()) - 10.0
    best = max(sum(scores.get(piece, unknown) for piece in division) for division in divisions(word, set(scores)))
    found = [scored[number][0] for number in model.pieces(word)]
    if "<unk>" not in found:
        assert "".join(found) == word and sum(scores[piece] for piece in found) == best
    else:  # neighbours without piece are one unknown piece
        assert "<unk>" not in [left for left, right in zip(found, found[1:]) if right == "<unk>"]
        missing = len(word) - len("".join(piece for piece in found if piece != "<unk>"))
        assert sum(scores[piece] for piece in found if piece != "<unk>") + missing * unknown == best


def test_unknown_characters_become_bytes_where_the_vocabulary_has_them() -> None:
    scored = [("<unk>", 0.0), ("a", -1.0), ("<0xC3>", 0.0), ("<0xA9>", 0.0)]
    assert Unigram(scored, 0, by_bytes=True).pieces("aé") == (1, 2, 3)
    assert Unigram(scored, 0, by_bytes=True).pieces("aü") == (1, 0)
    assert Unigram(scored, None).pieces("aü") == (1,)
