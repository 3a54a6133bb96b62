"""`make release`. What must hold:

1. Two runs write the same bytes: of svcd.pyz, wheel, source distribution, Debian package, list of packages, openapi.json.
2. A clone with changes, a commit without the tag, or a changelog without the version is refused, with the reason.
3. SHA256SUMS is what sha256sum reads; the list of packages has each package of the bundle, with its license.
4. The wheel can be built from the source distribution.
5. The recipes among the files have the checksums of the others.
"""
from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from distribution import build, release, sbom, sdist
from distribution.bundle import ROOT, packages
from svcd import __version__
from tests.distribution.conftest import build_apart, run_pip
from tests.support.archives import unpack

pytestmark = pytest.mark.slow


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_two_runs_write_the_same_bytes(release_files: Path, tmp_path: Path) -> None:
    """The second has another order of sets, and makes the wheel from the source distribution of the first."""
    first, folder = contents(release_files), tmp_path / "second"
    assert set(first) == {"svcd.pyz", f"svcd-{__version__}-py3-none-any.whl", sdist.NAME, f"svcd_{__version__}_all.deb", "openapi.json",
                          sbom.NAME}
    with tarfile.open(release_files / sdist.NAME) as archive:
        unpack(archive, tmp_path / "sources")
    run_pip([*build.PIP, "wheel", "--no-deps", "--wheel-dir", str(folder), str(tmp_path / "sources" / f"svcd-{__version__}")],
            PYTHONHASHSEED="2")
    sdist.normalize(*folder.iterdir())
    build_apart(folder, "2", *(target for target in build.TARGETS if target != "wheel"))
    second = contents(folder)
    assert set(second) == set(first) and [name for name in first if first[name] != second[name]] == []
    release.write_sums(folder)
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "--check", "--quiet", release.SUMS], cwd=folder, check=True)


def test_the_published_recipes_have_the_checksums_of_the_files(release_files: Path, tmp_path: Path) -> None:
    """As abuild does, sh reads the variable of the APKBUILD."""
    shutil.copytree(release_files, tmp_path, dirs_exist_ok=True)
    release.write_recipes(tmp_path)
    formula = (tmp_path / "svcd.rb").read_text()
    assert f'\n  sha256 "{hashlib.sha256((tmp_path / "svcd.pyz").read_bytes()).hexdigest()}"\n' in formula
    listed = subprocess.run(["sh", "-c", '. ./APKBUILD; printf %s "$sha512sums"'], cwd=tmp_path, capture_output=True, text=True, check=True)
    (tmp_path / "svcd.pyz").rename(tmp_path / f"svcd-{__version__}.pyz")
    shutil.copy(ROOT / "distribution/alpine/svcd.initd", tmp_path)
    sums = dict(line.split()[::-1] for line in listed.stdout.split("\n") if line)
    assert sums == {name: hashlib.sha512((tmp_path / name).read_bytes()).hexdigest()
                    for name in (sdist.NAME, f"svcd-{__version__}.pyz", "svcd.initd")}


def test_only_the_commit_of_the_tag_is_released(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n")
    with pytest.raises(release.NotReleasable, match=r"the clone has changes: \?\? CHANGELOG.md; commit or remove them"):
        release.check_sources(tmp_path)
    git("add", ".")
    git("commit", "-m", "a")
    with pytest.raises(release.NotReleasable, match=f"the commit is not tagged v{__version__}"):
        release.check_sources(tmp_path)
    git("tag", release.TAG)
    with pytest.raises(release.NotReleasable, match="CHANGELOG.md lacks a section"):
        release.check_sources(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__}\n")
    git("commit", "-am", "b")
    git("tag", "--force", release.TAG)
    release.check_sources(tmp_path)


def test_the_changelog_has_this_version() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_list_of_packages_has_all_of_the_bundle_with_licenses() -> None:
    listed = json.loads(sbom.build())
    assert {each["name"] for each in listed["components"]} == {package.name for package in packages()}
    assert all(each["licenses"] for each in listed["components"])
