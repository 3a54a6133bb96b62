"""`svcd settings diff`: what the settings in a file would change in an index, and what the change would cost."""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from svcd.commands import instance, output
from svcd.commands.instance import CommandFailed, index_path, read_object

_LONGEST_VALUE = 60  # characters


@click.group("settings", help="Compare settings.")
def command() -> None:
    """The commands for settings."""


@command.command("diff", help="Show which settings of INDEX the settings in FILE (JSON or TOML) would change, and what that "
                              "costs. Nothing is changed.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("index")
@instance.options
@click.option("--json", "is_json", is_flag=True, help="Print the answer of the dry run as JSON.")
@click.pass_context
def diff(context: click.Context, file: Path, index: str, url: str | None, key: str | None, folder: Path | None,
         is_json: bool) -> int:
    """Ask for a dry run and print."""
    settings = read_object(file)
    with instance.opened(context, url, key, folder) as source:
        found = source.call("PATCH", f"{index_path(index)}/settings?dryRun=true", settings)
    if is_json:
        output.print_json(found)
    elif found["error"]:
        raise CommandFailed(f"the settings would be rejected: {found['error']['message']}")
    else:
        print(shown(found))
    return 0


def shown(found: Mapping[str, Any]) -> str:
    """Format the dry run of a change of settings."""
    if not found["settings"]:
        return "no setting changes"
    lines = []
    for name, change in found["settings"].items():
        lines += [output.styled(name, "name"), f"  - {_value(change['from'])}", f"  + {_value(change['to'])}"]
    again = [f"{count:,} documents: {part} again" for part, count in found["madeAgain"].items() if count]
    again += [f"embedder {name}: {counts['made']:,} vectors in {counts['calls']:,} calls, {counts['removed']:,} removed"
              for name, counts in found["vectors"].items()]
    growth = f"{'-' if found['bytesOnDisk'] < 0 else '+'}{output.size(abs(found['bytesOnDisk']))}"
    return "\n".join([*lines, *again, f"about {found['seconds']:.1f} s, {growth} on disk"])


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
