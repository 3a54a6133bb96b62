"""Whether a file is there, asked so that a failing disk is not taken for an empty one."""
from __future__ import annotations

import errno
import os
from pathlib import Path

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def exists(path: Path | str) -> bool:
    """Return whether there is a file or folder. Raises OSError when the system cannot tell.

    From Python 3.14 on, Path.exists() returns False then. A data folder on a disk that fails, or that svcd may not read, would
    count as a new one.
    """
    try:
        os.stat(path)
    except ValueError:  # no name of a file, such as one with a zero byte
        return False
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return False
    return True
