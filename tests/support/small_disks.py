"""Small file systems in memory, and what fills them. They can be mounted by root alone, and not everywhere: else the test is skipped."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PORTIONS = bytes(1 << 16), bytes(4096), b"x"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """The block has an empty file system at `folder`, which is made. size: as in `48m`."""
    folder.mkdir(parents=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system can be mounted by root alone, and not everywhere: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Filled:
    """A file that takes all the room that is left."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "filler"

    def fill(self) -> None:
        """Take all that is left by now."""
        with self._path.open("ab", buffering=0) as file:
            for portion in _PORTIONS:
                try:
                    while file.write(portion) == len(portion):
                        pass
                except OSError:
                    pass

    def leave(self, room: int) -> None:
        """Give back so many bytes of what was taken."""
        os.truncate(self._path, max(0, self._path.stat().st_size - room))

    def empty(self) -> None:
        """Give back all."""
        self._path.unlink()
