"""`svcd config`: the configuration that a start would have, and a commented file to begin with."""
from __future__ import annotations

import os
from pathlib import Path

import click

from svcd.cli.config import DEFAULT, load
from svcd.commands import output
from svcd.commands.instance import CommandFailed

ABOUT = (
    "Show the configuration that `svcd` would start with here, and where each value comes from. Secrets are shown as ***."
)


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
    from svcd.cli.sample_config import sample_config

    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(sample_config())
    except FileExistsError:
        raise CommandFailed(f"{path} exists already: name another file") from None
    print(f"{path}: remove the # before the options that you want to change")
    return 0
