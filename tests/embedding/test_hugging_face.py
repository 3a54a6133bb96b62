"""What must hold of the source `huggingFace`:

1. A model is found by `modelPath`, and by its name in the folder of models, also with the layout of the hub's cache.
2. Documents and queries get the prompts of the model; pooling is what the settings say.
3. A model that is not there is an error that says where to put it; a name cannot lead out of the folder.
"""
from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svcd.embedding import EmbeddingError, Environment, embedder_of
from svcd.embedding.embedder import MODELS_VARIABLE
from tests.support.tiny_model import WORDS, tensors, vector_by_loops, write_model

pytest.importorskip("numpy")
Make = Callable[..., Environment]
MADE = tensors(random.Random(7))


def vector(text: str, pooling: str = "mean") -> Any:
    return pytest.approx(vector_by_loops(MADE, [WORDS.index(word) for word in ("[CLS]", *text.split(), "[SEP]")], pooling), abs=1e-4)


@pytest.fixture
def made(tmp_path: Path, environment: Make) -> Callable[..., Any]:
    variables = {MODELS_VARIABLE: str(tmp_path)}
    return lambda entries=0, **settings: embedder_of({"source": "huggingFace", **settings}, environment(entries, **variables))


@pytest.mark.parametrize("folder, settings", [
    ("BAAI/tiny", {"model": "BAAI/tiny"}),
    ("tiny", {"model": "BAAI/tiny"}),
    ("tiny", {"model": "tiny", "revision": "main"}),
    ("models--BAAI--tiny/snapshots/0ab1", {"model": "BAAI/tiny", "revision": "0ab1"}),
    ("models--BAAI--tiny/snapshots/0ab2", {"model": "BAAI/tiny"}),
    ("any/where", {"modelPath": "any/where"}),
    ("elsewhere", {"modelPath": "{folder}/elsewhere", "model": "BAAI/tiny"}),
])
def test_where_a_model_is(tmp_path: Path, made: Callable[..., Any], folder: str, settings: dict[str, str]) -> None:
    write_model(tmp_path / folder, MADE)
    if folder.endswith("0ab2"):
        (tmp_path / "models--BAAI--tiny/refs").mkdir()
        (tmp_path / "models--BAAI--tiny/refs/main").write_text("0ab2\n")
    embedder = made(**{name: value.format(folder=tmp_path) for name, value in settings.items()})
    assert embedder.dimensions() == 8 and embedder.embed([]) == []
    assert [list(each) for each in embedder.embed(["the cat", "dog"])] == [vector("the cat"), vector("dog")]


def test_prompts_and_pooling(tmp_path: Path, made: Callable[..., Any]) -> None:
    write_model(tmp_path / "m", MADE)
    (tmp_path / "m" / "config_sentence_transformers.json").write_text('{"prompts": {"query": "big ", "document": "small "}}')
    embedder = made(model="m", pooling="forceCls", entries=5)
    assert list(embedder.embed(["cat"])[0]) == vector("small cat", "cls")
    assert list(embedder.embed_query("cat")) == vector("big cat", "cls")
    assert embedder.embed_query("cat") is embedder.embed_query("cat")
    assert list(made(model="m").embed(["cat"])[0]) == vector("small cat")
    with pytest.raises(EmbeddingError, match="doesn't have source `rest`"):
        embedder.embed_query(None, {"a": 1})
    embedder.abort()


def message(made: Callable[..., Any], **settings: str) -> str:
    with pytest.raises(EmbeddingError) as error:
        made(**settings)
    return str(error.value)


def test_a_missing_model_is_an_error_that_says_where_to_put_it(tmp_path: Path, made: Callable[..., Any]) -> None:
    assert message(made) == (
        f"user error: there is no file `config.json` in `{tmp_path}/BAAI/bge-base-en-v1.5`\n  - Hint: svcd downloads no model. Put "
        "`config.json`, `model.safetensors` and `tokenizer.json` (or `vocab.txt`) into this folder, or use the source `staticFile`, "
        "`ollama`, `rest` or `openAi`")
    write_model(tmp_path / "m", MADE)
    (tmp_path / "m" / "model.safetensors").unlink()
    assert message(made, model="m").startswith(f"user error: there is no file `model.safetensors` in `{tmp_path}/m`\n")
    (tmp_path / "m" / "model.safetensors").write_bytes(b"x")
    assert message(made, model="m") == (f"user error: could not read the model in `{tmp_path}/m`:\n"
                                        "  - `model.safetensors` is not a file of tensors, or it is cut")


@pytest.mark.parametrize("settings", [{"model": "../m"}, {"model": "/etc"}, {"model": "a/./b"}, {"model": ""},
                                      {"model": "m", "revision": "../../m"}])
def test_a_name_stays_in_the_folder_of_models(made: Callable[..., Any], settings: dict[str, str]) -> None:
    assert message(made, **settings) == (f"user error: `{settings['model']}` is not the name of a model\n"
                                         "  - Hint: name a folder elsewhere with `modelPath`")


def test_models_need_numpy(made: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.embedding.hugging_face.numpy", lambda: None)
    assert message(made) == "user error: the source `huggingFace` needs the package numpy: install `svcd[vectors]`"
