"""1. The names, kinds and labels are those of tests/contract/metrics.json; families without figures are left out.
2. The figures are true: tasks, documents, batches, searches, sizes.
3. Without the feature there is an error; what is answered meanwhile is counted, and not timed.
4. A client cannot add names: what no route stands for is counted together.
5. The text is one that Prometheus reads, whatever a label holds.
"""
from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from svcd.api.metrics import GAUGE, Family, Sample, labelled, process_families, render
from svcd.api.traffic import BOUNDS_S, SEARCH_KINDS, Report, Traffic, sum_of
from svcd.instance.instance import IndexRow
from svcd.instance.task_records import FAILED, SUCCEEDED
from tests.support.contract import table


@pytest.fixture
def scrape(client):
    """scrape() -> {name with labels: figure}, the feature being on."""
    client.instance.force_feature("metrics")

    def figures() -> dict[str, float]:
        got = client.get("/metrics")
        assert got.status == 200, got.text
        return {name: float(value) for line in got.text.splitlines() if not line.startswith("#")
                for name, _, value in [line.rpartition(" ")]}

    return figures


def finish(instance, tasks, **stats) -> None:
    """End tasks as one batch of one second; the last one fails."""
    running = instance.queue.start(tasks, "test")
    running.batch.finished_at = running.batch.started_at + 1_000_000_000
    running.batch.details = {"indexedDocuments": 3}
    running.batch.stats = stats
    ended = list(running.tasks.values())
    ended = [replace(task, status=SUCCEEDED) for task in ended[:-1]] + [replace(ended[-1], status=FAILED)]
    with instance.queue.finishing() as connection:
        instance.queue.finish(connection, running, ended)
    instance.queue.forget(running)


def test_names_labels_and_order_are_those_of_the_contract(client) -> None:
    client.instance.force_feature("metrics")
    client.get("/experimental-features")
    ours = client.get("/metrics").text

    def shape(text: str) -> list[str]:
        return [re.sub(r" [^ ]+$", "", line) if not line.startswith("#") else line for line in text.splitlines()]

    assert shape(ours) == table("metrics")


def test_it_is_the_text_of_prometheus(client) -> None:
    client.instance.force_feature("metrics")
    assert client.answer("GET", "/metrics").content_type == "text/plain; version=0.0.4"


def test_tasks_are_counted_by_status_type_and_index(client, scrape) -> None:
    queue = client.instance.queue
    tasks = [queue.enqueue("settingsUpdate", "films", details={}) for _ in range(3)]
    queue.enqueue("indexDeletion", "books", details={})
    finish(client.instance, tasks[:2])
    queue.start(tasks[2:], "test")
    figures = scrape()
    shown = {name: figures[f'svc_nb_tasks{{kind="statuses",value="{name}"}}'] for name in
             ("enqueued", "processing", "succeeded", "failed", "canceled")}
    assert shown == {"enqueued": 1, "processing": 1, "succeeded": 1, "failed": 1, "canceled": 0}
    assert figures['svc_nb_tasks{kind="types",value="settingsUpdate"}'] == 3
    assert figures['svc_nb_tasks{kind="types",value="dumpCreation"}'] == 0
    assert figures['svc_nb_tasks{kind="indexes",value="films"}'] == 3
    assert figures["svc_is_indexing"] == 1
    assert 0 < figures["svc_task_queue_latency_seconds"] < 60


def test_nothing_waits_at_first(scrape) -> None:
    figures = scrape()
    assert figures["svc_task_queue_latency_seconds"] == figures["svc_is_indexing"] == figures["svc_index_count"] == 0
    assert not any(name.startswith(("svc_last_", "svc_index_docs")) for name in figures)


def test_indexes_show_their_documents(client, scrape) -> None:
    with client.instance.queue.finishing() as connection:
        client.instance.create_index(connection, IndexRow("films", "u", 1, 7_000_000_000, stats={"documents": 12}))
    figures = scrape()
    assert figures["svc_index_count"] == 1
    assert figures['svc_index_docs_count{index="films"}'] == 12
    assert figures["svc_last_update"] == 7


def test_batches_show_their_steps(client, scrape) -> None:
    queue = client.instance.queue
    tasks = [queue.enqueue("documentAdditionOrUpdate", "films", details={}) for _ in range(2)]
    finish(client.instance, tasks[:1], indexUids={"films": 1}, progressTrace={"processing tasks": "1.50s"})
    running = queue.start(tasks[1:], "test")
    running.batch.progress = {"steps": [{"currentStep": "indexing", "finished": 1, "total": 4}], "percentage": 25.0}
    figures = scrape()
    assert figures['svc_batch_running_progress_trace{batch_uid="1",step_name="indexing"}'] == 0.25
    assert figures['svc_last_finished_batches_progress_trace_ms{batch_uid="0",step_name="processing tasks"}'] == 1500
    assert figures['svc_last_indexed_documents_count{batch_uid="0",index="films"}'] == 3
    assert figures['svc_last_indexed_documents_duration_ms{batch_uid="0",index="films"}'] == 1000


def test_sizes_are_those_of_the_files(client, scrape) -> None:
    figures = scrape()
    assert figures["svc_db_size_bytes"] >= figures["svc_used_db_size_bytes"] > 0
    most, room = figures["svc_task_queue_max_size"], figures["svc_task_queue_size_until_stop_registering"]
    assert 0 < room <= 0.4 * most - figures["svc_task_queue_used_size"] < 0.4 * most


def test_searches_are_those_of_the_moment(client, scrape) -> None:
    with client.searches.slot():
        figures = scrape()
    assert figures["svc_searches_running"] == 1 and figures["svc_search_queue_size"] == 1000
    assert scrape()["svc_searches_running"] == figures["svc_searches_waiting_to_be_processed"] == 0


def test_without_the_feature_requests_are_counted_and_not_timed(client, scrape) -> None:
    client.instance.update_features({"metrics": False})
    message = ("Getting metrics requires enabling the `metrics` experimental feature. "
               "See https://github.com/svc/product/discussions/625")
    assert client.get("/metrics").fault == (400, "feature_not_enabled", message)
    client.json("PATCH", "/experimental-features", {"metrics": True})
    figures = scrape()
    assert figures['svc_http_requests_total{method="GET",path="/metrics",status="400"}'] == 1
    assert figures['svc_http_requests_total{method="PATCH",path="/experimental-features",status="200"}'] == 1
    assert not any("PATCH" in name for name in figures if "response_time" in name)
    # The request that asks is shown before it ends.
    assert figures['svc_http_response_time_seconds_count{method="GET",path="/metrics"}'] == 0
    assert scrape()['svc_http_response_time_seconds_count{method="GET",path="/metrics"}'] == 1


def test_paths_are_counted_as_routes_declare_them(client, scrape) -> None:
    for uid in ("films", "books"):
        client.get(f"/indexes/{uid}")
    client.send("PUT", "/indexes/films")
    figures = scrape()
    assert figures['svc_http_requests_total{method="GET",path="/indexes/{index_uid}",status="404"}'] == 2
    assert figures['svc_http_requests_total{method="PUT",path="/indexes/{index_uid}",status="405"}'] == 1


def test_what_no_route_stands_for_is_counted_together(client, scrape) -> None:
    for method, path in (("GET", "/a"), ("GET", "/b/c"), ("A", "/a"), ("B", "/a")):
        client.send(method, path)
    figures = scrape()
    assert figures['svc_http_requests_total{method="GET",path="other",status="404"}'] == 2
    assert figures['svc_http_requests_total{method="OTHER",path="other",status="404"}'] == 2


def test_a_duration_counts_for_its_bucket_and_all_above() -> None:
    traffic = Traffic()
    for seconds in (0.001, 0.005, 0.3, 100.0):
        traffic.note(traffic.timing("GET", "/"), seconds)
    timing = traffic.timings()["GET", "/"]
    counts = timing.cumulative()
    assert counts[0] == 2 and counts[-2:] == [3, 4] and counts == sorted(counts)
    assert counts[BOUNDS_S.index(0.25)] == 2 and counts[BOUNDS_S.index(0.5)] == 3
    assert timing.seconds == pytest.approx(100.306)


def test_no_request_is_lost_between_threads() -> None:
    traffic = Traffic()

    def ask() -> None:
        for _ in range(2000):
            traffic.count("GET", "/", 200)
            traffic.note(traffic.timing("GET", "/"), 0.001)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert traffic.answered() == {("GET", "/", 200): 8000}
    assert traffic.timings()["GET", "/"].cumulative()[-1] == 8000


def test_labels_are_escaped_and_sorted() -> None:
    text = render([Family("n", GAUGE, "Words.", labelled(("a",), {("z",): 1.5, ('"\\\n',): 2})),
                   Family("none", GAUGE, "Words.", ()), Family("p", GAUGE, "Words.", (Sample(True),))])
    assert text == ('# HELP n Words.\n# TYPE n gauge\nn{a="\\"\\\\\\n"} 2\nn{a="z"} 1.5\n'
                    '# HELP p Words.\n# TYPE p gauge\np 1\n')


def test_the_process_is_reported_where_the_system_does(tmp_path: Path) -> None:
    assert list(process_families(tmp_path)) == []
    (tmp_path / "self/fd").mkdir(parents=True)
    (tmp_path / "self/fd/0").touch()
    fields = ["S", *map(str, range(4, 53))]
    (tmp_path / "self/stat").write_text(f"12 (odd ) name) {' '.join(fields)}\n")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    told = {family.name: [sample.value for sample in family.samples] for family in process_families(tmp_path)}
    assert [told[f"process_{name}"] for name in ("open_fds", "threads", "virtual_memory_bytes")] == [[1], [20], [23]]


def test_the_counters_of_several_processes_are_added_up() -> None:
    own, other = Traffic(), Traffic()
    for traffic in (own, other):
        traffic.count("GET", "/a", 200)
        traffic.note(traffic.timing("GET", "/a"), 0.02)
    other.count("POST", "/b", 202)
    report = Report(other.as_json(), running=1, waiting=2)
    total = sum_of(own, [report, report])
    assert total.answered() == {("GET", "/a", 200): 3, ("POST", "/b", 202): 2}
    timing = total.timings()["GET", "/a"]
    assert (timing.cumulative()[-1], round(timing.seconds, 6)) == (3, 0.06)
    assert own.answered() == {("GET", "/a", 200): 1}


def test_searches_of_a_kind_are_counted_over_all_processes(client, scrape) -> None:
    assert not any(name.endswith("_search_requests") for name in scrape())
    other = Traffic()
    for traffic in (client.app.services.traffic, other):
        for kind in SEARCH_KINDS:
            traffic.count_search(kind)
    assert sum_of(other, [Report(client.app.services.traffic.as_json(), 0, 0)]).searches(SEARCH_KINDS[0]) == 2
    figures = scrape()
    assert figures["svc_personalized_search_requests"] == figures["svc_degraded_search_requests"] == 1
