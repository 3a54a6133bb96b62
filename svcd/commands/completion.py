"""`svcd completion`: the script that lets a shell complete commands and options."""
from __future__ import annotations

import click
from click.shell_completion import get_completion_class

ABOUT = (
    "Print the completion script for SHELL. For bash: svcd completion bash > "
    "~/.local/share/bash-completion/completions/svcd"
)


@click.command("completion", help=ABOUT)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print the script that click has for this shell."""
    completion = get_completion_class(shell)
    assert completion is not None  # click supports all choices above
    print(completion(context.find_root().command, {}, "svcd", "_SVCD_COMPLETE").source())
    return 0
