"""Filters of what reads one index only: deletions, editions and exports of documents. `_foreign` conditions are rejected."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from svcd.base.errors import ApiError
from svcd.filters.evaluation import check_shape, read_filter
from svcd.filters.requirements import Flags, check_features, feature_requirements
from svcd.filters.tree import Condition

_NO_JOIN = "Filter condition `_foreign` is not supported for this endpoint."
_FEATURE = "foreignKeys"


def local_filter(value: Any, code: str, flags: Flags, index_uid: str | None = None) -> Condition | None:
    """The parsed filter of a request; None for an empty one. `_foreign` conditions are rejected with `code`.

    flags: as check_features(). index_uid: put before the messages of errors; None for none. Raises `code`,
    feature_not_enabled.
    """
    if value is None:
        return None
    with naming_index(index_uid):
        check_shape(value, code)
    with naming_index(None if isinstance(value, list) else index_uid):  # errors in a list of filters never name the index
        condition = read_filter(value, code)
    with naming_index(index_uid):
        check_features(condition, flags)
        _refuse_joins(condition, code)
    return condition


def _refuse_joins(condition: Condition | None, code: str) -> None:
    for gate in feature_requirements(condition) if condition is not None else ():
        if gate.flag == _FEATURE:
            raise ApiError(code, f"{_NO_JOIN}\n{gate.shown_place}")


@contextmanager
def naming_index(index_uid: str | None) -> Iterator[None]:
    """Put the index before the messages of errors; None for none."""
    try:
        yield
    except ApiError as error:
        raise error if index_uid is None else error.inside(f"Index `{index_uid}`") from None
