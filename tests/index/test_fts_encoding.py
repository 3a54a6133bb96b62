"""What must hold of terms and forward rows:

1. word(term(w)) is w, and a term is one token for FTS5's tokenizer.
2. A prefix of a word is spelled as a prefix of its term.
3. forward_rows(forward_text(r)) is r; positions(row_text(p)) is p.
4. distances() finds how near a word stands behind another, in one field.
"""
from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from svcd.index import fts_encoding, schema
from svcd.index.connections import open_writer

# No lemma is empty, holds NUL, or has white space at its ends.
WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
ROWS = st.lists(st.sampled_from(["a", "b", "c", "", "|", "A", "x y", "~", "\x07"]), min_size=1, max_size=30)


@given(WORDS)
def test_a_term_stands_for_its_word_alone(word: str) -> None:
    assert fts_encoding.word_of_term(fts_encoding.term_of_word(word)) == word


@given(WORDS, WORDS)
def test_a_prefix_of_a_word_is_spelled_as_a_prefix_of_its_term(start: str, rest: str) -> None:
    assert fts_encoding.term_of_word(start + rest).startswith(fts_encoding.term_of_word(start))


def test_fts5_takes_every_term_for_one_token(tmp_path) -> None:
    connection = open_writer(tmp_path / "index.sqlite")
    schema.prepare(connection, schema.INDEX)
    spelled = [fts_encoding.term_of_word(chr(code)) for code in (*range(1, 0x250), 0x3042, 0x4E00, 0x1F600)]
    connection.execute("INSERT INTO terms(rowid, c0) VALUES (1, ?)", (" ".join(spelled),))
    assert {row[0] for row in connection.execute("SELECT term FROM vocabulary")} == set(spelled)
    for term in spelled:
        assert connection.execute("SELECT count(*) FROM terms WHERE terms MATCH ?", (fts_encoding.fts_string(term),)).fetchone() == (1,)
    connection.close()


@given(st.dictionaries(st.integers(0, 50), ROWS, max_size=4))
def test_a_forward_row_gives_its_fields_back(rows: dict[int, list[str]]) -> None:
    texts = {column: fts_encoding.row_text(row) for column, row in rows.items()}
    assert fts_encoding.forward_rows(fts_encoding.forward_text(texts)) == texts


@given(ROWS)
def test_fts5_gets_a_term_for_every_position(row: list[str]) -> None:
    terms = fts_encoding.column_text(fts_encoding.row_text(row)).split(" ")
    assert [fts_encoding.word_of_term(spelled) if spelled != fts_encoding.POSITION_GAP else "" for spelled in terms] == row


@given(ROWS)
def test_positions_are_given_back(row: list[str]) -> None:
    assert fts_encoding.positions(fts_encoding.row_text(row)) == row


@given(ROWS, ROWS, st.sampled_from(["a", "b", "x y", "|"]), st.sampled_from(["a", "c", "A"]), st.booleans())
def test_distances_are_exact(first: list[str], second: list[str], left: str, right: str, is_prefix: bool) -> None:
    forward = fts_encoding.forward_text({0: fts_encoding.row_text(first), 5: fts_encoding.row_text(second)})
    nearest: dict[str, int] = {}
    for row in (first, second):
        for n, m in combinations(range(len(row)), 2):
            if row[n] == left and (row[m] == right or (is_prefix and row[m].startswith(right))):
                nearest[row[m]] = min(m - n, nearest.get(row[m], m))
    found = fts_encoding.distances(forward, fts_encoding.term_of_word(left), fts_encoding.term_of_word(right), is_prefix)
    assert sorted(found) == sorted(distance for distance in nearest.values() if distance <= 3)
