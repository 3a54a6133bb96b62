"""The encoding of words in FTS5: terms that its ASCII tokenizer leaves whole, one at each position of a field.

A field is one column, its text one term per position with a space between. A position without a word (a stop word, the
jump of a hard separator) holds POSITION_GAP, so that FTS5's positions are those of the text analysis, and its phrase and NEAR
queries need no correction. Also the encoding of the forward index: docs/storage.md#fts-encoding.
"""
from __future__ import annotations

import re
from itertools import compress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from svcd.base.positions import LAST_POSITION, bucketed_position

POSITION_GAP = "|"
# Seven gaps in a row are one hard separator, the commonest case: one character in the forward index.
SEPARATOR_MARK = "\x07"
_SEVEN_GAPS = " " * 8
_ONE_GAP = f" {POSITION_GAP} "
_SEVEN_MARKED = f" {' '.join(POSITION_GAP * 7)} "
_TWO_MARKS = SEPARATOR_MARK * 2
# The ASCII tokenizer folds capitals and ends a term at a control character; POSITION_GAP and the escape itself must not
# occur in a word. Escaped character by character, so that the prefix of a word stays a prefix of its term.
_ESCAPED = re.compile(r"[A-Z\x00-\x20\x7f|~]")
_ESCAPED_IN_TEXT = re.compile(r"[A-Z\x00-\x1f\x7f|~]")
_ESCAPE = re.compile(r"~([0-9a-f]{2})")
# Every bucketed position, ascending.
BUCKETS = (*range(16), 24, *(1 << n for n in range(5, 16)), LAST_POSITION)
# " <bucketed position>:" by position: grows to the longest field met.
_POSITION_PREFIXES: list[str] = []
_COLUMN_END = "\t"
_FIELD_END = "\n"
_SPACED_END = f" {_FIELD_END}"
_BEFORE_TERM = f" {SEPARATOR_MARK}{_COLUMN_END}"
# Up to three adjacent terms or gaps of a forward index row; it matches at any place, if only the empty text.
_THREE = re.compile(rf"([^ {SEPARATOR_MARK}\n]*)(?: ([^ {SEPARATOR_MARK}\n]*)(?: ([^ {SEPARATOR_MARK}\n]*))?)?")


def term_of_word(word: str) -> str:
    """The term of a word."""
    return word if word.isalnum() and word.islower() else _ESCAPED.sub(lambda m: f"~{ord(m[0]):02x}", word)


def word_of_term(term: str) -> str:
    """The word of a term: the inverse of term_of_word()."""
    if "~" not in term:
        return term
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)), term)


def fts_string(terms: str) -> str:
    """A term, or terms with spaces between, as a string of FTS5's query language."""
    return '"' + terms.replace('"', '""') + '"'


def row_text(positions: Sequence[str]) -> str:
    """The words of a field by position, as in the forward index: terms with a space between, nothing for a gap."""
    text = " ".join(positions)
    if _ESCAPED_IN_TEXT.search(text) or text.count(" ") >= len(positions):
        return " ".join(map(term_of_word, positions))
    return text


def column_text(row: str) -> str:
    """The text of a field for FTS5: its row, with POSITION_GAP at the positions without a word."""
    forward = forward_row(row)
    if "  " not in forward and _TWO_MARKS not in forward and row[:1] != " " != row[-1:] and row:
        return forward.replace(SEPARATOR_MARK, _SEVEN_MARKED)  # of most texts: half the time
    if "  " in row:
        row = row.replace("  ", _ONE_GAP).replace("  ", _ONE_GAP)  # of three spaces, the first time finds two
    if row[:1] == " " or not row:
        row = POSITION_GAP + row
    return row + POSITION_GAP if row[-1:] == " " else row


def terms_of(row: str, positions: Sequence[str]) -> Sequence[str]:
    """The terms of a row by position; positions: its words, which are mostly spelled as they are."""
    return row.split(" ") if "~" in row else positions


def positions(row: str) -> list[str]:
    """The words of a field by position, "" for a position gap: the inverse of row_text()."""
    terms = row.split(" ")
    return list(map(word_of_term, terms)) if "~" in row else terms


def position_term(bucketed: int, term: str) -> str:
    """The term of the table term_positions for a term at a bucketed position."""
    return f"{bucketed:x}:{term}"


def position_terms_of(terms: Sequence[str]) -> str:
    """The text of a field for the table term_positions. terms: by position, "" for a gap.

    The texts of all fields of a document are one, with spaces between. A position term may occur in it more than once, which
    makes no difference to FTS5 without details, and to look for it would take as long as to make the text.
    """
    if len(terms) > len(_POSITION_PREFIXES):
        added = map(bucketed_position, range(len(_POSITION_PREFIXES), len(terms)))
        _POSITION_PREFIXES.extend(f" {position_term(bucketed, '')}" for bucketed in added)
    words = list(filter(None, terms))
    prefixes = _POSITION_PREFIXES[:len(terms)] if len(words) == len(terms) else list(compress(_POSITION_PREFIXES, terms))
    pieces = prefixes + words
    pieces[::2], pieces[1::2] = prefixes, words
    return "".join(pieces)[1:]


def forward_row(row: str) -> str:
    """The row of a field as it stands in the forward index: seven gaps as SEPARATOR_MARK."""
    return row.replace(_SEVEN_GAPS, SEPARATOR_MARK)


def forward_text(rows: Mapping[int, str]) -> str:
    """The forward index row of a document: lines `FTS column TAB row`, ascending. rows: forward_row() by FTS column."""
    return _FIELD_END.join([f"{column}{_COLUMN_END}{rows[column]}" for column in sorted(rows)])


def forward_rows(forward: str) -> dict[int, str]:
    """FTS column -> row of a field: the inverse of forward_text()."""
    rows = {}
    for line in forward.replace(SEPARATOR_MARK, _SEVEN_GAPS).split(_FIELD_END) if forward else ():
        column, _, row = line.partition(_COLUMN_END)
        rows[int(column)] = row
    return rows


def places(forward: str, term: str) -> Iterator[tuple[int, set[int]]]:
    """(FTS column, bucketed positions) of the fields that hold a term, in a forward index row."""
    for line in forward.split(_FIELD_END):
        if term not in line:
            continue
        column, _, row = line.replace(SEPARATOR_MARK, _SEVEN_GAPS).partition(_COLUMN_END)
        terms = row.split(" ")
        bucketed, position = set(), -1
        for _ in range(terms.count(term)):
            position = terms.index(term, position + 1)
            bucketed.add(bucketed_position(position))
        if bucketed:
            yield int(column), bucketed


def words_by_column(forward: str) -> dict[int, list[str]]:
    """FTS column -> the words of a field by position, "" for a gap, in a forward index row."""
    is_escaped, words = "~" in forward, {}
    for line in forward.replace(SEPARATOR_MARK, _SEVEN_GAPS).split(_FIELD_END) if forward else ():
        column, _, row = line.partition(_COLUMN_END)
        words[int(column)] = positions(row) if is_escaped else row.split(" ")
    return words


def columns_of(forward: str) -> list[str]:
    """The FTS columns of the fields that hold words, as they are written in a forward index row."""
    return [line[:line.index(_COLUMN_END)] for line in forward.split(_FIELD_END)] if forward else []


def spaced_lines(forward: str) -> str:
    """A forward index row as lines of its column and its terms by position, with a space before and after each term.

    A position gap is a space more. The number of spaces between the start of a line and the one before a term is its position.
    """
    return f"{forward.replace(SEPARATOR_MARK, _SEVEN_GAPS).replace(_COLUMN_END, ' ').replace(_FIELD_END, _SPACED_END)} "


def spelled_words(terms: Iterable[str]) -> list[str]:
    """The words of terms in byte order. terms: in byte order, in which escapes sort elsewhere than their characters."""
    found = list(terms)
    if any("~" in spelled for spelled in found):
        return sorted((word_of_term(spelled) for spelled in found), key=str.encode)
    return found


def distances(forward: str, left: str, right: str, is_prefix: bool = False) -> Collection[int]:
    """The smallest distance (1 to 3) from `left` to a `right` after it in the same field; none when they are farther apart.

    forward: the forward index row of a document. is_prefix: `right` is a prefix; each term with it has a distance of its own.
    """
    nearest: dict[str, int] = {}
    for following in _terms_after(forward, left):
        for distance, spelled in enumerate(following, 1):
            if spelled == right or (is_prefix and spelled.startswith(right)):
                nearest[spelled] = min(distance, nearest.get(spelled, distance))
    return nearest.values()


def _terms_after(forward: str, spelled: str) -> Iterator[tuple[str, ...]]:
    """The three terms after each occurrence of a term in a forward index row, "" for a gap and beyond the end."""
    start = spelled + " "
    at = forward.find(start)
    while at > 0:  # a match is never at 0: each line starts with its column
        end = at + len(start)
        if forward[at - 1] in _BEFORE_TERM:
            yield _THREE.match(forward, end).groups("")  # type: ignore[union-attr]  # matches anywhere
        at = forward.find(start, end)
