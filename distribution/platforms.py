"""Install svcd in Debian roots for several kinds of processors, without a compiler, and use it: `make platforms`.

    python -m distribution.platforms                         all of PLATFORMS: an hour
    python -m distribution.platforms --short bookworm/i386   the wheel alone, and no tests: some minutes

Needs root, mmdebstrap and, for the processors that this machine emulates, qemu-user-static. Prints one row for each platform and
way of installation; a way that fails prints its last lines. Roots are kept in dist/platforms/ and used again.
"""
from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from distribution import build
from distribution.bundle import ROOT

NATIVE = ("amd64", "i386")
PLATFORMS = tuple(f"{suite}/{processor}" for suite in ("bookworm", "trixie") for processor in (*NATIVE, "armhf", "arm64"))
# Enough for `make run`, and no compiler. `file` names that binfmt_misc must know.
_PACKAGES = "python3,python3-venv,make,git,ca-certificates"
_EMULATORS = {"armhf": "qemu-arm", "arm64": "qemu-aarch64"}
_BINFMT = Path("/proc/sys/fs/binfmt_misc")
_SECONDS = 3600

# Films in, found, restart, found again, verified: with the command in sys.argv, in a folder of its own. Plain Python of Debian.
MAIN_JOB = """
import json, os, re, signal, subprocess, sys, tempfile, time, urllib.request
command, films = sys.argv[2:], open(sys.argv[1], "rb").read()
os.chdir(tempfile.mkdtemp())
def call(url, content=None):
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)
def started():
    log = open("log", "wb")
    process = subprocess.Popen([*command, "--http-addr", "127.0.0.1:0"], stdout=log, stderr=log)
    for attempt in range(3000):
        found = re.search(r"address +(http://[0-9.:]+)", open("log").read())
        if found:
            return process, found[1]
        assert process.poll() is None, open("log").read()
        time.sleep(0.1)
    raise SystemExit("it does not start: " + open("log").read())
def search(address):
    return call(address + "/indexes/films/search?q=star+wras")["hits"][0]["title"]
process, address = started()
task = call(address + "/indexes/films/documents?wait=250s", films)
assert task["status"] == "succeeded", task
assert search(address) == "Star Wars"
process.send_signal(signal.SIGTERM)
assert process.wait(300) == 0
process, address = started()
assert search(address) == "Star Wars"
process.send_signal(signal.SIGTERM)
assert process.wait(300) == 0
subprocess.run([*command, "verify", "--full", "--folder", "data.ms"], check=True, stdout=subprocess.DEVNULL)
missing = re.findall(r"compiled packages not installed.*", open("log").read())
print("main job done", *missing)
"""


class Way(NamedTuple):
    """A way of installation. install: shell commands, with the artifacts in /made and a clone in /clone; command: svcd."""

    name: str
    install: str
    command: str


WAYS = (
    Way("wheel", "python3 -m venv /opt/svcd && /opt/svcd/bin/pip install --quiet /made/*.whl", "/opt/svcd/bin/svcd"),
    Way("svcd.pyz", "true", "/made/svcd.pyz"),
    Way("deb", "dpkg --install /made/*.deb", "/usr/bin/svcd"),
    Way("make run", "cd /clone && make run ARGS=--version", "/clone/.venv/bin/svcd"),
)


class Root:
    """A Debian root, unpacked in a folder."""

    def __init__(self, archive: Path, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["tar", "--extract", "--file", str(archive), "--directory", str(folder), "--exclude", "./dev/*"],
                       check=True)
        for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", os.environ.get("PIP_CERT", ""),
                     os.environ.get("SSL_CERT_FILE", "")):
            if path and Path(path).is_file():
                (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, folder / path.lstrip("/"))

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script in the root, with /proc and /dev, and the settings of pip and proxies of this environment."""
        kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")
                or name.startswith("PIP_") and name != "PIP_FIND_LINKS" or name == "SSL_CERT_FILE"}
        inside = f'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" sh -ec {_quoted(script)}'
        return subprocess.run(["unshare", "--mount", "--fork", "sh", "-c", inside, str(self.folder)], capture_output=True,
                              text=True, check=False, timeout=_SECONDS, stdin=subprocess.DEVNULL,
                              env={**kept, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def why_not(name: str) -> str | None:
    """Return why a platform cannot be tried here, or None."""
    processor = name.partition("/")[2]
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed (apt-get install mmdebstrap)"
    if processor in NATIVE:
        return None if platform.machine() == "x86_64" else f"{processor} needs a processor of x86-64"
    if not (_BINFMT / _EMULATORS[processor]).exists() and not _register(_EMULATORS[processor]):
        return f"{processor} needs qemu-user-static and binfmt_misc (apt-get install qemu-user-static)"
    return None


def _register(emulator: str) -> bool:
    """Let the kernel run programs of another processor by qemu; return whether it does."""
    recipe = Path(f"/usr/lib/binfmt.d/{emulator}.conf")
    if not (_BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)], check=False, capture_output=True)
    if recipe.exists() and (_BINFMT / "register").exists():
        (_BINFMT / "register").write_text(recipe.read_text().strip())
    return (_BINFMT / emulator).exists()


def archive_of(name: str, folder: Path, mirrors: Sequence[str] = ()) -> Path:
    """Return the archive of a root, built if it is not there. mirrors: lines of sources.list instead of Debian's own."""
    suite, _, processor = name.partition("/")
    path = folder / f"{suite}-{processor}.tar"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--architectures={processor}", f"--include={_PACKAGES}",
                   "--aptopt=Acquire::Languages \"none\"", suite, str(partial)]
        try:
            subprocess.run([*command, *(mirror.replace("SUITE", suite) for mirror in mirrors)], check=True)
        except subprocess.CalledProcessError:
            # A mirror's copy of the security updates may be behind its index, for processors that few fetch.
            if mirrors or not (own := _own_archive()):
                raise
            subprocess.run([*command, f"deb {own} {suite} main"], check=True)
        partial.replace(path)
    return path


def _own_archive() -> str | None:
    """Return the address of Debian's archive that this machine installs packages from."""
    listed = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], capture_output=True,
                            text=True, check=False).stdout.split()
    return next((uri for uri in listed if "security" not in uri), None)


def tried(name: str, archive: Path, made: Path, is_short: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (way, what happened, remark) of each way of installation on a platform, and of the tests."""
    with TemporaryDirectory(prefix="svcd-platform-") as folder:
        root = Root(archive, Path(folder))
        shutil.copytree(made, root.folder / "made")
        (root.folder / "made/main_job.py").write_text(MAIN_JOB)
        shutil.copy(ROOT / "examples/films.json", root.folder / "made")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root.folder / "clone")], check=True)
        for way in WAYS[:1] if is_short else WAYS:
            installed = root.run(f"! command -v cc && {way.install}")
            if installed.returncode:
                yield way.name, "not installed", _last(installed)
                continue
            did = root.run(f"python3 /made/main_job.py /made/films.json {way.command}")
            yield way.name, "failed" if did.returncode else "installed, main job", _last(did)
        if not is_short and name.partition("/")[2] in NATIVE:
            ran = root.run("cd /clone && make .venv/ready-to-test && .venv/bin/python -m pytest -q -m 'not slow'")
            yield "quick tests", "failed" if ran.returncode else "passed", _last(ran)


def _last(ran: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of a success, the last lines of a failure."""
    said = [line for line in (ran.stdout if not ran.returncode else ran.stdout + ran.stderr).splitlines() if line.strip()]
    return " ".join(said[-1:]) if not ran.returncode else "\n    ".join(["", *said[-15:]])


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Try the named platforms, print a row for each way, and return the exit status.

    SVCD_MIRROR: a line of sources.list instead of Debian's own, with SUITE for the name.
    """
    parser = ArgumentParser("distribution.platforms", description="Install svcd in Debian roots, and use it.")
    parser.add_argument("--short", action="store_true", help="the wheel alone, and no tests")
    parser.add_argument("--roots", type=Path, default=ROOT / "dist/platforms", metavar="FOLDER", help="where roots are kept")
    parser.add_argument("platform", nargs="*", default=PLATFORMS, metavar="SUITE/PROCESSOR")
    given = parser.parse_args(arguments)
    if unknown := set(given.platform) - set(PLATFORMS):
        parser.error(f"no platform {min(unknown)}; platforms are {', '.join(PLATFORMS)}")
    status = 0
    mirrors = [environ["SVCD_MIRROR"]] if environ.get("SVCD_MIRROR") else []
    reasons = {name: why_not(name) for name in given.platform}
    # Two roots at once, beside builds and tests: they mostly wait for mirrors.
    with TemporaryDirectory(prefix="svcd-made-") as folder, ThreadPoolExecutor(2) as pool:
        archives = {name: pool.submit(archive_of, name, given.roots, mirrors) for name, reason in reasons.items() if not reason}
        if build.main(["--into", folder, "wheel", "pyz", "deb"]):
            return 1
        for name, reason in reasons.items():
            if reason:
                print(f"{name:16} skipped: {reason}", flush=True)
                continue
            try:
                archive = archives[name].result()
            except subprocess.CalledProcessError:
                print(f"{name:16} skipped: mmdebstrap could not build the root", flush=True)
                continue
            for way, result, remark in tried(name, archive, Path(folder), given.short):
                print(f"{name:16} {way:12} {result:20} {remark}", flush=True)
                status |= result in ("failed", "not installed")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
