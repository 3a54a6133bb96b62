"""The usage report of a daemon. What must hold:

1. With an address, one report per hour is sent, with every figure that is documented; search workers are included.
2. Without an address, and with --no-analytics, there is none: no thread, no code loaded.
3. The banner shows which, and only the host of the address.
4. Options that name a path, an address or a secret are reported only as given or not.
"""
from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from svcd import INTERFACE_VERSION
from svcd.analytics.collector import Usage
from svcd.analytics.report import EVERY_S, FIGURES, LARGEST_BYTES
from svcd.base import quantities
from svcd.cli import daemon, serving, wiring
from svcd.cli.config import Config, load
from svcd.cli.options import BY_NAME
from svcd.cli.search_processes import SearchProcesses
from svcd.cli.wiring import InstanceFigures, distribution_id, largest_disk
from svcd.http.message import Body, Headers, NoBody, Request
from svcd.http.server import Server
from svcd.instance.instance import Instance
from tests.cli.test_daemon import ROOT, Daemon

HOUR = int(EVERY_S * quantities.SECOND)
SECRET = "qzxsecretqzx"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data")
    yield opened
    opened.close()


class Sink:
    """A sink on a free port."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                sink.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def sink() -> Iterator[Sink]:
    opened = Sink()
    yield opened
    opened.close()


def settings(tmp_path: Path, **given: Any) -> Config:
    return load({"db_path": str(tmp_path / "data"), **given}, {})


def test_a_sink_gets_every_figure_once_an_hour(tmp_path: Path, instance: Instance, sink: Sink) -> None:
    config = settings(tmp_path, analytics_url=sink.url, master_key=f"{SECRET}-and-more",
                      experimental_allowed_ip_networks="127.0.0.0/8")
    assert serving.reports_usage(config)
    moment = [1_700_000_000_000_000_000]
    own, other = wiring.usage(), Usage()
    runner = wiring.runner(config, instance)
    app = wiring.application(config, instance, usage=own)
    report = wiring.usage_report(config, instance, own, lambda: [other.take()], lambda: moment[0])
    for hour in range(1, 4):
        for target in (app.answer, lambda request: other.answered(request, 200, 0.001)):
            target(Request("GET", "/health", "", Headers({"host": SECRET}), Body(NoBody()), SECRET))
        assert report.step() > 0 and len(sink.bodies) == hour - 1
        moment[0] += HOUR
        report.step()
        report.step()
        assert len(sink.bodies) == hour
    for body in sink.bodies:
        assert len(body) <= LARGEST_BYTES and SECRET.encode() not in body and str(tmp_path).encode() not in body
        batch = json.loads(body)
        assert batch["instanceUid"] == instance.uid
        figures = {name: value for event in batch["batch"] for name, value in event["properties"].items()}
        assert set(figures) == set(FIGURES) and len(figures) == 184
        assert figures["requests.total_received"] == 2 and figures["requests.total_succeeded"] == 2
        assert figures["context.app.version"] == INTERFACE_VERSION
    runner.stop()


@pytest.mark.parametrize(("networks", "sent"), [("", 0), ("127.0.0.0/8", 1)])
def test_a_report_goes_only_to_allowed_networks(
    tmp_path: Path, instance: Instance, sink: Sink, networks: str, sent: int,
) -> None:
    moment = [1_700_000_000_000_000_000]
    config = settings(tmp_path, analytics_url=sink.url, experimental_allowed_ip_networks=networks)
    report = wiring.usage_report(config, instance, wiring.usage(), tuple, lambda: moment[0])
    moment[0] += HOUR
    report.step()
    assert len(sink.bodies) == sent


@pytest.mark.parametrize("given", [{}, {"no_analytics": True}, {"no_analytics": True, "analytics_url": "http://127.0.0.1:1/"}])
def test_without_an_address_or_with_no_analytics_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any],
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a report is made")

    ran = threading.Event()
    monkeypatch.setattr(wiring, "usage", never)
    monkeypatch.setattr(wiring, "usage_report", never)
    monkeypatch.setattr(serving, "raise_file_limit", lambda: None)
    monkeypatch.setattr(serving, "preload_search", ran.set)
    stopping = daemon.StopSignals.call

    def stop_when_open(signals: Any, stop: Any) -> None:
        stopping(signals, stop)
        threading.Thread(target=lambda: (ran.wait(20), stop())).start()

    monkeypatch.setattr(daemon.StopSignals, "call", stop_when_open)
    assert not serving.reports_usage(settings(tmp_path, **given))
    assert daemon.run(settings(tmp_path, http_addr="127.0.0.1:0", **given)) == 0
    assert ran.is_set()


def test_a_daemon_that_reports_has_a_thread_for_it(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    stopping = daemon.StopSignals.call
    warm = threading.Event()
    monkeypatch.setattr(serving, "raise_file_limit", lambda: None)
    monkeypatch.setattr(serving, "preload_search", lambda: (seen.extend(one.name for one in threading.enumerate()), warm.set()))

    def stop_when_open(signals: Any, stop: Any) -> None:
        stopping(signals, stop)
        threading.Thread(target=lambda: (warm.wait(20), stop())).start()

    monkeypatch.setattr(daemon.StopSignals, "call", stop_when_open)
    assert daemon.run(settings(tmp_path, http_addr="127.0.0.1:0", analytics_url=sink.url)) == 0
    assert "svcd-usage-report" in seen and "svcd-usage-report" not in [one.name for one in threading.enumerate()]
    assert sink.bodies == []  # nothing is sent at the end


@pytest.mark.parametrize(("arguments", "said"), [
    ((), "off (no --analytics-url)"),
    (("--analytics-url", f"https://me:{SECRET}@stats.example.com/{SECRET}?key={SECRET}"),
     "hourly to https://stats.example.com; --no-analytics turns it off"),
    (("--analytics-url", "https://stats.example.com", "--no-analytics"), "off (--no-analytics)"),
])
def test_the_banner_says_which(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    with Daemon(tmp_path, *arguments) as started:
        banner = started.wait_for("pid")
    assert f"usage report  {said}\n" in banner and SECRET not in banner


def figures_of(tmp_path: Path, instance: Instance, **given: Any) -> dict[str, Any]:
    return InstanceFigures(settings(tmp_path, **given), instance).now()


def test_options_are_reported_as_booleans_and_numbers(tmp_path: Path, instance: Instance) -> None:
    figures = figures_of(tmp_path, instance, dump_dir=str(tmp_path / SECRET), master_key=f"{SECRET}-and-more",
                         http_payload_size_limit="1 MiB", log_level="warn", experimental_search_queue_size="7")
    assert figures["infos.db_path"] is True and figures["infos.dump_dir"] is True
    assert figures["infos.http_addr"] is False and figures["infos.snapshot_dir"] is False
    assert figures["infos.http_payload_size_limit"] == 1 << 20 and figures["infos.log_level"] == "WARN"
    assert figures["infos.experimental_search_queue_size"] == 7 and figures["infos.env"] == "development"
    assert SECRET not in json.dumps(figures, default=str)
    assert set(figures) == {name for name, row in FIGURES.items() if row.group == "instance"} | {"experimental_network"}


def test_every_figure_of_a_launch_option_can_be_another(tmp_path: Path, instance: Instance) -> None:
    """What svcd has no option, feature or file for would be false for ever."""
    named = {name.removeprefix("infos.") for name in FIGURES if name.startswith("infos.")}
    known = {*BY_NAME, *wiring.FEATURES, *wiring.OTHER_NAMES, "with_configuration_file"}
    assert named - known <= {  # options of the reference without effect: accepted by svcd.cli.options
        "experimental_no_edition_2024_for_settings",
        "experimental_reduce_indexing_memory_usage"}


def test_features_are_reported_as_they_are_now(tmp_path: Path, instance: Instance) -> None:
    instance.update_features({"metrics": True, "network": True})
    figures = figures_of(tmp_path, instance)
    assert figures["infos.experimental_enable_metrics"] is figures["experimental_network"] is True
    assert figures["infos.experimental_multimodal"] is False


def test_a_configuration_file_is_reported(tmp_path: Path, instance: Instance) -> None:
    assert figures_of(tmp_path, instance)["infos.with_configuration_file"] is False
    (tmp_path / "config.toml").write_text('log_level = "ERROR"\n')
    assert figures_of(tmp_path, instance)["infos.with_configuration_file"] is True


def test_the_machine_is_reported_in_figures(tmp_path: Path, instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVC_SERVER_PROVIDER", SECRET)
    figures = figures_of(tmp_path, instance)
    assert figures["system.cores"] >= 1 and figures["stats.database_size"] > 0 and figures["stats.indexes_number"] == 0
    assert figures["system.disk_size"] > 1 << 20 and figures["start_since_days"] == 0
    assert FIGURES["system.server_provider"].admitted(figures["system.server_provider"]) == "other"


@pytest.mark.parametrize(("text", "known"), [
    ('NAME="Debian GNU/Linux"\nID=debian\n', "debian"), ('ID="alpine"\n', "alpine"), ("", None), (None, None)])
def test_the_distribution_is_its_id(tmp_path: Path, text: str | None, known: str | None) -> None:
    path = tmp_path / "os-release"
    if text is not None:
        path.write_text(text)
    assert distribution_id(path) == known


def test_the_largest_disk_is_reported(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 {tmp_path} ext4 rw 0 0\nproc /proc proc rw 0 0\n/dev/sdb1 /nowhere ext4 rw 0 0\n")
    assert largest_disk(tmp_path, mounts) == largest_disk(tmp_path, tmp_path / "absent") > 0


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="search workers need Linux")
def test_search_workers_are_asked_too(
    tmp_path: Path, instance: Instance, sink: Sink, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    config = settings(tmp_path, analytics_url=sink.url, search_workers="1", log_level="ERROR")
    workers = SearchProcesses(config, instance, most=1)
    app = wiring.application(config, instance)
    server = Server(app.answer, ("127.0.0.1", 0))
    serving_thread = threading.Thread(target=server.serve)
    serving_thread.start()
    workers.start(server, app, lambda: False)
    try:
        deadline = time.monotonic() + 20
        while not (states := workers.usages()):
            assert time.monotonic() < deadline
        assert [set(state) for state in states] == [set(FIGURES)]
        workers.broadcast({"log": "off"})
        assert workers.usages()
    finally:
        workers.stop(1.0)  # the server, too, which needs their sockets to its end
        serving_thread.join(20)
        workers.end()
