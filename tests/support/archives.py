"""Unpacking of tar archives on every Python that svcd runs on."""
from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack all members, with the filter for data where this Python has one: `extractall(filter=...)` fails before 3.11.4."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)
