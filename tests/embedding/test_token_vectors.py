"""What must hold of tables of vectors of tokens, in the format of model2vec:

1. The vector of a text is the mean of the vectors of its tokens, without unknown ones, scaled to length 1.
2. Weights of tokens, and vectors that several tokens share, count as the format says.
3. The command makes such a table of a transformer: similar tokens are near, frequent ones count less.
4. Tables that are not whole are errors in words.
"""
from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from svcd.embedding import EmbeddingError, Environment, embedder_of
from svcd.embedding.embedder import MODELS_VARIABLE
from svcd.embedding.make_word_vectors import main
from svcd.vectors.nearest import numpy
from svcd.vectors.vector import cosine_distance, norm
from tests.support.tiny_model import WORDS, Tensors, encoded, tensors, write_model

Make = Callable[..., Environment]
CHANCE = random.Random(11)
VECTORS = [[CHANCE.gauss(0, 0.01) for _ in range(6)] for _ in WORDS]


def flat(vectors: Sequence[Sequence[float]]) -> list[float]:
    return [number for vector in vectors for number in vector]


def write_table(folder: Path, made: Tensors, mapping: Sequence[int] = ()) -> None:
    folder.mkdir(exist_ok=True)
    raw = encoded(made)
    if mapping:  # integers, behind the other tensors
        size = int.from_bytes(raw[:8], "little")
        header, rest = json.loads(raw[8:8 + size]), raw[8 + size:]
        header["mapping"] = {"dtype": "I64", "shape": [len(mapping)], "data_offsets": [len(rest), len(rest) + 8 * len(mapping)]}
        text = json.dumps(header).encode()
        raw = struct.pack("<Q", len(text)) + text + rest + struct.pack(f"<{len(mapping)}q", *mapping)
    (folder / "model.safetensors").write_bytes(raw)
    (folder / "vocab.txt").write_text("\n".join(WORDS), "utf-8")


@pytest.fixture
def embedder(tmp_path: Path, environment: Make) -> Callable[[], Any]:
    return lambda: embedder_of({"source": "staticFile", "model": "table"}, environment(**{MODELS_VARIABLE: str(tmp_path)}))


def mean(vectors: Sequence[Sequence[float]]) -> Any:
    total = [sum(column) for column in zip(*vectors)]
    length = sqrt(sum(number * number for number in total))
    return pytest.approx([number / length for number in total], abs=0.02)  # numbers are rounded to 8 bits


def of(*words: str, weights: Sequence[float] = ()) -> Any:
    return mean([[number * (weights[WORDS.index(word)] if weights else 1) for number in VECTORS[WORDS.index(word)]] for word in words])


@pytest.mark.parametrize("name", ["embeddings", "embedding.weight"])
def test_a_text_is_the_mean_of_its_tokens(tmp_path: Path, embedder: Callable[[], Any], name: str) -> None:
    write_table(tmp_path / "table", {name: ((len(WORDS), 6), flat(VECTORS))})
    made = embedder()
    assert made.dimensions() == 6
    texts = {"The cat, the dog": of("the", "cat", ",", "the", "dog"), "drivers qqq": of("drive", "##r", "##s"), "a" * 40 + " cat": of("cat")}
    assert [list(each) for each in made.embed(list(texts))] == list(texts.values())
    assert list(made.embed_query("cat")) == of("cat")
    assert norm(made.embed([""])[0]) == pytest.approx(1) and made.embed(["qqq"]) == made.embed([""])


def test_weights_and_shared_vectors(tmp_path: Path, embedder: Callable[[], Any]) -> None:
    count = len(WORDS)
    weights = [CHANCE.uniform(0.1, 2) for _ in WORDS]
    made: Tensors = {"embeddings": ((count, 6), flat(reversed(VECTORS))), "weights": ((count,), weights)}
    write_table(tmp_path / "table", made, mapping=range(count - 1, -1, -1))
    assert list(embedder().embed(["The cat, zebra"])[0]) == of("the", "cat", ",", "zebra", weights=weights)
    write_table(tmp_path / "table", made, mapping=[count] * count)
    with pytest.raises(EmbeddingError, match="maps tokens to vectors that it lacks"):
        embedder()


@pytest.mark.parametrize("name, raw, message", [
    ("vocab.txt", None, "it has neither `tokenizer.json` nor `vocab.txt`"),
    ("model.safetensors", None, "there is no file `model.safetensors` in the folder `"),
    ("model.safetensors", b"", "`model.safetensors` is not a file of tensors"),
    ("model.safetensors", encoded({"x": ((1,), [1.0])}), "has no tensor `embeddings`"),
    ("model.safetensors", encoded({"embeddings": ((2, 3), [1.0] * 6)}), "and the tokenizer do not belong together"),
])
def test_tables_that_are_not_whole(tmp_path: Path, embedder: Callable[[], Any], name: str, raw: bytes | None, message: str) -> None:
    write_table(tmp_path / "table", {"embeddings": ((len(WORDS), 6), flat(VECTORS))})
    if raw is None:
        (tmp_path / "table" / name).unlink()
    else:
        (tmp_path / "table" / name).write_bytes(raw)
    with pytest.raises(EmbeddingError, match=message):
        embedder()


def test_the_command_makes_a_table_of_a_transformer(tmp_path: Path, embedder: Callable[[], Any]) -> None:
    pytest.importorskip("numpy")
    made = tensors(random.Random(3))
    words = made["embeddings.word_embeddings.weight"][1]
    cat, dog = (8 * WORDS.index(word) for word in ("cat", "dog"))
    words[dog:dog + 8] = [number + 0.05 for number in words[cat:cat + 8]]
    write_model(tmp_path / "model", made)
    main(["--from-model", str(tmp_path / "model"), str(tmp_path / "table"), "--dimensions", "7"])
    table = embedder()
    the_cat, dog_, car, zebra, both = table.embed(["cat", "dog", "car", "zebra", "the zebra"])
    assert table.dimensions() == 7
    assert cosine_distance(the_cat, dog_) < 0.1 < cosine_distance(the_cat, car)
    assert cosine_distance(both, zebra) < cosine_distance(both, table.embed(["the"])[0])  # "the" is the first word
    assert table.embed(["[CLS]"]) == table.embed([""])  # a token that no text means


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = "it needs the package numpy: install `svcd\\[vectors]`" if numpy() is None else ".*No such file"
    with pytest.raises(SystemExit, match=f"make_word_vectors: {missing}"):
        main(["--from-model", str(tmp_path / "none"), str(tmp_path / "x")])
    for wrong in (["x"], ["--from-model", "m", "x", "y"]):
        with pytest.raises(SystemExit):
            main(wrong)
        assert "give either a source or --from-model" in capsys.readouterr().err
