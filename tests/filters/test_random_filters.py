"""What must hold of any filter:

1. It finds the documents that a naive predicate, made together with the filter, accepts; in memory and in an index file.
2. Its canonical text is parsed into the same tree, and finds the same documents.
3. No text makes the parser raise anything but FilterError, whose place lies within the text.
4. Comparisons and lists that are read by one match are the same as those that are read value by value.

By default some hundred filters of a fixed seed are tried; SVC_RANDOM_FILTERS=20000 tries so many.
"""
from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.base import json_text
from svcd.filters import parser
from svcd.filters.evaluation import evaluate
from svcd.filters.lexer import FilterError
from svcd.filters.parser import parse
from svcd.filters.tree import Comparison, Condition, In, Not, Token, canonical_text, parts_of
from svcd.index.writer import DocumentChange, IndexWriter
from svcd.schema.field_values import field_values, kept_fields
from svcd.schema.index_settings import IndexSettings
from tests.support.dict_reader import DictReader
from tests.support.random_filters import FIELDS, FILTER_TEXTS, document, expression

SEED = 20261121
COUNT = int(os.environ.get("SVC_RANDOM_FILTERS", "300"))
SETTINGS = {"filterableAttributes": FIELDS}
DOCUMENTS = [document(random.Random(SEED + number), number) for number in range(40)]
PIECES = [*"()[],'\"\\ \n=<>!", "AND", "OR", "NOT", "IN", "TO ", "EXISTS", "IS", "NULL", "STARTS WITH", "CONTAINS",
          "_geoRadius(", "_geoBoundingBox([", "_geoPolygon(", "_geo", "_vectors.", "_foreign(", ".fragments.", "1", "-2.5e",
          "a", "été", "\\u12", "\\x", "\\777", "\\u{110000}", "\u00a0", "\u0301", "日本", "\0", "\U0010ffff"]


def filters(count: int) -> Iterator[tuple[str, Any]]:
    dice = random.Random(SEED)
    for _ in range(count):
        yield expression(dice)


def shape(condition: Condition | None) -> Any:
    """A tree without the places of its tokens."""
    if condition is None:
        return None
    if isinstance(condition, Comparison):
        return condition.field.text, condition.operator, condition.values
    if isinstance(condition, In):
        return condition.field.text, "IN", list(condition.values)
    parts = parts_of(condition)
    if parts:
        return type(condition).__name__, *map(shape, parts)
    return type(condition).__name__, *(getattr(condition, name) for name in condition.__slots__)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The documents in a store, read from within the transaction that writes them."""
    is_kept = kept_fields(IndexSettings.of(SETTINGS))
    writer = IndexWriter(Path(tmp_path_factory.mktemp("filters")) / "index.sqlite")
    with writer.transaction():
        writer.settings = SETTINGS
        writer.register(["id", *FIELDS])
        writer.write([DocumentChange(docid, str(docid), json_text.dumps(made), {}, list(made),
                             values=field_values(made, is_kept)) for docid, made in enumerate(DOCUMENTS)])
        yield writer.reader()
    writer.close()


def test_a_filter_finds_what_its_plain_test_holds_for(stored) -> None:
    reader = DictReader(DOCUMENTS, SETTINGS)
    for text, test in filters(COUNT):
        condition = parse(text)
        assert condition is not None
        expected = [docid for docid, made in enumerate(DOCUMENTS) if test(made)]
        assert list(evaluate(reader, condition)) == expected, text
        assert list(evaluate(stored, condition)) == expected, text


def test_the_canonical_text_is_read_as_the_same_tree() -> None:
    for text, _ in filters(COUNT):
        tree = parse(text)
        assert tree is not None
        canonical = canonical_text(tree)
        assert shape(parse(canonical)) == shape(tree), text
        assert canonical_text(parse(canonical) or tree) == canonical


def noise(count: int) -> Iterator[str]:
    """Filters with something wrong, and texts of pieces that filters are made of."""
    dice = random.Random(SEED)
    for _ in range(count):
        text, _ = expression(dice, 2)
        at = dice.randrange(len(text) + 1)
        yield text[:at] + dice.choice(PIECES) + text[at + dice.randrange(3):]
        yield "".join(dice.choice(PIECES) for _ in range(dice.randrange(12)))
        yield f"{dice.choice(FIELDS)} {dice.choice(('=', 'IN ['))} {dice.choice(FILTER_TEXTS)}{dice.choice(PIECES)}"


def check_place(error: FilterError) -> None:
    place = error.place
    assert isinstance(place, Token) and 0 <= place.start <= place.end <= len(place.source)
    assert error.sentence and "\n" not in error.sentence
    assert error.message.endswith(place.source[error.shown_from:])


def test_no_text_makes_the_parser_fail_otherwise() -> None:
    for text in noise(COUNT):
        try:
            parse(text)
        except FilterError as error:
            check_place(error)


def outcome(text: str) -> Any:
    try:
        return shape(parse(text))
    except FilterError as error:
        return error.message


def test_fast_patterns_read_the_same_as_the_grammar(monkeypatch) -> None:
    texts = [*noise(COUNT), *(text for text, _ in filters(COUNT)),
             "a=1ANDb=2", "a = 1AND b = 2", "a = 1 ANDb = 2", "a=1 AND AND b=2", "AND = 1 OR a = 2", "a = OR", "a IN [AND]",
             "a = '' OR b = \"\" AND c=1 ", "a IN['x',\"y\" , z,]", "a IN [x y]"]
    at_one_go = [outcome(text) for text in texts]
    monkeypatch.setattr(parser, "FAST_COMPARISON", re.compile("(?!)").scanner)
    monkeypatch.setattr(parser, "FAST_LIST", lambda source, at: None)
    for text, expected in zip(texts, at_one_go):
        assert outcome(text) == expected, text


def test_not_is_the_complement() -> None:
    reader = DictReader(DOCUMENTS, SETTINGS)
    for text, _ in filters(COUNT // 5):
        condition = parse(text)
        assert condition is not None
        found = evaluate(reader, condition)
        assert evaluate(reader, Not(condition)) == reader.all_docids() - found
