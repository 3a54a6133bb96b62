"""Reads answers of other hosts: each becomes a value of the expected shape, or a ValueError for which the caller has words."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from svcd.base.json_text import loads

T = TypeVar("T")

# What code raises that takes a value apart which has another shape than expected.
MISFITS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# Characters of an answer that messages repeat.
MOST_SHOWN = 10_000


def read_answer(body: str | bytes, read: Callable[[Any], T]) -> T:
    """What read() makes of the JSON of an answer. read: raises any of MISFITS for another shape.

    Raises ValueError with the reason; other exceptions of read() pass through.
    """
    try:
        return read(loads(body))
    except MISFITS as misfit:
        reason = str(misfit) if isinstance(misfit, ValueError) else f"unexpected shape ({type(misfit).__name__})"
    raise ValueError(reason)


def shortened(text: str) -> str:
    """A text of another host, as far as messages repeat it."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
