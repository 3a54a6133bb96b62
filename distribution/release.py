"""Build all files of a release from its tag: `make release` (RELEASING.md).

    python -m distribution.release [--into FOLDER] [--image PYTHON]

The folder gets the targets of distribution.build, the image of examples/Containerfile as an archive, recipes with the checksums
of these files, and SHA256SUMS. The archive is left out, with a message, where buildah is missing or cannot get the image.
"""
from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from distribution import build, sdist
from distribution.bundle import ROOT
from svcd import __version__

TAG = f"v{__version__}"
SUMS = "SHA256SUMS"
_IMAGE = "python:3.13-slim"
_PLATFORMS = ("linux/amd64", "linux/arm64")


class NotReleasable(RuntimeError):
    """The checked-out commit cannot be released."""


def check_sources(root: Path) -> None:
    """Raise NotReleasable unless the clone is exactly the commit of the tag of this version, and the changelog has it."""
    if changed := _git(root, "status", "--porcelain"):
        raise NotReleasable(f"the clone has changes: {changed.splitlines()[0].strip()}; commit or remove them")
    if TAG not in _git(root, "tag", "--points-at", "HEAD").split():
        raise NotReleasable(f"the commit is not tagged {TAG}; check the tag out, or make it: git tag {TAG}")
    if f"\n## {__version__}" not in (root / "CHANGELOG.md").read_text():
        raise NotReleasable(f"CHANGELOG.md lacks a section {__version__}")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True).stdout


def write_image(pyz: Path, folder: Path, image: str) -> list[Path]:
    """Write an archive of the container for each platform; return their paths. Raises CalledProcessError."""
    with TemporaryDirectory(dir=folder) as work:
        context, made = Path(work), []
        (context / "dist").mkdir()
        shutil.copy(pyz, context / "dist")
        for platform in _PLATFORMS:
            path = folder / f"svcd-{__version__}-{platform.replace('/', '-')}.oci.tar"
            recipe = str(ROOT / "examples/Containerfile")
            store = ["buildah", "--root", f"{work}/store", "--runroot", f"{work}/run", "--storage-driver", "vfs"]
            name = f"localhost/svcd:{__version__}"
            subprocess.run([*store, "build", "--quiet", "--platform", platform, "--timestamp", "0", "--isolation", "chroot",
                            "--build-arg", f"PYTHON={image}", "--tag", name, "--file", recipe, work],
                           check=True, capture_output=True, text=True)
            subprocess.run([*store, "push", "--quiet", name, f"oci-archive:{path}"], check=True, capture_output=True, text=True)
            made.append(path)
    return made


def write_recipes(folder: Path) -> None:
    """Write copies of the formula and the APKBUILD with the checksums of svcd.pyz and the source distribution in the folder."""
    def checksum(algorithm: str, name: str) -> str:
        return hashlib.new(algorithm, (folder / name).read_bytes()).hexdigest()

    formula = (ROOT / "distribution/homebrew/svcd.rb").read_text()
    (folder / "svcd.rb").write_text(formula.replace("0" * 64, checksum("sha256", "svcd.pyz")))
    recipe = (ROOT / "distribution/alpine/APKBUILD").read_text()
    for listed, name in (("svcd-$pkgver.tar.gz", sdist.NAME), ("svcd-$pkgver.pyz", "svcd.pyz")):
        recipe = recipe.replace(f"\n0  {listed}\n", f"\n{checksum('sha512', name)}  {listed}\n")
    (folder / "APKBUILD").write_text(recipe)


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of each file, as `sha256sum --check` reads it."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
             if path.name != SUMS]
    (folder / SUMS).write_text("".join(lines))


def main(arguments: Sequence[str]) -> int:
    """Build everything, print the names of the files, and return the exit status."""
    parser = ArgumentParser("distribution.release", description="Build all files of a release from its tag.")
    parser.add_argument("--into", type=Path, default=ROOT / "dist" / TAG, metavar="FOLDER",
                        help=f"an empty folder (default: dist/{TAG})")
    parser.add_argument("--image", default=_IMAGE, help=f"the image of Python below the container (default: {_IMAGE})")
    given = parser.parse_args(arguments)
    try:
        check_sources(ROOT)
        given.into.mkdir(parents=True, exist_ok=True)
        if any(given.into.iterdir()):
            raise NotReleasable(f"{given.into} is not empty; delete it, or name another folder with --into")
    except NotReleasable as refused:
        print(f"distribution.release: {refused}", file=sys.stderr)
        return 1
    if status := build.main(["--into", str(given.into)]):
        return status
    try:
        write_image(given.into / "svcd.pyz", given.into, given.image)
    except (OSError, subprocess.CalledProcessError) as failure:
        reason = (getattr(failure, "stderr", None) or str(failure)).strip().splitlines()[-1]
        print(f"distribution.release: without a container archive: {reason}", file=sys.stderr)
    write_recipes(given.into)
    write_sums(given.into)
    print((given.into / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
