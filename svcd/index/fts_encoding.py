"""How words stand in FTS5: terms that its ASCII tokenizer leaves whole, positions as the contract numbers them.

A field of a document is one column, its text one term per position, a space between. A position
without a word (a stop word, the jump of a hard separator) holds HOLE, so FTS5's own positions are the
contract's, and its phrases and NEAR need no correction. Knows the spelling of terms, nothing of SQL.
"""
from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

POSITION_GAP = "|"
# Seven holes are one hard separator, the commonest gap: kept as one character in the forward rows.
SEPARATOR_MARK = "\x07"
_SEVEN_HOLES = " " * 8
# The ASCII tokenizer folds capitals and ends a term at a control character; HOLE and the escape itself
# must not be met in a word. Escaped character by character, so a prefix of a word stays a prefix.
_ESCAPED = re.compile(r"[A-Z\x00-\x20\x7f|~]")
_ESCAPED_IN_TEXT = re.compile(r"[A-Z\x00-\x1f\x7f|~]")
_ESCAPE = re.compile(r"~([0-9a-f]{2})")
_LAST_POSITION = 65_535
# Every bucketed position, ascending.
BUCKETS = (*range(16), 24, *(1 << n for n in range(5, 16)), _LAST_POSITION)
# The beginning of a place by position: grows to the longest field met.
_PLACES: list[str] = []
_COLUMN_END = "\t"
_FIELD_END = "\n"
_BEFORE_TERM = f" {SEPARATOR_MARK}{_COLUMN_END}"
# Terms and holes side by side in a forward row; it matches anywhere.
_THREE = re.compile(rf"([^ {SEPARATOR_MARK}\n]*)(?: ([^ {SEPARATOR_MARK}\n]*)(?: ([^ {SEPARATOR_MARK}\n]*))?)?")


def term_of_word(word: str) -> str:
    """The spelling of a word in FTS5."""
    return word if word.isalnum() and word.islower() else _ESCAPED.sub(lambda m: f"~{ord(m[0]):02x}", word)


def word_of_term(spelled: str) -> str:
    """The word of a spelling; term()'s inverse."""
    if "~" not in spelled:
        return spelled
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)), spelled)


def fts_string(spelled: str) -> str:
    """A term, or terms with spaces between, as a string of FTS5's query language."""
    return '"' + spelled.replace('"', '""') + '"'


def row_text(positions: Sequence[str]) -> str:
    """The words of one field by position, as forward rows keep them: terms, nothing for a hole, a space between."""
    text = " ".join(positions)
    if _ESCAPED_IN_TEXT.search(text) or text.count(" ") >= len(positions):
        return " ".join(map(term_of_word, positions))
    return text


def column_text(row: str, terms: Sequence[str] | None = None) -> str:
    """The text that FTS5 is given for a field: that of its row, with HOLE at the positions without a word.

    terms: those of the row, where they are at hand.
    """
    has_hole = "  " in row or row[:1] == " " or row[-1:] == " " or not row
    return " ".join([spelled or POSITION_GAP for spelled in terms or row.split(" ")]) if has_hole else row


def terms_of(row: str, positions: Sequence[str]) -> Sequence[str]:
    """The terms of a row by position; positions: its words, which are mostly spelled as they are."""
    return row.split(" ") if "~" in row else positions


def positions(row: str) -> list[str]:
    """The words of a field by position, "" for a hole; row_text()'s inverse."""
    terms = row.split(" ")
    return list(map(word_of_term, terms)) if "~" in row else terms


def bucketed_position(position: int) -> int:
    """The coarse position that stands for a position: exact below 16, then 24, then powers of two."""
    if position < 16:
        return position
    return 24 if position < 24 else min(1 << (position - 1).bit_length(), _LAST_POSITION)


def position_term(bucket: int, spelled: str) -> str:
    """The term of the table of places that says: this term, at this bucketed position."""
    return f"{bucket:x}:{spelled}"


def position_terms_text(rows: Iterable[Sequence[str]]) -> str:
    """The text that the table of places is given for a document: each place of its fields once. rows: of terms."""
    found: set[str] = set()
    for terms in rows:
        if len(terms) > len(_PLACES):
            _PLACES.extend(position_term(bucketed_position(n), "") for n in range(len(_PLACES), len(terms)))
        found.update([start + spelled for start, spelled in zip(_PLACES, terms) if spelled])
    return " ".join(found)


def forward_text(rows: Mapping[int, str]) -> str:
    """The forward row of a document: `column TAB row` lines, ascending, hard separators shortened to GAP."""
    return _FIELD_END.join(
        f"{column}{_COLUMN_END}{rows[column].replace(_SEVEN_HOLES, SEPARATOR_MARK)}" for column in sorted(rows))


def forward_rows(forward: str) -> dict[int, str]:
    """Slot -> row of a field; forward_text()'s inverse."""
    rows = {}
    for line in forward.replace(SEPARATOR_MARK, _SEVEN_HOLES).split(_FIELD_END) if forward else ():
        column, _, row = line.partition(_COLUMN_END)
        rows[int(column)] = row
    return rows


def spelled_words(terms: Iterable[str]) -> list[str]:
    """The words of terms in byte order, in byte order themselves (an escape sorts elsewhere)."""
    found = list(terms)
    if any("~" in spelled for spelled in found):
        return sorted((word_of_term(spelled) for spelled in found), key=str.encode)
    return found


def distances(forward: str, left: str, right: str, is_prefix: bool = False) -> Collection[int]:
    """The smallest distance (1 to 3) from a term to one behind it in a field of a forward row; none when they are far.

    is_prefix: `right` is the beginning of terms, each of which may have a smallest distance of its own.
    """
    nearest: dict[str, int] = {}
    for following in _behind(forward, left):
        for distance, spelled in enumerate(following, 1):
            if spelled == right or (is_prefix and spelled.startswith(right)):
                nearest[spelled] = min(distance, nearest.get(spelled, distance))
    return nearest.values()


def _behind(forward: str, spelled: str) -> Iterator[tuple[str, ...]]:
    """The three terms behind each place of a term in a forward row, "" for a hole or what is not there."""
    begun = spelled + " "
    at = forward.find(begun)
    while at > 0:  # a field begins with its column
        end = at + len(begun)
        if forward[at - 1] in _BEFORE_TERM:
            yield _THREE.match(forward, end).groups("")  # type: ignore[union-attr]  # matches anywhere
        at = forward.find(begun, end)
