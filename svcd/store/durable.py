"""Names of files that survive the loss of power."""
from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make new names in a folder themselves durable; the contents of files are synced by who writes them."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make a folder durable with all that is in it."""
    for place in (folder, *folder.rglob("*")):
        sync_folder(place)
