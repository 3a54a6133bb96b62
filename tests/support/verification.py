"""The faults that `svcd verify` finds in a data folder."""
from __future__ import annotations

from pathlib import Path

from svcd.commands.integrity import checked_files


def found_faults(folder: Path, is_full: bool) -> dict[str, list[str]]:
    """The faults of each file of a data folder by the name of the file."""
    return {name: checked.faults for name, checked in checked_files(folder, is_full).items()}
