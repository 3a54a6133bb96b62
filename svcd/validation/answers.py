"""Read answers of other hosts: return a value of the expected shape, or raise ValueError with a reason to report."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from svcd.base.json_text import loads

T = TypeVar("T")

# Errors that reading code raises for a value of an unexpected shape.
MISFITS = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
# Characters of an answer that messages repeat.
MOST_SHOWN = 10_000


def read_answer(body: str | bytes, read: Callable[[Any], T]) -> T:
    """Return the result of read() for the JSON of an answer. read: raises any of MISFITS for another shape.

    Raises ValueError with the reason; other exceptions of read() pass through.
    """
    try:
        return read(loads(body))
    except MISFITS as misfit:
        reason = str(misfit) if isinstance(misfit, ValueError) else f"unexpected shape ({type(misfit).__name__})"
    raise ValueError(reason)


def shortened(text: str) -> str:
    """Shorten a text of another host for messages."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
