"""examples/Containerfile and compose.yaml. What must hold:

1. What they name exists: files that are copied, options, paths that one has from the other.
2. Its packages install without a compiler, and svcd.pyz uses them.
3. The image is built on a root with nothing but Python, a shell and a few tools, and does the main job there as the user and in
   the environment of the file. buildah does that here, which runs commands in a chroot: that ports are published, volumes
   mounted and secrets given is not tested, nor the image of Python that the file names.
"""
from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from distribution import build
from svcd.cli.foreign_variables import name_of
from svcd.cli.options import OPTIONS
from tests.distribution.conftest import OFFLINE
from tests.distribution.test_installed import PYTHON
from tests.support.daemon import ROOT
from tests.support.shown_blocks import of_kind

FILE = ROOT / "examples/Containerfile"
COMPOSE = (ROOT / "examples/compose.yaml").read_text()
# What its RUN lines and the test call, beside /bin/sh and /usr/bin/env.
TOOLS = ("sh", "mkdir", "chown")
MASTER_KEY = "a-master-key-of-some-length"

JOB = """
import json, os, sys, time, urllib.request
assert os.getuid() == os.getgid() == 10001, os.getuid()
prefix, folder = sys.argv[1:]
def call(path, value=None, method=None):
    headers = {"Authorization": "Bearer " + os.environ[prefix + "_MASTER_KEY"], "Content-Type": "application/json"}
    content = None if value is None else json.dumps(value).encode()
    request = urllib.request.Request("http://" + os.environ[prefix + "_HTTP_ADDR"] + path, content, headers, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())
for attempt in range(300):
    try:
        call("/health")
        break
    except OSError:
        time.sleep(0.1)
assert call("/indexes/films/documents?wait=30s", [{"id": 1, "title": "Star Wars"}])["status"] == "succeeded"
print(call("/indexes/films/search?q=star+wras")["hits"], sorted(os.listdir(folder)))
"""


def instructions() -> list[tuple[str, str]]:
    """(name, arguments) of each line of the file."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(), flags=re.M).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def variables() -> dict[str, str]:
    return dict(part.split("=", 1) for name, rest in instructions() if name == "ENV" for part in shlex.split(rest))


# -- What they name


def test_what_the_file_names_exists() -> None:
    copied = [rest.split()[-2:] for name, rest in instructions() if name == "COPY"]
    assert copied == [["dist/svcd.pyz", "/usr/local/bin/svcd"]] and "pyz" in build.TARGETS
    known = {name for option in OPTIONS for name in (option.variable, name_of(option.variable))}
    named = {*variables(), *re.findall(r"\b(?:SVC|MEILI)_\w+\b(?!\*)", FILE.read_text() + COMPOSE)} - {"SVC_", "MEILI_"}
    assert named <= known, named - known


def test_both_files_agree() -> None:
    given = dict(instructions())
    assert re.search(r"^ +dockerfile: (.*)$", COMPOSE, re.M)[1] == str(FILE.relative_to(ROOT))  # type: ignore[index]
    port = variables()["MEILI_HTTP_ADDR"].rpartition(":")[2]
    assert given["EXPOSE"] == port and f"127.0.0.1:{port}:{port}" in COMPOSE
    assert f'["data:{given["VOLUME"]}"]' in COMPOSE and given["WORKDIR"] == given["VOLUME"]
    assert given["USER"].split(":")[0] in COMPOSE


def test_the_shown_compose_files_of_applications_work_as_they_are() -> None:
    """All but one of their variables, which is for the application, are options; the volume is at a path that keeps data."""
    known = {name_of(option.variable) for option in OPTIONS}
    for block in of_kind("yaml"):
        assert set(re.findall(r"\bMEILI_\w+", block.text)) - known <= {"MEILI_HOST"}, str(block)
        assert ":/meili_data " in block.text and "MEILI_NO_ANALYTICS" in block.text


# -- Compiled packages


@pytest.mark.slow
def test_its_packages_install_without_a_compiler(pyz: Path, tmp_path: Path) -> None:
    (packages,) = (shlex.split(rest)[0].partition("=")[2] for name, rest in instructions() if name == "ARG" and "PACKAGES" in rest)
    (command,) = (rest for name, rest in instructions() if name == "RUN" and "pip install" in rest)
    subprocess.run([str(PYTHON), "-m", "venv", str(tmp_path / "root")], check=True, capture_output=True)
    environment = {**os.environ, "PACKAGES": packages, "PATH": f"{tmp_path}/root/bin:/nothing", "CC": "false", "CXX": "false"}
    ran = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    if OFFLINE.search(ran.stderr):
        pytest.skip("no package can be fetched: there is no network")
    assert ran.returncode == 0 and "does without" not in ran.stderr, ran.stderr
    used = "import sys; sys.path.insert(0, sys.argv[1]); import brotli, pyroaring; from svcd.base import docids; print(docids.DocIds.__module__)"
    shown = subprocess.run([f"{tmp_path}/root/bin/python", "-I", "-c", used, str(pyz)], capture_output=True, text=True,
                           check=False)
    assert shown.stdout.startswith("pyroaring"), shown.stdout + shown.stderr


# -- The image


def libraries(programs: Iterable[Path]) -> set[Path]:
    """What the loader loads for them, and the loader itself."""
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=False).stdout
    return {Path(found) for found in re.findall(r"(/\S+)(?= \(0x)", said)}


def write_root(path: Path) -> None:
    """An archive of a root with Python, as python3 in /usr/local/bin, a shell and a few tools."""
    standard = Path(sysconfig.get_path("stdlib"))
    left_out = {"test", "site-packages", "dist-packages", "idlelib", "tkinter", "ensurepip", "lib2to3", "__pycache__"}
    tools = [Path("/bin/sh"), Path("/usr/bin/env"), *(Path(str(shutil.which(tool))) for tool in TOOLS)]
    files = {each for each in standard.rglob("*") if each.is_file() and not left_out & {*each.relative_to(standard).parts}
             and not each.parts[-2].startswith("config-")}
    files |= libraries([PYTHON, *tools, *standard.glob("lib-dynload/*.so")]) | {PYTHON, *tools}
    with tarfile.open(path, "w", dereference=True) as archive:
        for file in sorted(files):
            archive.add(file, str(file).lstrip("/"), recursive=False)
        for place in ("usr/local/bin/python3", "usr/bin/python3"):
            link = tarfile.TarInfo(place)
            link.type, link.linkname = tarfile.SYMTYPE, str(PYTHON)
            archive.addfile(link)
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)


class Buildah:
    """buildah with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self._command = ["buildah", "--root", str(folder / "store"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"]

    def __call__(self, name: str, *arguments: str) -> str:
        """What a command prints."""
        ran = subprocess.run([*self._command, name, *arguments], capture_output=True, text=True, timeout=300, check=False)
        if ran.returncode and "operation not permitted" in ran.stderr.lower():
            pytest.skip(f"buildah may not do its work here: {ran.stderr.strip()}")
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("buildah") is None or os.geteuid() != 0 or not sys.platform.startswith("linux"),
                    reason="buildah is not installed, or this is not root: `make examples` installs it where it can")
def test_the_image_does_the_main_job_in_an_empty_root(pyz: Path, tmp_path: Path) -> None:
    buildah = Buildah(tmp_path)
    context, base = tmp_path / "context", tmp_path / "base"
    (context / "dist").mkdir(parents=True)
    base.mkdir()
    shutil.copy(pyz, context / "dist")
    write_root(base / "root.tar")
    (base / "Containerfile").write_text("FROM scratch\nADD root.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n")
    try:
        buildah("build", "--isolation", "chroot", "--quiet", "-t", "localhost/python", str(base))
        buildah("build", "--isolation", "chroot", "--quiet", "--format", "docker", "--build-arg", "PYTHON=localhost/python",
                "--build-arg", "PACKAGES=", "-t", "localhost/svcd", "-f", str(FILE), str(context))
        container = buildah("from", "localhost/svcd")
        (entry,) = (rest for name, rest in instructions() if name == "ENTRYPOINT")
        (check,) = (re.search(r"CMD (\[.*\])", rest)[1] for name, rest in instructions() if name == "HEALTHCHECK")  # type: ignore[index]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (tmp_path / "volume").mkdir()
        os.chown(tmp_path / "volume", 10001, 10001)
        # At its own path, and as a compose file of the reference engine has it: its variables, its volume, its command.
        for prefix, folder, mount, arguments in (
            ("SVC", "/data", [], []),
            ("MEILI", "/meili_data", ["--volume", f"{tmp_path / 'volume'}:/meili_data"], ["meilisearch"]),
        ):
            script = (f"{shlex.join([*json.loads(entry), *arguments])} & pid=$!; python3 -c {shlex.quote(JOB)} {prefix} {folder} && "
                      f"{shlex.join(json.loads(check))} && kill $pid && wait $pid && echo stopped")
            printed = buildah("run", "--isolation", "chroot", *mount, "--env", f"{prefix}_HTTP_ADDR=127.0.0.1:{port}",
                              "--env", f"{prefix}_MASTER_KEY={MASTER_KEY}", container, "--", "sh", "-c", script)
            assert printed == "[{'id': 1, 'title': 'Star Wars'}] ['data.ms']\nstopped"
        assert (tmp_path / "volume/data.ms/instance.sqlite").exists()
    finally:
        buildah("rm", "--all")
        buildah("rmi", "--all", "--force")
