"""The source distribution, and a wheel in the form that the same files always have."""
from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from distribution.bundle import ROOT
from svcd import __version__

NAME = f"svcd-{__version__}.tar.gz"
# What building a wheel needs, and what its users read.
FOLDERS = ("svcd", "man", "docs", "examples")
FILES = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md")
_LEFT_OUT = ("__pycache__", "node_modules")
_EARLIEST, _TIME = (1980, 1, 1, 0, 0, 0), 315_532_800  # 1980, the first year of zip files


def build(metadata: bytes) -> bytes:
    """Return the content of the archive. metadata: the core metadata, METADATA of the wheel."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted([("PKG-INFO", metadata), *_sources()]):
            entry = tarfile.TarInfo(f"svcd-{__version__}/{path}")
            entry.size, entry.mtime, entry.mode = len(content), _TIME, 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(made.getvalue(), 9, mtime=0)


def _sources() -> Iterator[tuple[str, bytes]]:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*paths, *(ROOT / name for name in FILES)]:
        if path.is_file() and path.suffix != ".pyc" and not any(part in _LEFT_OUT for part in path.parts):
            yield path.relative_to(ROOT).as_posix(), path.read_bytes()


def normalize(wheel: Path) -> None:
    """Rewrite a wheel without the times, modes and order that depend on the machine that built it."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in sorted(archive.namelist())}
    record = [name for name in files if name.endswith(".dist-info/RECORD")]  # the format recommends it last
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in [*(name for name in files if name not in record), *record]:
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[name])


def metadata_of(wheel: Path) -> bytes:
    """Return the core metadata in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(name)
