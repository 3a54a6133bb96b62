"""The command that makes a file of word vectors from text: `python -m svcd.embedding.make_word_vectors IN OUT`.

Each line of IN has a word and its numbers, separated by spaces, frequent words first, like the files of GloVe, fastText and
word2vec; the first line may give the counts of words and numbers. Words are normalized like the terms of texts and weighted by
rarity: a / (a + p), where p is the estimated frequency of the word in texts, from its rank.
"""
from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Iterable, Iterator
from operator import add, sub
from pathlib import Path

from svcd.embedding.static_file import MOST_DIMENSIONS, WordVector, write
from svcd.text.analyzer import WORD, shared_analyzer
from svcd.vectors.vector import norm

DEFAULT_WORDS = 200_000
# From Arora, Liang and Ma, "A simple but tough-to-beat baseline for sentence embeddings" (2017), where it is 0.0001 to 0.001.
SMOOTHING = 1e-4
# The share of the most frequent word of a language in its texts, such as "the".
FIRST_FREQUENCY = 0.07
_STEPS = 127


def main(arguments: list[str] | None = None) -> None:
    """Read one file and write the other. Exits with a message on errors."""
    parser = argparse.ArgumentParser(prog="python -m svcd.embedding.make_word_vectors", description=(
        "Make a file of word vectors for the embedder source staticFile from a text file, for example one of GloVe."))
    parser.add_argument("source", type=Path, help="lines of a word and its numbers, frequent words first")
    parser.add_argument("target", type=Path, help="the file to make; its name ends with .vectors")
    parser.add_argument("--words", type=int, default=DEFAULT_WORDS, help="how many words are taken (default: %(default)s)")
    given = parser.parse_args(arguments)
    try:
        with given.source.open(encoding="utf-8", errors="replace") as lines:
            dimensions, words = read_words(lines, given.words)
        with given.target.open("wb") as file:
            write(file, dimensions, weighted(words, dimensions))
    except (OSError, ValueError) as failure:
        sys.exit(f"{parser.prog}: {failure}")


def read_words(lines: Iterable[str], most: int) -> tuple[int, dict[str, array[float]]]:
    """Return (dimensions, {term: vector}) of the first words, most frequent first. Raises ValueError for an invalid line.

    Words with the same term, such as capitalized forms, count once: the most frequent form. Words that consist of several terms
    are left out.
    """
    words: dict[str, array[float]] = {}
    dimensions = 0
    for number, line in enumerate(lines, 1):
        name, *rest = line.rstrip().split(" ")
        if number == 1 and len(rest) == 1:  # counts, not a word
            continue
        dimensions = dimensions or len(rest)
        if not 0 < dimensions <= MOST_DIMENSIONS or len(rest) < dimensions:
            raise ValueError(f"line {number} is not a word and {dimensions or 'some'} numbers")
        try:
            vector = array("f", map(float, rest[-dimensions:]))
        except ValueError:
            raise ValueError(f"line {number} is not a word and {dimensions} numbers") from None
        tokens = shared_analyzer().tokens(" ".join([name, *rest[:-dimensions]]))
        term = tokens[0].lemma if len(tokens) == 1 and tokens[0].kind is WORD else None
        if term and term not in words:
            words[term] = vector
            if len(words) == most:
                break
    if not words:
        raise ValueError("there are no words")
    return dimensions, words


def weighted(words: dict[str, array[float]], dimensions: int) -> Iterator[tuple[str, WordVector]]:
    """Yield the words with weighted vectors, after subtracting their common part; the average length becomes 1.

    Weights follow Zipf's law: the word of rank r is 1 / r times as frequent as the first one. Lengths stay different: with
    GloVe's vectors and the weights, neighbouring films then share more genres than with equal lengths (by 0.264 to 0.254; 0.250
    without all this, 0.119 by chance).
    """
    weights = [SMOOTHING / (SMOOTHING + FIRST_FREQUENCY / rank) for rank in range(1, len(words) + 1)]
    common = [0.0] * dimensions
    for vector, weight in zip(words.values(), weights):
        common = list(map(add, common, (number * weight for number in vector)))
    total = sum(weights)
    common = [number / total for number in common]
    unit = sum(map(norm, words.values())) / len(words) or 1.0
    for (word, vector), weight in zip(words.items(), weights):
        special = list(map(sub, vector, common))
        largest = max(map(abs, special)) or 1.0
        steps = array("b", (round(number / largest * _STEPS) for number in special))
        yield word, WordVector(weight * largest / _STEPS / unit, steps)


if __name__ == "__main__":
    main()
