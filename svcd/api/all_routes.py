"""All routes of the interface, and the checks of their path parameters.

svcd.api.app imports this module with the first request other than a search.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from svcd.api import (
    changes, chats, cluster, documents, event_streams, explain, facet_search, indexes, instance, keys, mcp, metrics,
    multi_search, network, openapi, query_log, render, search, search_rules, similar, tasks, webhooks,
)
from svcd.api.routes import Route, Table

_DECLARED = (
    *instance.ROUTES, *indexes.ROUTES, *documents.ROUTES, *search.ROUTES, *multi_search.ROUTES, *facet_search.ROUTES,
    *similar.ROUTES, *indexes.SETTINGS_ROUTES, *tasks.ROUTES, *event_streams.ROUTES, *event_streams.LOG_ROUTES, *metrics.ROUTES,
    *network.ROUTES, *chats.ROUTES, *keys.ROUTES, *webhooks.ROUTES, *tasks.ARCHIVE_ROUTES, *render.ROUTES, *search_rules.ROUTES,
    *cluster.ROUTES, *explain.ROUTES, *query_log.ROUTES, *mcp.ROUTES, *changes.ROUTES,
)
ROUTES: tuple[Route, ...] = (*_DECLARED, openapi.route_of(_DECLARED))

# Path parameter: its check. svcd.api.app checks the uids of indexes; others are texts.
PATH_CHECKS: Mapping[str, Callable[[str], Any]] = {
    "task_id": lambda text: tasks.path_uid(text, "Task", "invalid_task_uids"),
    "batch_id": lambda text: tasks.path_uid(text, "Batch", "invalid_batch_uids"),
    "uuid": webhooks.path_uuid,
}


def table(renames_by_patch: bool = False) -> Table:
    """All routes, ready for matching. renames_by_patch: an option."""
    return Table(indexes.with_renaming(ROUTES) if renames_by_patch else ROUTES)
