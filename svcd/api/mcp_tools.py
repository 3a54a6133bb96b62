"""Runs the tools of assistants with the rights of their key (docs/mcp.md#rights).

A tool that searches or writes does so by the handler of the route that does the same, after the check of its permission on the
index, so it can do no more than the bearer's own requests. The filter of a tenant token applies in all of them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api import documents, facet_search, search, similar
from svcd.api.context import Context
from svcd.api.filters import index_snapshot, visible_docids
from svcd.api.routes import Fields, Route, Text
from svcd.api.tasks import wait_for_task
from svcd.base.docids import EMPTY, DocIds
from svcd.base.errors import ApiError, quoted_name
from svcd.base.json_text import dumps, loads
from svcd.facets.distribution import frequent_values, selected_fields
from svcd.http.message import Body, Headers, Request
from svcd.instance.data_folder import IndexRow, is_hidden
from svcd.mcp import passages
from svcd.mcp.tools import MOST_CHARACTERS, TOOLS
from svcd.ranking.bucket_sort import Hit, Ranking
from svcd.schema.attributes import WILDCARD
from svcd.search.request import SearchQuery
from svcd.search.search import render_similar
from svcd.validation import FieldError, decode_query, decode_value

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader as Reader

MOST_VALUES = 10  # frequent values of a field
_VALUE_CHARACTERS = 80
_MOST_NAMED = 20  # indexes in a message
_WAIT_S = 10.0  # for the task of a write
# Characters of a word with its blank; a crop has as many words as its part of the budget allows, within limits.
_WORD, _FEWEST_WORDS, _MOST_WORDS = 7, 20, 400
_USER_PROVIDED = "userProvided"


def _post(routes: Sequence[Route], path: str = "", method: str = "POST") -> Route:
    return next(route for route in routes if route.method == method and route.path.endswith(path))


_SEARCH, _FACET_SEARCH, _SIMILAR = _post(search.ROUTES), _post(facet_search.ROUTES), _post(similar.ROUTES)
_ADD, _MERGE, _DELETE = (_post(documents.ROUTES, "/documents"), _post(documents.ROUTES, "/documents", "PUT"),
                         _post(documents.ROUTES, "/delete-batch"))


class Refused(Exception):
    """A call that the model can correct. The message says how."""


class _JsonBody(NamedTuple):
    """The body of a request that svcd sends to itself."""

    content: bytes

    @property
    def length(self) -> int:
        return len(self.content)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.content,))


class Tools:
    """The tools, for one request."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._authorization = ctx.request.headers.get("authorization")

    def offered(self) -> list[str]:
        """The names of the tools that the bearer may call."""
        return [name for name, tool in TOOLS.items() if tool.action is None or self._may_write(tool.action)]

    def _may_write(self, action: str) -> bool:
        if not self._ctx.services.mcp_writes:
            return False
        try:
            self._ctx.services.keys.check(action, None, self._authorization)
        except ApiError:
            return False
        return True

    def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of a tool. A failure is a result, too: the model reads how to correct the call."""
        run: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, f"_{name}")
        try:
            limit = self._ctx.services.mcp_calls
            if seconds := limit.wait_s(self._authorization or self._ctx.request.client):
                raise Refused(f"All {limit.most} calls of this minute are used; call again in {seconds} s.")
            given = {name: value for name, value in arguments.items() if value is not None}  # models write null for absent
            found = run(TOOLS[name].check.decode(given, ""))
            text = dumps(found)
            if len(text) > 2 * MOST_CHARACTERS:
                raise Refused("The answer is too long; ask for fewer fields, facets or documents.")
        except (FieldError, Refused) as refused:
            return _failure(str(refused))
        except ApiError as error:
            is_right = error.code == "invalid_api_key"
            return _failure("The key of this connection may not do that." if is_right else error.message)
        return {"content": [{"type": "text", "text": text}], "structuredContent": found}

    # Indexes

    def indexes(self, offset: int = 0, limit: int | None = None) -> tuple[list[IndexRow], int]:
        """(a page of the indexes that the bearer may search, their number)"""
        return self._ctx.services.data_folder.list_indexes(offset, limit, self._ctx.permission.allows)

    def _index(self, given: Mapping[str, Any]) -> str:
        """The index of a call: the only one if it names none. Raises Refused, which names the indexes of the bearer."""
        index_uid = given.get("index")
        if index_uid is not None and not is_hidden(index_uid) and self._ctx.permission.allows(index_uid) \
                and self._ctx.services.data_folder.index(index_uid) is not None:
            return index_uid
        rows, total = self.indexes(0, _MOST_NAMED)
        if index_uid is None and total == 1:
            return rows[0].uid
        listed = ", ".join(row.uid for row in rows) or "none"
        fault = "Name an `index`" if index_uid is None else f"Index {quoted_name(index_uid)} not found"
        raise Refused(f"{fault}; indexes are: {listed}{', and others (list_indexes)' if total > len(rows) else ''}.")

    def _list_indexes(self, given: dict[str, Any]) -> dict[str, Any]:
        folder = self._ctx.services.data_folder
        rows = self.indexes()[0] if "index" not in given else [folder.require_index(self._index(given))]
        described: list[dict[str, Any]] = []
        characters = given["characters"]
        for row in rows:
            if characters < 0 and described:
                break
            try:
                described.append(self._described(row))
            except ApiError as error:  # its file is damaged, or the filter of the token wrong: the others are listed
                described.append({"index": row.uid, "error": error.message})
            characters -= len(dumps(described[-1]))
        more = [row.uid for row in rows[len(described):]][:1000]
        return {"indexes": described, **({"more": more} if more else {})}

    def _described(self, row: IndexRow) -> dict[str, Any]:
        with self._ctx.services.searches.slot(), self._reading(row.uid) as (reader, visible):
            settings = reader.settings
            names = selected_fields(settings, reader.fields(), [WILDCARD])
            values = frequent_values(reader, names, visible, MOST_VALUES)
            frequent = {name: [text[:_VALUE_CHARACTERS] for text in texts] for name, texts in values.items() if texts}
            shown = {"index": row.uid, "documents": len(visible), "primaryKey": reader.primary_key,
                     "searchable": list(settings.resolved["searchableAttributes"]), "filterable": frequent,
                     "sortable": sorted(settings.sortable_attributes), "embedders": sorted(settings.embedders)}
            if description := settings.resolved["chat"]["description"]:
                shown["description"] = description
            example = next(_rendered(reader, list(islice(visible, 1)), None), None)
            if example is not None:
                shown["example"] = {name: passages.shortened(value, _VALUE_CHARACTERS) for name, value in example.items()}
            return shown

    @contextmanager
    def _reading(self, index_uid: str) -> Iterator[tuple[Reader, DocIds]]:
        """(reader of an index, the documents that the bearer may see)"""
        ctx = self._ctx
        with index_snapshot(ctx, [index_uid]), ctx.read(index_uid) as reader:
            visible = visible_docids(ctx, index_uid, reader, "invalid_search_filter", is_rewritten=True)
            yield reader, reader.all_docids() if visible is None else visible

    # Documents

    def _search(self, given: dict[str, Any]) -> dict[str, Any]:
        index_uid = self._index(given)
        words = min(max(given["characters"] // given["limit"] // _WORD, _FEWEST_WORDS), _MOST_WORDS)
        with self._ctx.read(index_uid) as reader:
            primary_key, parameters = reader.primary_key, _search_parameters(reader, given["question"])
        body = {**parameters, "q": given["question"], **_members(given, "filter", "sort", "facets", "limit", "offset"),
                "attributesToRetrieve": [primary_key] if primary_key else [], "cropLength": words, "showRankingScore": True,
                "attributesToCrop": given.get("fields", [WILDCARD])}
        answer = self._ask(_SEARCH, index_uid, body)
        found = _passages(index_uid, primary_key, answer, given)
        if "facetDistribution" in answer:
            found["facets"] = answer["facetDistribution"]
        following = given["offset"] + len(found["passages"])
        if following < found["total"]:
            found["more"] = f"Call again with offset {following}, or narrow the search by a filter."
        return found

    def _similar(self, given: dict[str, Any]) -> dict[str, Any]:
        index_uid = self._index(given)
        with self._ctx.read(index_uid) as reader:
            primary_key, embedders = reader.primary_key, sorted(reader.settings.embedders)
        if "embedder" not in given and len(embedders) != 1:
            raise Refused(f"Name an `embedder`: {', '.join(embedders)}." if embedders else
                          f"The index {quoted_name(index_uid)} has no embedders; use search.")
        body = {"embedder": given.get("embedder") or embedders[0], **_members(given, "id", "filter", "limit"),
                "showRankingScore": True}
        if "fields" in given:
            body["attributesToRetrieve"] = [*given["fields"], *([primary_key] if primary_key else [])]
        return _passages(index_uid, primary_key, self._ask(_SIMILAR, index_uid, body), given)

    def _facet_values(self, given: dict[str, Any]) -> dict[str, Any]:
        index_uid = self._index(given)
        field, body = given["field"], {"q": given["question"], "matchingStrategy": "bm25", **_members(given, "filter")}
        if "beginning" in given:
            body |= {"facetName": field, "facetQuery": given["beginning"]}
            found = self._ask(_FACET_SEARCH, index_uid, body)["facetHits"]
        else:  # a facet search finds texts alone
            counts = self._ask(_SEARCH, index_uid, {**body, "facets": [field], "limit": 0})["facetDistribution"].get(field, {})
            found = [{"value": value, "count": counts[value]} for value in sorted(counts, key=lambda value: -counts[value])]
        return {"index": index_uid, "field": field, "values": found[:given["limit"]]}

    def _get_documents(self, given: dict[str, Any]) -> dict[str, Any]:
        index_uid, start = self._index(given), given["start"]
        ids = list(dict.fromkeys(given["ids"]))
        with self._ctx.services.searches.slot(), self._reading(index_uid) as (reader, visible):
            docids = {each: docid for each, docid in reader.identified_docids(ids).items() if docid in visible}
            found = [each for each in ids if each in docids]
            shown = ({"id": each, "uri": passages.uri_of(index_uid, each),
                      "document": {name: value[start:] if isinstance(value, str) and len(value) > start else value
                                   for name, value in document.items()}}
                     for each, document in zip(found, _rendered(reader, [docids[each] for each in found], given.get("fields"))))
            kept = passages.within(shown, given["characters"], "document")
        omitted = found[len(kept):]
        return {"index": index_uid, "documents": kept, "missing": [each for each in ids if each not in docids],
                **({"omitted": omitted} if omitted else {})}

    def _add_documents(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._written(_MERGE if given["merge"] else _ADD, self._index(given), given["documents"])

    def _delete_documents(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._written(_DELETE, self._index(given), given["ids"])

    def _written(self, route: Route, index_uid: str, body: Any) -> dict[str, Any]:
        """Enqueue a write and wait some seconds for its task."""
        task = self._ask(route, index_uid, body, _WAIT_S)
        return {"index": index_uid, "taskUid": task.get("uid", task.get("taskUid")), "status": task["status"],
                **({"error": task["error"]["message"]} if task.get("error") else {})}

    def _ask(self, route: Route, index_uid: str, body: Any, wait_s: float = 0.0) -> Any:
        """The answer of a route to the bearer, as JSON. wait_s: for the task of a write. Raises the errors of the route."""
        ctx = self._ctx
        permission = ctx.permission
        for action in route.actions:
            permission = ctx.services.keys.check(action, index_uid, self._authorization)
        content = dumps(body).encode()
        headers = {"content-type": "application/json", **({"authorization": self._authorization} if self._authorization else {})}
        request = Request("POST", "", "", Headers(headers), Body(_JsonBody(content)), ctx.request.client)
        declared = route.body
        decoded = decode_value(body, declared.check, code=declared.code) if isinstance(declared, Fields) else None
        answer = route.run(replace(ctx, request=request, permission=permission, path={"index_uid": index_uid}, body=decoded,
                                   query=decode_query("", route.query), snapshot=None))
        if wait_s:
            answer = wait_for_task(ctx, answer, wait_s)
        if not isinstance(answer.value, Text):
            return answer.value
        text = answer.value.body
        if isinstance(text, (str, bytes)):
            return loads(text)
        with closing(text):  # type: ignore[type-var]  # the bodies of these routes are Portions
            return loads(b"".join(text))


def _failure(message: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _members(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _search_parameters(reader: Reader, question: str) -> dict[str, Any]:
    """The parameters of searches that the call does not give: those for chats in the settings of the index, else the ones for
    questions (docs/guide/relevance.md)."""
    settings = reader.settings
    given = {name: value for name, value in settings.resolved["chat"]["searchParameters"].items() if value is not None}
    parameters = {"matchingStrategy": "bm25", **given}
    able = [name for name, embedder in settings.embedders.items() if embedder["source"] != _USER_PROVIDED]
    if not question.strip():  # without words there is no meaning to search for
        parameters.pop("hybrid", None)
    elif "hybrid" not in given and len(able) == 1:
        parameters["hybrid"] = {"embedder": able[0], "semanticRatio": 0.5, "fusion": "score"}
    return parameters


def _passages(index_uid: str, primary_key: str | None, answer: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    shown = (passages.passage(hit, index_uid, primary_key) for hit in answer["hits"])
    return {"index": index_uid, "total": answer["estimatedTotalHits"], "passages": passages.within(shown, given["characters"])}


def _rendered(reader: Reader, docids: Sequence[int], fields: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Documents as hits show them: the displayed attributes, of these fields."""
    query = SearchQuery(attributes_to_retrieve=fields)
    return map(loads, render_similar(reader, query, Ranking(EMPTY, [Hit(docid, ()) for docid in docids])))
