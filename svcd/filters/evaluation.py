"""Evaluate a condition tree: find the documents that meet it, over the whole index. Also: filters in the JSON of requests.

Source: docs/filters-and-facets.md#operators, docs/filters-and-facets.md#evaluation.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from svcd.base.docids import EMPTY, DocIds, union_of
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.quantities import number_of
from svcd.filters import requirements
from svcd.filters.lexer import FilterError, shown_place
from svcd.filters.requirements import Cost, Outlines
from svcd.filters.tree import (BETWEEN, CONTAINS, EQUAL, EXISTS, GREATER, GREATER_OR_EQUAL, IS_EMPTY, IS_NULL, LESS,
                               LESS_OR_EQUAL, NOT_EQUAL, SHARD, STARTS_WITH, And, BoundingBox, Comparison, Condition, Geo, In,
                               Not, Or, Polygon, Radius, VectorExists, canonical_token)
from svcd.query.reader import Reader, Value
from svcd.schema.field_values import WHITE_SPACE, normal_form

# More than _MANY_VALUES values are read in one query of the index; with fewer, the set of each value is cached.
_MANY_VALUES = 32
# For up to _FEW_CANDIDATES candidates, CONTAINS reads the values of the candidates instead of all texts of the field.
_FEW_CANDIDATES = 100
_LAST_CHARACTER = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)

_NO_SHARD = "Shard `{shard}` does not exist"
_SHARD_OPERATOR = ("Filter operator `{operator} is not allowed for the special attribute `_shard`.\n"
                   "  - Note: allowed operators: =, !=, IN. \n"
                   "  - Note: other operators are not allowed for the special attribute `_shard`.")


def evaluate(reader: Reader, condition: Condition) -> DocIds:
    """Return the documents that meet a condition. Raises FilterError."""
    evaluation = _Evaluation(reader)
    requirements.check_fields(evaluation.filterable, condition)
    return evaluation.docids(condition)


class _Evaluation:
    """The evaluation of one filter on one index. Its fields have been checked; operators are checked during evaluation."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.filterable = reader.settings.filterable
        self.outlines = Outlines()

    def docids(self, condition: Condition) -> DocIds:
        """Return the documents that meet a condition."""
        return _METHODS[type(condition)](self, condition)

    def _and(self, condition: And) -> DocIds:
        """Evaluate parts from left to right until no candidate is left; the operators of the other parts are not checked."""
        candidates = self.docids(condition.parts[0])
        for part in condition.parts[1:]:
            if not candidates:
                return EMPTY
            if not isinstance(part, Comparison) or part.operator != CONTAINS or len(candidates) > _FEW_CANDIDATES:
                candidates &= self.docids(part)
                continue
            needle = normal_form(part.values[0])
            held = self.reader.values.field_values(part.field.text, candidates.to_array())
            candidates &= DocIds([docid for docid, values in held
                                  if any(isinstance(value, str) and needle in value for value in values)])
        return candidates

    def _or(self, condition: Or) -> DocIds:
        """Evaluate equalities of the same field together, as one look-up of many values."""
        found, equalities = list[DocIds](), dict[str, list[Comparison]]()
        for part in condition.parts:
            if isinstance(part, Comparison) and part.operator == EQUAL and part.field.text != SHARD:
                self._check_operator(part.field.text, EQUAL)
                equalities.setdefault(part.field.text, []).append(part)
            else:
                found.append(self.docids(part))
        for comparisons in equalities.values():
            texts = [comparison.values[0] for comparison in comparisons]
            found.append(equal_docids(self.reader, comparisons[0].field.text, texts))
        return union_of(found)

    def _not(self, condition: Not) -> DocIds:
        return self.reader.all_docids() - self.docids(condition.part)

    def _in(self, condition: In) -> DocIds:
        name = condition.field.text
        if name == SHARD:
            return _in_shards(condition.values)
        if condition.values:
            self._check_operator(name, EQUAL)
        return equal_docids(self.reader, name, condition.values)

    def _comparison(self, condition: Comparison) -> DocIds:
        name, operator, values = condition.field.text, condition.operator, condition.values
        if name == SHARD:
            if operator not in (EQUAL, NOT_EQUAL):
                raise FilterError(_SHARD_OPERATOR.format(operator=operator))
            return _in_shards(values)
        self._check_operator(name, operator)
        if operator == NOT_EQUAL:
            return self.reader.all_docids() - equal_docids(self.reader, name, values)
        return _OPERATORS[operator](self.reader, name, *values)

    def _vector_exists(self, condition: VectorExists) -> DocIds:
        from svcd.filters.vector_conditions import vector_docids

        return vector_docids(self.reader, condition)

    def _geo(self, condition: Geo) -> DocIds:
        from svcd.filters.geo_conditions import geo_docids

        return geo_docids(self.reader, condition, self.outlines)

    def _check_operator(self, name: str, operator: str) -> None:
        """Check that the rule of a field allows an operator, unless no document ever had the field: then nothing matches."""
        rule = self.filterable.rule(name)
        if rule is not None and not requirements.is_allowed(rule, operator) and name in self.reader.fields():
            raise requirements.not_allowed(rule, name, operator)


_METHODS: dict[type, Callable[[_Evaluation, Any], DocIds]] = {
    And: _Evaluation._and, Or: _Evaluation._or, Not: _Evaluation._not, In: _Evaluation._in,
    Comparison: _Evaluation._comparison,
    VectorExists: _Evaluation._vector_exists,
    **dict.fromkeys((Radius, BoundingBox, Polygon), _Evaluation._geo),
}


# Values

def equal_docids(reader: Reader, field: str, texts: Sequence[str]) -> DocIds:
    """Return the documents with a value that equals one of the texts of a filter, as a text or as a number."""
    values: list[Value] = []
    for text in dict.fromkeys(texts):
        number = number_of(text)
        values += [normal_form(text), *([] if number is None else [number])]
    if len(values) > _MANY_VALUES:
        return reader.values.values_docids(field, values)
    return union_of(reader.values.value_docids(field, value) for value in values)


def _beyond(reader: Reader, field: str, text: str, is_above: bool, is_included: bool) -> DocIds:
    """Return the documents with a value above or below a text, or above or below the number of the text."""
    def docids(limit: Value) -> DocIds:
        if is_above:
            return reader.values.range_docids(field, limit, None, is_included)
        return reader.values.range_docids(field, None, limit, True, is_included)

    number = number_of(text)
    return docids(normal_form(text)) if number is None else docids(normal_form(text)) | docids(number)


def _between(reader: Reader, field: str, low: str, high: str) -> DocIds:
    docids, (least, most) = EMPTY, (normal_form(low), normal_form(high))
    if least <= most:
        docids |= reader.values.range_docids(field, least, most)
    first, last = number_of(low), number_of(high)
    if first is not None and last is not None and first <= last:
        docids |= reader.values.range_docids(field, first, last)
    return docids


def _containing(reader: Reader, field: str, text: str) -> DocIds:
    needle = normal_form(text)
    return reader.values.containing_docids(field, needle) if needle else reader.values.kind_docids(field, str)


def _starting(reader: Reader, field: str, text: str) -> DocIds:
    prefix = normal_form(text)
    if not prefix:
        return reader.values.present_docids(field)
    shortened, after = prefix.rstrip(_LAST_CHARACTER), None  # after: the smallest text larger than all texts with the prefix
    if shortened:
        following = ord(shortened[-1]) + 1
        after = shortened[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
    return reader.values.range_docids(field, prefix, after, True, False)


_OPERATORS: dict[str, Callable[..., DocIds]] = {  # (reader, field, values ...)
    EQUAL: lambda reader, field, text: equal_docids(reader, field, [text]),
    GREATER: lambda reader, field, text: _beyond(reader, field, text, True, False),
    GREATER_OR_EQUAL: lambda reader, field, text: _beyond(reader, field, text, True, True),
    LESS: lambda reader, field, text: _beyond(reader, field, text, False, False),
    LESS_OR_EQUAL: lambda reader, field, text: _beyond(reader, field, text, False, True),
    BETWEEN: _between,
    CONTAINS: _containing,
    STARTS_WITH: _starting,
    EXISTS: lambda reader, field: reader.values.present_docids(field),
    IS_NULL: lambda reader, field: reader.values.null_docids(field),
    IS_EMPTY: lambda reader, field: reader.values.empty_docids(field),
}


# Shards

def _in_shards(names: Sequence[str]) -> DocIds:
    """Return the documents of shards. Indexes of this version are not sharded, so every name is unknown."""
    for name in names:
        raise FilterError(_NO_SHARD.format(shard=name))
    return EMPTY


# Filters of requests: JSON in, documents out, errors with the code of the route.
#
# A filter is a text, or a list (AND) of texts and of lists (OR) of texts.
# Source: docs/filters-and-facets.md#json-form.

# The JSON types that each level of nesting may have, outermost first, as in the message.
_LEVELS = ("String, Array", "String, [String]", "String")


def check_shape(value: Any, code: str, level: int = 0) -> None:
    """Check that a value is a text, or a list of texts and of lists of texts. Raises `code`."""
    if isinstance(value, str):
        return
    if not isinstance(value, list) or level + 1 == len(_LEVELS):
        found = f"expected {_LEVELS[level]}, found: {dumps(value)}"
        raise ApiError(code, f"Invalid syntax for the filter parameter: `{found}`.")
    for part in value:
        check_shape(part, code, level + 1)


def is_empty(value: Any) -> bool:
    """Return whether a filter of valid shape contains no condition."""
    return not value.strip(WHITE_SPACE) if isinstance(value, str) else all(is_empty(part) for part in value)


def combine(request_filter: Any, rule_filter: Any) -> Any:
    """Combine two filters of valid shape by AND; None means no filter. The filter of a tenant token comes second: the order
    decides which error is reported first."""
    if request_filter is None or rule_filter is None:
        return rule_filter if request_filter is None else request_filter
    return [part for each in (request_filter, rule_filter) for part in (each if isinstance(each, list) else [each])]


# Errors for operators that are not allowed have this code on every route, because their messages show no place.
_OPERATOR_CODE = "invalid_search_filter"


def read_filter(value: Any, code: str) -> Condition | None:
    """Return the condition tree of a filter in JSON form; None without conditions. Raises `code`."""
    if value is None:
        return None
    check_shape(value, code)
    try:
        return parse_filter(value)
    except FilterError as error:
        raise ApiError(code, error.message) from None


def parse_filter(value: Any) -> Condition | None:
    """Return the condition tree of a filter of valid shape; None without conditions. Raises FilterError."""
    from svcd.filters.parser import parse  # its patterns take as long to compile as the first search

    parsed = partial(parse, cost=Cost())
    if isinstance(value, str):
        return parsed(value)
    return _combined(And, (parsed(part) if isinstance(part, str) else _combined(Or, map(parsed, part)) for part in value))


def _combined(operator: Any, parts: Any) -> Condition | None:
    """Combine parts by an operator. Blank parts (None) are ignored; a single condition is returned unchanged."""
    conditions = [part for part in parts if part is not None]
    return operator(conditions) if len(conditions) > 1 else next(iter(conditions), None)


def filter_docids(reader: Reader, condition: Condition | None, code: str, *, is_rewritten: bool = False,
                  shown_from: int = 0) -> DocIds:
    """Return the documents that meet a filter; all documents without a filter.

    Raises `code`, or invalid_search_filter for an unknown shard and for an operator that a field or `_shard` does not allow.
    is_rewritten: errors show the filter in canonical form, as searches do; otherwise as it was written, from the index
    `shown_from` on.
    """
    if condition is None:
        return reader.all_docids()
    try:
        return evaluate(reader, condition)
    except FilterError as error:
        if error.place is None:
            raise ApiError(_OPERATOR_CODE, error.sentence) from None
        if is_rewritten:
            raise ApiError(code, f"{error.sentence}\n{shown_place(canonical_token(condition, error.place))}") from None
        error.shown_from = shown_from
        raise ApiError(code, error.message) from None


# Filters of routes that read one index only: deletions, editions and exports of documents. They reject `_foreign`.

_NO_JOIN = "Filter condition `_foreign` is not supported for this endpoint."
_FEATURE = "foreignKeys"


def local_filter(value: Any, code: str, flags: requirements.Flags, index_uid: str | None = None) -> Condition | None:
    """Return the parsed filter of a request; None for an empty one. `_foreign` conditions are rejected with `code`.

    flags: see requirements.check_features(). index_uid: prefix of error messages; None for no prefix. Raises `code`,
    feature_not_enabled.
    """
    if value is None:
        return None
    with naming_index(index_uid):
        check_shape(value, code)
    with naming_index(None if isinstance(value, list) else index_uid):  # errors in a list of filters never name the index
        condition = read_filter(value, code)
    with naming_index(index_uid):
        requirements.check_features(condition, flags)
        for needed in requirements.feature_requirements(condition) if condition is not None else ():
            if needed.flag == _FEATURE:
                raise ApiError(code, f"{_NO_JOIN}\n{needed.shown_place}")
    return condition


@contextmanager
def naming_index(index_uid: str | None) -> Iterator[None]:
    """Put the index before the messages of errors in this block; None for no prefix."""
    try:
        yield
    except ApiError as error:
        raise error if index_uid is None else error.inside(f"Index `{index_uid}`") from None
