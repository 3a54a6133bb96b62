"""The filter of a request: joined to that of a tenant token, read, and allowed by the features that are on.

Knows the refusals of features and of routes without joins; refuses to know the grammar, and which documents meet it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from svcd.api import features
from svcd.base.errors import ApiError
from svcd.base.json_text import loads

if TYPE_CHECKING:
    from svcd.filters.tree import Condition
    from svcd.query.reader import Reader
    from svcd.search.joins import Opener

Flags = Callable[[], Mapping[str, bool | None]]  # None, which a dump may have, is off

_NO_JOIN = "Filter condition `_foreign` is not supported for this endpoint."


def allowed_filter(value: Any, code: str, flags: Flags) -> Condition | None:
    """The filter of a request; None when it asks for nothing.

    flags: gives the features; asked only when one is needed. Raises `code`, feature_not_enabled.
    """
    # The grammar takes a while to load, which a daemon that only indexes need not pay.
    from svcd.filters.requests import read_filter

    condition = read_filter(value, code)
    _check_features(condition, flags)
    return condition


def local_filter(value: Any, code: str, flags: Flags, index_uid: str | None = None) -> Condition | None:
    """allowed_filter() for routes that look into one index alone: joins are refused with `code`.

    index_uid: the index with which refusals open, None where they name none.
    """
    from svcd.filters.requests import check_shape, read_filter

    with _naming(index_uid):
        if value is not None:
            check_shape(value, code)
    with _naming(None if isinstance(value, list) else index_uid):  # nor does the reference engine for a text in a list
        condition = read_filter(value, code)
    with _naming(index_uid):
        _check_features(condition, flags)
        _refuse_joins(condition, code)
    return condition


def _check_features(condition: Condition | None, flags: Flags) -> None:
    from svcd.filters.requirements import feature_requirements

    for gate in feature_requirements(condition) if condition is not None else ():
        if not flags().get(gate.flag):
            refusal = features.not_enabled(features.FEATURES[gate.flag], gate.action)
            raise ApiError(refusal.code, f"{refusal.message}\n{gate.shown_place}")


def _refuse_joins(condition: Condition | None, code: str) -> None:
    from svcd.filters.requirements import feature_requirements

    for gate in feature_requirements(condition) if condition is not None else ():
        if gate.flag == "foreignKeys":
            raise ApiError(code, f"{_NO_JOIN}\n{gate.shown_place}")


@contextmanager
def _naming(index_uid: str | None) -> Iterator[None]:
    """Let refusals open with the index that is asked, None for none."""
    try:
        yield
    except ApiError as error:
        raise error if index_uid is None else error.inside(f"Index `{index_uid}`") from None


def without_joins(condition: Condition | None, index_uid: str, reader: Reader, open_index: Opener) -> Condition | None:
    """The filter with the documents of other indexes in the place of what it asks of them.

    index_uid, reader: of the index that is filtered. Raises invalid_search_filter, invalid_document_filter, and
    index_not_found.
    """
    if condition is None or not has_joins(condition):
        return condition
    from svcd.base import tracing
    from svcd.search.joins import resolve_foreign

    with tracing.span("execute local search"):
        tracing.begin("evaluate filter")
        return resolve_foreign(condition, index_uid, reader.settings, open_index)


def has_joins(condition: Condition | None) -> bool:
    """Does a filter ask anything of other indexes?"""
    if condition is None:
        return False
    from svcd.search.joins import has_foreign

    return has_foreign(condition)


def of_query_string(text: str | None, code: str) -> Any:
    """The filter of a query string: JSON where it is some, else the text as it stands; None when there is none.

    Raises `code` for the JSON `null`, which is no filter in a body alone.
    """
    if text is None:
        return None
    try:
        value = loads(text)
    except ValueError:
        return text
    if value is None:
        from svcd.filters.requests import check_shape

        check_shape(value, code)
    return value


def narrowed(given: Any, rule: Any, code: str) -> Any:
    """The filter of a request with that of a tenant token joined to it; rule None leaves it alone. Raises `code`."""
    if rule is None:
        return given
    from svcd.filters.requests import check_shape, combine

    for value in (given, rule):
        if value is not None:
            check_shape(value, code)
    return combine(given, rule)
