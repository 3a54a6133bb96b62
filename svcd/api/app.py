"""Answers one request: match the route, check the key, decode, call the handler, encode.

The order of the checks is fixed, since clients depend on which of several errors they get: docs/http.md#order-of-checks.
This is the only place where an ApiError becomes an answer (docs/http.md#errors).
"""
from __future__ import annotations

import errno
import time
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from svcd.api import cluster, facet_search, multi_search, search, similar
from svcd.api.admission import OneByOne
from svcd.api.bodies import check_json, json_value, read_body
from svcd.api.context import Context
from svcd.api.routes import JSON, OF_BODY, Route, Stream, Table, Text
from svcd.auth.keys import ALL_PERMITTED, Permission
from svcd.base import logs
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.http.message import HttpError, Request, Response
from svcd.index.disk_space import disk_full_error, is_disk_failure, lacks_room
from svcd.validation import checked_index_uid, decode_query, decode_value
from svcd.validation.names import require_feature

if TYPE_CHECKING:
    from svcd.api.context import Services

# Loaded first: the first search after a start must not wait for the other routes, which search workers never load.
_SEARCHES = Table((*search.ROUTES, *multi_search.ROUTES, *facet_search.ROUTES, *similar.ROUTES))
_INDEX_PARAMETERS = ("index_uid", "uid")

# Requests without a route are counted under these names: clients must not be able to add labels to the metrics.
_OTHER_METHOD, _OTHER_PATH = "OTHER", "other"
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"))
_FILTERED_TOKEN = ("The provided tenant token is invalid. Its rules have a filter, which this version of svcd can't "
                   "join to what is asked for here.")
# Bytes of a body above which one is decoded at a time: each MB takes 5 to 10 ms, in which no other thread runs.
LARGE_BODY = 1 << 18
# Bodies without content; the Python client sends the first with each DELETE, without a type.
_EMPTY_BODIES = (b"null", b'""', b"")
# Longer error messages are cut: many messages repeat a part of the request, which may be long.
_MAX_MESSAGE = 100_000


def _path_value(name: str, text: str) -> Any:
    """Return the value of a path parameter. Raises the error of its check."""
    if name in _INDEX_PARAMETERS:
        return checked_index_uid(text)
    from svcd.api import all_routes  # loaded before: no route of a search has another parameter

    return all_routes.PATH_CHECKS.get(name, str)(text)


class App:
    """The HTTP interface of one instance; the HTTP server calls `answer`."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._data_folder = services.data_folder
        self._large_bodies = OneByOne(services.searches)
        self._is_damage_logged = False

    @cached_property
    def _table(self) -> Table:
        """All routes."""
        from svcd.api import all_routes

        return all_routes.table(self.services.renames_by_patch)

    def share(self, processes: int) -> None:
        """Use an equal part of the searches and cached bytes that `processes` processes may have together."""
        self.services.searches.share(processes)
        self._data_folder.share_cache(processes)

    def answer(self, request: Request) -> Response:
        """The response to a request; never raises."""
        started = time.perf_counter()
        matched = _SEARCHES.match(request.method, request.segments) or self._table.match(request.method, request.segments)
        path = matched[0].path if matched else self._table.pattern(request.segments) or _OTHER_PATH
        method = request.verb if request.verb in _METHODS else _OTHER_METHOD
        # Every request is counted. A request is timed if the feature is on when it begins.
        traffic = self.services.traffic
        timing = traffic.timing(method, path) if self._data_folder.is_enabled("metrics") else None
        try:
            response = self._respond(request, *matched) if matched else self._no_route(request)
        except ApiError as error:
            response = error_answer(error)
        except Exception as error:  # a bug or a broken machine
            response = error_answer(self._unexpected(request, error))
        traffic.count(method, path, response.status)
        if timing is not None:
            traffic.note(timing, time.perf_counter() - started)
        if self.services.usage is not None:
            self.services.usage.answered(request, response.status, time.perf_counter() - started)
        return response

    def _unexpected(self, request: Request, error: Exception) -> ApiError:
        """The error for an unexpected exception: of the disk, the descriptors or a damaged file if known, otherwise `internal`.

        Logs the traceback of an internal error.
        """
        if lacks_room(error, self._data_folder.path):
            return disk_full_error()
        if is_disk_failure(error):
            return ApiError("io_error", f"The disk of the data folder failed: {error}.")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return ApiError("too_many_open_files", str(error))
        known = ApiError("internal", f"Internal error: {type(error).__name__}")
        if (fault := self._data_folder.instance_fault(error)) is not None:
            from svcd.index.damage import instance_error  # few instances ever need it

            if not self._is_damage_logged:
                self._is_damage_logged = True
                logs.error("instance.sqlite is damaged", fault=fault)
            known = instance_error(fault)
        if known.code == "internal":
            logs.failure("request failed", error, method=request.method, path=_shown_path(request))
        return known

    def _respond(self, request: Request, route: Route, raw_path: Mapping[str, str]) -> Response:
        services = self.services

        def check_permission() -> Permission:
            permission = ALL_PERMITTED
            for action in route.actions:  # one key must have all of them
                permission = services.keys.check(action, raw_path.get("index_uid"), request.headers.get("authorization"))
            if permission.has_filters and not route.joins_rules:
                raise ApiError("invalid_api_key", _FILTERED_TOKEN)
            return permission

        permission = check_permission()
        text, wait_s, is_dry_run = "", 0.0, False
        if request.query:
            from svcd.api import tasks  # not loaded for a first search, see _SEARCHES

            text, wait_s, is_dry_run = tasks.extract_write_params(route, request.query)
        query = decode_query(text, route.query) if route.query else {}  # without parameters it is ignored: clients expect that
        ctx = Context(services, request, permission, check_permission, query=query, body=self._body(route, request),
                      is_dry_run=is_dry_run)
        if route.feature:
            require_feature(self._data_folder.features(), *route.feature)
        ctx.path = {name: _path_value(name, text) for name, text in raw_path.items()}
        if services.usage is not None:
            services.usage.note((route.method, route.path), ctx)
        if cluster.AFTER_TASK in request.headers:
            cluster.wait_for_task(ctx)
        answer = route.run(ctx)
        if wait_s and not is_dry_run:
            answer = tasks.wait_for_task(ctx, answer, wait_s)
        value, content_type = answer.value, JSON
        if isinstance(value, Text):
            body = value.body.encode() if isinstance(value.body, str) else value.body
            content_type = value.content_type
        else:
            body = b"" if value is None and answer.status == 204 else dumps(value).encode()
        headers = ctx.tagged(ctx.etag(body)) if route.etag == OF_BODY else answer.headers
        return Response(answer.status, body, content_type, headers)

    def _body(self, route: Route, request: Request) -> Any:
        """The decoded body of a request. Raises missing_content_type, invalid_content_type, and the errors of the declaration."""
        declared, headers = route.body, request.headers
        if declared is None:
            # A filter that was sent to `DELETE .../documents` by mistake, without a type, would delete all documents.
            if headers.get("content-type") is None and (
                    int(headers.get("content-length") or 0) > 0 or headers.get("transfer-encoding") is not None):
                if next(request.body.chunks(), b"").strip() not in _EMPTY_BODIES:
                    check_json(None)
            return None
        if isinstance(declared, Stream):
            return None
        check_json(headers.get("content-type"))
        content = read_body(request)
        if len(content) <= LARGE_BODY:
            return decode_value(json_value(content, declared.most_values), declared.check, code=declared.code)
        with self._large_bodies.turn():
            return decode_value(json_value(content, declared.most_values), declared.check, code=declared.code)

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


def _shown_path(request: Request) -> str:
    """The decoded path, without the value of an API key that it may contain, for logs and messages."""
    return logs.without_key("/" + "/".join(request.segments))


def error_answer(error: ApiError) -> Response:
    """The response to a request that failed, or whose answer the client has (status 304)."""
    if error.status == 304:
        return Response(304, headers=error.headers)
    shown = error.as_json()
    if len(error.message) > _MAX_MESSAGE:
        shown["message"] = f"{error.message[:_MAX_MESSAGE]}…"
    return Response(error.status, dumps(shown).encode(), headers=error.headers)
