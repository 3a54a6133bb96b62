"""Documents over the network: merge the pages of all instances, and add sort values to a page for the instance that merges it.

See docs/network.md#documents.
"""
from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cmp_to_key
from itertools import islice
from sys import maxsize
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.document_selection import Selected, SortValue, Wanted, select_documents, sorted_documents
from svcd.api.remote_search import begin_calls, partition, waiting
from svcd.api.routes import HandlerResult, Text
from svcd.api.streaming import WHOLE, list_body
from svcd.base.errors import ApiError, ErrorObject
from svcd.base.json_text import dumps, loads
from svcd.ranking.scores import GeoSorted, Sorted
from svcd.remote import remote_calls
from svcd.search.merge_order import Compared, by_distance, by_value, read_values, shown_values
from svcd.validation.messages import U64_MAX

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.instance.network import Network

CALLS_AT_ONCE = 40
FEDERATION = "_federation"
_VALUES = "weightedScoreValues"

SortValues = Sequence[Compared]  # one per sort expression


class _Remotes(NamedTuple):
    """Name of a remote -> its page, or its error."""

    pages: Mapping[str, Mapping[str, Any]]
    errors: dict[str, ErrorObject]


# Calls to remotes


def fetch(ctx: Context, asked: Mapping[str, Any], wanted: Wanted) -> HandlerResult:
    """One page of the documents of all instances; `remoteErrors` names failed instances.

    asked: the members of the body of `/documents/fetch`. Raises remote_bad_response for a page that cannot be merged, and the
    errors of this instance if it takes part.
    """
    offset, limit = asked["offset"], asked["limit"]
    network = ctx.services.data_folder.network()
    asked_of_each = {**asked, "limit": min(offset + limit, U64_MAX), "offset": 0}
    results = _begin(ctx, network, asked_of_each)
    with ExitStack() as held:
        lists: list[Iterable[tuple[SortValues, bytes]]] = []
        total = expected = 0
        if (parts := partition(network)).is_local:
            selected = select_documents(ctx, wanted, held)
            size = selected.size()
            own, total = _shown_with_values(selected, 0, asked_of_each["limit"], size)
            lists, expected = [own], min(limit, total) * size
            if expected > WHOLE:
                held.callback(selected.reader.close)
        found = results()
        of_remotes = [_documents(page) for page in found.pages.values()]
        before = sum(name in found.pages for name in parts.remotes[:parts.place])
        lists = [*of_remotes[:before], *lists, *of_remotes[before:]]
        total += sum(page["total"] for page in found.pages.values())
        merged = heapq.merge(*lists, key=lambda each: _sort_key(each[0]))
        shown = (text for _, text in islice(merged, min(offset, maxsize), min(offset + limit, maxsize)))
        tail = {"offset": offset, "limit": limit, "total": total, **({"remoteErrors": found.errors} if found.errors else {})}
        body = list_body(b'{"results":[', shown, f"],{dumps(tail)[1:]}".encode, expected=expected,
                         limit=ctx.services.large_answers, held=held)
    return HandlerResult(200, Text(body))


def find(ctx: Context, document_id: str) -> str:
    """The JSON text of a document that this instance does not have. Raises document_not_found, remote_bad_response."""
    asked = {**ctx.query, "ids": [document_id], "offset": 0, "limit": 1}
    found = _begin(ctx, ctx.services.data_folder.network(), asked)()
    for page in found.pages.values():
        for _, text in _documents(page):
            return text.decode()
    failed = "".join(f"\n  - Note: remote `{name}` failed: {error.get('message')}" for name, error in found.errors.items())
    raise ApiError("document_not_found", f"Document `{document_id}` not found.{failed}")


def _begin(ctx: Context, network: Network, asked: Mapping[str, Any]) -> Callable[[], _Remotes]:
    """Call `/documents/fetch` of all remotes; return a function that waits for the results."""
    # Remotes must not call other instances in turn: they get no `useNetwork`.
    body = {"offset": asked["offset"], "limit": asked["limit"], "fields": asked.get("fields"),
            "retrieveVectors": asked["retrieveVectors"], "ids": asked.get("ids"), "filter": asked.get("filter"),
            "sort": asked.get("sort"), "useNetwork": None}
    calls = begin_calls(ctx, network, CALLS_AT_ONCE)
    pending = {name: calls.start(name, "POST", f"/indexes/{ctx.index_uid}/documents/fetch", body, _page)
               for name in partition(network).remotes}

    def results() -> _Remotes:
        pages: dict[str, Mapping[str, Any]] = {}
        errors: dict[str, ErrorObject] = {}
        with waiting(ctx):
            for name, call in pending.items():
                try:
                    pages[name] = call.result()
                except ApiError as error:
                    errors[name] = error.as_json()
        nested = [page.get("remoteErrors") or {} for page in pages.values()]
        return _Remotes(pages, {name: error for each in (*nested, errors) for name, error in each.items()})

    return results


def _page(answer: Any) -> Mapping[str, Any]:
    """Check that an answer is a page of documents. Raises one of MISFITS otherwise."""
    numbers = [answer[name] for name in ("offset", "limit", "total")]
    if not isinstance(answer["results"], list) or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("no page of documents")
    if not all(isinstance(error, dict) for error in (answer.get("remoteErrors") or {}).values()):
        raise ValueError("errors of another form")
    page: Mapping[str, Any] = answer
    return page


def _documents(page: Mapping[str, Any]) -> list[tuple[SortValues, bytes]]:
    """(sort values, JSON text) of the documents of a page. Raises remote_bad_response."""
    found: list[tuple[SortValues, bytes]] = []
    for document in page["results"]:
        if not isinstance(document, dict) or FEDERATION not in document:
            raise remote_calls.missing_in_hit(f".{FEDERATION}")
        member = document.pop(FEDERATION)
        if not isinstance(member, dict):
            raise remote_calls.unexpected_in_hit(f".{FEDERATION}", "map", member)
        if _VALUES not in member:
            raise remote_calls.missing_in_hit(f".{FEDERATION}.{_VALUES}")
        try:
            values, _ = read_values(member[_VALUES])
        except ValueError as reason:
            raise remote_calls.unreadable_scores(str(reason)) from None
        found.append((values, dumps(document).encode()))
    return found


# The order of documents


def _compare(left: SortValues, right: SortValues) -> int:
    """Compare by the first sort expression that differs: negative if the left document comes first, 0 if all are equal.

    Only values of the same kind differ: instances with the same order send no others.
    """
    for one, other in zip(left, right):
        difference = 0.0
        if isinstance(one, Sorted) and isinstance(other, Sorted):
            difference = by_value(one, other)
        elif isinstance(one, GeoSorted) and isinstance(other, GeoSorted):
            difference = by_distance(one, other)
        if difference:
            return 1 if difference > 0 else -1
    return 0


_sort_key = cmp_to_key(_compare)


# The documents of this instance, with the values that they are sorted by


def shown_for_caller(selected: Selected, offset: int, limit: int, size: int) -> tuple[Iterator[bytes], int]:
    """(the documents of a page for the instance that merges them, total number of documents). size: see Selected."""
    documents, total = _shown_with_values(selected, offset, limit, size)

    def with_member(text: bytes, values: Sequence[SortValue]) -> bytes:
        member = {_VALUES: shown_values(values, 1.0)}
        if FEDERATION.encode() in text:  # the document may have a field of this name
            return dumps({**loads(text), FEDERATION: member}).encode()
        return b"%b%b\"%b\":%b}" % (text[:-1], b"," if text != b"{}" else b"", FEDERATION.encode(), dumps(member).encode())

    return (with_member(text, values) for values, text in documents), total


def _shown_with_values(selected: Selected, offset: int, limit: int,
                       size: int) -> tuple[Iterator[tuple[Sequence[SortValue], bytes]], int]:
    """(sort values and JSON texts of the documents of a page, found on demand; total number of documents)"""
    reader = selected.reader
    docids = reader.all_docids() if selected.docids is None else selected.docids
    total = len(docids)
    ordered = islice(sorted_documents(reader, docids, selected.wanted.rules), min(offset, total), min(offset + limit, total))
    ahead: deque[Sequence[SortValue]] = deque()  # values of documents that are being read

    def ordered_docids() -> Iterator[int]:
        for docid, values in ordered:
            ahead.append(values)
            yield docid

    return ((ahead.popleft(), text) for text in selected.shown(ordered_docids(), size)), total
