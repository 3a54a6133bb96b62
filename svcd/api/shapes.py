"""The shapes of answers: how stored rows become JSON, and the JSON schemas of the OpenAPI document.

Members are in the order of the interface; see docs/tasks-and-batches.md for tasks and batches.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svcd.api.routes import HandlerResult
from svcd.auth.keys import ACTIONS
from svcd.base.quantities import human_size, rfc3339_micro
from svcd.instance.task_records import ENQUEUED, STATUSES, Batch, Task
from svcd.tasks.batching import KINDS
from svcd.tasks.views import elapsed_text, moment_text
from svcd.validation import Param
from svcd.validation.names import FEATURES
from svcd.validation.query_strings import positive_integer

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.instance.data_folder import IndexRow

Json = dict[str, Any]


def task_summary(task: Task) -> Json:
    """The answer to a write request."""
    summary: Json = {"taskUid": task.uid, "indexUid": task.index_uid, "status": task.status, "type": task.kind,
                     "enqueuedAt": rfc3339_micro(task.enqueued_at)}
    if task.custom_metadata is not None:
        summary["customMetadata"] = task.custom_metadata
    return summary


def enqueued(ctx: Context, kind: str, index_uid: str | None, details: Json | None, content: Json | None = None, status: int = 202,
             **others: Any) -> HandlerResult:
    """Enqueue a task, and answer with its summary; for a dry run, answer with its effects. others: see Queue.enqueue()."""
    if ctx.is_dry_run:
        return _dry_run(ctx, kind, index_uid, details, content or {}, **others)
    task = ctx.queue.enqueue(kind, index_uid, details=details, content=content, **others)
    return HandlerResult(status, task_summary(task))


def _dry_run(ctx: Context, kind: str, index_uid: str | None, details: Json | None, content: Json, payload: Path | None = None,
             payload_bytes: int = 0, custom_metadata: str | None = None) -> HandlerResult:
    try:
        return HandlerResult(200, ctx.services.dry_runs.answer(Task(
            -1, kind, index_uid, ENQUEUED, 0, details=details, content=content, payload=payload.name if payload else None,
            payload_bytes=payload_bytes)))
    finally:
        if payload is not None:
            payload.unlink(missing_ok=True)


def batch_view(batch: Batch) -> Json:
    """One batch."""
    return {"uid": batch.uid, "progress": batch.progress, "details": batch.details or {}, "stats": batch.stats,
            "duration": elapsed_text(batch.started_at, batch.finished_at), "startedAt": moment_text(batch.started_at),
            "finishedAt": moment_text(batch.finished_at), "batchStrategy": batch.strategy or "unspecified"}


def index_view(row: IndexRow) -> Json:
    """One index."""
    return {"uid": row.uid, "createdAt": rfc3339_micro(row.created_at), "updatedAt": rfc3339_micro(row.updated_at),
            "primaryKey": row.primary_key}


def page_params(prefix: str, noun: str) -> dict[str, Param]:
    """The parameters that choose a page of a list. prefix: of their error codes; noun: what is listed."""
    return {"offset": Param(positive_integer, f"{prefix}offset", default=0, about=f"{noun} to skip."),
            "limit": Param(positive_integer, f"{prefix}limit", default=20, about=f"{noun} to return.")}


def page(results: Sequence[Any], offset: int, limit: int, total: int) -> Json:
    """The envelope of all lists except tasks and batches."""
    return {"results": results, "offset": offset, "limit": limit, "total": total}


def uid_page(results: Sequence[Any], total: int, limit: int, first: int | None, following: int | None) -> Json:
    """The envelope of tasks and batches, which are paged by uid."""
    return {"results": results, "total": total, "limit": limit, "from": first, "next": following}


def size(count: int, size_format: str) -> int | str:
    """A number of bytes (`raw`), or a text with a binary unit (`human`), such as `64 KiB`, `1.5 MiB`."""
    return human_size(count) if size_format == "human" else count


STRING: Json = {"type": "string"}
BOOLEAN: Json = {"type": "boolean"}
COUNT: Json = {"type": "integer", "minimum": 0}
MOMENT: Json = {"type": "string", "format": "date-time"}
NULL: Json = {"type": "null"}


def ref(name: str) -> Json:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: Json) -> Json:
    """The schema, or null."""
    return {"oneOf": [NULL, schema]}


def array(schema: Json) -> Json:
    """A list of values of one schema."""
    return {"type": "array", "items": schema}


def mapping(schema: Json) -> Json:
    """An object with arbitrary member names."""
    return {"type": "object", "additionalProperties": schema}


def record(members: Mapping[str, Json], optional: Iterable[str] = ()) -> Json:
    """An object with these members and no other."""
    absent = set(optional)
    return {"type": "object", "properties": dict(members), "required": [name for name in members if name not in absent],
            "additionalProperties": False}


def page_of(name: str) -> Json:
    """The schema of `page`."""
    return record({"results": array(ref(name)), "offset": COUNT, "limit": COUNT, "total": COUNT})


def _uid_page_of(name: str) -> Json:
    return record({"results": array(ref(name)), "total": COUNT, "limit": COUNT, "from": nullable(COUNT), "next": nullable(COUNT)})


def _answer(members: Mapping[str, Json], metadata: Json, more: Mapping[str, Json] | None = None) -> Json:
    """The answer to a search: these members, the members of its kind of paging, and facets if requested.

    more: further members that may be absent.
    """
    paging = ("hitsPerPage", "page", "totalPages", "totalHits", "limit", "offset", "estimatedTotalHits")
    return record({
        **members, **dict.fromkeys(paging, COUNT), **_FACETS, **(more or {}), "semanticHitCount": COUNT,
        "requestUid": {"type": "string", "format": "uuid"}, "metadata": metadata, "performanceDetails": mapping(STRING),
        "remoteErrors": REMOTE_ERRORS,
    }, optional=[*paging, *_FACETS, *(more or {}), "metadata", "performanceDetails", "remoteErrors", "semanticHitCount"])


REMOTE_ERRORS = mapping(ref("Error"))  # by the name of the remote that failed
_MATCHES = mapping(array(record({"start": COUNT, "length": COUNT, "indices": array(COUNT)}, optional=["indices"])))
_REQUESTS = record({"total": COUNT, "failed": COUNT, "lastError": {"type": ["string", "null"]}})
_HITS = array({  # the members of the document, and the members added by the search
    "type": "object",
    "properties": {"_formatted": {"type": "object"}, "_matchesPosition": _MATCHES, "_rankingScore": {"type": "number"},
                   "_rankingScoreDetails": {"type": "object"},
                   "_matchedPassage": record({"number": COUNT, "count": COUNT, "text": STRING}, optional=["text"])},
})
_VECTOR = array({"type": ["number", "null"]})
_FACETS: Mapping[str, Json] = {
    "facetDistribution": mapping(mapping(COUNT)),
    "facetStats": mapping(record({"min": {"type": "number"}, "max": {"type": "number"}})),
}
_ENABLED = record({"enabled": BOOLEAN})
_SIZE: Json = {"oneOf": [COUNT, STRING]}
_TEXT_OR_NULL: Json = {"type": ["string", "null"]}
_CLUSTER_SUMMARY = {"node": STRING, "leader": _TEXT_OR_NULL, "hasQuorum": BOOLEAN, "isDraining": BOOLEAN}

SCHEMAS: dict[str, Json] = {  # the components of the OpenAPI document
    "Error": record({
        "message": STRING, "code": STRING,
        "type": {"type": "string", "enum": ["invalid_request", "internal", "auth", "system"]},
        "link": STRING,
    }),
    "Status": {"type": "string", "enum": list(STATUSES)},
    "Kind": {"type": "string", "enum": list(KINDS)},
    "TaskSummary": record({
        "taskUid": COUNT, "indexUid": _TEXT_OR_NULL, "status": ref("Status"), "type": ref("Kind"),
        "enqueuedAt": MOMENT, "customMetadata": STRING,
    }, optional=["customMetadata"]),
    "Task": record({
        "uid": COUNT, "batchUid": nullable(COUNT), "indexUid": _TEXT_OR_NULL, "status": ref("Status"), "type": ref("Kind"),
        "canceledBy": nullable(COUNT), "details": {"type": "object"}, "error": nullable(ref("Error")), "duration": _TEXT_OR_NULL,
        "enqueuedAt": MOMENT, "startedAt": nullable(MOMENT), "finishedAt": nullable(MOMENT), "customMetadata": STRING,
    }, optional=["details", "customMetadata"]),
    "DryRun": record({
        "dryRun": BOOLEAN, "type": ref("Kind"), "indexUid": _TEXT_OR_NULL, "status": ref("Status"),
        "error": nullable(ref("Error")), "details": {"type": "object"}, "settings": mapping(record({"from": {}, "to": {}})),
        "documents": record(dict.fromkeys(("added", "replaced", "rewritten", "deleted", "unchanged"), COUNT)),
        "madeAgain": record(dict.fromkeys(("words", "values", "locations", "wordCounts"), COUNT)),
        "vectors": mapping(record(dict.fromkeys(("made", "calls", "removed"), COUNT))),
        "bytesWritten": COUNT, "bytesOnDisk": {"type": "integer"}, "seconds": {"type": "number", "minimum": 0},
        "slowdown": {"type": "number", "minimum": 1}, "waitingTasks": COUNT,
    }),
    "TaskPage": _uid_page_of("Task"),
    "Progress": record({
        "steps": array(record({"currentStep": STRING, "finished": COUNT, "total": COUNT})),
        "percentage": {"type": "number", "minimum": 0, "maximum": 100},
    }),
    "BatchStats": record({
        "totalNbTasks": COUNT, "status": mapping(COUNT), "types": mapping(COUNT), "indexUids": mapping(COUNT),
        "progressTrace": mapping(STRING),
        "writeChannelCongestion": record({
            "attempts": COUNT, "blocking_attempts": COUNT, "blocking_ratio": {"type": "number", "minimum": 0, "maximum": 1}}),
        "internalDatabaseSizes": mapping(STRING), "embedderRequests": _REQUESTS,
    }, optional=["progressTrace", "writeChannelCongestion", "internalDatabaseSizes", "embedderRequests"]),
    "Batch": record({
        "uid": COUNT, "progress": nullable(ref("Progress")), "details": {"type": "object"}, "stats": ref("BatchStats"),
        "duration": _TEXT_OR_NULL, "startedAt": MOMENT, "finishedAt": nullable(MOMENT), "batchStrategy": STRING,
    }),
    "BatchPage": _uid_page_of("Batch"),
    "CompactionSummary": record({
        "preSize": STRING, "postSize": STRING, "status": ref("Status"),
        "actionRequired": _TEXT_OR_NULL, "errorMessage": _TEXT_OR_NULL,
    }, optional=["preSize", "postSize", "actionRequired", "errorMessage"]),
    "Index": record({"uid": STRING, "createdAt": MOMENT, "updatedAt": MOMENT, "primaryKey": _TEXT_OR_NULL}),
    "IndexPage": page_of("Index"),
    "IndexStats": record({
        "numberOfDocuments": COUNT, "rawDocumentDbSize": _SIZE, "avgDocumentSize": _SIZE, "isIndexing": BOOLEAN,
        "internalDatabaseSizes": mapping(_SIZE), "numberOfEmbeddings": COUNT, "numberOfEmbeddedDocuments": COUNT,
        "fieldDistribution": mapping(COUNT), "outdatedEmbeddings": mapping(COUNT),
    }, optional=["internalDatabaseSizes", "outdatedEmbeddings"]),
    "Stats": record({
        "databaseSize": _SIZE, "usedDatabaseSize": _SIZE, "lastUpdate": nullable(MOMENT),
        "indexes": mapping(ref("IndexStats")),
    }),
    "Field": record({
        "name": STRING, "displayed": _ENABLED, "searchable": _ENABLED, "sortable": _ENABLED,
        "distinct": _ENABLED,
        "rankingRule": record({"enabled": BOOLEAN, "order": array(STRING)}, optional=["order"]),
        "filterable": record({
            "enabled": BOOLEAN, "sortBy": {"type": "string", "enum": ["alpha", "count"]},
            "facetSearch": BOOLEAN, "equality": BOOLEAN, "comparison": BOOLEAN,
        }),
        "localized": record({"locales": array(STRING)}),
    }),
    "FieldPage": page_of("Field"),
    "Key": record({
        "name": _TEXT_OR_NULL, "description": _TEXT_OR_NULL, "key": STRING, "uid": {"type": "string", "format": "uuid"},
        "actions": array({"type": "string", "enum": list(ACTIONS)}), "indexes": array(STRING),
        "expiresAt": nullable(MOMENT), "createdAt": MOMENT, "updatedAt": MOMENT,
    }),
    "KeyPage": page_of("Key"),
    "Health": record({"status": {"type": "string", "enum": ["available", "mustRestart"]}, "cluster": ref("ClusterSummary")},
                     optional=["cluster"]),
    "ClusterSummary": record(_CLUSTER_SUMMARY),
    "Cluster": record({
        "uid": STRING, **_CLUSTER_SUMMARY, "term": COUNT, "lastEntry": COUNT, "fault": _TEXT_OR_NULL,
        "nodes": array(ref("ClusterNode")),
    }),
    "ClusterNode": record({
        "name": STRING, "url": STRING, "version": STRING, "isLeader": BOOLEAN, "isAlive": BOOLEAN,
        "secondsSinceSeen": {"type": "number", "minimum": 0}, "applied": COUNT, "lag": COUNT, "fault": _TEXT_OR_NULL,
        "indexes": mapping(record({"lastTask": {"type": "integer", "minimum": -1}, "hash": STRING})),
    }),
    "Webhook": record({
        "uuid": {"type": "string", "format": "uuid"}, "isEditable": BOOLEAN, "url": STRING, "headers": mapping(STRING),
    }),
    "WebhookFailure": record({
        "batchUid": COUNT, "tasks": COUNT, "finishedAt": MOMENT, "attempts": COUNT, "lastAttemptAt": nullable(MOMENT),
        "reason": _TEXT_OR_NULL, "givenUpAt": nullable(MOMENT),
    }),
    "WebhookFailurePage": page_of("WebhookFailure"),
    "SearchRule": record({
        "uid": STRING, "description": STRING, "lastUpdatedAt": MOMENT, "precedence": COUNT, "active": BOOLEAN,
        "conditions": record({
            "time": record({"start": MOMENT, "end": MOMENT}, optional=["start", "end"]),
            "query": record({"isEmpty": BOOLEAN, "words": STRING}, optional=["isEmpty", "words"]),
            "filter": record({"values": {"type": "object"}}),
        }, optional=["time", "query", "filter"]),
        "actions": array(record({
            "selector": record({"indexUid": STRING, "id": STRING}, optional=["indexUid"]),
            "action": record({"type": STRING, "position": COUNT}),
        })),
    }, optional=["description", "lastUpdatedAt", "precedence"]),
    "SearchRulePage": page_of("SearchRule"),
    "ChatWorkspace": record({"uid": STRING}),
    "ChatWorkspacePage": page_of("ChatWorkspace"),
    "ChatWorkspaceSettings": record({
        "source": STRING, "orgId": _TEXT_OR_NULL, "projectId": _TEXT_OR_NULL, "apiVersion": _TEXT_OR_NULL,
        "deploymentId": _TEXT_OR_NULL, "baseUrl": _TEXT_OR_NULL, "apiKey": _TEXT_OR_NULL, "prompts": mapping(STRING),
    }),
    "Version": record({"commitSha": STRING, "commitDate": STRING, "pkgVersion": STRING}),
    "Features": record(dict.fromkeys(FEATURES, BOOLEAN) | {"legacySearch": nullable(BOOLEAN)},
                       optional=[flag for flag, feature in FEATURES.items() if feature.is_own]),
    "Network": record({
        "self": _TEXT_OR_NULL,
        "remotes": mapping(record({"url": STRING, "searchApiKey": _TEXT_OR_NULL, "writeApiKey": _TEXT_OR_NULL,
                                   "status": {"type": "string", "enum": ["available", "unavailable"]}})),
        "shards": mapping(record({"remotes": array(STRING)})), "leader": _TEXT_OR_NULL,
        "version": {"type": "string", "format": "uuid"},
    }),
    "SearchAnswer": _answer({"hits": _HITS, "query": STRING, "processingTimeMs": COUNT}, ref("SearchMetadata"),
                            {"queryVector": _VECTOR}),
    "IndexedAnswer": _answer({"indexUid": STRING, "hits": _HITS, "query": STRING, "processingTimeMs": COUNT},
                             ref("SearchMetadata"), {"queryVector": _VECTOR}),
    "MergedAnswer": _answer({"hits": _HITS, "processingTimeMs": COUNT}, array(ref("SearchMetadata")), {
        "queryVectors": mapping(_VECTOR),
        "facetsByIndex": mapping(record(dict(zip(("distribution", "stats"), _FACETS.values()))))}),
    "MultiSearchAnswer": {"oneOf": [record({"results": array(ref("IndexedAnswer"))}), ref("MergedAnswer")]},
    "SimilarAnswer": record({
        "hits": _HITS, "id": STRING, "processingTimeMs": COUNT, "limit": COUNT, "offset": COUNT, "estimatedTotalHits": COUNT,
        "performanceDetails": mapping(STRING),
    }, optional=["performanceDetails"]),
    "FacetSearchAnswer": record({
        "facetHits": array(record({"value": STRING, "count": COUNT})), "facetQuery": _TEXT_OR_NULL,
        "processingTimeMs": COUNT, "remoteErrors": REMOTE_ERRORS,
    }, optional=["remoteErrors"]),
    "Explanation": record({
        "indexUid": STRING, "documentId": STRING, "query": STRING, "isHit": BOOLEAN, "place": nullable(COUNT),
        "score": nullable({"type": "number"}), "rules": {"type": "object"},
        "words": array(record({"word": STRING, "matches": array(record({
            "text": STRING, "kind": {"type": "string", "enum": ["exact", "prefix", "typo", "stem", "infix", "joined", "phrase",
                                                                "split", "synonym"]},
            "typos": COUNT, "fields": array(STRING)}))})),
        "next": nullable({"type": "object"}), "cause": nullable({"type": "object"}), "processingTimeMs": COUNT,
    }),
    "SearchMetadata": record({
        "query": STRING, "queryUid": {"type": "string", "format": "uuid"}, "indexUid": STRING, "primaryKey": STRING,
        "remote": STRING,
    }, optional=["query", "primaryKey", "remote"]),
}
