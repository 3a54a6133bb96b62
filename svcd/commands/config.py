"""`svcd config`: the configuration that a start would have, and a commented file to begin with. `svcd completion`."""
from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

import click
import tomli_w
from click.shell_completion import get_completion_class

from svcd import __version__
from svcd.cli.config import DEFAULT, load
from svcd.cli.options import GROUPS, OPTIONS, Option
from svcd.commands import output
from svcd.commands.instance import CommandFailed

ABOUT = "Show the configuration that `svcd` would start with here, and where each value comes from. Secrets are shown as ***."
COMPLETION = ("Print the completion script for SHELL. For bash: svcd completion bash > "
              "~/.local/share/bash-completion/completions/svcd")


@click.group("config", invoke_without_command=True, help=ABOUT)
@click.option("--all", "shows_all", is_flag=True, help="Show defaults, too.")
@click.option("--json", "is_json", is_flag=True, help="Print all of it as JSON.")
@click.pass_context
def command(context: click.Context, shows_all: bool, is_json: bool) -> int:
    """Print the effective configuration."""
    if context.invoked_subcommand is not None:
        return 0
    config = load(context.find_root().obj or {}, os.environ)
    rows = [(name, value, source, config.where(name)) for name, value, source in config.described()]
    if is_json:
        output.print_json({name: {"value": value, "source": source, "where": where} for name, value, source, where in rows})
        return 0
    shown = [[name, value, source if source == DEFAULT else where] for name, value, source, where in rows
             if shows_all or source != DEFAULT]
    print(output.table(shown) if shown else "All options have their defaults; `svcd config --all` shows them.")
    return 0


@command.command("init", help="Write a file with every option as a comment; by default ./config.toml, which `svcd` reads.")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False), default=Path("config.toml"))
def init(path: Path) -> int:
    """Write the sample configuration."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(sample_config())
    except FileExistsError:
        raise CommandFailed(f"{path} exists already: name another file") from None
    print(f"{path}: remove the # before the options that you want to change")
    return 0


def sample_config() -> str:
    """Return a TOML file with every key as a comment, with its default or an example (examples/svcd.toml)."""
    parts = [_comment(f"Options of svcd {__version__}. Each line shows the default or an example: remove the # to change it. "
                      "The command line and SVC_* variables override this file. Use it with --config-file-path, or as "
                      "./config.toml.")]
    for group in GROUPS:
        settable = [option for option in options_of(group) if is_settable(option) and (option.default or option.example)]
        parts += [f"# -- {group} --"] * bool(settable)
        for option in settable:
            default = f" Default: {option.default_description}." if option.default_description else ""
            # The default, or an example when it is only described, in the first TOML type that can hold it.
            value: Any = option.default or option.example
            if bool in option.kind.toml:
                value = option.kind.parse(value)
            elif int in option.kind.toml and value.isdigit():
                value = int(value)
            parts.append(f"{_comment(option.about + default)}\n#{tomli_w.dumps({option.name: value}).strip()}")
    return "\n\n".join(parts) + "\n"


def _comment(text: str) -> str:
    return "\n".join("# " + line for line in textwrap.wrap(text, 98, break_on_hyphens=False))


def is_settable(option: Option) -> bool:
    """Return whether the TOML file can set the option."""
    return option.is_in_file and option.works_in_file


def options_of(group: str) -> list[Option]:
    """Return the options of a group, in the order of the table."""
    return [option for option in OPTIONS if option.group == group]


@click.command("completion", help=COMPLETION)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> int:
    """Print the script that click has for this shell."""
    completion = get_completion_class(shell)
    assert completion is not None  # click supports all choices above
    print(completion(context.find_root().command, {}, "svcd", "_SVCD_COMPLETE").source())
    return 0
