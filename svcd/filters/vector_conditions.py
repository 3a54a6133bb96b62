"""Conditions on vectors: the syntax of `_vectors`, `_vectors.EMBEDDER` and its suffixes, and checks of their names.

Source: docs/filters-and-facets.md#conditions-on-vectors-and-shards.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.filters import lexer
from svcd.filters.lexer import QUOTES, FilterError, NoValue, Unclosed, fail, piece, quoted_value, rest
from svcd.filters.tree import (DOCUMENT_TEMPLATE, FRAGMENTS, KINDS, REGENERATE, USER_PROVIDED, VECTORS, Condition, Not, Token,
                               VectorExists)
from svcd.query.reader import Reader
from svcd.schema.embedder_settings import indexing_fragments
from svcd.validation.messages import is_near

_NO_EMBEDDER = "Was expecting embedder name but found nothing."
_BAD_EMBEDDER = "The vector filter's embedder name is invalid."
_NO_FRAGMENT = "The vector filter is missing a fragment name."
_BAD_FRAGMENT = "The vector filter's fragment name is invalid."
_BAD_QUOTES = "The quotes in one of the values are inconsistent."
_LEFTOVER = "The vector filter has leftover tokens."
_NO_OPERATION = "Was expecting an operation like `EXISTS` or `NOT EXISTS` after the vector filter."
_POINT = ("Was expecting one of `.fragments`, `.userProvided`, `.documentTemplate`, `.regenerate` or nothing, "
          "but instead found a point without a valid value.")
_QUOTED_KIND = "Was expecting this part to be unquoted."
_BOTH = ("Vector filter can only accept one of `fragments`, `userProvided`, `documentTemplate` or `regenerate`, "
         "but found both `{previous}` and `{text}`.")
_UNKNOWN = ("Was expecting one of `fragments`, `userProvided`, `documentTemplate`, `regenerate` or nothing, "
            "but instead found `{text}`.{suggestion}")

_BLANKS_NEEDED = re.compile(r"[ \t\r\n]+").match
_START = re.compile(rf"{lexer.BLANKS}({VECTORS})(?=[ \t\r\n.])").match
_KIND = re.compile(r"\.(fragments|userProvided|documentTemplate|regenerate)").match
_NAME = re.compile(rf"[{lexer.WORD_SET.replace('.', '')}]+").match
_OPERATION = re.compile(r"(NOT[ \t\r\n]+)?EXISTS").match


def read_vector_condition(source: str, at: int) -> tuple[Condition, int] | None:
    """Return the condition on vectors that begins at an index, and the index after it; None when none begins there.

    Raises FilterError.
    """
    found = _START(source, at)
    if found is None:
        return None
    condition, at = _named(source, found)
    operation = _OPERATION(source, at)
    if operation is None:
        fail(_NO_OPERATION, rest(source, at))
    return (Not(condition) if operation[1] else condition), operation.end()


def _named(source: str, found: re.Match[str]) -> tuple[VectorExists, int]:
    """Read the name of the vectors; return it and the index after the blanks that must follow."""
    name, at = piece(source, *found.span(1)), found.end()
    blanks = _BLANKS_NEEDED(source, at)
    if blanks is not None:
        return VectorExists(name), blanks.end()
    if source.startswith(" ", at + 1):
        fail(_NO_EMBEDDER, piece(source, at + 1, at + 2))
    embedder, at = _required(source, at + 1, _BAD_EMBEDDER)
    kind, fragment, at = _suffix(source, at)
    if source.startswith(".", at):
        try:
            wrong, _ = _name(source, at + 1)
        except FilterError:
            wrong = piece(source, at, at + 1)
        if kind is not None:
            sentence = _BOTH.format(previous=kind, text=wrong.text)
        elif wrong.text == ".":
            sentence = _POINT
        elif wrong.text in KINDS:
            sentence = _QUOTED_KIND
        else:
            sentence = _UNKNOWN.format(text=wrong.text, suggestion=did_you_mean(wrong.text, KINDS))
        fail(sentence, wrong)
    blanks = _BLANKS_NEEDED(source, at)
    if blanks is None:
        fail(_LEFTOVER, rest(source, at))
    return VectorExists(name, embedder, kind, fragment), blanks.end()


def _suffix(source: str, at: int) -> tuple[str | None, Token | None, int]:
    """Read the kind of vectors and the fragment, None if not given; return them and the index after them."""
    found = _KIND(source, at)
    if found is None:
        return None, None, at
    if found[1] != FRAGMENTS:
        return found[1], None, found.end()
    if not source.startswith(".", found.end()):
        fail(_NO_FRAGMENT, rest(source, found.end()))
    fragment, at = _required(source, found.end() + 1, _BAD_FRAGMENT)
    return FRAGMENTS, fragment, at


def _required(source: str, at: int, sentence: str) -> tuple[Token, int]:
    """Read a required name. Raises FilterError with `sentence` for any fault of the name."""
    try:
        return _name(source, at)
    except FilterError as error:
        fail(_BAD_QUOTES if isinstance(error, Unclosed) else sentence, rest(source, at))


def _name(source: str, at: int) -> tuple[Token, int]:
    """Read a name without dots, or a name in quotes. Raises NoValue, and FilterError for quotes that are not closed."""
    if at < len(source) and source[at] in QUOTES:
        return quoted_value(source, at)
    found = _NAME(source, at)
    if found is None or found[0] in lexer.KEYWORDS:
        raise NoValue("", rest(source, at))
    return piece(source, at, found.end()), found.end()


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests the first known name, in byte order, within two typos; "" when no name is near."""
    near = [each for each in sorted(known) if is_near(name, each)]
    return f" Did you mean `{near[0]}`?" if near else ""


# Names in the settings

_UNKNOWN_EMBEDDER = "The embedder `{name}` does not exist. {available}"
_NO_EMBEDDERS = "This index does not have any configured embedders."
_UNKNOWN_FRAGMENT = "The fragment `{name}` does not exist on embedder `{embedder}`. {available}"
_NO_FRAGMENTS = "This embedder does not have any configured fragments."


def vector_docids(reader: Reader, condition: VectorExists) -> DocIds:
    """Return the documents with vectors of this kind. Raises FilterError."""
    embedders, vectors = reader.settings.embedders, reader.vectors
    if condition.embedder is None:
        return union_of(map(vectors.embedded_docids, embedders))
    name, fragment = condition.embedder.text, condition.fragment
    if name not in embedders:
        available = _available("Available embedders", name, list(embedders)) or _NO_EMBEDDERS
        fail(_UNKNOWN_EMBEDDER.format(name=name, available=available), condition.embedder)
    fragments = indexing_fragments(embedders[name] or {})
    if fragment is not None and fragment.text not in fragments:
        available = _available("Available fragments on this embedder", fragment.text, list(fragments)) or _NO_FRAGMENTS
        fail(_UNKNOWN_FRAGMENT.format(name=fragment.text, embedder=name, available=available), fragment)
    if condition.kind == USER_PROVIDED:
        return vectors.user_provided_docids(name)
    if fragment is not None:
        return vectors.fragment_docids(name, fragment.text) - vectors.user_provided_docids(name)
    if condition.kind == DOCUMENT_TEMPLATE:
        return EMPTY if fragments else vectors.embedded_docids(name) - vectors.user_provided_docids(name)
    embedded = vectors.embedded_docids(name)
    return embedded - vectors.fixed_docids(name) if condition.kind == REGENERATE else embedded


def _available(what: str, name: str, known: Sequence[str]) -> str:
    if not known:
        return ""
    return f"{what} are: {', '.join(f'`{each}`' for each in sorted(known))}.{did_you_mean(name, known)}"
