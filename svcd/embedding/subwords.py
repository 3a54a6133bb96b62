"""Divides words into the pieces of a model's vocabulary, by WordPiece or unigram. Frequent words are cached."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

_MOST_KEPT, _LONGEST_KEPT = 20_000, 100  # words; characters of a word: some megabytes
# Added to the lowest score of a vocabulary: the score of a character that no piece has.
_UNKNOWN_PENALTY = 10.0


class _Subwords(ABC):
    """A vocabulary, and the pieces of recent words. unknown: number of the unknown piece; None without one."""

    def __init__(self, vocabulary: Mapping[str, int], unknown: int | None) -> None:
        self.vocabulary = vocabulary
        self.unknown = unknown
        self._longest_piece = max(map(len, vocabulary), default=0)
        self._kept: dict[str, tuple[int, ...]] = {}

    def pieces(self, word: str) -> tuple[int, ...]:
        """Return the numbers of the pieces of a word."""
        found = self._kept.get(word)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            found = self._divided(word)
            if len(word) <= _LONGEST_KEPT:
                self._kept[word] = found
        return found

    @abstractmethod
    def _divided(self, word: str) -> tuple[int, ...]:
        """Divide a word."""


class WordPiece(_Subwords):
    """Takes the longest piece from the left, again and again; a word with a part outside the vocabulary is unknown as a whole."""

    def __init__(self, vocabulary: Mapping[str, int], unknown: str = "[UNK]", prefix: str = "##", longest: int = 100) -> None:
        """prefix: of pieces inside a word. longest: of words that are divided, in characters."""
        super().__init__(vocabulary, vocabulary.get(unknown))
        self._prefix, self._longest = prefix, longest

    def _divided(self, word: str) -> tuple[int, ...]:
        unknown = () if self.unknown is None else (self.unknown,)
        if len(word) > self._longest:
            return unknown
        numbers: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(min(len(word), start + self._longest_piece), start, -1):
                number = self.vocabulary.get(prefix + word[start:end])
                if number is not None:
                    break
            else:
                return unknown
            numbers.append(number)
            start, prefix = end, self._prefix
        return tuple(numbers)


class Unigram(_Subwords):
    """Takes the pieces with the highest sum of scores; characters without piece become one unknown piece, or their bytes."""

    def __init__(self, scored: Sequence[Sequence[Any]], unknown: int | None, by_bytes: bool = False) -> None:
        """scored: (piece, score), by number. by_bytes: whether the vocabulary has pieces for bytes, as `<0x41>`."""
        super().__init__({piece: number for number, (piece, _) in enumerate(scored)}, unknown)
        self._scores = [float(score) for _, score in scored]
        self._unknown_score = min(self._scores, default=0.0) - _UNKNOWN_PENALTY
        self._by_bytes = by_bytes

    def _divided(self, word: str) -> tuple[int, ...]:
        # At each end: the best score of the pieces up to it, the start of the last one, and its number; None for unknown.
        best: list[tuple[float, int, int | None] | None] = [(0.0, 0, None)] + [None] * len(word)
        for start in range(len(word)):
            reached = best[start]
            assert reached is not None
            for end in range(start + 1, min(len(word), start + self._longest_piece) + 1):
                number = self.vocabulary.get(word[start:end])
                if number is not None and ((known := best[end]) is None or reached[0] + self._scores[number] > known[0]):
                    best[end] = reached[0] + self._scores[number], start, number
            if word[start] not in self.vocabulary and (
                    (known := best[start + 1]) is None or reached[0] + self._unknown_score > known[0]):
                best[start + 1] = reached[0] + self._unknown_score, start, None
        parts: list[tuple[int, int, int | None]] = []
        end = len(word)
        while end:
            _, start, number = best[end] or (0.0, 0, None)
            if number is None and parts and parts[-1][2] is None:
                parts[-1] = start, parts[-1][1], None  # neighbours without piece are one unknown piece
            else:
                parts.append((start, end, number))
            end = start
        return tuple(number for start, end, known in reversed(parts)
                     for number in ([known] if known is not None else self._unknown_pieces(word[start:end])))

    def _unknown_pieces(self, text: str) -> list[int]:
        names = [f"<0x{byte:02X}>" for byte in text.encode("utf-8", "replace")] if self._by_bytes else []
        if names and all(name in self.vocabulary for name in names):
            return [self.vocabulary[name] for name in names]
        return [] if self.unknown is None else [self.unknown]
