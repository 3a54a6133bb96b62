"""What must hold of texts that are too long for a model:

1. Texts are cut into pieces as the encoding cl100k does it, whatever their script.
2. In a piece, the pair with the lowest number is joined first.
3. The table is read from the folder of embedder files; a wrong one is not used.
4. Without it, shorter and shorter beginnings are tried, of which the last one fits.
"""
from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import pytest

from svcd.embedding import tokens
from svcd.embedding.tokens import first_tokens, shorter_texts


def table(*words: str) -> dict[bytes, int]:
    """Each byte, then these words, in the order of their numbers."""
    return {bytes((byte,)): byte for byte in range(256)} | {word.encode(): 256 + place for place, word in enumerate(words)}


@pytest.mark.parametrize("text, pieces", [
    ("Hello's WORLD'LL", ["Hello", "'s", " WORLD", "'LL"]),
    ("a_b 12345 x²", ["a", "_b", " ", "123", "45", " x", "²"]),
    ("x  \n\n  y  ", ["x", "  \n\n", " ", " y", "  "]),
    ("日本 é, ok!\n", ["日本", " é", ",", " ok", "!\n"]),
    ("e\u0301Ⅷ\x1c-", ["e", "\u0301", "Ⅷ", "\x1c-"]),
])
def test_texts_are_cut(text: str, pieces: list[str]) -> None:
    assert [match[0] for match in tokens._pieces().finditer(text)] == pieces


def plainly_joined(piece: bytes, ranks: dict[bytes, int]) -> list[int]:
    parts = [bytes((byte,)) for byte in piece]
    while True:
        pairs = [(ranks[left + right], place) for place, (left, right) in enumerate(zip(parts, parts[1:])) if left + right in ranks]
        if not pairs:
            return [ranks[part] for part in parts]
        place = min(pairs)[1]
        parts[place:place + 2] = [parts[place] + parts[place + 1]]


@pytest.mark.parametrize("piece", ["abcabc", "aaaaaaa", "abababc", "cabcab", "bcbcabca", "x", "日本日本", "abcabcabcabc" * 9])
def test_the_pair_with_the_lowest_number_is_joined_first(piece: str) -> None:
    ranks = table("bc", "ab", "aa", "abc", "aaaa", "ca", "bca", "日", "本日")
    assert tokens._joined(piece.encode(), ranks) == plainly_joined(piece.encode(), ranks)


def test_only_the_first_tokens_are_returned() -> None:
    assert tokens.tokens("ab ab ab", table("ab"), 2) == [256, 32]


def test_the_table_is_a_file_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"".join(base64.b64encode(token) + b" %d\n" % number for token, number in table("ab").items())
    (tmp_path / tokens.TABLE).write_bytes(lines)
    monkeypatch.setattr(tokens, "_PACKAGE", "no_such_package")
    tokens._table.cache_clear()
    assert first_tokens("ab", tmp_path) is None  # it is too small
    monkeypatch.setattr(tokens, "TABLE_TOKENS", 257)
    tokens._table.cache_clear()
    assert first_tokens("abab", tmp_path) == [256, 256]
    (tmp_path / tokens.TABLE).write_bytes(b"no table")
    tokens._table.cache_clear()
    assert first_tokens("ab", tmp_path) is None
    tokens._table.cache_clear()


def test_the_table_of_a_package_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data: Any = tmp_path / "tables_of_tokens" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    lines = b"".join(base64.b64encode(token) + b" %d\n" % number for token, number in table("ab").items())
    (data / f"{tokens.TABLE}.gz").write_bytes(gzip.compress(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(tokens, "_PACKAGE", "tables_of_tokens")
    monkeypatch.setattr(tokens, "TABLE_TOKENS", 257)
    tokens._table.cache_clear()
    assert first_tokens("ab", tmp_path) == [256]
    tokens._table.cache_clear()


@pytest.mark.parametrize("text, sizes", [
    ("a" * 8191, []),
    ("a" * 20_000, [16_382, 8191]),
    ("é" * 50_000, [32_764, 16_382, 8190]),
])
def test_shorter_texts_end_with_one_that_fits(text: str, sizes: list[int]) -> None:
    shorter = list(shorter_texts(text))
    assert [len(part.encode()) for part in shorter] == sizes
    assert all(text.startswith(part) for part in shorter)
