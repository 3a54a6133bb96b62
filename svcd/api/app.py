"""Answers one request: match the route, check the key, decode, call the handler, encode.

The order of the checks is fixed, since clients depend on which of several errors they get: docs/http.md#order-of-checks.
This is the only place where an ApiError becomes an answer (docs/http.md#errors).
"""
from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svcd.api import (
    cluster,
    chats,
    documents,
    event_streams,
    export,
    facet_search,
    indexes,
    instance,
    keys,
    metrics,
    multi_search,
    network,
    openapi,
    page,
    render,
    search,
    search_rules,
    settings,
    similar,
    tasks,
    waiting,
    webhooks,
)
from svcd.api.admission import OneByOne, SearchCache, SearchQueue
from svcd.api.bodies import json_value, read_body
from svcd.api.chat_state import Chats
from svcd.api.query_embedding import QueryEmbedding, no_services
from svcd.api.routes import (
    JSON,
    Context,
    Fields,
    HandlerResult,
    Match,
    Report,
    Route,
    Stream,
    Table,
    Text,
    Traffic,
    UsageCounter,
    Value,
    global_client,
)
from svcd.api.streaming import ConcurrencyLimit
from svcd.auth.keys import ALL_PERMITTED, Keys, Permission
from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.http.message import BodyMemory, HttpError, Request, Response, media_type
from svcd.index.disk_space import disk_full_error, is_disk_failure, lacks_room
from svcd.validation import checked_index_uid, decode_body, decode_query, decode_value, features

if TYPE_CHECKING:
    from svcd.api.active_rules import ActiveRules
    from svcd.api.cluster import ClusterView
    from svcd.api.personalization import Personalization
    from svcd.embedding import Embedders
    from svcd.instance.instance import Instance
    from svcd.remote.client import Client
    from svcd.remote.reranking import Reranker

_DECLARED = (
    *page.ROUTES, *instance.ROUTES, *indexes.ROUTES, *documents.ROUTES, *search.ROUTES, *multi_search.ROUTES,
    *facet_search.ROUTES, *similar.ROUTES, *settings.ROUTES, *tasks.ROUTES, *event_streams.ROUTES,
    *event_streams.LOG_ROUTES, *metrics.ROUTES, *network.ROUTES, *chats.ROUTES,
    *keys.ROUTES, *webhooks.ROUTES, *tasks.ARCHIVE_ROUTES, *export.ROUTES, *render.ROUTES, *search_rules.ROUTES, *cluster.ROUTES,
)
ROUTES: tuple[Route, ...] = (*_DECLARED, openapi.route_of(_DECLARED))

_PATH_CHECKS: Mapping[str, Callable[[str], Any]] = {  # path parameter: its check; others are texts
    "index_uid": checked_index_uid,
    "task_id": lambda text: tasks.path_uid(text, "Task", "invalid_task_uids"),
    "batch_id": lambda text: tasks.path_uid(text, "Batch", "invalid_batch_uids"),
    "uuid": webhooks.path_uuid,
    "uid": checked_index_uid,
}
# Requests without a route are counted under these names: clients must not be able to add labels to the metrics.
_OTHER_METHOD, _OTHER_PATH = "OTHER", "other"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"))
_FILTERED_TOKEN = ("The provided tenant token is invalid. Its rules have a filter, which this version of svcd can't "
                   "join to what is asked for here.")
# Bytes of a body above which one is decoded at a time: each MB takes 5 to 10 ms, in which no other thread runs.
LARGE_BODY = 1 << 18
# Bytes of the answers of all multi-searches of a process together.
ANSWER_MEMORY = 2 * multi_search.MAX_ANSWER
# Characters of a message that are sent: many messages repeat what was received, which may be long.
_MAX_MESSAGE = 100_000
_SYSTEM_ERRORS = {  # errno: code
    errno.EMFILE: "too_many_open_files",
    errno.ENFILE: "too_many_open_files",
}


class App:
    """The HTTP interface of one instance; the HTTP server calls `answer`."""

    def __init__(self, instance: Instance, runner: Any, keys: Keys, searches: SearchQueue,
                 traffic: Traffic | None = None, reports: Callable[[], Sequence[Report]] = tuple,
                 broadcast: Callable[[Mapping[str, Any]], None] = lambda command: None,
                 streams: int = 1, waiting_writes: int = 1, large: int = 1, usage: UsageCounter | None = None,
                 make_embedders: Callable[[], Embedders] = no_services, make_client: Callable[[], Client] = global_client,
                 make_reranker: Callable[[], Reranker] | None = None, shows_page: bool = False,
                 node: ClusterView | None = None, renames_by_patch: bool = False) -> None:
        """traffic: where requests are counted; reports: fetches the counters of the other processes of the instance.
        broadcast: sends them a command (svcd.cli.search_worker).

        streams, waiting_writes, large: how many there may be at once. usage: where they are counted for a usage report.
        make_embedders: called when the first query is embedded. make_client: called with the first call to another host.
        make_reranker: when the first search is personalized; None if searches are not. shows_page: do browsers get the page at
        `/`? node: what tells of the cluster, in the main process of a node. renames_by_patch: does `PATCH
        /indexes/{index_uid}` take a new uid?
        """
        self._instance = instance
        self._runner = runner
        self._keys = keys
        self._searches = searches
        self._table = Table(indexes.with_renaming(ROUTES) if renames_by_patch else ROUTES)
        self._traffic = traffic or Traffic()
        self._reports = reports
        self._broadcast = broadcast
        self._streams = ConcurrencyLimit(streams)
        self._large_answers = ConcurrencyLimit(large, "large answers")
        self._large_bodies = OneByOne(searches)
        self._answer_memory = BodyMemory(ANSWER_MEMORY, "large answers")
        self._waiting_writes = ConcurrencyLimit(waiting_writes, "requests that wait for a task")
        self.usage = usage
        self.search_cache = SearchCache(lambda: instance.answer_limit)
        self._embedding = QueryEmbedding(searches, make_embedders)
        self._client = lru_cache(make_client)
        self._active_rules: ActiveRules | None = None
        self._chats = Chats()
        self._personalization = None if make_reranker is None else _personalization(searches, make_reranker)
        self._shows_page = shows_page
        self._node = node
        self._is_damage_logged = False

    @property
    def searches(self) -> SearchQueue:
        """The queue of searches of this process."""
        return self._searches

    def active_rules(self) -> ActiveRules:
        """The search rules of the instance."""
        if self._active_rules is None:
            from svcd.api.active_rules import ActiveRules  # imported late: most instances have no search rules

            self._active_rules = ActiveRules(self._instance)
        return self._active_rules

    def share(self, processes: int) -> None:
        """Keep to an equal part of what so many processes may do and hold together: searches, and what readers cache."""
        self._searches.share(processes)
        self._instance.share_cache(processes)

    def answer(self, request: Request) -> Response:
        """The response to a request; never raises."""
        started = time.perf_counter()
        matched = self._table.match(request.method, request.segments)
        method, path = self._names(request, matched)
        # All requests are counted; only those that begin while the feature is on are timed.
        timing = self._traffic.timing(method, path) if self._instance.is_enabled("metrics") else None
        response = self._answer(request, matched)
        self._traffic.count(method, path, response.status)
        if timing is not None:
            self._traffic.note(timing, time.perf_counter() - started)
        if self.usage is not None:
            self.usage.answered(request, response.status, time.perf_counter() - started)
        return response

    def _names(self, request: Request, matched: Match | None) -> tuple[str, str]:
        """The method and the path under which a request is counted."""
        path = matched[0].path if matched else self._table.pattern(request.segments) or _OTHER_PATH
        return request.verb if request.verb in _METHODS else _OTHER_METHOD, path

    def _answer(self, request: Request, matched: Match | None) -> Response:
        try:
            return self._respond(request, matched)
        except ApiError as error:
            return error_answer(error)
        except Exception as error:  # a bug or a broken machine: the traceback goes to the log only
            known = _system_error(error, self._instance.path)
            if known.code == "internal" and (fault := self._instance.instance_fault(error)) is not None:
                known = self._instance_error(fault)
            if known.code == "internal":
                logs.failure("request failed", error, method=request.method, path=_shown_path(request))
            return error_answer(known)

    def _instance_error(self, fault: str) -> ApiError:
        from svcd.index.damage import instance_error  # few instances ever need it

        if not self._is_damage_logged:
            self._is_damage_logged = True
            logs.error("instance.sqlite is damaged", fault=fault)
        return instance_error(fault)

    def _respond(self, request: Request, matched: Match | None) -> Response:
        if matched is None:
            return self._no_route(request)
        route, raw_path = matched

        def check_permission() -> Permission:
            return self._permission(route, raw_path.get("index_uid"), request)

        permission = check_permission()
        query, wait_s = waiting.extract_wait(route, request.query) if request.query else ("", 0.0)
        ctx = Context(
            instance=self._instance, runner=self._runner, searches=self._searches, request=request,
            permission=permission, query=_query(route, query), body=self._body(route, request), traffic=self._traffic,
            reports=self._reports, keys=self._keys, broadcast=self._broadcast, streams=self._streams,
            recheck_permission=check_permission,
            search_cache=self.search_cache, large_answers=self._large_answers,
            answer_memory=self._answer_memory, embedding=self._embedding,
            client=self._client, active_rules=self.active_rules, chats=self._chats, usage=self.usage,
            personalization=self._personalization,
            shows_page=self._shows_page, cluster=self._node,
        )
        if route.feature:
            features.require(self._instance.features(), *route.feature)
        ctx.path = {name: _PATH_CHECKS.get(name, str)(text) for name, text in raw_path.items()}
        if self.usage is not None:
            self.usage.note(route, ctx)
        if cluster.AFTER_TASK in request.headers:
            cluster.wait_for_task(self._instance, request, self._waiting_writes)
        answer = route.run(ctx)
        return _encoded(waiting.wait_for_task(ctx, answer, wait_s, self._waiting_writes) if wait_s else answer)

    def _body(self, route: Route, request: Request) -> Any:
        """The decoded body of a request."""
        declared = route.body
        if declared is None:
            _refuse_unnamed_body(request)
            return None
        if isinstance(declared, Stream):
            return None
        _check_json(request.headers.get("content-type"))
        content = read_body(request)
        if len(content) <= LARGE_BODY:
            return _decoded(declared, content)
        with self._large_bodies.turn():
            return _decoded(declared, content)

    def _permission(self, route: Route, index_uid: str | None, request: Request) -> Permission:
        permission = ALL_PERMITTED
        for action in route.actions:  # each of them must be open to the same key
            permission = self._keys.check(action, index_uid, request.headers.get("authorization"))
        if permission.has_filters and not route.joins_rules:
            raise ApiError("invalid_api_key", _FILTERED_TOKEN)
        return permission

    def _no_route(self, request: Request) -> Response:
        """404 for an unknown path, 405 for an unknown method.

        A client that sends no Accept header gets no body (docs/http.md#order-of-checks).
        """
        methods = self._table.methods(request.segments)
        headers = (("Allow", ", ".join(methods)),) if methods else ()
        status = 405 if methods else 404
        if request.headers.get("accept") is None:
            return Response(status, headers=headers)
        path = _shown_path(request)
        if methods:
            reason = f"The method {request.verb} is not allowed on `{path}`: expected one of {', '.join(methods)}"
        else:
            reason = f"There is no route `{path}`. `GET /openapi.json` describes all of them."
        return error_answer(HttpError(status, reason, headers))


def _personalization(searches: SearchQueue, make_reranker: Callable[[], Reranker]) -> Personalization:
    from svcd.api.personalization import Personalization  # loaded only where searches are personalized

    return Personalization(searches, make_reranker)


def _shown_path(request: Request) -> str:
    """The decoded path, without the value of an API key that it may contain, for logs and messages."""
    return logs.without_key("/" + "/".join(request.segments))


def error_answer(error: ApiError) -> Response:
    """The answer that an error becomes."""
    shown = error.as_json()
    if len(error.message) > _MAX_MESSAGE:
        shown["message"] = f"{error.message[:_MAX_MESSAGE]}…"
    return Response(error.status, dumps(shown).encode(), headers=error.headers)


def _system_error(error: Exception, folder: Path) -> ApiError:
    """The error that a client gets for an unexpected exception: of the disk or the descriptors if known, else `internal`.

    folder: the data folder.
    """
    if lacks_room(error, folder):
        return disk_full_error()
    if is_disk_failure(error):
        return ApiError("io_error", f"The disk of the data folder failed: {error}.")
    code = _SYSTEM_ERRORS.get(error.errno or 0) if isinstance(error, OSError) else None
    return ApiError(code, str(error)) if code else ApiError("internal", f"Internal error: {type(error).__name__}")


def _query(route: Route, query: str) -> Mapping[str, Any]:
    """The decoded query string. A route without parameters ignores it, as clients expect."""
    return decode_query(query, route.query) if route.query else {}


def _decoded(declared: Fields | Value, content: bytes) -> Any:
    """A JSON body as its route declares it."""
    value = json_value(content, declared.most_values)
    if isinstance(declared, Value):
        return decode_value(value, declared.check, code=declared.code)
    return decode_body(value, declared.fields, code=declared.code, immutable=declared.immutable,
                       is_open=declared.is_open)


def _refuse_unnamed_body(request: Request) -> None:
    """Raise missing_content_type for a body without a type, on a route that ignores bodies.

    A filter that was sent to `DELETE .../documents` by mistake would be ignored, and all documents be deleted.
    """
    headers = request.headers
    if headers.get("content-type") is None and (
            int(headers.get("content-length") or 0) > 0
            or headers.get("transfer-encoding") is not None and any(request.body.chunks())):  # an empty one may be chunked
        _check_json(None)


def _check_json(content_type: str | None) -> None:
    accepted = f"Accepted values for the Content-Type header are: `{JSON}`"
    if content_type is None:
        raise ApiError("missing_content_type", f"A Content-Type header is missing. {accepted}")
    subtype = media_type(content_type).partition("/")[2]
    if subtype != "json" and not subtype.endswith("+json"):
        raise ApiError("invalid_content_type", f"The Content-Type `{content_type}` is invalid. {accepted}")


def _encoded(answer: HandlerResult) -> Response:
    value = answer.value
    if isinstance(value, Text):
        body = value.body.encode() if isinstance(value.body, str) else value.body
        return Response(answer.status, body, value.content_type, answer.headers)
    if value is None and answer.status == 204:
        return Response(204, headers=answer.headers)
    return Response(answer.status, dumps(value).encode(), headers=answer.headers)
