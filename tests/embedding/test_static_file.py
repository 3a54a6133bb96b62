"""What must hold of the source `staticFile` and its files:

1. The command makes a file of a text file of word vectors; each word is found there in the form of terms, others are not.
2. Texts on one subject are nearer than texts on different ones; rare words count more than frequent ones.
3. Words that the file does not have count as well, by equality; every text has a vector of length 1.
4. A missing, cut or foreign file is an error in words; a text file that is not right is one with its line.
"""
from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svcd.embedding import EmbeddingError, Environment, embedder_of
from svcd.embedding.embedder import MODELS_VARIABLE
from svcd.embedding.make_word_vectors import main, read_words
from svcd.embedding.static_file import WordVector, WordVectorFile, write
from svcd.vectors.vector import cosine_distance, norm

Make = Callable[..., Environment]
# Animals are along one axis, vehicles along another; all words share a third.
TEXT = """\
9 4
the 0.1 0.1 1.0 0.1
a 0.1 0.1 1.0 -0.1
Cat 0.9 0.1 1.0 0.2
cat 0.0 0.0 1.0 9.0
dog 1.0 0.0 1.0 -0.2
kitten 0.9 0.0 1.0 0.4
car 0.0 1.0 1.0 0.2
truck 0.1 0.9 1.0 -0.3
ice cream 0.0 0.0 1.0 1.0
"""


@pytest.fixture
def embedder(tmp_path: Path, environment: Make) -> Any:
    source = tmp_path / "glove.txt"
    source.write_text(TEXT)
    main([str(source), str(tmp_path / "glove.vectors")])
    return embedder_of({"source": "staticFile", "model": "glove"}, environment(**{MODELS_VARIABLE: str(tmp_path)}))


def distance(embedder: Any, one: str, other: str) -> float:
    left, right = embedder.embed([one, other])
    return cosine_distance(left, right)


def test_words_are_terms_of_which_the_most_frequent_form_counts(tmp_path: Path, embedder: Any) -> None:
    file = WordVectorFile(tmp_path / "glove.vectors")
    assert (len(file), file.dimensions) == (7, 4)
    assert file.get("Cat") is None and file.get("zebra") is None and file.get("") is None
    the, cat = file.get("the"), file.get("cat")
    assert the is not None and cat is not None and max(cat.steps) == 127
    lengths = [vector.factor * norm(vector.steps) for vector in (the, cat)]
    assert lengths[1] > 3 * lengths[0]  # by their ranks, and because all words are like "the"


def bytes_of(number: int) -> Any:
    return array("b", (number, -number, 127))


def test_files_keep_every_word(tmp_path: Path) -> None:
    words = {f"w{number}": WordVector(float(number), bytes_of(number % 100)) for number in range(1000)} | {
        "日本": WordVector(0.5, bytes_of(1))}
    path = tmp_path / "x.vectors"
    with path.open("wb") as file:
        write(file, 3, words.items())
    opened = WordVectorFile(path)
    assert {word: opened.get(word) for word in words} == words
    assert [opened.get(word) for word in ("w", "w1000", "~", "\0")] == [None] * 4


def test_texts_on_one_subject_are_near(embedder: Any) -> None:
    assert distance(embedder, "The cat", "a KITTEN") < distance(embedder, "The cat", "the truck")
    assert distance(embedder, "the cat", "dog") < distance(embedder, "the cat", "the")
    assert list(embedder.embed_query("cat")) == list(embedder.embed(["cat!"])[0])


def test_unknown_words_count_by_equality(embedder: Any) -> None:
    assert distance(embedder, "cat x9000", "cat X9000") < 1e-6
    assert distance(embedder, "x9000", "x9000 cat") < distance(embedder, "x9000", "x9001 cat")


@pytest.mark.parametrize("text", ["", "!?", "zebra", "the", "cat " * 10_000])
def test_every_text_has_a_direction(embedder: Any, text: str) -> None:
    assert norm(embedder.embed([text])[0]) == pytest.approx(1, abs=1e-6)


def test_media_are_not_for_words(embedder: Any) -> None:
    with pytest.raises(EmbeddingError, match="doesn't have source `rest`"):
        embedder.embed_query(None, {"a": 1})


@pytest.mark.parametrize("change, message", [
    (lambda raw: raw[:-1], "it is cut, or longer than it says"),
    (lambda raw: b"", "it is not a file of word vectors"),
    (lambda raw: TEXT.encode(), "it is not a file of word vectors"),
    (lambda raw: raw.replace(b'"version": 1', b'"version": 2'), "it is of version 2, and this one reads version 1"),
    (lambda raw: raw.replace(b'"dimensions": 4', b'"dimensions": 0'), "its first line is not right"),
    (lambda raw: raw.replace(b'"words": 7', b'"words": ""'), "it is not a file of word vectors"),
])
def test_files_that_cannot_be_read(
    tmp_path: Path, embedder: Any, environment: Make, change: Callable[[bytes], bytes], message: str,
) -> None:
    path = tmp_path / "other.vectors"
    path.write_bytes(change((tmp_path / "glove.vectors").read_bytes()))
    with pytest.raises(EmbeddingError) as error:
        embedder_of({"source": "staticFile", "model": "other"}, environment(**{MODELS_VARIABLE: str(tmp_path)}))
    assert str(error.value) == f"user error: could not read the word vectors `other.vectors`:\n  - {message}"


def test_a_missing_file(tmp_path: Path, environment: Make) -> None:
    with pytest.raises(EmbeddingError) as error:
        embedder_of({"source": "staticFile", "model": "other"}, environment(**{MODELS_VARIABLE: str(tmp_path)}))
    assert str(error.value) == (f"user error: there is no file `other.vectors` in the folder `{tmp_path}`; `--models-dir` names the "
                                "folder of models")


@pytest.mark.parametrize("text, message", [
    ("a 1 2\nb 1\n", "line 2 is not a word and 2 numbers"),
    ("a 1 2\nb 1 x\n", "line 2 is not a word and 2 numbers"),
    ("a\n", "line 1 is not a word and some numbers"),
    ("2 3\n", "there are no words"),
])
def test_text_files_that_are_not_right(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_words(text.splitlines(), 10)


def test_the_command_takes_the_first_words(tmp_path: Path) -> None:
    assert list(read_words(TEXT.splitlines(), 3)[1]) == ["the", "a", "cat"]
    with pytest.raises(SystemExit, match="make_word_vectors: .*No such file"):
        main([str(tmp_path / "none"), str(tmp_path / "x")])
