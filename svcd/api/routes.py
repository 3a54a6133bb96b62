"""Routes: their declarations (Route), the results of their handlers (HandlerResult), and the tree of paths that matches requests
(Table).

Most modules of this package export `ROUTES`, a tuple of Route; svcd.api.app joins them. Matching, permission, decoding
and the OpenAPI document all follow from these declarations.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.api.bodies import MAX_VALUES
from svcd.http.message import Portions
from svcd.validation import Check, Field, Param, object_of

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.http.message import Request

JSON = "application/json"
NDJSON = "application/x-ndjson"
OF_STATE, OF_BODY = "state", "body"


class Text(NamedTuple):
    """A body that is encoded already: JSON text, bytes, portions, or an iterator of bytes that may block."""

    body: str | bytes | Portions | Iterator[bytes]
    content_type: str = JSON


class HandlerResult(NamedTuple):
    """The result of a handler. value: any JSON value, or a Text; None with status 204 is an empty body."""

    status: int
    value: Any = None
    headers: tuple[tuple[str, str], ...] = ()


# Declarations of routes

Schema = str | Mapping[str, Any]  # the name of a component of shapes.SCHEMAS, or a JSON schema
_NAME = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object whose members are declared.

    immutable: {member: code} of members that exist but can't be changed. is_open: other members are ignored. most_values: how
    many JSON values it may have, at all levels. check: made from these.
    """

    fields: Mapping[str, Field]
    code: str = "bad_request"
    immutable: Mapping[str, str] = field(default_factory=dict)
    is_open: bool = False
    most_values: int = MAX_VALUES
    check: Check = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "check", object_of(self.fields, immutable=self.immutable, is_open=self.is_open))


class Value(NamedTuple):
    """A JSON value that one check covers as a whole (a list, or the value of one setting)."""

    check: Any
    code: str = "bad_request"
    most_values: int = MAX_VALUES


class Stream(NamedTuple):
    """A body that the handler reads itself, chunk by chunk; it checks the content type too."""

    content_types: tuple[str, ...] = (JSON,)


Body = Fields | Value | Stream


class Route(NamedTuple):
    """One method on one path.

    path: segments separated by `/`, parameters as `{index_uid}`.
    run: the handler, in the module of its subject.
    action: the permission it needs; several when it needs all of them, None for the public routes.
    answers: {status: shape}; errors are not listed: they all have the same shape.
    joins_rules: it applies the filters of tenant tokens (Permission.search_filter); routes that do not reject tokens
        with filters.
    feature: the experimental feature it needs: (flag, the beginning of the message of feature_not_enabled).
    query: the declared parameters in the order in which messages list them.
    headers: request headers that change its answer -> description.
    etag: OF_STATE if the handler makes its ETag from what decides the answer, OF_BODY for a hash of the answer, None for no ETag.
    """

    method: str
    path: str
    run: Callable[[Context], HandlerResult]
    action: str | tuple[str, ...] | None
    answers: Mapping[int, Schema]
    summary: str
    tag: str
    feature: tuple[str, str] | None = None
    query: Mapping[str, Param] = {}
    body: Body | None = None
    answer_type: str = JSON
    joins_rules: bool = False
    headers: Mapping[str, str] = {}
    etag: str | None = None

    @property
    def actions(self) -> tuple[str, ...]:
        """All permissions it needs; () for the public routes."""
        return (self.action,) if isinstance(self.action, str) else self.action or ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path parameters, in order."""
        return tuple(_NAME.findall(self.path))


# The tree of paths

Match = tuple[Route, dict[str, str]]  # and the raw values of its path parameters


class _Node:
    """One node of the tree of paths: a literal segment is tried before the parameter."""

    __slots__ = ("literal", "parameter", "routes")

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.routes: dict[str, Route] = {}

    def find(self, segments: tuple[str, ...], values: tuple[str, ...] = ()) -> tuple[_Node, tuple[str, ...]] | None:
        """The node of a path with the values of its parameters; None for an unknown path."""
        if not segments:
            return (self, values) if self.routes else None
        head, rest = segments[0], segments[1:]
        child = self.literal.get(head)
        found = child.find(rest, values) if child else None
        if found is None and self.parameter is not None:
            found = self.parameter.find(rest, (*values, head))
        return found


class Table:
    """All routes of the interface, ready for matching."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Raises ValueError when two routes have the same method and path."""
        self.routes = tuple(routes)
        self._root = _Node()
        for route in self.routes:
            node = self._root
            for segment in segments_of(route.path):
                if segment.startswith("{"):
                    node.parameter = node.parameter or _Node()
                    node = node.parameter
                else:
                    node = node.literal.setdefault(segment, _Node())
            if node.routes.setdefault(route.method, route) is not route:
                raise ValueError(f"two routes for {route.method} {route.path}")

    def match(self, method: str, segments: tuple[str, ...]) -> Match | None:
        """The route and the raw values of its path parameters; None when no route fits.

        method: HEAD is GET here. segments: percent-decoded, without empty ones.
        """
        found = self._root.find(segments)
        if found is None:
            return None
        node, values = found
        route = node.routes.get(method)
        return (route, dict(zip(route.parameters, values))) if route else None

    def methods(self, segments: tuple[str, ...]) -> tuple[str, ...]:
        """The methods of a path; () for an unknown path."""
        found = self._root.find(segments)
        return tuple(found[0].routes) if found else ()

    def pattern(self, segments: tuple[str, ...]) -> str | None:
        """The path as its routes declare it; None for an unknown path."""
        found = self._root.find(segments)
        return next(iter(found[0].routes.values())).path if found else None


def segments_of(path: str) -> tuple[str, ...]:
    """`/indexes/{index_uid}` -> ("indexes", "{index_uid}"); "/" -> ()."""
    return tuple(path.strip("/").split("/")) if path.strip("/") else ()


# Requests that any worker process may answer (docs/http.md#worker-processes); checked before routes are matched

_METHODS = frozenset(("GET", "POST"))
_SEARCHES = frozenset(("search", "facet-search", "similar"))
_SEVERAL = ("multi-search",)


def is_for_all(request: Request) -> bool:
    """True for searches of all kinds: they only read, so any process may answer them."""
    if request.method not in _METHODS or "search" not in request.path and "similar" not in request.path:
        return False
    segments = request.segments
    return segments == _SEVERAL or len(segments) == 3 and segments[0] == "indexes" and segments[2] in _SEARCHES
