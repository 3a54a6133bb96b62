"""The command that makes vectors for the source staticFile: `python -m svcd.embedding.make_word_vectors IN OUT`.

Each line of IN has a word and its numbers, separated by spaces, frequent words first, like the files of GloVe, fastText and
word2vec; the first line may give the counts of words and numbers. Words are normalized like the terms of texts and weighted by
rarity: a / (a + p), where p is the estimated frequency of the word in texts, from its rank.

With `--from-model FOLDER OUT`, OUT is a folder in the format of model2vec with a vector for each token of a transformer: the one
that the model gives this token alone, reduced to the principal components and weighted by rarity in the same way.
"""
from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from array import array
from collections.abc import Iterable, Iterator
from operator import add, sub
from pathlib import Path

from svcd.embedding.safetensors import WEIGHTS, BadModel, write_tensors
from svcd.embedding.static_file import MOST_DIMENSIONS, WordVector, stepped, write
from svcd.embedding.token_vectors import EMBEDDINGS
from svcd.text.analyzer import WORD, shared_analyzer
from svcd.vectors.vector import norm

DEFAULT_WORDS = 200_000
# From Arora, Liang and Ma, "A simple but tough-to-beat baseline for sentence embeddings" (2017), where it is 0.0001 to 0.001.
SMOOTHING = 1e-4
# The share of the most frequent word of a language in its texts, such as "the".
FIRST_FREQUENCY = 0.07
# Numbers of the vector of a token: fewer lose relevance, more gain little.
DEFAULT_COMPONENTS = 256
# Tokens such as `[CLS]`, `[unused1]` and `<s>`, which texts do not contain.
_SPECIAL = re.compile(r"\[[A-Za-z]+[0-9]*\]|<[^<>]+>")


def main(arguments: list[str] | None = None) -> None:
    """Read one file and write the other. Exits with a message on errors."""
    parser = argparse.ArgumentParser(prog="python -m svcd.embedding.make_word_vectors", description=(
        "Make word vectors for the embedder source staticFile, from a text file such as one of GloVe, or from a transformer."))
    parser.add_argument("source", type=Path, nargs="?", help="lines of a word and its numbers, frequent words first")
    parser.add_argument("target", type=Path, help="the file to make, named *.vectors; with --from-model, the folder to make")
    parser.add_argument("--words", type=int, default=DEFAULT_WORDS, help="how many words are taken (default: %(default)s)")
    parser.add_argument("--from-model", type=Path, metavar="FOLDER", help="instead of a source, a folder with a transformer")
    parser.add_argument("--dimensions", type=int, default=DEFAULT_COMPONENTS, metavar="N",
                        help="numbers of a vector, with --from-model (default: %(default)s)")
    given = parser.parse_args(arguments)
    if (given.source is None) == (given.from_model is None):
        parser.error("give either a source or --from-model, and then the target")
    try:
        if given.from_model:
            return write_token_vectors(given.from_model, given.target, given.dimensions)
        with given.source.open(encoding="utf-8", errors="replace") as lines:
            dimensions, words = read_words(lines, given.words)
        with given.target.open("wb") as file:
            write(file, dimensions, weighted(words, dimensions))
    except (OSError, ValueError, BadModel) as failure:
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
        yield word, stepped(list(map(sub, vector, common)), weight / unit)


def write_token_vectors(model: Path, target: Path, dimensions: int) -> None:
    """Make a folder with a vector for each token of a model. Raises BadModel, OSError, ValueError."""
    from svcd.embedding.tokenizer import FILES
    from svcd.embedding.transformer import Transformer
    from svcd.vectors.nearest import numpy

    np = numpy()
    if np is None:
        raise ValueError("it needs the package numpy: install `svcd[vectors]`")
    transformer = Transformer(model)
    tokenizer = transformer.tokenizer
    names = {number: name for name, number in tokenizer.subwords.vocabulary.items()}
    tokens = range(max(names) + 1)
    rows = np.array(transformer.encode_tokens([[*tokenizer.before, token, *tokenizer.after] for token in tokens]), np.float64)
    is_word = np.array([token in names and not _SPECIAL.fullmatch(names[token]) for token in tokens])
    rows -= rows[is_word].mean(0)
    _, axes = np.linalg.eigh(rows[is_word].T @ rows[is_word])
    rows = rows @ axes[:, ::-1][:, :dimensions]
    # Vocabularies have frequent tokens first, as texts of word vectors.
    rows *= (SMOOTHING / (SMOOTHING + FIRST_FREQUENCY / np.maximum(is_word.cumsum(), 1)) * is_word)[:, None]
    target.mkdir(parents=True, exist_ok=True)
    with (target / WEIGHTS).open("wb") as file:
        write_tensors(file, {EMBEDDINGS[0]: rows})
    for name in (*FILES, "tokenizer_config.json"):
        if (model / name).exists():
            shutil.copyfile(model / name, target / name)
    (target / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True, "hidden_dim": rows.shape[1]}))


if __name__ == "__main__":
    main()
