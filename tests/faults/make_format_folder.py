"""Writes the data folder of today's format that is kept as a test file, so that later versions are known to open it.

    python -m tests.faults.make_format_folder

Run it when a release has a new format (`svcd.index.schema.FORMAT`), and keep the files of older ones. Until the first release the file
of format 1 is written again when the tables change. It has something in every table that documents and requests can fill.
"""
from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from svcd.index import schema
from svcd.instance.network import Network, Remote
from svcd.instance.rows import KeyRow
from svcd.instance.webhooks import Webhook
from tests.tasks.conftest import TaskHarness

FOLDER = Path(__file__).parent / "formats"
KEY = KeyRow("11111111-1111-4111-8111-111111111111", ["search"], ["films"], 5, 6, "shop")
FILMS = [
    {"id": 1, "title": "Metropolis", "year": 1927, "genres": ["Science fiction"], "_geo": {"lat": 52.5, "lng": 13.4},
     "_vectors": {"given": [1.0, 0.0, 0.5]}},
    {"id": 2, "title": "M", "year": 1931, "genres": ["Crime", "Thriller"], "_vectors": {"given": [0.0, 1.0, 0.5]}},
    {"id": 3, "title": "The Third Man", "year": 1949, "genres": [], "_vectors": {"given": None},
     "_geojson": {"type": "Point", "coordinates": [16.4, 48.2]}},
]
SETTINGS = {
    "filterableAttributes": ["year", "genres", "_geo", "_geojson"], "sortableAttributes": ["year", "_geo"], "stopWords": ["the"],
    "synonyms": {"movie": ["film"]}, "embedders": {"given": {"source": "userProvided", "dimensions": 3}},
}


def file_of(number: int) -> Path:
    """The test file of a format."""
    return FOLDER / f"{number}.tar.gz"


def fill(harness: TaskHarness) -> None:
    """Write the folder; the last task waits."""
    harness.instance.keys.add(KEY)
    harness.instance.webhooks.create(Webhook(KEY.uid, "http://localhost:1/", {"a": "b"}))
    harness.instance.update_features({"metrics": True})
    harness.instance.update_network(lambda before: Network("a", {"b": Remote("http://b/", "k", "w")}, {"s": ("b", "c")}, "v"))
    harness.instance.chat_workspaces.put("shop", {"apiKey": "k"})
    harness.change(SETTINGS, "films")
    harness.add(FILMS, "films")
    harness.do("indexCreation", "empty", {"primaryKey": None}, primaryKey=None)
    harness.clear("nowhere")
    harness.do("dsrUpdate", ".svc_dsr", {"rule": {"active": None}, "updatedRules": 1}, uid="b", update={"active": None})
    harness.run()
    harness.add([{"id": 4, "title": "Vertigo", "year": 1958, "_vectors": {"given": [0.5, 0.5, 0.5]}}], "films")


def main() -> None:
    """Write the file of today's format."""
    with tempfile.TemporaryDirectory() as work:
        harness = TaskHarness(Path(work) / "data")
        fill(harness)
        harness.instance.close()
        FOLDER.mkdir(exist_ok=True)
        with tarfile.open(file_of(schema.FORMAT), "w:gz") as archive:
            for path in sorted(harness.path.rglob("*")):
                if path.is_file() and path.name not in ("LOCK", "reserve") and not path.name.endswith("-shm"):
                    archive.add(path, str(path.relative_to(harness.path)))
        shutil.rmtree(harness.path)


if __name__ == "__main__":
    main()
