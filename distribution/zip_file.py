"""svcd.pyz: one file that Python runs, with svcd and the plain Python packages that it needs.

Each module comes with bytecode for the Python that builds the file: a start then takes a third of the time. Other versions
compile the sources, which are all included.
"""
from __future__ import annotations

import importlib.util
import io
import marshal
import struct
import zipfile

from distribution.bundle import Files
from distribution.launcher import launcher

SHEBANG = b"#!/usr/bin/env python3\n"
MAIN = launcher("os.path.dirname(os.path.abspath(__file__))")
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # of the format
# Bytecode with the hash of its source that is never checked (PEP 552): its module is in the same file.
_UNCHECKED = 0b01


def build(files: Files) -> bytes:
    """The content of svcd.pyz."""
    made = io.BytesIO(SHEBANG)
    made.seek(0, io.SEEK_END)
    with zipfile.ZipFile(made, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content in {**files, "__main__.py": MAIN}.items():
            _add(archive, path, content)
            if path.endswith(".py") and path != "__main__.py":
                _add(archive, path + "c", bytecode(path, content))
    return made.getvalue()


def bytecode(path: str, source: bytes) -> bytes:
    """The content of a .pyc file."""
    code = compile(source, f"svcd.pyz/{path}", "exec", dont_inherit=True)
    head = importlib.util.MAGIC_NUMBER + struct.pack("<L", _UNCHECKED) + importlib.util.source_hash(source)
    return head + marshal.dumps(code)


def _add(archive: zipfile.ZipFile, path: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(path, _EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
