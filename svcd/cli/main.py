"""The command `svcd`: parses the command line, loads the configuration, and runs the daemon, or one of the COMMANDS.

A start that fails prints one line on stderr, never a traceback. The daemon itself is imported only when it starts, so that
`--help`, `--version` and wrong options are answered at once. Exit status: 0 stopped by a signal or idle, 1 could not start or
run, 2 wrong options.
"""
from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

from svcd import INTERFACE_VERSION, __version__
from svcd.base import logs
from svcd.base.errors import quoted
from svcd.cli import foreign_variables
from svcd.cli.config import ConfigError, load, nearest, warnings
from svcd.cli.options import GROUPS, OPTIONS, Option, why_unsupported

# Name: (module, its command, line of the help). A module is loaded when its command is called.
COMMANDS = {
    "import": ("documents", "import_command", "Add the documents of files, folders, SQLite tables."),
    "import-from": ("import_from", "command", "Copy everything from another instance, also of the reference engine."),
    "export": ("documents", "export_command", "Write the documents of an index."),
    "search": ("search", "search_command", "Search an index."),
    "explain": ("explain", "explain_command", "Explain why a document is at its place in a search, or is not found."),
    "status": ("search", "status_command", "Show the indexes and tasks of the instance."),
    "settings": ("settings", "command", "Compare settings: `settings diff` shows what a file would change."),
    "mcp": ("mcp", "command", "Answer an assistant over standard input and output."),
    "backup": ("backup", "backup_command", "Copy the whole instance to a file, while it serves."),
    "restore": ("backup", "restore_command", "Make a data folder from a backup or a dump."),
    "verify": ("integrity", "verify_command", "Check the files of a data folder."),
    "repair": ("integrity", "repair_command", "Rebuild a damaged index from its documents."),
    "relevance": ("relevance", "command", "Run relevance tests, and try settings with them."),
    "analytics": ("analytics", "command", "Show what people search, and what in vain."),
    "cluster": ("cluster", "command", "Show the nodes of a cluster; join, drain, verify, forget them."),
    "config": ("config", "command", "Show the configuration; `config init` writes a file."),
    "completion": ("config", "completion_command", "Print the completion script for a shell."),
}
STATUS_FAILED = 1
STATUS_MISUSE = 2
VERSION = f"svcd {__version__} (interface {INTERFACE_VERSION})"
ABOUT = (
    "Start the search engine svcd: one daemon with an HTTP interface, which keeps its data in one folder.\n\n"
    "Each option can also be given as an environment variable or in a TOML file. The command line overrides "
    "the environment, which overrides the file."
)


class _Command(click.Group):
    """The daemon, with further commands; the help shows the options by group."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name. Raises click.UsageError for an unknown name."""
        if cmd_name not in COMMANDS:
            near = nearest(cmd_name, COMMANDS)
            hint = f"did you mean {near}?" if near else f"commands are {', '.join(COMMANDS)}."
            raise click.UsageError(f"no such command: {quoted(cmd_name)[1:-1]}; {hint}")
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"svcd.commands.{module}"), attribute)
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group, with descriptions below the flags, because the flags are long."""
        rows = {group: [help_row(option) for option in OPTIONS if option.group == group] for group in GROUPS}
        rows["Help"] = [("-h, --help", "Show this and exit."), ("--version", "Show the versions and exit.")]
        for title, section in rows.items():
            with formatter.section(title):
                formatter.write_dl(section, col_max=4)
        with formatter.section("Commands (svcd COMMAND --help)"):
            formatter.write_dl([(name, about) for name, (_, _, about) in COMMANDS.items()])


def help_row(option: Option) -> tuple[str, str]:
    """Return (flag with metavar, description with variable and default)."""
    head = option.flag if option.is_switch else f"{option.flag} {option.kind.metavar}"
    default = f"; default: {option.default_text}" if option.default_text and not option.is_switch else ""
    return head, f"{option.about} [{option.variable}{default}]"


def _click_option(option: Option) -> click.Option:
    """Declare only the flag: svcd.cli.config parses values, variables and defaults, the same for all sources."""
    special: dict[str, Any] = {} if option.kind.value_of_flag_alone is None else {"flag_value": option.kind.value_of_flag_alone}
    if option.kind.is_repeatable:
        special["multiple"] = True
    return click.Option([option.flag, option.name], is_flag=option.is_switch, default=None,
                        type=click.BOOL if option.is_switch else click.STRING, **special)


def _print_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:
    if is_asked:
        click.echo(VERSION)
        ctx.exit()


@click.pass_context
def _start(context: click.Context, **flags: Any) -> int:
    foreign_variables.adopt(os.environ)
    if context.invoked_subcommand is not None:
        context.obj = flags
        return 0
    config = load(flags, os.environ)
    logs.configure(config.log_level, config.experimental_logs_mode)
    if report := foreign_variables.report(config.where, os.environ):
        logs.info(report)
    for warning in warnings(config, os.environ):
        logs.warn(warning)
    try:
        from svcd.cli.daemon import run  # loads most of the code

        # Everything is closed, and nothing buffered: Python would take a hundredth of a second to free all objects one by one.
        os._exit(run(config, lambda: load(flags, os.environ)))
    except ConfigError:
        raise
    except Exception as refused:
        if logs.is_enabled(logs.DEBUG):
            logs.failure("start failed", refused)
        return _refuse(_failure_text(refused), STATUS_FAILED)


COMMAND = _Command(
    "svcd", callback=_start, help=ABOUT, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]},
    params=[*map(_click_option, OPTIONS),
            click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_print_version)],
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit. arguments: None for the arguments of the process."""
    try:
        status = COMMAND.main(arguments, "svcd", standalone_mode=False)
    except ConfigError as refused:
        status = _refuse(str(refused), STATUS_MISUSE)
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = STATUS_FAILED
    except click.UsageError as wrong:
        status = _refuse(_usage_error(wrong), STATUS_MISUSE)
    except click.ClickException as failed:
        status = _refuse(failed.format_message(), failed.exit_code)
    except click.Abort:
        status = STATUS_FAILED
    sys.exit(status or 0)


def _refuse(reason: str, status: int) -> int:
    """Print one line on stderr at any log level; return the status."""
    print(f"svcd: {' '.join(reason.split())}", file=sys.stderr)
    return status


def _usage_error(wrong: click.UsageError) -> str:
    """Return the message for a wrong command line, with the nearest flag."""
    if not isinstance(wrong, click.NoSuchOption):
        return f"{wrong.format_message()} `svcd --help` shows all options."
    reason = why_unsupported(wrong.option_name)
    if reason:
        return f"{wrong.option_name} is not supported: {reason}; remove it"
    flags, shown = [option.flag for option in OPTIONS], "svcd"
    if wrong.ctx and wrong.ctx.parent:  # an option of a command
        shown = wrong.ctx.command_path
        if wrong.option_name in flags:
            return f"{wrong.option_name} belongs before the command: svcd {wrong.option_name} ... {shown.partition(' ')[2]}"
        flags = [flag for each in wrong.ctx.command.params for flag in each.opts]
    near = nearest(wrong.option_name, flags)
    hint = f"did you mean {near}?" if near else f"`{shown} --help` shows all options"
    return f"no such option: {quoted(wrong.option_name)[1:-1]}; {hint}"


def _failure_text(refused: Exception) -> str:
    """Return the message for a failed start, with the path if the system names one."""
    if type(refused).__module__.startswith("svcd."):  # our own errors have complete messages
        return str(refused)
    if type(refused).__module__ == "sqlite3":
        return f"a file of the database cannot be used: {refused}; `--log-level DEBUG` shows more"
    if not isinstance(refused, OSError):
        return f"{type(refused).__name__}: {refused}; `--log-level DEBUG` shows more"
    path = f"{refused.filename}: " if refused.filename else ""
    return path + (refused.strerror or str(refused) or type(refused).__name__)
