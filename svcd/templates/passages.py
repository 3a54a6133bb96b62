"""Divides a long text into overlapping passages, each of which gets a vector of its own (docs/embedders.md#passages)."""
from __future__ import annotations

import re

# Of a document and an embedder, as the limit of given vectors.
MOST_PASSAGES = 256

# Scripts written without spaces, in which each character counts as a word.
_ALONE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_ALONE}]|[^\s{_ALONE}]+")
_END = re.compile(r"[.!?…。！？][\"'”’»)\]]*$")


def passages(text: str, words: int, overlap: int) -> list[str]:
    """Return the passages of a text: at most `words` words each, beginning with the last `overlap` words of the one before.

    A passage ends with a sentence or paragraph, if one ends in its last quarter. overlap: at most half of `words`. The rest of a
    text with more than MOST_PASSAGES is left out. A text that needs no division is returned as it is.
    """
    spans = [(found.start(), found.end()) for found in _WORD.finditer(text)]
    if len(spans) <= words:
        return [text]
    found: list[str] = []
    first = 0
    while len(found) < MOST_PASSAGES:
        last = first + words
        if last < len(spans):
            last = next((end for end in range(last, last - words // 4 - 1, -1) if (
                _END.search(text, *spans[end - 1]) or "\n" in text[spans[end - 1][1]:spans[end][0]])), last)
        found.append(text[spans[first][0]:spans[min(last, len(spans)) - 1][1]])
        if last >= len(spans):
            break
        first = last - overlap
    return found
