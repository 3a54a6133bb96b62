"""Build the installable artifacts.

    python -m distribution.build                     build all of them in dist/
    python -m distribution.build --into FOLDER deb   build the named ones

The same sources, packages and Python give the same bytes.
"""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from distribution import deb, sbom, sdist, zip_file
from distribution.bundle import ROOT, MissingPackage, files
from svcd import __version__
from svcd.api.all_routes import ROUTES
from svcd.api.openapi import document

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def pyz(folder: Path) -> Path:
    """Write svcd.pyz and return its path."""
    path = folder / "svcd.pyz"
    path.write_bytes(zip_file.build(files()))
    path.chmod(0o755)
    return path


def wheel(folder: Path) -> Path:
    """Write the wheel and return its path. pip installs the build tools that pyproject.toml names.

    pip builds from a copy: the tools leave files beside the sources, and would put these files into the next wheel.
    """
    with TemporaryDirectory(dir=folder) as made:
        sources = Path(made, "sources")
        shutil.copytree(ROOT / "svcd", sources / "svcd", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "man", sources / "man")
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, sources)
        subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", made, str(sources)], check=True)
        (path,) = Path(made).glob("*.whl")
        sdist.normalize(path)
        return path.replace(folder / path.name)


def source(folder: Path) -> Path:
    """Write the source distribution and return its path. Needs the wheel, which is built if it is not there."""
    built = folder / f"svcd-{__version__}-py3-none-any.whl"
    path = folder / sdist.NAME
    path.write_bytes(sdist.build(sdist.metadata_of(built if built.exists() else wheel(folder))))
    return path


def bill_of_materials(folder: Path) -> Path:
    """Write the list of packages and return its path."""
    path = folder / sbom.NAME
    path.write_bytes(sbom.build())
    return path


def debian(folder: Path) -> Path:
    """Write the Debian package and return its path."""
    path = folder / deb.NAME
    path.write_bytes(deb.build(files()))
    return path


def openapi(folder: Path) -> Path:
    """Write openapi.json, the answer of `GET /openapi.json`, and return its path."""
    path = folder / "openapi.json"
    path.write_text(json.dumps(document(ROUTES), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


TARGETS: dict[str, Callable[[Path], Path]] = {"pyz": pyz, "wheel": wheel, "sdist": source, "deb": debian, "openapi": openapi,
                                              "sbom": bill_of_materials}


def main(arguments: Sequence[str]) -> int:
    """Build the named targets (default: all), print their sizes, and return the exit status."""
    parser = ArgumentParser("distribution.build", description="Build the installable artifacts.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist", metavar="FOLDER", help="where to write (default: dist/)")
    parser.add_argument("target", nargs="*", default=list(TARGETS), metavar="|".join(TARGETS))
    given = parser.parse_args(arguments)
    if unknown := set(given.target) - set(TARGETS):
        parser.error(f"no target {min(unknown)}; targets are {', '.join(TARGETS)}")
    given.into.mkdir(parents=True, exist_ok=True)
    for name in given.target:
        try:
            path = TARGETS[name](given.into)
        except MissingPackage as missing:
            print(f"distribution.build: {missing}: run `make dist`, which installs it", file=sys.stderr)
            return 1
        print(f"{path.stat().st_size / 1e6:5.1f} MB  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
