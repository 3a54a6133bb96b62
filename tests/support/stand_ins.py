"""Commands of the pages that would change the machine, or fetch something: they act on the folder of a test, or look whether what
they are asked for is there.

    python -m tests.support.stand_ins FOLDER COMMAND ARGUMENTS...

FOLDER is what a Clone (tests/support/shown_setup.py) has made: a clone of the repository, and in `root` a system without anything.
"""
from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

START_S = 30.0


class Machine:
    """One method for each command; what it returns is the exit status, None for 0."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = folder / "root"

    def sudo(self, *command: str) -> None:
        os.execvp(command[0], command)

    def svcd(self, *arguments: str) -> None:
        self.python("-m", "svcd", *arguments)

    def python(self, *arguments: str) -> None:
        """The tests are not run, only found; nothing is built; nothing is compiled beforehand, which takes long."""
        match arguments:
            case ["-m", "pytest", *paths]:
                for path in paths:
                    assert (self._folder / path).exists(), f"there is no {path}"
            case ["-m", "distribution.build", *_]:
                os.execv(sys.executable, [sys.executable, *arguments, "--help"])
            case ["-m", "compileall", *_]:
                pass
            case ["-m", "venv", environment]:
                # With the pip of this Python, as one of its own takes long to install.
                subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
                pip = Path(environment, "bin", "pip")
                pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --python "{environment}/bin/python" "$@"\n')
                pip.chmod(0o755)
            case ["-m", module, *_] if module.startswith("svcd"):
                os.execv(sys.executable, [sys.executable, *arguments])
            case _:  # without the sources, of which the rest knows nothing
                os.environ.pop("PYTHONPATH")
                os.execv(sys.executable, [sys.executable, *arguments])

    python3 = python

    def ruff(self, *arguments: str) -> None:
        assert arguments == ("check", "--quiet")

    def mypy(self, *arguments: str) -> None:
        assert arguments == ("--no-error-summary",)

    def pip(self, *arguments: str) -> None:
        """Extras are of the project."""
        install, editable, what = arguments
        assert (install, editable) == ("install", "--editable") and what.startswith(".[")
        extras = tomllib.loads((self._folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(what[2:-1].split(",")) <= set(extras)

    def npm(self, *arguments: str) -> None:
        install, prefix, folder = arguments
        assert (install, prefix) == ("install", "--prefix") and (self._folder / folder / "package.json").exists()

    def apt_get(self, *arguments: str) -> None:
        """Unpack the package, and do what its script says."""
        install, package = arguments
        assert install == "install" and package.startswith("./")
        scripts = self._folder / "scripts"
        subprocess.run(["dpkg-deb", "--extract", package, self._root], check=True)
        subprocess.run(["dpkg-deb", "--control", package, scripts], check=True)
        subprocess.run(["sh", scripts / "postinst", "configure"], env={**os.environ, "DPKG_ROOT": str(self._root)}, check=True)
        self.systemctl("enable", "--now", "svcd")

    def systemctl(self, *arguments: str) -> int | None:
        match arguments:
            case ["daemon-reload"]:
                return None
            case ["enable", "--now", "svcd"]:
                return self._start()
            case ["status", "svcd"]:
                return None if self._is_up() else 3
        raise AssertionError(f"systemctl {arguments}")

    def _start(self) -> int | None:
        """Start the unit as systemd does: with its command, its environment and its credentials, in its folder."""
        unit = next(path for path in (self._root / "etc/systemd/system/svcd.service", self._root / "usr/lib/systemd/system/svcd.service")
                    if path.exists())
        settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#"))
        command, *arguments = shlex.split(settings["ExecStart"])
        program = next(path for path in (self._root / command.lstrip("/"), self._root / "usr/local/bin" / command) if path.exists())
        name, _, value = settings["Environment"].partition("=")
        credential, _, key = settings["LoadCredential"].partition(":")
        assert (self._root / key.lstrip("/")).name == credential
        state = self._root / "var/lib" / settings["StateDirectory"]
        state.mkdir(parents=True)
        environ = {"SVC_HTTP_ADDR": os.environ["SVC_HTTP_ADDR"], name: str(self._root / value.lstrip("/")),
                   "CREDENTIALS_DIRECTORY": str((self._root / key.lstrip("/")).parent)}
        with (state / "log").open("wb") as log:
            daemon = subprocess.Popen([sys.executable, "-I", "-S", program, *arguments], cwd=state, env=environ,
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        while not self._is_up():
            assert daemon.poll() is None and time.monotonic() < deadline, (state / "log").read_text()
            time.sleep(0.02)
        return None

    def _is_up(self) -> bool:
        try:
            with urlopen(f"http://{os.environ['SVC_HTTP_ADDR']}/health") as answer:
                return bool(answer.status == 200)
        except URLError:
            return False


if __name__ == "__main__":
    sys.exit(getattr(Machine(Path(sys.argv[1])), sys.argv[2].replace("-", "_"))(*sys.argv[3:]))
