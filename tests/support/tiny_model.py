"""A model like BERT with random weights in a folder, small enough to compute its vectors with loops."""
from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping, Sequence
from math import erf, exp, prod, sqrt
from pathlib import Path
from typing import Any

WORDS = ("[PAD] [UNK] [CLS] [SEP] [MASK] the cat dog sleeps runs truck car drive ##r ##s big small red zebra 日 本 . , ! un ##like ##ly "
         "é e caf ##e").split()
HIDDEN, HEADS, LAYERS, INNER, POSITIONS = 8, 2, 2, 12, 16
CONFIG = {"model_type": "bert", "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
          "max_position_embeddings": POSITIONS, "hidden_act": "gelu", "layer_norm_eps": 1e-12}

Tensors = dict[str, tuple[Sequence[int], list[float]]]  # name -> shape, numbers


def tensors(chance: random.Random, words: int = len(WORDS)) -> Tensors:
    """Random weights of a model."""
    shapes = {"embeddings.word_embeddings.weight": (words, HIDDEN), "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
              "embeddings.token_type_embeddings.weight": (2, HIDDEN)}
    linear = {"attention.self.query": (HIDDEN, HIDDEN), "attention.self.key": (HIDDEN, HIDDEN),
              "attention.self.value": (HIDDEN, HIDDEN), "attention.output.dense": (HIDDEN, HIDDEN),
              "intermediate.dense": (INNER, HIDDEN), "output.dense": (HIDDEN, INNER)}
    for layer in range(LAYERS):
        for name, shape in linear.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = shape
    norms = ["embeddings.LayerNorm", *(f"encoder.layer.{layer}.{part}.LayerNorm" for layer in range(LAYERS)
                                       for part in ("attention.output", "output"))]
    made: Tensors = {name: (shape, [chance.gauss(0, 0.5) for _ in range(prod(shape))]) for name, shape in shapes.items()}
    for name in [each for each in shapes if each.startswith("encoder.")]:
        size = shapes[name][0]
        made[name.replace(".weight", ".bias")] = (size,), [chance.gauss(0, 0.5) for _ in range(size)]
    for name in norms:
        made[f"{name}.weight"] = (HIDDEN,), [chance.uniform(0.5, 1.5) for _ in range(HIDDEN)]
        made[f"{name}.bias"] = (HIDDEN,), [chance.gauss(0, 0.2) for _ in range(HIDDEN)]
    return made


def encoded(made: Tensors, kind: str = "F32", prefix: str = "") -> bytes:
    """The file of tensors. kind: F32, F16 or BF16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    raw = b""
    for name, (shape, numbers) in made.items():
        start = len(raw)
        if kind == "BF16":
            raw += b"".join(struct.pack("<f", number)[2:] for number in numbers)
        else:
            raw += struct.pack(f"<{len(numbers)}{'f' if kind == 'F32' else 'e'}", *numbers)
        header[prefix + name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, len(raw)]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + raw


def write_model(folder: Path, made: Tensors, config: Mapping[str, Any] = CONFIG, **form: Any) -> None:
    """Write the three files of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", "utf-8")
    (folder / "model.safetensors").write_bytes(encoded(made, **form))


def vector_by_loops(made: Tensors, tokens: Sequence[int], pooling: str = "mean", skipped: int = 0) -> list[float]:
    """The vector of a text, computed number by number."""
    def rows(name: str) -> list[list[float]]:
        (_, width), numbers = made[name]
        return [numbers[start:start + width] for start in range(0, len(numbers), width)]

    def linear(name: str, inputs: list[list[float]]) -> list[list[float]]:
        weights, bias = rows(f"{name}.weight"), made[f"{name}.bias"][1]
        return [[sum(a * b for a, b in zip(each, weight)) + shift for weight, shift in zip(weights, bias)] for each in inputs]

    def normalized(name: str, inputs: list[list[float]]) -> list[list[float]]:
        found = []
        for each in inputs:
            mean = sum(each) / len(each)
            deviation = sqrt(sum((number - mean) ** 2 for number in each) / len(each) + 1e-12)
            found.append([(number - mean) / deviation * weight + shift for number, weight, shift in
                          zip(each, made[f"{name}.weight"][1], made[f"{name}.bias"][1])])
        return found

    def added(one: list[list[float]], other: list[list[float]]) -> list[list[float]]:
        return [[a + b for a, b in zip(left, right)] for left, right in zip(one, other)]

    words, positions = rows("embeddings.word_embeddings.weight"), rows("embeddings.position_embeddings.weight")
    kind = rows("embeddings.token_type_embeddings.weight")[0]
    state = added([words[token] for token in tokens], [positions[place + skipped] for place in range(len(tokens))])
    state = normalized("embeddings.LayerNorm", added(state, [kind] * len(tokens)))
    size = HIDDEN // HEADS
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        queries, keys, values = (linear(f"{name}attention.self.{part}", state) for part in ("query", "key", "value"))
        mixed = []
        for query in queries:
            row: list[float] = []
            for head in range(0, HIDDEN, size):
                shares = [exp(sum(query[place] * key[place] for place in range(head, head + size)) / sqrt(size)) for key in keys]
                row += [sum(share * value[place] for share, value in zip(shares, values)) / sum(shares)
                        for place in range(head, head + size)]
            mixed.append(row)
        state = normalized(f"{name}attention.output.LayerNorm", added(state, linear(f"{name}attention.output.dense", mixed)))
        inner = [[number * (1 + erf(number / sqrt(2))) / 2 for number in row] for row in linear(f"{name}intermediate.dense", state)]
        state = normalized(f"{name}output.LayerNorm", added(state, linear(f"{name}output.dense", inner)))
    pooled = state[0] if pooling == "cls" else [sum(column) / len(column) for column in zip(*state)]
    length = sqrt(sum(number * number for number in pooled))
    return [number / length for number in pooled]
