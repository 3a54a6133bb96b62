"""The recipes of distribution/ for other systems: each is what its parser reads, names what a release has, and says that nobody has
tried it.
"""
from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from distribution import sdist
from svcd import __version__
from svcd.cli.options import OPTIONS

ROOT = Path(__file__).resolve().parents[2] / "distribution"
SHELL = ["sh", "-n"]
CHECKS = {  # file: commands that parse it
    "homebrew/svcd.rb": [["ruby", "-c"]],
    "alpine/APKBUILD": [SHELL, ["shellcheck", "--shell=sh"]],
    "alpine/svcd.pre-install": [SHELL, ["shellcheck"]],
    "alpine/svcd.initd": [SHELL, ["shellcheck", "--shell=sh"]],
    "nixos/module.nix": [["nix-instantiate", "--parse"]],
    "openwrt/svcd.init": [SHELL, ["shellcheck", "--shell=sh"]],
    "home-assistant/config.yaml": [["/usr/bin/python3", "-c", "import sys, yaml; assert yaml.safe_load(open(sys.argv[1]))['arch']"]],
}


def test_every_recipe_is_checked_and_listed() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*") if path.parent.name not in ("debian", "__pycache__")}
    assert found == set(CHECKS)
    listed = set(re.findall(r"^\| `([a-z-]+)/`", (ROOT / "README.md").read_text(), re.M))
    assert listed == {name.split("/")[0] for name in CHECKS}


@pytest.mark.parametrize("name", CHECKS)
def test_a_recipe_says_that_it_was_not_tried_and_names_what_exists(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "Not tried on" in text
    flags = set(re.findall(r"(?<![\w-])--(?!shell|file|directory|owner|mode)[a-z][a-z-]+", text))
    assert flags <= {option.flag for option in OPTIONS} | {"--version"}, flags
    for version in re.findall(r"(?:pkgver=|version:? \"|svcd/v)(\d+\.\d+\.\d+)", text):
        assert version == __version__
    files = {file.replace("$pkgver", __version__) for file in re.findall(r"example\.org/svcd/v[^/]+/([^\s\"]+)", text)}
    assert files <= {"svcd.pyz", sdist.NAME}


def test_the_apkbuild_has_the_checksum_of_the_script_beside_it() -> None:
    script = ROOT / "alpine/svcd.initd"
    assert f"\n{hashlib.sha512(script.read_bytes()).hexdigest()}  {script.name}\n" in (ROOT / "alpine/APKBUILD").read_text()


@pytest.mark.parametrize(("name", "command"), [(name, command) for name, commands in CHECKS.items() for command in commands],
                         ids=lambda each: each if isinstance(each, str) else each[0])
def test_its_parser_reads_a_recipe(name: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    ran = subprocess.run([*command, str(ROOT / name)], capture_output=True, text=True, check=False)
    if "No module named 'yaml'" in ran.stderr:
        pytest.skip("PyYAML is not installed for the Python of the system")
    assert ran.returncode == 0, ran.stdout + ran.stderr
