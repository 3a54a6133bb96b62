"""Encoders like BERT, from a folder of local files, in numpy: texts to vectors.

The tokens of several texts stand one below the other in one matrix, so that no text is padded; only attention takes them text by
text. The weights stay in the memory map of their file. See docs/embedders.md#huggingface.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import erfc, isfinite, sqrt
from pathlib import Path
from typing import Any

from svcd.base.json_text import loads_wrapped
from svcd.embedding.safetensors import WEIGHTS, BadModel, Tensors
from svcd.embedding.tokenizer import read_tokenizer
from svcd.vectors.nearest import numpy

CONFIG = "config.json"
CLS, MEAN = "cls", "mean"
# Tokens that are encoded together: more of them do not stay in the processor's caches.
TOKENS_TOGETHER = 384
# model_type -> the number of positions that the model leaves out at the beginning.
_FAMILIES = {"bert": 0, "xlm-roberta": 2, "roberta": 2}
# The parts after the encoder in a model of sentence-transformers, and the poolings by their names there.
_MODULES = frozenset(("Transformer", "Pooling", "Normalize"))
_POOLINGS = {CLS: CLS, MEAN: MEAN, "pooling_mode_cls_token": CLS, "pooling_mode_mean_tokens": MEAN}
# Prefixes that names of weights have in models with a head.
_PREFIXES = ("", "bert.", "roberta.", "model.")
# Parts of a layer.
_ATTENTION = ("attention.self.query", "attention.self.key", "attention.self.value")
_REST = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm")
# Numbers that are activated together stay in the processor's first cache.
_ACTIVATED_TOGETHER = 1 << 14
# The table of activations: numbers between two steps are wrong by at most a quarter of one, .00006.
_TAIL_STEP, _LAST_TAIL = 1 / 4096, 6.5


class Transformer:
    """A model. Any thread may call."""

    def __init__(self, folder: Path, pooling: str | None = None) -> None:
        """pooling: CLS or MEAN; None for the pooling in the model's files. Raises BadModel, OSError."""
        config = _json(folder / CONFIG)
        family = config.get("model_type")
        if family not in _FAMILIES:
            raise BadModel(f"it is of the type `{family}`, and svcd runs encoders of the types "
                           f"{', '.join(f'`{name}`' for name in _FAMILIES)}")
        if config.get("position_embedding_type", "absolute") != "absolute" or config.get("hidden_act") not in ("gelu", "relu"):
            raise BadModel("its positions or its activation (`hidden_act`) are of a kind that svcd does not run")
        self.tokenizer = read_tokenizer(folder)
        self._tensors = Tensors(folder / WEIGHTS)
        try:
            self.dimensions, self._heads = int(config["hidden_size"]), int(config["num_attention_heads"])
            self._epsilon, self._skipped = float(config.get("layer_norm_eps", 1e-12)), _FAMILIES[family]
            limit = int(config["max_position_embeddings"]) - self._skipped
            own = (_optional_json(folder / "sentence_bert_config.json").get("max_seq_length")
                   or _optional_json(folder / "tokenizer_config.json").get("model_max_length"))
            self.most_tokens = min(limit, int(own or limit))
            layers = int(config["num_hidden_layers"])
        except (KeyError, TypeError, ValueError) as fault:
            raise BadModel(f"`{CONFIG}` is not right: {fault}") from None
        self._is_gelu = config["hidden_act"] == "gelu"
        self.pooling = pooling or _pooling_of(folder)
        prompts = _optional_json(folder / "config_sentence_transformers.json").get("prompts") or {}
        self.query_prompt = str(prompts.get("query", ""))
        self.document_prompt = str(prompts.get("document", prompts.get("passage", "")))
        self._prefix = next((each for each in _PREFIXES if f"{each}embeddings.word_embeddings.weight" in self._tensors), "")
        self._read_weights(layers)

    def _read_weights(self, layers: int) -> None:
        np = numpy()
        self._words = self._tensor("embeddings.word_embeddings.weight")
        positions = self._tensor("embeddings.position_embeddings.weight")
        types = self._tensor("embeddings.token_type_embeddings.weight")
        self._positions = (positions[self._skipped:self._skipped + self.most_tokens] + types[0]).astype(np.float32)
        self._norm = self._pair("embeddings.LayerNorm")
        self._layers = []
        for layer in range(layers):
            name = f"encoder.layer.{layer}."
            self._layers.append(([self._pair(name + part) for part in _ATTENTION], *(self._pair(name + part) for part in _REST)))
        last = max(self.tokenizer.subwords.vocabulary.values(), default=0)
        if len(self._words) <= last or self._words.shape[1] != self.dimensions:
            raise BadModel(f"`{WEIGHTS}` and the tokenizer do not belong together")

    def _tensor(self, name: str) -> Any:
        return self._tensors.get(self._prefix + name)

    def _pair(self, name: str) -> tuple[Any, Any]:
        return self._tensor(f"{name}.weight"), self._tensor(f"{name}.bias")

    def encode(self, texts: Sequence[str]) -> list[Any]:
        """Return a vector of length 1 for each text, as arrays of numpy. Raises BadModel for weights that are not numbers."""
        vectors = self.encode_tokens([self.tokenizer.numbers(text, self.most_tokens) for text in texts])
        lengths = [float(numpy().linalg.norm(vector)) for vector in vectors]
        if not isfinite(sum(lengths)):
            raise BadModel(f"`{WEIGHTS}` has weights that are not numbers")
        return [vector / max(length, 1e-12) for vector, length in zip(vectors, lengths)]

    def encode_tokens(self, inputs: Sequence[Sequence[int]]) -> list[Any]:
        """Return a vector of any length for each list of tokens, which are encoded together as far as TOKENS_TOGETHER allows."""
        vectors: list[Any] = []
        start = 0
        while start < len(inputs):
            end, tokens = start + 1, len(inputs[start])
            while end < len(inputs) and tokens + len(inputs[end]) <= TOKENS_TOGETHER:
                tokens += len(inputs[end])
                end += 1
            vectors += self._encoded(inputs[start:end])
            start = end
        return vectors

    def _encoded(self, inputs: Sequence[Sequence[int]]) -> list[Any]:
        np = numpy()
        ends = list(accumulate(map(len, inputs)))
        texts = [slice(end - len(each), end) for each, end in zip(inputs, ends)]
        state = self._words[[number for each in inputs for number in each]]
        state += self._positions[[place for each in inputs for place in range(len(each))]]
        inner = np.empty((len(state), len(self._layers[0][3][1])), np.float32)
        self._normalize(np, state, self._norm)
        for attention, joined, norm, wide, narrow, last_norm in self._layers:
            found = self._attention(np, state, texts, attention) @ joined[0].T
            found += joined[1]
            found += state
            self._normalize(np, found, norm)
            np.matmul(found, wide[0].T, out=inner)
            inner += wide[1]
            self._activate(np, inner)
            state = inner @ narrow[0].T
            state += narrow[1]
            state += found
            self._normalize(np, state, last_norm)
        return [state[each.start] if self.pooling == CLS else state[each].mean(0) for each in texts]

    def _attention(self, np: Any, state: Any, texts: Sequence[slice], weights: Sequence[tuple[Any, Any]]) -> Any:
        queries, keys, values = (state @ weight.T + bias for weight, bias in weights)
        size = self.dimensions // self._heads
        queries *= 1 / sqrt(size)
        found = np.empty_like(state)
        for each in texts:
            query, key, value = (part[each].reshape(-1, self._heads, size).transpose(1, 0, 2) for part in (queries, keys, values))
            shares = query @ key.transpose(0, 2, 1)
            shares -= shares.max(-1, keepdims=True)
            np.exp(shares, out=shares)
            mixed = shares @ value
            mixed /= shares.sum(-1, keepdims=True)
            found[each].reshape(-1, self._heads, size)[:] = mixed.transpose(1, 0, 2)
        return found

    def _normalize(self, np: Any, state: Any, weights: Sequence[Any]) -> None:
        """Give each row the mean 0 and the deviation 1, then the weights of the layer, in place."""
        state -= state.mean(-1, keepdims=True)
        deviation = np.sqrt(np.einsum("ij,ij->i", state, state)[:, None] / state.shape[1] + self._epsilon)
        state /= deviation
        state *= weights[0]
        state += weights[1]

    def _activate(self, np: Any, state: Any) -> None:
        """Apply the activation of the model in place. gelu(x) is max(x, 0) less a tail, which is looked up in a table."""
        flat = state.reshape(-1)
        for start in range(0, flat.size if self._is_gelu else 0, _ACTIVATED_TOGETHER):
            part = flat[start:start + _ACTIVATED_TOGETHER]
            places = part * (1 / _TAIL_STEP)
            np.abs(places, out=places)
            tail = _gelu_tails().take(places.astype(np.intp), mode="clip")
            np.maximum(part, 0, out=part)
            part -= tail
        if not self._is_gelu:
            np.maximum(state, 0, out=state)


@cache
def _gelu_tails() -> Any:
    """Return |x| times the normal distribution function of -|x|, in the middle of each step up to _LAST_TAIL."""
    sizes = [(place + 0.5) * _TAIL_STEP for place in range(int(_LAST_TAIL / _TAIL_STEP))]
    return numpy().array([size * erfc(size / sqrt(2)) / 2 for size in sizes] + [0.0], "f4")


def _pooling_of(folder: Path) -> str:
    """Return the pooling that the files of a model name, MEAN by default. Raises BadModel for others, and for further layers."""
    modules = _json(folder / "modules.json", list) if (folder / "modules.json").is_file() else ()
    kinds = {str(module.get("type")).split(".")[-1] for module in modules if isinstance(module, dict)}
    if more := sorted(kinds - _MODULES):
        raise BadModel(f"it has the module `{more[0]}`, which svcd does not run")
    pooled = _optional_json(folder / "1_Pooling" / CONFIG)
    named = [pooled["pooling_mode"]] if "pooling_mode" in pooled else [name for name, is_on in pooled.items() if is_on is True]
    found = [pooling for name, pooling in _POOLINGS.items() if name in named]
    if len(found) == 1 or not pooled:
        return (found or [MEAN])[0]
    raise BadModel("its pooling is neither of the first token nor the mean; set `pooling` to choose one of them")


def _json(path: Path, kind: type = dict) -> Any:
    """Return a JSON object, or a value of another type. Raises BadModel, OSError."""
    try:
        found = loads_wrapped(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, kind):
        raise BadModel(f"`{path.name}` is not JSON of the expected type")
    return found


def _optional_json(path: Path) -> Mapping[str, Any]:
    return _json(path) if path.is_file() else {}
