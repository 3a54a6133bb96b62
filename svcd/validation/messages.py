"""Sentences about rejected values: kinds, places, suggestions (docs/http.md).

Clients and recorded responses depend on their exact wording.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from svcd.base.json_text import dumps_begin

NULL, BOOLEAN, POSITIVE, NEGATIVE, NUMBER, STRING, ARRAY, OBJECT = KINDS = (
    "null", "a boolean", "a positive integer", "a negative integer", "a number", "a string", "an array", "an object",
)
INTEGER = "an integer"
U64_MAX = 2**64 - 1
_I64_MIN = -(2**63)

# (most bytes of an unknown name, typos allowed in a suggestion for it); longer names allow 5.
_TYPOS_BY_LENGTH = ((3, 0), (7, 1), (12, 2), (17, 3), (24, 4))
_MOST_TYPOS = 5
_NEAR_TYPOS = 2

# Messages show at most MOST_SHOWN characters of a received value, which may have megabytes.
MOST_SHOWN = 10_000


class FieldError(ValueError):
    """A rejected value. code: of the nearest enclosing field with a code; None while unknown."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code

    def within(self, code: str | None) -> FieldError:
        """Set the code of the enclosing field unless the error already has a code, and return the error."""
        self.code = self.code or code
        return self


def kind_of(value: Any) -> str:
    """Return the kind of a value, one of KINDS. Integers beyond 64 bits are numbers, as JSON is read here."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        if not _I64_MIN <= value <= U64_MAX:
            return NUMBER
        return POSITIVE if value >= 0 else NEGATIVE
    for type_, kind in ((str, STRING), (list, ARRAY), (dict, OBJECT), (float, NUMBER)):
        if isinstance(value, type_):
            return kind
    return NULL


def expected(kinds: Iterable[str]) -> str:
    """Return accepted kinds as a phrase: in the order of KINDS, integers merged, joined with commas and "or"."""
    accepted = set(kinds)
    wanted = [kind for kind in KINDS if kind in accepted]
    if NUMBER in wanted:
        wanted = [kind for kind in wanted if kind not in (POSITIVE, NEGATIVE)]
    if POSITIVE in wanted and NEGATIVE in wanted:
        wanted[wanted.index(POSITIVE)] = INTEGER
        wanted.remove(NEGATIVE)
    if len(wanted) < 3:
        return " or ".join(wanted)
    return f"{', '.join(wanted[:-1])}, or {wanted[-1]}"


def found(value: Any) -> str:
    """Return kind and JSON of a received value: "a string: `\"x\"`"; for null the kind alone."""
    kind = kind_of(value)
    return NULL if kind == NULL else f"{kind}: `{json_excerpt(value)}`"


def json_excerpt(value: Any) -> str:
    """Return the JSON text of a received value, cut off after MOST_SHOWN characters."""
    text = dumps_begin(value, MOST_SHOWN + 1)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"


def at(location: str) -> str:
    """` at `.a[0]`` for the place of a value; "" at the root."""
    return f" at `{location}`" if location else ""


def inside(location: str) -> str:
    """` inside `.a[0]`` for the place of a missing or unknown member; "" at the root."""
    return f" inside `{location}`" if location else ""


def one_of(names: Iterable[str]) -> str:
    """"expected one of `a`, `b`", in the order given."""
    return f"expected one of {name_list(names)}"


def name_list(names: Iterable[str]) -> str:
    """"`a`, `b`", in the order given."""
    return ", ".join(f"`{name}`" for name in names)


def wrong_type(value: Any, kinds: Iterable[str], location: str) -> FieldError:
    """Return the error for a value of a kind that is not accepted."""
    return FieldError(f"Invalid value type{at(location)}: expected {expected(kinds)}, but found {found(value)}")


def unknown_value(value: str, accepted: Sequence[str], location: str) -> FieldError:
    """Return the error for a string that is not an accepted one."""
    return FieldError(f"Unknown value `{value}`{at(location)}: {did_you_mean(value, accepted)}{one_of(accepted)}")


def invalid_value(reason: str, location: str) -> FieldError:
    """Return the error for a value of the right kind that is rejected for another reason."""
    return FieldError(f"Invalid value{at(location)}: {reason}")


def did_you_mean(name: str, accepted: Iterable[str]) -> str:
    """Return "did you mean `x`? " with the nearest accepted name within the allowed typos; "" without a near name."""
    length = len(name.encode("utf-8", "surrogatepass"))
    allowed = next((typos for most, typos in _TYPOS_BY_LENGTH if length <= most), _MOST_TYPOS)
    if not allowed:
        return ""
    best, nearest = allowed + 1, ""
    for candidate in accepted:
        distance = edit_distance(name, candidate)
        if distance < best:
            best, nearest = distance, candidate
    return f"did you mean `{nearest}`? " if nearest else ""


def is_near(given: str, known: str) -> bool:
    """Return whether a given name (as of an embedder) may mean a known one: at most two edits apart."""
    return edit_distance(given, known) <= _NEAR_TYPOS


def edit_distance(left: str, right: str) -> int:
    """Return the Damerau-Levenshtein distance in characters: swapped neighbours are one edit, and may be edited further.

    The matrix of distances has a border of `far` before its first row and column.
    """
    far = len(left) + len(right)
    if abs(len(left) - len(right)) > _MOST_TYPOS:
        return far  # no suggestion allows this many, and unknown names may be very long
    rows = [[far] * (len(right) + 2), [far, *range(len(right) + 1)]]
    last_row_of: dict[str, int] = {}
    for i, char in enumerate(left, 1):
        row, above, last_match = [far, i], rows[-1], 0
        for j, other in enumerate(right, 1):
            k, m = last_row_of.get(other, 0), last_match
            swap = rows[k][m] + (i - k - 1) + 1 + (j - m - 1)
            row.append(min(above[j] + (char != other), above[j + 1] + 1, row[j] + 1, swap))
            if char == other:
                last_match = j
        rows.append(row)
        last_row_of[char] = i
    return rows[-1][-1]
