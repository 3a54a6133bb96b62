"""The parts of Python's http.server that svcd uses, imported without the modules that only other users of it need.

It imports `ssl` for clients of HTTPS, `html` for error pages, `mimetypes` and `shutil` for files, `calendar` for e-mail: a
seventh of a start, and 2 MB. These become lazy modules (importlib.util.LazyLoader), which load themselves when the next module
imports them, or when one of their attributes is read. In Python 3.11 no two threads may do that first at the same time. So
`shutil` is loaded before the runner starts (svcd.cli.daemon); `ssl` by svcd.http.tls before the daemon listens, or by
svcd.remote.client.
"""
from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from typing import Any

_LAZY = ("calendar", "html", "mimetypes", "shutil", "ssl")


class _LazyFinder:
    """Finds the modules of _LAZY, to be loaded later."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name) if name in _LAZY else None
        if spec and spec.loader:
            spec.loader = LazyLoader(spec.loader)
        return spec


sys.meta_path.insert(0, _LazyFinder)
try:
    from email.utils import formatdate
    from http.server import BaseHTTPRequestHandler, HTTPServer
finally:
    sys.meta_path.remove(_LazyFinder)

__all__ = ["BaseHTTPRequestHandler", "HTTPServer", "formatdate"]
