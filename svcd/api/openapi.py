"""Makes the OpenAPI document 3.1 from the tables of routes, fields, shapes and permissions; `GET /openapi.json` serves it."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from svcd import INTERFACE_VERSION
from svcd.api.context import Context
from svcd.api.routes import JSON, HandlerResult, Route, Stream, Text
from svcd.api.shapes import SCHEMAS, Json, ref
from svcd.api.tasks import WRITE_PARAMS, is_write
from svcd.auth.keys import names_that_open
from svcd.base.errors import ERRORS
from svcd.base.json_text import dumps

VERSION = "3.1.0"
_SECURITY_SCHEME = "Bearer"
_MEANINGS = {
    200: "Success.", 201: "Created.", 202: "Task enqueued.", 204: "Done.", 304: "The client has this answer.",
    400: "The request is wrong.", 401: "No usable Authorization header.", 403: "The key does not allow it.",
    404: "Not found.", 410: "Gone: read all documents, then follow.",
    415: "The content type is missing or not supported.",
}
_CONDITION = {"If-None-Match": "`ETag` headers of earlier answers: if one is still the answer, status 304 without a body."}
_BEARER = ("The master key, the value of an API key or, to search, a tenant token signed with one (JWT). The master key "
           "permits everything. A key needs one of the actions that an operation lists; if it lists none, only the "
           "master key will do.")
_PATH_PARAMETERS: Mapping[str, Json] = {  # name: schema; others are texts
    "task_id": {"type": "integer", "minimum": 0},
    "batch_id": {"type": "integer", "minimum": 0},
}


def _content(media_type: str, schema: Json) -> Json:
    return {media_type: {"schema": schema}}


def _responses(route: Route) -> Json:
    responses: Json = {}
    answers = dict(route.answers)
    if is_write(route):  # a waiting request gets the finished task
        summary = [ref("TaskSummary")] if route.answers.get(200) == "TaskSummary" else []
        answers[200] = {"oneOf": [*summary, ref("Task"), ref("DryRun")]}
    for status, shape in answers.items():
        response: Json = {"description": _MEANINGS[status]}
        if status != 204:
            media_type = route.answer_type if status < 400 else JSON
            response["content"] = _content(media_type, ref(shape) if isinstance(shape, str) else dict(shape))
        responses[str(status)] = response
    if route.etag:
        responses["304"] = {"description": _MEANINGS[304]}
    # The errors of the checks before the handler.
    statuses = [400] if route.query or route.body or route.feature or route.parameters else []
    statuses += [401, 403] if route.actions else []
    statuses += [404] if route.parameters else []
    for status in statuses + ([415] if route.body else []):
        responses[str(status)] = {"description": _MEANINGS[status], "content": _content(JSON, ref("Error"))}
    return responses


def operation_id(route: Route) -> str:
    """A name that no other route has, made from method and path: `get_indexes_index_uid_stats`."""
    words = re.findall(r"[A-Za-z0-9]+", route.path)
    return "_".join([route.method.lower(), *words]).lower()


def _operation(route: Route) -> Json:
    operation: Json = {"operationId": operation_id(route), "summary": route.summary, "tags": [route.tag]}
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": dict(_PATH_PARAMETERS.get(name, {"type": "string"}))}
        for name in route.parameters]
    parameters += [param.describe(name) for name, param in route.query.items()]
    parameters += [param.describe(name) for name, param in WRITE_PARAMS.items()] if is_write(route) else []
    parameters += [{"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": about}
                   for name, about in {**route.headers, **(_CONDITION if route.etag else {})}.items()]
    if parameters:
        operation["parameters"] = parameters
    if isinstance(route.body, Stream):
        contents: Json = {}
        for media_type in route.body.content_types:
            contents |= _content(media_type, {} if media_type == JSON else {"type": "string"})
        operation["requestBody"] = {"required": True, "content": contents}
    elif route.body:
        operation["requestBody"] = {"required": True, "content": _content(JSON, route.body.check.describe())}
    operation["responses"] = _responses(route)
    # A key needs one of these names. If the route has several actions, a shared name opens all of them.
    named = [names_that_open(action) for action in route.actions]
    shared = (name for names in named for name in names if all(name in others for others in named))
    permissions = list(dict.fromkeys([*(names[0] for names in named if names), *shared]))
    operation["security"] = [{_SECURITY_SCHEME: permissions}] if route.actions else []
    conditions = [f"Needs the experimental feature `{route.feature[0]}`."] if route.feature else []
    if len(route.actions) > 1:
        actions = ", ".join(f"`{action}`" for action in route.actions)
        conditions.append(f"Needs all of {actions}, or a wildcard that covers them.")
    if conditions:
        operation["description"] = " ".join(conditions)
    return operation


def document(routes: Sequence[Route]) -> Json:
    """The whole document, with exactly these routes."""
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    code = {"code": {"type": "string", "enum": sorted(ERRORS)}}
    schemas = {**SCHEMAS, "Error": {**SCHEMAS["Error"], "properties": SCHEMAS["Error"]["properties"] | code}}
    bearer = {"type": "http", "scheme": "bearer", "description": _BEARER}
    return {
        "openapi": VERSION,
        "info": {"title": "svcd", "version": INTERFACE_VERSION, "description": "A search engine over JSON documents.",
                 "license": {"name": "MIT", "identifier": "MIT"}},
        "tags": [{"name": tag} for tag in dict.fromkeys(route.tag for route in routes)],
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {_SECURITY_SCHEME: bearer}},
    }


def route_of(routes: Sequence[Route]) -> Route:
    """The route that serves the document of the other routes and itself."""
    ready: list[str] = []

    def describe(_ctx: Context) -> HandlerResult:
        if not ready:
            ready.append(dumps(document((*routes, route))))
        return HandlerResult(200, Text(ready[0]))

    route = Route("GET", "/openapi.json", describe, "version", {200: {"type": "object"}},
                  "Get this description of the interface", "Version")
    return route
