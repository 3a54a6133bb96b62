"""1. Each parameter refuses what it can't read with its own code and words; `*` and absence filter nothing.
2. A bare date is its whole day: `after` begins with the next midnight, `before` ends with its own.
3. Cancel and delete need a filter, count what matches now, and keep the filter as it was sent.
   Bounds are exclusive, also of a moment as it is shown: with six digits of a second.
4. Lists are paged by uid; answers fit their shapes.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.api.shapes import KINDS, STATUSES
from svcd.base import quantities
from svcd.base.quantities import rfc3339
from svcd.instance.instance import IndexRow

UIDS = {"uids": "invalid_task_uids", "batchUids": "invalid_batch_uids", "canceledBy": "invalid_task_canceled_by"}
DATES = {
    f"{bound}{event}At": f"invalid_task_{bound}_{event.lower()}_at"
    for event in ("Enqueued", "Started", "Finished") for bound in ("after", "before")
}
FILTERS = (*UIDS, "types", "statuses", "indexUids", *DATES)
REQUESTS = [("GET", "/tasks"), ("GET", "/batches"), ("DELETE", "/tasks"), ("POST", "/tasks/cancel")]
LISTS = REQUESTS[:2]

every_request = pytest.mark.parametrize(("method", "path"), REQUESTS)
every_list = pytest.mark.parametrize(("method", "path"), LISTS)


def add_indexes(client: Any, *uids: str) -> None:
    for uid in uids:
        assert client.json("POST", "/indexes", {"uid": uid}).status == 202


@every_request
@pytest.mark.parametrize(("name", "code"), UIDS.items())
@pytest.mark.parametrize(("text", "place", "bad"), [
    ("doggo", "", "doggo"), ("1,doggo", "[1]", "doggo"), ("", "", ""), ("-1", "", "-1"), ("1.5", "", "1.5"),
    ("4294967296", "", "4294967296"),
])
def test_uids_are_positive_integers(client, method, path, name, code, text, place, bad) -> None:
    message = f"Invalid value in parameter `{name}{place}`: could not parse `{bad}` as a positive integer"
    assert client.send(method, f"{path}?{name}={text}").fault == (400, code, message)


@every_request
@pytest.mark.parametrize(("name", "code"), DATES.items())
@pytest.mark.parametrize("text", ["doggo", "", "2024-13-01", "2024-02-30", "2024-01-01T00:00:00", "2024-01-01T25:00:00Z"])
def test_dates_are_rfc_3339_or_bare(client, method, path, name, code, text) -> None:
    message = (f"Invalid value in parameter `{name}`: `{text}` is an invalid date-time. "
               "It should follow the YYYY-MM-DD or RFC 3339 date-time format.")
    assert client.send(method, f"{path}?{name}={text}").fault == (400, code, message)


@every_request
def test_types_are_named_in_the_refusal(client, method, path) -> None:
    listed = ", ".join(f"`{kind}`" for kind in KINDS)
    message = f"Invalid value in parameter `types`: `doggo` is not a valid task type. Available types are {listed}."
    assert client.send(method, f"{path}?types=doggo").fault == (400, "invalid_task_types", message)


@every_request
def test_statuses_are_named_in_the_refusal(client, method, path) -> None:
    listed = ", ".join(f"`{status}`" for status in STATUSES)
    message = (f"Invalid value in parameter `statuses[1]`: `doggo` is not a valid task status. "
               f"Available statuses are {listed}.")
    assert client.send(method, f"{path}?statuses=failed,doggo").fault == (400, "invalid_task_statuses", message)


@every_request
def test_index_uids_are_checked(client, method, path) -> None:
    status, code, message = client.send(method, f"{path}?indexUids=the%20good%20doggo").fault
    assert (status, code) == (400, "invalid_index_uid")
    assert message.startswith("Invalid value in parameter `indexUids`: `the good doggo` is not a valid index uid.")


@every_list
@pytest.mark.parametrize(("query", "code", "reason"), [
    ("limit=doggo", "invalid_task_limit", "`limit`: could not parse `doggo` as a positive integer"),
    ("limit=*", "invalid_task_limit", "`limit`: could not parse `*` as a positive integer"),
    ("from=doggo", "invalid_task_from", "`from`: could not parse `doggo` as a positive integer"),
    ("from=*", "invalid_task_from", "`from`: could not parse `*` as a positive integer"),
    ("reverse=doggo", "invalid_task_reverse",
     "`reverse`: could not parse `doggo` as a boolean, expected either `true` or `false`"),
    ("reverse=*", "invalid_task_reverse",
     "`reverse`: could not parse `*` as a boolean, expected either `true` or `false`"),
])
def test_paging_is_checked(client, method, path, query, code, reason) -> None:
    assert client.send(method, f"{path}?{query}").fault == (400, code, f"Invalid value in parameter {reason}")


@every_list
def test_unknown_parameters_of_lists_list_batch_uids_first(client, method, path) -> None:
    expected = ", ".join(f"`{name}`" for name in ("limit", "from", "reverse", "batchUids", "uids", *FILTERS[2:]))
    message = f"Unknown parameter `doggo`: expected one of {expected}"
    assert client.send(method, f"{path}?doggo=1").fault == (400, "bad_request", message)


@pytest.mark.parametrize(("method", "path"), REQUESTS[2:])
@pytest.mark.parametrize("name", ["limit", "from", "reverse", "doggo"])
def test_unknown_parameters_of_changes_list_uids_first(client, method, path, name) -> None:
    expected = ", ".join(f"`{known}`" for known in FILTERS)
    message = f"Unknown parameter `{name}`: expected one of {expected}"
    assert client.send(method, f"{path}?{name}=1").fault == (400, "bad_request", message)


@every_list
@pytest.mark.parametrize(("name", "other"), [
    ("uids", "7"), ("batchUids", "7"), ("canceledBy", "7"), ("types", "export"), ("statuses", "failed"),
    ("indexUids", "other"),
])
def test_a_star_among_others_filters_nothing(client, method, path, name, other) -> None:
    add_indexes(client, "a")
    for texts in (f"*,{other}", f"{other},*"):
        assert client.send(method, f"{path}?{name}={texts}").value == client.send(method, path).value
    assert client.send(method, f"{path}?{name}=*,%20").status == 400


@every_list
@pytest.mark.parametrize("name", FILTERS)
def test_a_star_filters_nothing(client, method, path, name) -> None:
    add_indexes(client, "a", "b")
    everything = client.send(method, path).value
    assert client.send(method, f"{path}?{name}=*").value == everything


@pytest.mark.parametrize(("query", "uids"), [
    ("indexUids=a", [2, 0]), ("indexUids=A", []), ("uids=1,2,9", [2, 1]), ("types=INDEXcreation", [2, 1, 0]),
    ("types=indexDeletion", []), ("statuses=ENQUEUED", [2, 1, 0]), ("statuses=failed,succeeded", []),
    ("uids=0,1&indexUids=b,c", [1]), ("afterEnqueuedAt=2999-01-01", []), ("beforeEnqueuedAt=2999-01-01", [2, 1, 0]),
    ("beforeFinishedAt=2999-01-01", []), ("canceledBy=7", []), ("batchUids=0", []), ("limit=2", [2, 1]),
    ("limit=1&from=1", [1]), ("reverse=true", [0, 1, 2]), ("reverse=true&from=1", [1, 2]), ("limit=0", []),
])
def test_filters_are_joined(client, query, uids) -> None:
    add_indexes(client, "a", "b", "a")
    assert [task["uid"] for task in client.get(f"/tasks?{query}").value["results"]] == uids


def test_a_page_names_the_beginning_of_the_next(client, check_shape) -> None:
    add_indexes(client, "a", "b", "c")
    page = client.get("/tasks?limit=2").value
    check_shape(page, "TaskPage")
    assert list(page) == ["results", "total", "limit", "from", "next"]
    assert (page["total"], page["limit"], page["from"], page["next"]) == (3, 2, 2, 0)
    empty = client.get("/tasks?limit=0").value
    assert (empty["results"], empty["from"], empty["next"]) == ([], None, 2)


@pytest.mark.parametrize(("bound", "moment", "found"), [
    ("after", "same day", False), ("before", "same day", False), ("after", "day before", True),
    ("before", "day after", True),
])
def test_a_bare_date_is_its_whole_day(client, bound, moment, found) -> None:
    add_indexes(client, "a")
    enqueued_at = client.instance.queue.task(0).enqueued_at
    shift = {"same day": 0, "day before": -1, "day after": 1}[moment] * 86_400 * 10**9
    date = rfc3339(enqueued_at + shift)[:10]
    assert bool(client.get(f"/tasks?{bound}EnqueuedAt={date}").value["results"]) is found


@pytest.mark.parametrize("nanoseconds", [1_700_000_000_000_000_000, 1_700_000_000_123_456_789, 1_700_000_000_120_000_000])
def test_bounds_are_exclusive(client, monkeypatch, nanoseconds: int) -> None:
    """Of the moment that is stored, and of the one that is shown."""
    monkeypatch.setattr(quantities, "now", lambda: nanoseconds)
    add_indexes(client, "a")
    task = client.instance.queue.task(0)
    assert task.enqueued_at == nanoseconds
    for moment in (rfc3339(nanoseconds), client.get("/tasks/0").value["enqueuedAt"]):
        for bound in ("after", "before"):
            assert client.get(f"/tasks?{bound}EnqueuedAt={moment}").value["results"] == []
    for bound, digits in (("after", nanoseconds - 1000), ("before", nanoseconds + 1000)):
        assert client.get(f"/tasks?{bound}EnqueuedAt={rfc3339(digits)}").value["total"] == 1


def test_times_in_answers_have_six_digits(client, monkeypatch) -> None:
    monkeypatch.setattr(quantities, "now", lambda: 1_700_000_000_500_000_000)
    summary = client.json("POST", "/indexes", {"uid": "a"}).value
    assert summary["enqueuedAt"] == client.get("/tasks/0").value["enqueuedAt"] == "2023-11-14T22:13:20.500000Z"
    with client.instance.queue.finishing() as connection:
        client.instance.create_index(connection, IndexRow("a", "u", 1, 2_000_000_000))
    index = client.get("/indexes/a").value
    assert (index["createdAt"], index["updatedAt"]) == ("1970-01-01T00:00:00.000000Z", "1970-01-01T00:00:02.000000Z")
    assert client.get("/stats").value["lastUpdate"] == "1970-01-01T00:00:02.000000Z"


@pytest.mark.parametrize(("method", "path", "verb"), [("DELETE", "/tasks", "delete"), ("POST", "/tasks/cancel", "cancel")])
def test_a_change_needs_a_filter(client, method, path, verb) -> None:
    status, code, message = client.send(method, path).fault
    assert (status, code) == (400, "missing_task_filters")
    assert message.startswith(f"Query parameters to filter the tasks to {verb} are missing.")


@pytest.mark.parametrize(("method", "path", "kind", "counter"), [
    ("DELETE", "/tasks", "taskDeletion", "deletedTasks"), ("POST", "/tasks/cancel", "taskCancelation", "canceledTasks"),
])
def test_a_change_counts_what_matches_now(client, check_shape, method, path, kind, counter) -> None:
    add_indexes(client, "a", "b")
    got = client.send(method, f"{path}?uids=0,9")
    check_shape(got.value, "TaskSummary")
    assert (got.status, got.value["taskUid"], got.value["indexUid"], got.value["type"]) == (200, 2, None, kind)
    task = client.instance.queue.task(2, with_content=True)
    assert task.content == {"uids": [0]}
    assert task.details == {"matchedTasks": 1, counter: None, "originalFilter": "?uids=0,9"}


def test_a_star_is_a_filter_of_a_change(client) -> None:
    add_indexes(client, "a", "b")
    client.send("DELETE", "/tasks?uids=*")
    details = client.instance.queue.task(2).details
    assert (details["matchedTasks"], details["originalFilter"]) == (2, "?uids=*")


@pytest.mark.parametrize("sent", [
    "uids=1%2C2",
    "beforeStartedAt=2024-01-02&statuses=Failed,canceled&uids=2,1&types=*",
    "&uids=0&uids=%30&",
    "afterEnqueuedAt=2024-01-02T00:00:00%2B01:00",
    "uid%73=7",
])
@pytest.mark.parametrize(("method", "path"), [("DELETE", "/tasks"), ("POST", "/tasks/cancel")])
def test_the_filter_of_a_change_is_shown_as_it_was_sent(client, method, path, sent) -> None:
    client.send(method, f"{path}?{sent}")
    assert client.instance.queue.task(0).details["originalFilter"] == f"?{sent}"


def test_waiting_is_no_part_of_the_filter_of_a_change(client) -> None:
    client.send("DELETE", "/tasks?wait=1ms&uids=1%2C2")
    assert client.instance.queue.task(0).details["originalFilter"] == "?uids=1%2C2"


@pytest.mark.parametrize(("path", "refusal"), [
    ("/tasks/7", (404, "task_not_found", "Task `7` not found.")),
    ("/tasks/doggo",
     (400, "invalid_task_uids", "Task uid `doggo` is invalid. It should only contain numeric characters.")),
    ("/batches/7", (404, "batch_not_found", "Batch `7` not found.")),
    ("/batches/doggo",
     (400, "invalid_batch_uids", "Batch uid `doggo` is invalid. It should only contain numeric characters.")),
])
def test_an_unknown_uid_is_distinguished_from_a_bad_one(client, path, refusal) -> None:
    assert client.get(path).fault == refusal


def test_a_task_is_shown_whole(client, check_shape) -> None:
    add_indexes(client, "a")
    task = client.get("/tasks/0").value
    check_shape(task, "Task")
    assert list(task) == ["uid", "batchUid", "indexUid", "status", "type", "canceledBy", "details", "error",
                          "duration", "enqueuedAt", "startedAt", "finishedAt"]


def test_custom_metadata_is_shown_last(client, check_shape) -> None:
    client.instance.queue.enqueue("indexDeletion", "a", details=None, custom_metadata="mine")
    task = client.get("/tasks/0").value
    check_shape(task, "Task")
    assert "details" not in task and list(task)[-1] == "customMetadata"


def test_a_running_batch_is_shown_whole(client, check_shape) -> None:
    add_indexes(client, "a")
    queue = client.instance.queue
    running = queue.start([queue.task(0, with_content=True)], "batched all enqueued tasks")
    running.batch.stats = {"totalNbTasks": 1, "status": {"processing": 1}, "types": {"indexCreation": 1},
                           "indexUids": {"a": 1}}
    running.batch.progress = {
        "steps": [{"currentStep": "processing tasks", "finished": 0, "total": 2}], "percentage": 0.0}
    batch = client.get("/batches/0").value
    check_shape(batch, "Batch")
    assert list(batch) == ["uid", "progress", "details", "stats", "duration", "startedAt", "finishedAt", "batchStrategy"]
    check_shape(client.get("/batches").value, "BatchPage")
    assert client.get("/tasks/0").value["status"] == "processing"


@pytest.mark.parametrize("path", ["/tasks/0/documents", "/tasks/compact"])
def test_gated_routes_need_their_feature(client, path) -> None:
    method = "POST" if path.endswith("compact") else "GET"
    assert client.send(method, path).fault[:2] == (400, "feature_not_enabled")


def test_the_documents_of_a_waiting_task_are_streamed(client) -> None:
    client.json("PATCH", "/experimental-features", {"getTaskDocumentsRoute": True})
    queue = client.instance.queue
    lines = b"".join(json.dumps({"id": i, "text": "x" * 1000}).encode() + b"\n" for i in range(200))
    file = queue.payload_folder / "upload"
    file.write_bytes(lines)
    queue.enqueue("documentAdditionOrUpdate", "a", details={"receivedDocuments": 200, "indexedDocuments": None},
                  payload=file, payload_bytes=len(lines))
    assert client.get("/tasks/0/documents").text.encode() == lines


def test_a_task_without_documents_says_so(client) -> None:
    client.json("PATCH", "/experimental-features", {"getTaskDocumentsRoute": True})
    add_indexes(client, "a")
    assert client.get("/tasks/0/documents").fault == (404, "task_file_not_found", (
        "Task `0` does not contain any documents. Only `documentAdditionOrUpdate` tasks "
        "with the statuses `enqueued` or `processing` contain documents"))


def test_the_task_database_is_compacted(client, check_shape) -> None:
    client.json("PATCH", "/experimental-features", {"taskQueueCompactionRoute": True})
    got = client.send("POST", "/tasks/compact")
    check_shape(got.value, "CompactionSummary")
    assert got.value["status"] == "succeeded"
