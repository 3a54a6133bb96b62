"""Generated documentation: man pages, sample configuration, docs/options.md, docs/errors.md; snippets copied between pages.

    python -m svcd.reference              writes all of them
    python -m svcd.reference man config   writes the named ones
    python -m svcd.reference --check      writes nothing; names the stale ones and exits with 1
"""
from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from svcd import INTERFACE_VERSION, __version__
from svcd.cli.main import COMMAND, COMMANDS
from svcd.cli.options import GROUPS, OPTIONS, Option
from svcd.cli.sample_config import is_settable, options_of, sample_config
from svcd.error_page import error_page

ROOT = Path(__file__).resolve().parent.parent
OPTIONS_PAGE = """# Options
<!-- Written by svcd/reference.py from the table of options: change it there. -->

Give each option in one of three ways: on the command line, as an environment variable (`--db-path` is `SVC_DB_PATH`), or as a key
of a TOML file (`db_path`). The command line overrides the environment, and the environment overrides the file. With an invalid
value svcd does not start, and prints one line that says where and why.

Empty variables are ignored (compose files set them). The log names each `SVC_*` variable that has no effect, and each option that
svcd accepts only so that existing set-ups start (the last ones of the table). svcd does not read `MEILI_*` variables: the log
names each, and svcd refuses to start with `MEILI_MASTER_KEY` and without a master key of its own.

"""
# A page takes a marked part of another page: a figure is written once.
SNIPPET = r"<!-- snippet: {name} -->\n(.*?)<!-- end of snippet -->"
INCLUDE = re.compile(r"(<!-- include: (\S+) (\w+) -->\n).*?(<!-- end of include -->)", re.DOTALL)

MAN_PAGE = r'''.\" Written by svcd/reference.py from the table of options: change it there.
.TH SVCD 1 "" "svcd @VERSION@" "User Commands"
.nh
.ad l
.SH NAME
svcd \- search engine with an HTTP interface, in one daemon
.SH SYNOPSIS
.B svcd
.RI [ option ]...
.br
.B svcd
.RI [ option ]...
.I command
.RI [ argument ]...
.SH DESCRIPTION
.B svcd
is a search engine: it stores JSON documents in one folder and searches them over HTTP, tolerant of typos and ranked.
It implements version @INTERFACE@ of its HTTP interface, which is described at
.IR /openapi.json .
.PP
It runs in the foreground, logs to standard error, and needs no other program.
Writes are asynchronous: a request that changes something is answered with a task once the task is on disk;
the task is processed in the background by a separate process, and searches are answered meanwhile.
.PP
Chinese and Thai text is written without spaces between words; svcd segments it with word lists from the extra
.IR svcd[languages] ,
if it is installed; a log line names the missing lists.
Without them, searches over such text find other documents.
After installing them, add the documents again.
.PP
.B SIGTERM
and
.B SIGINT
stop it: running requests are finished, and a running batch is finished or processed again at the next start.
A second signal stops it immediately, without loss of data.
.B SIGHUP
reads the configuration again and sets the log level; with a controlling terminal it ends the daemon.
.PP
As a service of
.BR systemd (1)
it reports when it is ready and when it stops, pings the watchdog while it answers requests, listens on sockets that are passed
to it instead of
.BR \-\-http\-addr ,
and takes the credential
.I master\-key
as master key.
.PP
Beside the daemon there are commands that talk to one, or work on its data folder; each has a page of its own:
.BR svcd\-import (1)
and the others below.
.SH OPTIONS
Each option can be given in three ways: on the command line, as an environment variable, and as a key of a
TOML file. The command line overrides the environment, which overrides the file.
A flag without a value is enabled by any value of its variable except
.RI 0 ,
.RI n ,
.RI no ,
.RI f ,
.RI false
and
.RI off ,
and by
.I true
in the file.
A
.I SIZE
is a number of bytes, or a number with a unit: kB, MB, GB, TB, PB (powers of 1000) or KiB, MiB, GiB, TiB, PiB
(powers of 1024), in any letter case.
@OPTIONS@
.SS Help
.TP
.BR \-h ", " \-\-help
Show all options and exit.
.TP
.B \-\-version
Show the versions of svcd and of its interface, and exit.
.SH ENVIRONMENT
Each option has the variable that is named with it. Empty variables are ignored, except the variables of
.B \-\-max\-indexing\-threads
and
.BR \-\-schedule\-snapshot .
Other variables SVC_* and variables MEILI_* are ignored, with a warning.
svcd refuses to start with MEILI_MASTER_KEY and without a master key.
.TP
.B SVC_MASTER_KEY
The master key. Unlike the command line, other users of the machine cannot see it.
.TP
.B CREDENTIALS_DIRECTORY
Set by systemd. A file
.I master\-key
in this folder is the master key, unless an option sets the key.
.TP
.BR LISTEN_FDS ", " LISTEN_PID ", " NOTIFY_SOCKET ", " WATCHDOG_USEC ", " WATCHDOG_PID
Set by systemd, as of
.BR sd_listen_fds (3),
.BR sd_notify (3)
and
.BR sd_watchdog_enabled (3).
.SH FILES
.TP
.I ./config.toml
Options, read if it exists; another file is set with
.BR \-\-config\-file\-path .
Its keys are described in
.BR svcd.toml (5).
.TP
.I ./data.ms
The data folder. One daemon at a time can use it.
.SH EXIT STATUS
.TP
.B 0
Stopped by a signal, or by
.BR \-\-exit\-when\-idle .
.TP
.B 1
Could not start or run, for example because the address or the folder is in use. One line on standard error says why.
.TP
.B 2
Wrong options. One line on standard error says where, what, and what would be right.
.SH EXAMPLES
.TP
Start on the default address, for this machine only, without a key:
.B svcd
.TP
Start for other machines, with a master key:
.B SVC_MASTER_KEY=\fIkey\fB svcd \-\-http\-addr 0.0.0.0:7700 \-\-env production
.TP
Add films from a file and search them:
.nf
.B curl \-H 'Content\-Type: application/x\-ndjson' \-\-data\-binary @films.ndjson \e
.B "    localhost:7700/indexes/films/documents"
.B curl 'localhost:7700/indexes/films/search?q=star+wars'
.fi
.SH SEE ALSO
@COMMANDS@
.BR svcd.toml (5),
.BR curl (1),
.BR systemd.service (5),
.BR systemd.socket (5)
'''

FILE_PAGE = r'''.\" Written by svcd/reference.py from the table of options: change it there.
.TH SVCD.TOML 5 "" "svcd @VERSION@" "File Formats"
.nh
.ad l
.SH NAME
svcd.toml \- options of the search engine svcd
.SH SYNOPSIS
.I ./config.toml
.br
.I /etc/svcd/svcd.toml
.SH DESCRIPTION
At its start
.BR svcd (1)
reads options from one file in TOML 1.0, encoded in UTF-8: the file that
.B \-\-config\-file\-path
or the variable
.B SVC_CONFIG_FILE_PATH
names, else
.I config.toml
in the current folder, if there is one.
The service of the Debian package reads
.IR /etc/svcd/svcd.toml .
Its commands, such as
.BR svcd\-import (1),
read the same file to find the daemon.
.PP
The file has top-level keys only, without tables.
A key has the name of its flag without the leading dashes, with underscores for the others; the name of the variable of the
option is accepted as well.
An unknown key, a value of another type and a value that is not valid are rejected: svcd does not start, and one line on standard
error names key, file and the expected value.
.PP
An option on the command line or in the environment overrides the file.
.B svcd config
shows which value counts and where it comes from;
.B svcd config init
writes a file with every key as a comment.
.PP
Changes take effect at the next start, except changes of
.BR log_level ,
which
.B SIGHUP
reloads.
.SH TYPES
A
.I SIZE
is a number of bytes, or a string of a number and a unit: kB, MB, GB, TB, PB (powers of 1000) or KiB, MiB, GiB, TiB, PiB
(powers of 1024), in any letter case.
Relative paths are relative to the working directory of svcd.
Strings are written in quotes.
@KEYS@
.SH KEYS WITHOUT EFFECT
The file may contain these keys, but svcd ignores them: every start reads the file, and an import is done once. Use the flags.
.TP
@IDLE@
.SH EXAMPLE
.nf
@EXAMPLE@
.fi
.SH SEE ALSO
.BR svcd (1),
.BR svcd\-config (1)
'''
EXAMPLE = (  # key and value in TOML, as a server has them
    ("env", '"production"'), ("http_addr", '"127.0.0.1:7700"'), ("master_key_file", '"/etc/svcd/master-key"'),
    ("db_path", '"/var/lib/svcd/data.ms"'), ("schedule_snapshot", "86400"), ("snapshot_dir", '"/var/backups/svcd"'),
    ("max_indexing_memory", '"512 MiB"'), ("experimental_allowed_ip_networks", '["10.0.0.0/8", "fd00::/8"]'),
)
TOML_TYPES = {str: "string", int: "integer", bool: "boolean", list: "array of strings"}


# -- The man page --------------------------------------------------------------------------------------

def man_page() -> str:
    """Return the text of svcd.1, in macros of man(7)."""
    sections = "\n".join(f".SS {group}\n" + "\n".join(map(_man_option, options_of(group))) for group in GROUPS)
    page = MAN_PAGE.replace("@VERSION@", __version__).replace("@INTERFACE@", INTERFACE_VERSION)
    commands = "\n".join(f".BR svcd\\-{name} (1)," for name in COMMANDS)
    return page.replace("@OPTIONS@", sections).replace("@COMMANDS@", commands)


def _man_option(option: Option) -> str:
    value = "" if option.is_switch else rf" \fI{roff_text(option.kind.metavar or '')}\fP"
    names = [f"Variable {option.variable}"]
    names += [f"key {option.name}"] if is_settable(option) else ["not in the file"]
    names += [f"default: {option.default_text}"] if option.default_text and not option.is_switch else []
    return f".TP\n\\fB{roff_text(option.flag)}\\fP{value}\n{roff_text(option.about)}\n.br\n{roff_text('; '.join(names))}."


def file_page() -> str:
    """Return the text of svcd.toml.5, in macros of man(7)."""
    keys = {group: [_man_key(option) for option in options_of(group) if is_settable(option)] for group in GROUPS}
    sections = "\n".join("\n".join([f".SH {roff_text(group.upper())}", *keys[group]]) for group in GROUPS if keys[group])
    idle = "\n.TQ\n".join(f".B {option.name}" for option in OPTIONS if option.is_in_file and not option.works_in_file)
    example = "\n".join(roff_text(f"{key} = {value}") for key, value in EXAMPLE)
    page = FILE_PAGE.replace("@VERSION@", __version__).replace("@EXAMPLE@", example)
    return page.replace("@KEYS@", sections).replace("@IDLE@", idle)


def _man_key(option: Option) -> str:
    metavar = option.kind.metavar or "true|false"
    types = " or ".join(TOML_TYPES[kind] for kind in option.kind.toml)
    default = f"default: {option.default_text}" if option.default_text else "no default"
    return (f".TP\n\\fB{option.name}\\fP = \\fI{roff_text(metavar)}\\fP\n{roff_text(option.about)}\n.br\n"
            f"{roff_text(f'Type: {types}; {default}.')}")


def roff_text(text: str) -> str:
    r"""Escape a text for roff: `-` becomes \-, and a line cannot begin with a control character."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + escaped if escaped[:1] in (".", "'") else escaped


# -- The man pages of commands ---------------------------------------------------------------------------

def command_page(name: str) -> str:
    """Return the text of svcd-NAME.1, from the declaration of the command."""
    command = COMMAND.get_command(click.Context(COMMAND, info_name="svcd"), name)
    assert command is not None  # callers pass a name of the table
    context = click.Context(command, info_name=f"svcd {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    below = command.commands.values() if isinstance(command, click.Group) else ()
    others = [f"svcd-{other} (1)" for other in COMMANDS if other != name]
    return "\n".join((
        '.\\" Written by svcd/reference.py from the declaration of the command: change it there.',
        f'.TH SVCD\\-{name.upper()} 1 "" "svcd {__version__}" "User Commands"', ".nh", ".ad l", ".SH NAME",
        f"svcd\\-{name} \\- {roff_text(COMMANDS[name][2].rstrip('.'))}", ".SH SYNOPSIS",
        f".B svcd {name}\n{roff_text(usage)}", ".SH DESCRIPTION", roff_text(command.help or ""),
        *([".SH OPTIONS", *_man_flags(command)] if command.params else []), *([".SH COMMANDS"] if below else []),
        *(line for each in below for line in _man_command(f"svcd {name}", each)),
        ".SH EXIT STATUS", "0 done; 1 failed; 2 wrong options; 3 no instance answers.",
        ".SH SEE ALSO", f"svcd (1), {', '.join(others)}",
    )) + "\n"


def _man_command(parent: str, command: click.Command) -> list[str]:
    """Return the section of a nested command. parent: the words before its name."""
    usage = " ".join(command.collect_usage_pieces(click.Context(command)))
    name = roff_text(f"{parent} {command.name}")
    return [f".SS {name}", f".B {name}\n{roff_text(usage)}", ".PP",
            roff_text(command.help or ""), *_man_flags(command)]


def _man_flags(command: click.Command) -> list[str]:
    context = click.Context(command)
    records = [record for each in command.params
               if isinstance(each, click.Option) and (record := each.get_help_record(context))]
    return [f".TP\n\\fB{roff_text(flags)}\\fP\n{roff_text(about)}" for flags, about in records]


# -- Pages of docs -------------------------------------------------------------------------------------

def options_page() -> str:
    """Return the text of docs/options.md."""
    return f"{OPTIONS_PAGE}{options_table()}\n"


def with_snippets(page: Path) -> str:
    """Return a page with the current text of each snippet that it includes."""
    def included(found: re.Match[str]) -> str:
        source = re.search(SNIPPET.format(name=found[3]), (ROOT / found[2]).read_text(), re.DOTALL)
        if source is None:
            raise LookupError(f"{page.name} includes the snippet {found[3]}, which {found[2]} does not have")
        return found[1] + source[1] + found[4]

    return INCLUDE.sub(included, page.read_text())


def options_table() -> str:
    """Return the Markdown table of options: flag, default, description."""
    lines = ["| Option | Default | Description |", "|---|---|---|"]
    lines += [f"| {_flag_cell(option)} | {_default_cell(option)} | {_cell(option.about)} |" for option in OPTIONS]
    return "\n".join(lines)


def _flag_cell(option: Option) -> str:
    return f"`{_cell(option.flag if option.is_switch else f'{option.flag} {option.kind.metavar}')}`"


def _default_cell(option: Option) -> str:
    if option.is_switch:
        return "off"
    return option.default_description or (f"`{option.default}`" if option.default else "none")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# -- The command ---------------------------------------------------------------------------------------

TARGETS: dict[str, tuple[Path, Callable[[], str]]] = {
    "man": (ROOT / "man" / "svcd.1", man_page),
    "file": (ROOT / "man" / "svcd.toml.5", file_page),
    "config": (ROOT / "examples" / "svcd.toml", sample_config),
    "options": (ROOT / "docs" / "options.md", options_page),
    "errors": (ROOT / "docs" / "errors.md", error_page),
    **{name: (ROOT / path, partial(with_snippets, ROOT / path)) for name, path in
       (("readme", "README.md"), ("comparison", "docs/guide/comparison.md"), ("sizing", "docs/guide/sizing.md"))},
    **{name: (ROOT / "man" / f"svcd-{name}.1", partial(command_page, name)) for name in COMMANDS},
}


def main(arguments: Sequence[str]) -> int:
    """Write the named targets (default: all), or with --check compare them; return the exit status."""
    names = [argument for argument in arguments if argument != "--check"] or list(TARGETS)
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        print(f"svcd.reference: no target {unknown[0]}; targets are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    stale = [path for path, make in map(TARGETS.__getitem__, names) if _is_stale(path, make())]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name in names:
        path, make = TARGETS[name]
        path.write_text(make())
    return 0


def _is_stale(path: Path, fresh: str) -> bool:
    return not path.exists() or path.read_text() != fresh


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
