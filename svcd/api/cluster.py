"""Routes of a cluster (docs/cluster.md): how its nodes are, copies for other nodes, and forgetting a node.

An instance without `--cluster` answers with the error not_in_cluster.
"""
from __future__ import annotations

import time
from typing import TYPE_CHECKING

from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Text
from svcd.api.streaming import StreamBody
from svcd.base.errors import ApiError

if TYPE_CHECKING:
    from svcd.cluster.service import ClusterService

_TAG = "Cluster"
AFTER_TASK = "svc-after-task"
# Seconds that a request waits for the task named in its header, and between two checks.
_MOST_WAIT_S, _LOOK_S = 10.0, 0.003
_RETRY_AFTER_S = 1
_ARCHIVE = "application/gzip"


def status(ctx: Context) -> HandlerResult:
    """The nodes, as this one knows them."""
    return HandlerResult(200, _cluster(ctx).status())


def copy(ctx: Context) -> HandlerResult:
    """A copy of the data folder for another node."""
    node = _cluster(ctx)
    ctx.services.large_answers.acquire()
    try:
        return HandlerResult(200, Text(StreamBody(node.copy(), ctx.services.large_answers.release), _ARCHIVE))
    except BaseException:
        ctx.services.large_answers.release()
        raise


def drain(ctx: Context) -> HandlerResult:
    """Leave it to other nodes to lead, until the next start or until this is undone."""
    _cluster(ctx).drain(True)
    return HandlerResult(200, _cluster(ctx).summary())


def undrain(ctx: Context) -> HandlerResult:
    """Take part in leading again."""
    _cluster(ctx).drain(False)
    return HandlerResult(200, _cluster(ctx).summary())


def remove(ctx: Context) -> HandlerResult:
    """Forget a node that will not come back, so that the log no longer waits for it."""
    _cluster(ctx).remove(ctx.path["node"])
    return HandlerResult(204)


def _cluster(ctx: Context) -> ClusterService:
    if ctx.services.cluster is None:
        raise ApiError("not_in_cluster", "This instance is not a node of a cluster: it was started without `--cluster`.")
    return ctx.services.cluster


def wait_for_task(ctx: Context) -> None:
    """Wait until this node has finished the task that the request names in the header `Svc-After-Task`.

    Each waiting request holds a thread. Raises bad_request, cluster_behind, and a 503 if too many requests wait already.
    """
    named = ctx.request.headers.get(AFTER_TASK)
    if named is None:
        return
    if not (named.isascii() and named.isdigit() and len(named) <= 10):
        raise ApiError("bad_request", f"Header `Svc-After-Task` is `{named[:100]}`, expected the `taskUid` of a write.")
    uid, has_ended = int(named), ctx.services.data_folder.has_ended
    if has_ended(uid):
        return
    ctx.services.waiting_writes.acquire()
    try:
        until = time.monotonic() + _MOST_WAIT_S
        while not has_ended(uid):
            if time.monotonic() > until:
                reason = f"Task `{uid}` of the header `Svc-After-Task` has not ended here within {_MOST_WAIT_S:.0f} seconds."
                raise ApiError("cluster_behind", reason, (("Retry-After", str(_RETRY_AFTER_S)),))
            time.sleep(_LOOK_S)
    finally:
        ctx.services.waiting_writes.release()


# A copy has keys, and the headers of webhooks: its permission is one that no API key can have.
ROUTES = (
    Route("GET", "/cluster", status, "network.get", {200: "Cluster"}, "Get the nodes of the cluster", _TAG),
    Route("GET", "/cluster/copy", copy, "keys.get", {200: {"type": "string", "format": "binary"}},
          "Copy the data folder of this node", _TAG, answer_type=_ARCHIVE),
    Route("POST", "/cluster/drain", drain, "network.update", {200: "ClusterSummary"}, "Let other nodes lead", _TAG),
    Route("DELETE", "/cluster/drain", undrain, "network.update", {200: "ClusterSummary"}, "Take part in leading again", _TAG),
    Route("DELETE", "/cluster/nodes/{node}", remove, "network.update", {204: {}}, "Forget a node", _TAG),
)
