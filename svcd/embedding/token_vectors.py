"""Tables of vectors of tokens in the format of model2vec: `model.safetensors` and `tokenizer.json` in a folder."""
from __future__ import annotations

from collections.abc import Sequence
from math import hypot, isfinite
from pathlib import Path

from svcd.embedding.safetensors import WEIGHTS, BadModel, Tensors
from svcd.embedding.tokenizer import read_tokenizer

# sentence-transformers uses the second name.
EMBEDDINGS = ("embeddings", "embedding.weight")
# Tables may store vectors once that several tokens share, and weights of tokens apart from their vectors.
_MAPPING, _WEIGHTS = "mapping", "weights"
_MOST_SAMPLES = 256


class TokenVectors:
    """The table of a folder. Any thread may call."""

    def __init__(self, folder: Path) -> None:
        """Raises BadModel, OSError."""
        self._tokenizer = read_tokenizer(folder)
        self._tensors = Tensors(folder / WEIGHTS)
        self._name = EMBEDDINGS[EMBEDDINGS[1] in self._tensors]
        shape = self._tensors.shape(self._name)
        tokens = self._tensors.shape(_MAPPING if _MAPPING in self._tensors else self._name)[0]
        if len(shape) != 2 or tokens <= max(self._tokenizer.subwords.vocabulary.values(), default=0):
            raise BadModel(f"`{WEIGHTS}` and the tokenizer do not belong together")
        if _MAPPING in self._tensors and not all(0 <= row < shape[0] for row in self._tensors.numbers(_MAPPING, 0, tokens)):
            raise BadModel(f"`{WEIGHTS}` maps tokens to vectors that it lacks")
        self.dimensions = shape[1]
        self._unit = 1.0
        sample = [hypot(*self.get(token)) for token in range(0, tokens, tokens // _MOST_SAMPLES + 1)]
        self._unit = sum(sample) / len(sample) or 1.0

    def words(self, text: str) -> list[int]:
        """Return the numbers of the known tokens of a text."""
        unknown = self._tokenizer.subwords.unknown
        return [token for token in self._tokenizer.numbers(text, 4 * len(text), is_whole=False) if token != unknown]

    def get(self, token: int) -> Sequence[float]:
        """Return the weighted vector of a token; their average length is about 1."""
        row = int(self._tensors.numbers(_MAPPING, token, 1)[0]) if _MAPPING in self._tensors else token
        weight = self._tensors.numbers(_WEIGHTS, token, 1)[0] if _WEIGHTS in self._tensors else 1.0
        numbers = self._tensors.numbers(self._name, row * self.dimensions, self.dimensions)
        found = [number * weight / self._unit for number in numbers]
        return found if isfinite(sum(found)) else [0.0] * self.dimensions
