"""The engine with sets of documents in plain Python, as on systems without a wheel of pyroaring.

What must hold: the tests of what works with sets pass with them too. tests/base compares the two classes operation by operation.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTED = ["tests/index/test_reader.py", "tests/index/test_bitmap_blocks.py", "tests/index/test_materialized_choice.py",
          "tests/query", "tests/ranking", "tests/search/test_search.py"]


def test_the_engine_works_with_plain_bitmaps() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTED], check=False, cwd=ROOT,
        env={**os.environ, "SVCD_PLAIN_BITMAPS": "1"}, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]
