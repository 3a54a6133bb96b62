"""What must hold of the daemon's side of the indexing process:

1. One that was killed while it was idle, as by the cancelation of a batch that has just committed, does the next batch all the same.
"""
from __future__ import annotations

from pathlib import Path

from svcd.tasks.indexing_client import IndexingProcess


def test_one_that_was_killed_does_the_next_batch(tmp_path: Path) -> None:
    process = IndexingProcess()
    request = {"path": str(tmp_path / "index.sqlite"), "do": "commitNothing"}
    try:
        for _ in range(3):
            assert "crash" not in process.run(request, lambda *_: None)
            process.kill()
        assert "crash" not in process.run(request, lambda *_: None)
    finally:
        process.close()
