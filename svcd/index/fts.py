"""Words in FTS5 and in the forward index: their encoding, queries of FTS5, and the words of one document.

FTS5 has one column for each field. The text of a field has one term per position, separated by spaces, which the ASCII tokenizer
leaves whole. A position without a word (a stop word, the jump of a hard separator) holds POSITION_GAP, so FTS5 counts the same
positions as the text analysis, and its phrase and NEAR queries need no correction. See docs/storage.md#fts-encoding.
"""
from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, compress

from svcd.base.docids import DocIds, union_of
from svcd.base.positions import FIELD_SHIFT, LAST_POSITION, bucketed_position
from svcd.index.bitmap_blocks import LISTED, listed_docids

POSITION_GAP = "|"
# Seven gaps in a row are one hard separator, the commonest case; the forward index stores them as one character.
SEPARATOR_MARK = "\x07"
_SEVEN_GAPS = " " * 8
_ONE_GAP = f" {POSITION_GAP} "
_SEVEN_MARKED = f" {' '.join(POSITION_GAP * 7)} "
_TWO_MARKS = SEPARATOR_MARK * 2
# The ASCII tokenizer folds capitals and ends a term at a control character; a word must not contain POSITION_GAP or the escape
# itself. Each character is escaped by itself, so that the prefix of a word stays a prefix of its term.
_ESCAPED = re.compile(r"[A-Z\x00-\x20\x7f|~]")
_ESCAPED_IN_TEXT = re.compile(r"[A-Z\x00-\x1f\x7f|~]")
_ESCAPE = re.compile(r"~([0-9a-f]{2})")
# Every bucketed position, ascending.
BUCKETS = (*range(16), 24, *(1 << n for n in range(5, 16)), LAST_POSITION)
# " <bucketed position>:" by position; the list grows to the length of the longest field.
_POSITION_PREFIXES: list[str] = []
_COLUMN_END = "\t"
_FIELD_END = "\n"
_SPACED_END = f" {_FIELD_END}"
_BEFORE_TERM = f" {SEPARATOR_MARK}{_COLUMN_END}"
_AFTER_TERM = f" {SEPARATOR_MARK}{_FIELD_END}"
# Up to three adjacent terms or gaps of a forward index row; it matches everywhere, even an empty text.
_THREE = re.compile(rf"([^ {SEPARATOR_MARK}\n]*)(?: ([^ {SEPARATOR_MARK}\n]*)(?: ([^ {SEPARATOR_MARK}\n]*))?)?")


@lru_cache(maxsize=2048)
def term_of_word(word: str) -> str:
    """Return the term of a word."""
    return word if word.isalnum() and word.islower() else _ESCAPED.sub(lambda m: f"~{ord(m[0]):02x}", word)


def word_of_term(term: str) -> str:
    """Return the word of a term: the inverse of term_of_word()."""
    if "~" not in term:
        return term
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)), term)


def is_escaped(word: str) -> bool:
    """Return whether the term of a word is not the word itself."""
    return _ESCAPED.search(word) is not None


def fts_string(terms: str) -> str:
    """Quote a term, or several terms separated by spaces, as a string of FTS5's query language."""
    return '"' + terms.replace('"', '""') + '"'


def end_before(term: str) -> str:
    """Return a string that is greater than all terms before this one, in byte order, and less than this one."""
    code = ord(term[-1])
    return term[:-1] + chr(code - 1 if code != 0xe000 else 0xd7ff) + "\U0010ffff"  # between them are surrogates, not characters


def row_text(positions: Sequence[str]) -> str:
    """Encode the words of a field by position for the forward index: terms separated by spaces, an empty one for a gap."""
    text = " ".join(positions)
    if _ESCAPED_IN_TEXT.search(text) or text.count(" ") >= len(positions):
        return " ".join(map(term_of_word, positions))
    return text


def column_text(row: str) -> str:
    """Encode a row for FTS5, with POSITION_GAP at the positions without a word."""
    forward = forward_row(row)
    if "  " not in forward and _TWO_MARKS not in forward and row[:1] != " " != row[-1:] and row:
        return forward.replace(SEPARATOR_MARK, _SEVEN_MARKED)  # the usual case, in half the time
    if "  " in row:
        row = row.replace("  ", _ONE_GAP).replace("  ", _ONE_GAP)  # of three spaces the first pass replaces only two
    if row[:1] == " " or not row:
        row = POSITION_GAP + row
    return row + POSITION_GAP if row[-1:] == " " else row


def terms_of(row: str, positions: Sequence[str]) -> Sequence[str]:
    """Return the terms of a row by position. positions: its words; most words equal their terms."""
    return row.split(" ") if "~" in row else positions


def positions(row: str) -> list[str]:
    """Return the words of a field by position, "" for a position gap: the inverse of row_text()."""
    terms = row.split(" ")
    return list(map(word_of_term, terms)) if "~" in row else terms


def position_term(bucketed: int, term: str) -> str:
    """Return the term that the table term_positions has for a term at a bucketed position."""
    return f"{bucketed:x}:{term}"


def position_terms_of(terms: Sequence[str]) -> str:
    """Encode a field for the table term_positions. terms: by position, "" for a gap.

    The texts of all fields of a document are joined with spaces. A position term may occur in it more than once. That makes no
    difference to FTS5 without details, and looking for duplicates would take as long as building the text.
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
    """Return a row in its stored form: seven gaps as SEPARATOR_MARK."""
    return row.replace(_SEVEN_GAPS, SEPARATOR_MARK)


def forward_text(rows: Mapping[int, str]) -> str:
    """Return the forward index row of a document: lines `FTS column TAB row`, ascending. rows: FTS column -> forward_row()."""
    return _FIELD_END.join([f"{column}{_COLUMN_END}{rows[column]}" for column in sorted(rows)])


def forward_rows(forward: str) -> dict[int, str]:
    """Return FTS column -> row of a field: the inverse of forward_text()."""
    rows = {}
    for line in forward.replace(SEPARATOR_MARK, _SEVEN_GAPS).split(_FIELD_END) if forward else ():
        column, _, row = line.partition(_COLUMN_END)
        rows[int(column)] = row
    return rows


def term_positions(forward: str, term: str) -> Iterator[tuple[int, set[int]]]:
    """Yield (FTS column, bucketed positions) for each field of a forward index row that holds a term."""
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


def spelled_words(terms: Iterable[str]) -> list[str]:
    """Return the words of terms in byte order. terms: in byte order, which differs where characters are escaped."""
    found = list(terms)
    if any("~" in spelled for spelled in found):
        return sorted((word_of_term(spelled) for spelled in found), key=str.encode)
    return found


def distances(forward: str, left: str, right: str, is_prefix: bool = False) -> Collection[int]:
    """Return the smallest distance (1 to 3) from `left` to a following `right` in the same field; empty if farther apart.

    forward: the forward index row of a document. is_prefix: `right` is a prefix; the result has a distance for each term with it.
    """
    nearest: dict[str, int] = {}
    for following in _terms_after(forward, left):
        for distance, spelled in enumerate(following, 1):
            if spelled == right or (is_prefix and spelled.startswith(right)):
                nearest[spelled] = min(distance, nearest.get(spelled, distance))
    return nearest.values()


def has_any_phrase(forward: str, phrases: Iterable[tuple[str, bool]]) -> bool:
    """Return whether a forward index row has adjacent terms.

    phrases: (terms separated by a space, whether the last one is a prefix).
    """
    for phrase, is_prefix in phrases:
        at = forward.find(phrase)
        while at > 0:  # a match is never at 0: each line starts with its column
            end = at + len(phrase)
            if forward[at - 1] in _BEFORE_TERM and (is_prefix or forward[end:end + 1] in _AFTER_TERM):  # "" at the end
                return True
            at = forward.find(phrase, at + 1)
    return False


def _terms_after(forward: str, spelled: str) -> Iterator[tuple[str, ...]]:
    """Yield the three terms after each occurrence of a term in a forward index row, "" for a gap and beyond the end."""
    start = spelled + " "
    at = forward.find(start)
    while at > 0:  # a match is never at 0: each line starts with its column
        end = at + len(start)
        if forward[at - 1] in _BEFORE_TERM:
            yield _THREE.match(forward, end).groups("")  # type: ignore[union-attr]  # matches everywhere
        at = forward.find(start, end)


# Up to this many words are looked up one by one, which is quicker than checking all words of a document.
_FEW_WORDS = 4


class StoredWords:
    """A `svcd.query.reader.DocumentWords` of a forward index row. names: FTS column (as text in that row) -> field."""

    __slots__ = ("docid", "_forward", "_names", "_text", "_fields", "_rows", "_occurrences")

    def __init__(self, docid: int, forward: str, names: Mapping[str, str]) -> None:
        self.docid = docid
        self._forward = forward
        self._names = names
        # Lines "column, terms by position" with a space before and after each term; a position gap is one more space. So the
        # position of a term is the number of spaces between the start of its line and the space before it.
        lines = forward.replace(SEPARATOR_MARK, _SEVEN_GAPS).replace(_COLUMN_END, " ").replace(_FIELD_END, _SPACED_END)
        self._text = f"{lines} "
        self._fields: Sequence[str] | None = None
        self._rows: Sequence[Sequence[str]] | None = None
        self._occurrences: dict[str, list[int]] = {}

    @property
    def fields(self) -> Sequence[str]:
        """The fields that hold words."""
        if self._fields is None:
            self._fields = [self._names[line[:line.index(_COLUMN_END)]] for line in self._forward.split(_FIELD_END)
                            ] if self._forward else []
        return self._fields

    def occurrences(self, word: str) -> list[int]:
        """Return the occurrences of a word, ascending; cached, as several rules ask for the same words."""
        occurrences = self._occurrences.get(word)
        if occurrences is None:
            occurrences = self._occurrences[word] = self._starting_with(f" {term_of_word(word)} ")
        return occurrences

    def occurrences_of_any(self, words: Collection[str]) -> list[int]:
        """Return the occurrences of any of these words, in any order."""
        if len(words) <= _FEW_WORDS:
            found: list[int] = []
            for word in words:
                found += self.occurrences(word)
            return found
        return [(number << FIELD_SHIFT) + position for number, in_field in enumerate(self._words_by_position())
                for position, word in enumerate(in_field) if word in words]

    def occurrences_of_prefix(self, prefix: str) -> list[int]:
        """Return the occurrences of all words that start with a prefix."""
        return self._starting_with(f" {term_of_word(prefix)}")

    def length(self, field: int) -> int:
        """Return the number of words of the field with this number."""
        words = self._words_by_position()[field]
        return len(words) - words.count("")

    def _starting_with(self, pattern: str) -> list[int]:
        """Return the occurrences at which the text continues with `pattern`, which starts with a space."""
        text = self._text
        at = text.find(pattern)
        found: list[int] = []
        while at >= 0:
            line = text.rfind("\n", 0, at) + 1
            number = text.count("\n", 0, line) if line else 0
            found.append((number << FIELD_SHIFT) + text.count(" ", line, at))
            at = text.find(pattern, at + 1)
        return found

    def _words_by_position(self) -> Sequence[Sequence[str]]:
        if self._rows is None:
            lines = self._forward.replace(SEPARATOR_MARK, _SEVEN_GAPS).split(_FIELD_END) if self._forward else ()
            self._rows = [positions(line.partition(_COLUMN_END)[2]) for line in lines]
        return self._rows


# For each document FTS5 checks every term of an OR: among a million documents a term takes 68 us in a query of 160 terms, 47 in
# one of 80, 21 in one of 10, and 26 alone.
_TERMS_PER_QUERY = 10


def fts_phrase(terms: str, is_prefix: bool) -> str:
    """Return a phrase. terms: separated by spaces. is_prefix: the last term is a prefix."""
    return fts_string(terms) + (" *" if is_prefix else "")


def matching_docids(connection: sqlite3.Connection, table: str, query: str) -> DocIds:
    """Return the documents of an FTS5 table that match a query."""
    (docids,) = connection.execute(f"SELECT {LISTED} FROM {table} WHERE {table} MATCH ?", (query,)).fetchone()
    return listed_docids(docids)


def docids_of_any(connection: sqlite3.Connection, table: str, terms: Sequence[str], in_column: str = "") -> DocIds:
    """Return the documents of an FTS5 table that hold any of some terms. in_column: a column filter of the query language."""
    strings = list(map(fts_string, terms))
    portions = (strings[start:start + _TERMS_PER_QUERY] for start in range(0, len(strings), _TERMS_PER_QUERY))
    return union_of(matching_docids(connection, table, f"{in_column}({' OR '.join(portion)})") for portion in portions)


# Merging segments
#
# Each query searches every segment. FTS5 itself merges as it writes, but leaves some segments of each size: a few after an
# import, a dozen after writes. It finds a term in half the time when there is only one segment.

TABLES = "terms", "term_positions"
_MERGE = "INSERT INTO {0}({0}, rank) VALUES ('merge', ?)"
_PAGES_AT_ONCE = 100  # some 10 ms
_LEAST_CHANGES = 2  # a merge that changes fewer rows is finished: https://www.sqlite.org/fts5.html#the_merge_command
# Each merge of all segments adds two levels to the structure of a table, and leaves empty ones behind. SQLite 3.40 never removes
# them: each query passes them, and with 2,000 levels the table counts as damaged. FTS5 alone makes some nine levels.
_MOST_LEVELS = 12
_STRUCTURE = 10  # FTS5_STRUCTURE_ROWID in fts5_index.c of SQLite, which describes the record
_LEVELS_AT = 4  # the numbers of the record begin after a cookie


def begin_merge(writer: sqlite3.Connection, table: str) -> None:
    """Begin to merge all segments of a table into one, inside a transaction."""
    if _structure(writer, table)[_LEVELS_AT:_LEVELS_AT + 1] > bytes([_MOST_LEVELS]):
        writer.execute(_MERGE.format(table), (0,))  # merges nothing, and has FTS5 read the structure again
        structure = _structure(writer, table)
        shorter = without_empty_levels(structure)
        if shorter == structure:
            return
        writer.execute(f"UPDATE {table}_data SET block = ? WHERE id = {_STRUCTURE}", (shorter,))
    writer.execute(_MERGE.format(table), (-_PAGES_AT_ONCE,))  # a negative number includes all segments


def _structure(connection: sqlite3.Connection, table: str) -> bytes:
    row = connection.execute(f"SELECT block FROM {table}_data WHERE id = {_STRUCTURE}").fetchone()
    return row[0] if row and isinstance(row[0], bytes) else b""  # of a damaged file, which FTS5 reports


def without_empty_levels(structure: bytes) -> bytes:
    """Return a structure record with _MOST_LEVELS levels, or more if they hold segments; itself if it cannot be shortened.

    It has the numbers of levels, of segments, and of pages written; then for each level how many of its segments are being
    merged, how many it has, and three numbers for each. The order of the levels tells which segments are newer.
    """
    numbers = _numbers(structure[_LEVELS_AT:])
    levels, at = [], 3
    while at + 1 < len(numbers):
        end = at + 2 + 3 * numbers[at + 1]
        levels.append(numbers[at:end])
        at = end
    if at != len(numbers) or len(levels) != numbers[0] or _encoded(numbers) != structure[_LEVELS_AT:]:  # of another version
        return structure
    for number in range(len(levels) - 1, -1, -1):
        if len(levels) > _MOST_LEVELS and not any(levels[number]):
            del levels[number]
    return structure[:_LEVELS_AT] + _encoded([len(levels), *numbers[1:3], *chain.from_iterable(levels)])


def _numbers(encoded: bytes) -> list[int]:
    """Decode numbers of seven bits a byte; all bytes of a number but the last have the eighth bit, too."""
    numbers, number = [], 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return numbers


def _encoded(numbers: Iterable[int]) -> bytes:
    encoded = bytearray()
    for number in numbers:
        shift = max(number.bit_length() - 1, 0) // 7 * 7
        encoded += bytes([number >> left & 0x7F | 0x80 for left in range(shift, 0, -7)] + [number & 0x7F])
    return bytes(encoded)


def continue_merge(writer: sqlite3.Connection, table: str) -> bool:
    """Merge some more pages, inside a transaction. Return whether pages are left to merge.

    Segments written since the merge began are left alone: otherwise it would start again after each write.
    """
    before = writer.total_changes
    writer.execute(_MERGE.format(table), (_PAGES_AT_ONCE,))
    return writer.total_changes - before >= _LEAST_CHANGES
