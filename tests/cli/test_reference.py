"""Generated documentation. What must hold:

1. Man pages, sample configuration and options page are up to date; --check names the stale ones.
2. Each option is in all of them.
3. The sample configuration can be loaded: it gives the defaults, and its examples are valid. So can the example of svcd.toml(5).
4. The man pages have no errors of roff.
"""
from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from svcd import reference
from svcd.cli.config import load
from svcd.cli.main import COMMANDS
from svcd.cli.options import OPTIONS, Option


@pytest.mark.parametrize("target", reference.TARGETS)
def test_a_made_file_is_fresh(target: str) -> None:
    path, make = reference.TARGETS[target]
    assert path.read_text() == make(), f"{path.name} is stale; run `make docs`"


def test_check_names_the_stale_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reference, "ROOT", tmp_path)
    monkeypatch.setitem(reference.TARGETS, "man", (tmp_path / "svcd.1", reference.man_page))
    assert reference.main(["--check", "man"]) == 1
    assert "svcd.1 is stale" in capsys.readouterr().err
    assert reference.main(["man"]) == 0
    assert reference.main(["--check", "man"]) == 0
    assert reference.main(["nonsense"]) == 2


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_each_option_stands_everywhere(option: Option) -> None:
    page = reference.man_page().replace("\\-", "-")
    assert option.flag in page and option.variable in page
    assert option.flag in reference.options_table()
    is_settable = option.is_in_file and option.works_in_file
    assert (f"; key {option.name}" in page) == is_settable
    file_page = reference.file_page().replace("\\-", "-")
    assert (f"\\fB{option.name}\\fP = " in file_page) == is_settable
    assert (f".B {option.name}\n" in file_page) == (option.is_in_file and not option.works_in_file)
    if option.name != "ssl_ocsp_path":
        assert (f"\n#{option.name} = " in reference.sample_config()) == is_settable


def _uncommented(keys: set[str]) -> str:
    lines = reference.sample_config().splitlines()
    return "\n".join(line[1:] for line in lines if line.startswith("#") and line[1:].split(" =")[0] in keys)


def test_the_sample_config_shows_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every # removed but those of examples, nothing changes. Options of an object store need one."""
    monkeypatch.chdir(tmp_path)
    defaults = {option.name for option in OPTIONS if option.default and option.group != "Object store"}
    Path("config.toml").write_text(_uncommented(defaults))
    from_file, without = load({}, {}), load({"config_file_path": "/dev/null"}, {})
    shown = zip(from_file.described(), without.described(), strict=True)
    assert all(mine[1] == default[1] for mine, default in shown if mine[0] != "config_file_path")


def test_the_examples_of_the_sample_config_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # A role and keys of an object store exclude each other, and so do a key and a file with a key.
    others = {"experimental_s3_role_arn", "experimental_s3_web_identity_token_file", "master_key_file"}
    Path("config.toml").write_text(_uncommented({option.name for option in OPTIONS} - others))
    assert load({}, {}).ssl_auth_path == Path("/etc/svcd/clients.pem")


def test_the_example_of_the_file_page_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("key").write_text("a-master-key-of-some-length\n")
    Path("config.toml").write_text("".join(f"{key} = {value}\n" for key, value in reference.EXAMPLE))
    assert load({"master_key_file": "key"}, {}).schedule_snapshot == 86400


PAGES = {"svcd.1": ("EXIT STATUS", "--http-addr"), "svcd.toml.5": ("KEYS WITHOUT EFFECT", "http_addr = HOST:PORT"),
         **{f"svcd-{name}.1": ("SYNOPSIS", f"svcd {name}") for name in COMMANDS}}


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_the_man_pages_have_no_faults(page: str) -> None:
    made = subprocess.run(["groff", "-man", "-ww", "-Tutf8", reference.ROOT / "man" / page], capture_output=True, text=True, check=True)
    assert made.stderr == ""
    plain = re.sub(".\b", "", made.stdout)  # bold is printed as a letter, a backspace, the letter
    assert all(text in plain for text in PAGES[page])


def test_there_is_no_other_man_page() -> None:
    assert {path.name for path in (reference.ROOT / "man").iterdir()} == set(PAGES)


def test_a_line_never_begins_with_a_control_character_of_roff() -> None:
    assert reference.roff_text(".hidden") == r"\&.hidden"
    assert reference.roff_text("a\\b") == r"a\eb"
