"""The doors of filters: JSON in, documents out, errors with the code of the route.

Knows which text errors refer to: that of the user, or the canonical one of searches; refuses to know routes.
"""
from __future__ import annotations

from typing import Any

from svcd.engine.filters.errors import FilterError, shown_place
from svcd.engine.filters.evaluation import evaluate
from svcd.engine.filters.parser import parse
from svcd.engine.filters.shapes import check_shape
from svcd.engine.filters.tree import And, Condition, Or
from svcd.engine.filters.writing import rewritten
from svcd.engine.reader import DocIds, Reader
from svcd.errors import ApiError

_OPERATOR_CODE = "invalid_search_filter"


def read_filter(value: Any, code: str) -> Condition | None:
    """The tree of a filter as a request has it; None when it asks for nothing. Raises `code`."""
    if value is None:
        return None
    check_shape(value, code)
    try:
        return tree_of(value)
    except FilterError as error:
        raise ApiError(code, error.message) from None


def tree_of(value: Any) -> Condition | None:
    """The tree of a filter of right shape; None when it asks for nothing. Raises FilterError."""
    if isinstance(value, str):
        return parse(value)
    parts = [parse(part) if isinstance(part, str) else _joined(Or, map(parse, part)) for part in value]
    return _joined(And, parts)


def _joined(join: Any, parts: Any) -> Condition | None:
    """What has nothing in it contributes nothing; one alone needs no join."""
    conditions = [part for part in parts if part is not None]
    return join(conditions) if len(conditions) > 1 else next(iter(conditions), None)


def matching(reader: Reader, condition: Condition | None, code: str, *, is_rewritten: bool = False,
             since: int = 0) -> DocIds:
    """The documents that meet a filter; all of them without one.

    Raises `code`; for an operator that a field or `_shard` does not allow, and for an unknown shard, the code of
    searches on every route (relevance.md 5.6); these alone have no place in the text.
    is_rewritten: errors show the filter in canonical form, as those of searches do; else from `since` on.
    """
    if condition is None:
        return reader.all_docids()
    try:
        return evaluate(reader, condition)
    except FilterError as error:
        if error.place is None:
            raise ApiError(_OPERATOR_CODE, error.sentence) from None
        if is_rewritten:
            raise ApiError(code, f"{error.sentence}\n{shown_place(rewritten(condition, error.place))}") from None
        error.since = since
        raise ApiError(code, error.message) from None
