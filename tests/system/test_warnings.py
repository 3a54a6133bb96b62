"""What must hold of the warnings of Python, which tell what a later version refuses, and what was left open:

1. No module gives one when it is imported.
2. A daemon that has read, written, archived, exported and stopped has given none; neither has any of its processes.

Every daemon of the tests turns them into errors (tests/support/daemon.py), and every test its own (pyproject.toml).
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.daemon import ROOT, Daemon

IMPORT_ALL = """
import importlib, pkgutil, svcd
for module in pkgutil.walk_packages(svcd.__path__, "svcd."):
    if not module.name.endswith("__main__") and module.name != "svcd.cluster.nats":  # of an extra
        importlib.import_module(module.name)
"""
FILMS = [{"id": number, "title": f"kefir {number}", "year": 1900 + number % 100, "_geo": {"lat": 1, "lng": number % 90},
          "_vectors": {"own": [number, 1]}}
         for number in range(3000)]


def test_1_no_import_warns(tmp_path: Path) -> None:
    """Compiled anew, as the compiler warns, too."""
    subprocess.run([sys.executable, "-W", "error", "-X", "dev", "-X", f"pycache_prefix={tmp_path}", "-c", IMPORT_ALL],
                   cwd=ROOT, check=True)


def test_2_a_daemon_gives_no_warning_up_to_its_end(tmp_path: Path) -> None:
    daemons = [Daemon(tmp_path / name, ["--experimental-allowed-ip-networks=127.0.0.0/8", *more]) for name, more in (
        ("source", ["--search-workers", "1"]), ("target", []))]
    for each in daemons:
        each.folder.mkdir()
        each.start()
    daemon, target = daemons
    try:
        daemon.done(daemon.call("PATCH", "/indexes/films/settings", json.dumps(
            {"filterableAttributes": ["year"], "sortableAttributes": ["year", "_geo"],
             "embedders": {"own": {"source": "userProvided", "dimensions": 2}}})))
        daemon.done(daemon.post("/indexes/films/documents", FILMS))
        daemon.done(daemon.call("PUT", "/indexes/films/documents", json.dumps([{"id": 1, "year": 2000}])))
        found = daemon.post("/indexes/films/search", {"q": "kefer", "filter": "year > 1950", "facets": ["*"], "sort": ["year:asc"]})
        assert found.json["estimatedTotalHits"] > 0
        exported = daemon.post("/export", {"url": f"http://127.0.0.1:{target.port}"}).json["taskUid"]
        for path in ("/dumps", "/snapshots"):
            assert daemon.done(daemon.call("POST", path))["status"] == "succeeded"
        daemon.drain()
        assert daemon.get(f"/tasks/{exported}")["status"] == "succeeded"
        daemon.done(daemon.call("DELETE", "/indexes/films"))
        assert [each.stop() for each in daemons] == [0, 0]
        assert [each.bugs() for each in daemons] == [[], []]
    finally:
        for each in daemons:
            each.kill9()
