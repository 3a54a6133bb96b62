"""Check whether a file exists, without mistaking a failing disk for an empty one."""
from __future__ import annotations

import errno
import os
from pathlib import Path

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def exists(path: Path | str) -> bool:
    """Return whether a file or folder exists. Raises OSError when the system cannot tell.

    From Python 3.14 on, Path.exists() returns False in that case: svcd would take a data folder on a failing or unreadable disk
    for a new one.
    """
    try:
        os.stat(path)
    except ValueError:  # not a valid file name: it has a zero byte, for example
        return False
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return False
    return True
