"""Sets of documents as tests draw them."""
from __future__ import annotations

from svcd.base.docids import DocIds


def of_bits(bits: int) -> DocIds:
    """The set of the places at which an integer has a bit."""
    return DocIds([docid for docid in range(bits.bit_length()) if bits >> docid & 1])
