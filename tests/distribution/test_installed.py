"""What users are handed, each in an empty root. What must hold of `svcd.pyz`, the wheel and the Debian package:

1. It starts, adds documents, searches them (also in a search worker), segments German, and stops; with no other package there.
2. Every module of svcd can be loaded from svcd.pyz, with what it loads late.
3. The Debian package is what dpkg reads, and its scripts make and remove what is not in it: a key, bytecode.
4. The service of the package could do little harm.
5. `openapi.json` beside them is what `GET /openapi.json` answers.
"""
from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from distribution import build, deb
from distribution.bundle import MissingPackage, is_plain, packages
from svcd import __version__
from svcd.api.all_routes import ROUTES
from svcd.api.openapi import document
from tests.cli.test_systemd import MAX_EXPOSURE, exposure, needs_systemd
from tests.distribution.conftest import OFFLINE
from tests.support.archives import unpack
from tests.support.shown_blocks import of_kind
from tests.support.shown_setup import cloned

ROOT = Path(__file__).resolve().parents[2]
# The Python below that of the virtual environment, without the packages of either.
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
ALONE = [str(PYTHON), "-I", "-S"]
SECONDS = 30.0

pytestmark = pytest.mark.slow


# -- One daemon, and what everyone does with it


@contextmanager
def running(command: Sequence[str], folder: Path) -> Iterator[str]:
    """The address of a daemon without any environment; its log is in folder/log."""
    (folder / "home").mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [*command, "--http-addr", "127.0.0.1:0", "--search-workers", "1"], cwd=folder, stdin=subprocess.DEVNULL,
            stdout=stream, stderr=stream, env={"HOME": str(folder / "home"), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"})
    try:
        yield until(log, r"address +(http://127\.0\.0\.1:\d+)", process)
        until(log, "search worker answers searches", process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        said = log.read_text()
        assert said.rstrip().endswith("stopped") and " ERROR " not in said and "Traceback" not in said, said
    finally:
        process.kill()
        process.wait()
    assert list((folder / "home").iterdir()) == []


def until(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """Wait for a line of the log; its first group."""
    deadline = time.monotonic() + SECONDS
    while not (found := re.search(pattern, log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)
    return found[found.re.groups]


def call(url: str, value: Any = None, method: str | None = None) -> Any:
    content = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    with urlopen(Request(url, content, {"Content-Type": "application/json"}, method=method), timeout=SECONDS) as answer:
        return json.loads(answer.read())


def does_the_main_job(command: Sequence[str], folder: Path) -> None:
    films = (ROOT / "examples" / "films.json").read_bytes()
    german = {"localizedAttributes": [{"attributePatterns": ["*"], "locales": ["deu"]}]}
    with running(command, folder) as address:
        assert call(f"{address}/indexes/films/documents?wait=30s", films)["status"] == "succeeded"
        assert call(f"{address}/indexes/films/search?q=star+wras")["hits"][0]["title"] == "Star Wars"
        assert call(f"{address}/indexes/words/settings?wait=30s", german, "PATCH")["status"] == "succeeded"
        assert call(f"{address}/indexes/words/documents?wait=30s", [{"id": 1, "word": "Wissensorganisation"}])["status"] == "succeeded"
        assert len(call(f"{address}/indexes/words/search?q=organisation")["hits"]) == 1
        with urlopen(Request(address, headers={"Accept": "text/html"}), timeout=SECONDS) as page:
            assert b"<html" in page.read()
        found = subprocess.run([*command, "search", "films", "star wras", "--json", "--url", address], cwd=folder, env={},
                               capture_output=True, text=True, check=True)
        assert "Star Wars" in found.stdout


# -- svcd.pyz


def test_one_file_does_the_main_job(pyz: Path, tmp_path: Path) -> None:
    does_the_main_job([*ALONE, str(pyz)], tmp_path)


LOAD_ALL = """
import importlib, pkgutil, sys
sys.path[:0] = [sys.argv[1]]
import svcd, click.shell_completion, jwt, liquid, dateutil.parser, tomli_w
for module in pkgutil.walk_packages(svcd.__path__, "svcd."):
    if not module.name.endswith(("__main__", "cluster.nats")):  # the second needs an extra
        importlib.import_module(module.name)
        print(module.name)
foreign = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", None) or "")]
assert not foreign, foreign
"""


def test_every_module_loads_from_the_one_file(pyz: Path, tmp_path: Path) -> None:
    made = subprocess.run([*ALONE, "-c", LOAD_ALL, str(pyz)], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert made.stderr == ""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "svcd").rglob("*.py")
               if not path.name.startswith("__")}
    assert modules - {"svcd.cluster.nats"} <= set(made.stdout.split())


def test_an_older_python_is_told_so(pyz: Path) -> None:
    """The first lines must be readable for it; here they are run with another version number."""
    lines = zipfile.ZipFile(pyz).read("__main__.py").decode()
    code = f"import sys\nsys.version_info = (3, 8)\n{lines}"
    made = subprocess.run([*ALONE, "-c", code], capture_output=True, text=True, check=False)
    assert made.returncode == 1 and made.stderr.startswith("svcd: Python 3.11 or later is needed")


def test_nothing_compiled_is_in_a_bundle() -> None:
    names = {package.name.lower() for package in packages()}
    assert {"click", "pyjwt", "python-liquid"} <= names
    assert not names & {"brotli", "pyroaring", "pip", "numpy"}


def test_an_installation_needs_no_compiler() -> None:
    """All packages without an extra are plain Python: no marker tells where a compiled one has a wheel."""
    assert [package.name for package in packages() if not is_plain(package)] == []


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def fail(_folder: Path) -> Path:
        raise MissingPackage("the package click is not installed")

    monkeypatch.setitem(build.TARGETS, "pyz", fail)
    assert build.main(["--into", str(tmp_path), "pyz"]) == 1
    assert "the package click is not installed: run `make dist`" in capsys.readouterr().err


def test_the_description_of_the_interface_is_that_of_the_daemon(tmp_path: Path) -> None:
    assert build.main(["--into", str(tmp_path), "openapi"]) == 0
    assert json.loads((tmp_path / "openapi.json").read_text()) == document(ROUTES)


# -- The wheel


def man_pages(folder: Path) -> set[str]:
    """The names of pages, each in the folder of its section."""
    return {path.name for path in folder.glob("man*/*") if path.name.removesuffix(".gz")[-1] == path.parent.name[-1]}


def test_the_wheel_does_the_main_job_in_a_fresh_environment(release_files: Path, tmp_path: Path) -> None:
    """Installed as docs/installation.md says."""
    (wheel,) = release_files.glob("*.whl")
    (block,) = [block for block in of_kind("sh") if wheel.name in block.text]
    fresh = tmp_path / "clone" / "root" / "opt" / "svcd"
    with cloned(tmp_path / "clone", {}, wheel) as clone:
        try:
            clone.do(block.text)
        except AssertionError as failure:
            if OFFLINE.search(str(failure)):
                pytest.skip("pip cannot reach its registry")
            raise
    assert man_pages(fresh / "share" / "man") == {path.name for path in (ROOT / "man").iterdir()}
    does_the_main_job([str(fresh / "bin" / "svcd")], tmp_path / "run")


# -- The Debian package


def members(path: Path) -> dict[str, bytes]:
    """The members of an ar archive."""
    archive = io.BytesIO(path.read_bytes())
    assert archive.read(8) == b"!<arch>\n"
    found = {}
    while head := archive.read(60):
        assert head.endswith(b"`\n")
        size = int(head[48:58])
        found[head[:16].decode().strip()] = archive.read(size)
        archive.read(size % 2)
    return found


def unpacked(package: Path, folder: Path) -> Path:
    """A folder that dpkg has unpacked the package into or, where there is no dpkg, this."""
    if shutil.which("dpkg-deb"):
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    else:
        with tarfile.open(fileobj=io.BytesIO(members(package)["data.tar.gz"])) as data:
            unpack(data, folder)
    return folder


def scripts(package: Path) -> Mapping[str, str]:
    with tarfile.open(fileobj=io.BytesIO(members(package)["control.tar.gz"])) as control:
        return {name: control.extractfile(f"./{name}").read().decode() for name in deb.SCRIPTS}  # type: ignore[union-attr]


def test_the_debian_package_does_the_main_job(package: Path, tmp_path: Path) -> None:
    root = unpacked(package, tmp_path / "root")
    does_the_main_job([*ALONE, str(root / "usr" / "bin" / "svcd")], tmp_path / "run")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
def test_dpkg_reads_the_package(package: Path) -> None:
    fields = subprocess.run(["dpkg-deb", "--field", package, "Package", "Version", "Architecture"],
                            capture_output=True, text=True, check=True)
    assert fields.stdout.splitlines() == ["Package: svcd", f"Version: {__version__}", "Architecture: all"]
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    assert len(listed.splitlines()) > len(deb.package_files({})) and "root/root" in listed


def test_the_package_has_what_a_system_needs(package: Path, tmp_path: Path) -> None:
    assert list(members(package)) == ["debian-binary", "control.tar.gz", "data.tar.gz"]
    root = unpacked(package, tmp_path / "root")
    unit = (root / "usr/lib/systemd/system/svcd.service").read_text()
    assert "\nExecStart=/usr/bin/svcd --env production\n" in unit and "\nUser=svcd\n" in unit and "DynamicUser" not in unit
    assert (root / "usr/lib/systemd/system/svcd.socket").read_text() == (ROOT / "examples/svcd.socket").read_text()
    assert "\nu svcd " in (root / "usr/lib/sysusers.d/svcd.conf").read_text()
    assert (root / "etc/svcd/svcd.toml").read_text() == (ROOT / "examples/svcd.toml").read_text()
    assert man_pages(root / "usr/share/man") == {f"{path.name}.gz" for path in (ROOT / "man").iterdir()}
    licences = (root / "usr/share/doc/svcd/copyright").read_text()
    for folder in re.findall(r"^/(usr/lib/svcd/.*)/$", licences, re.M):
        assert (root / folder / "METADATA").exists()


def test_the_completions_of_the_package_work(package: Path, tmp_path: Path) -> None:
    root = unpacked(package, tmp_path / "root")
    assert "_SVCD_COMPLETE=bash_complete" in (root / "usr/share/bash-completion/completions/svcd").read_text()
    asked = {"_SVCD_COMPLETE": "bash_complete", "COMP_WORDS": "svcd --master-key-", "COMP_CWORD": "1"}
    made = subprocess.run([*ALONE, root / "usr/bin/svcd"], env=asked, capture_output=True, text=True, check=True)
    assert made.stdout.splitlines() == ["plain,--master-key-file"]


def test_the_scripts_of_the_package_leave_nothing_but_what_is_the_users(package: Path, tmp_path: Path) -> None:
    root = unpacked(package, tmp_path / "root")
    before = sorted(root.rglob("*"))
    environ = {"PATH": f"{PYTHON.parent}:{os.defpath}", "DPKG_ROOT": str(root)}

    def run(name: str, *arguments: str) -> str:
        return subprocess.run(["sh", "-c", scripts(package)[name], name, *arguments], env=environ, capture_output=True, text=True,
                              check=True).stdout

    assert "a new master key is in /etc/svcd/master-key" in run("postinst", "configure")
    key = root / "etc/svcd/master-key"
    assert len(key.read_text().strip()) == 43 and key.stat().st_mode & 0o777 == 0o600
    assert list(root.glob("usr/lib/svcd/svcd/__pycache__/*.pyc"))
    first = key.read_text()
    assert run("postinst", "configure", __version__) == "" and key.read_text() == first
    run("prerm", "remove")
    assert sorted(root.rglob("*")) == sorted([*before, key])
    run("postrm", "remove")
    run("postrm", "purge")
    assert sorted(root.rglob("*")) == before


@needs_systemd
def test_the_service_of_the_package_could_do_little_harm(package: Path, tmp_path: Path) -> None:
    assert exposure(unpacked(package, tmp_path / "root") / "usr/lib/systemd/system/svcd.service") <= MAX_EXPOSURE
