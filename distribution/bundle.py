"""Collect the files of svcd and of the packages that it needs, which are plain Python, from the environment that runs this.

tzdata and pip are left out: dateutil and sqlite-utils require them for functions that svcd does not call.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
# tzdata: time zones by name in dateutil, which parsing dates does not use. pip: a command of sqlite-utils installs packages.
NOT_NEEDED = frozenset(("tzdata", "pip"))
# The metadata of a package that a bundle contains: name, version, licences.
_METADATA = re.compile(r"[^/]+\.dist-info/(METADATA|(licenses/.*)?(LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)", re.IGNORECASE)

Files = dict[str, bytes]  # path in the bundle, with slashes -> content


class MissingPackage(RuntimeError):
    """A package that svcd needs is not installed where the bundle is made."""


def files() -> Files:
    """Return all files, modules and data, in order of their paths."""
    found = dict(own_files())
    for package in sorted(packages(), key=lambda package: package.name):
        found.update(_files_of(package))
    return dict(sorted(found.items()))


def own_files() -> Iterator[tuple[str, bytes]]:
    """Yield the files of svcd itself, modules and data."""
    for path in (ROOT / "svcd").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            yield path.relative_to(ROOT).as_posix(), path.read_bytes()
    yield "svcd.dist-info/LICENSE", (ROOT / "LICENSE").read_bytes()


def packages() -> list[Distribution]:
    """Return the packages that svcd needs, directly or indirectly, without extras. Raises MissingPackage."""
    seen: dict[str, Distribution] = {}
    waiting = _requirements(distribution("svcd"))
    while waiting:
        name = waiting.pop()
        if name in seen or name in NOT_NEEDED:
            continue
        try:
            seen[name] = distribution(name)
        except PackageNotFoundError:
            raise MissingPackage(f"the package {name} is not installed") from None
        waiting += _requirements(seen[name])
    return list(seen.values())


def _requirements(package: Distribution) -> list[str]:
    """Return the names of the packages that a package requires here, without extras."""
    wanted = [Requirement(text) for text in package.requires or ()]
    return [_normal(each.name) for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_plain(package: Distribution) -> bool:
    """Return whether a package runs with each version of Python on each kind of machine."""
    return "Root-Is-Purelib: true" in (package.read_text("WHEEL") or "")


def _files_of(package: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in package.files or ():
        path = file.as_posix()
        is_code = file.suffix != ".pyc" and ".." not in file.parts and not re.search(r"\.(dist-info|egg-info)/", path)
        if is_code or _METADATA.fullmatch(path):
            yield path, Path(file.locate()).read_bytes()
