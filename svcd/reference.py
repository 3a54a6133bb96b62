"""What is written from the tables: the man page, the sample config, the table of options in the README.

Knows the forms of these files; refuses to know options: it asks the table. Source: cli.options.

    python -m svcd.reference              writes all of them
    python -m svcd.reference man config   writes the named ones
    python -m svcd.reference --check      writes nothing; names the stale ones and exits with 1
"""
from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import tomli_w

from svcd import INTERFACE_VERSION, __version__
from svcd.cli.options import GROUPS, OPTIONS, Option

ROOT = Path(__file__).resolve().parent.parent
README_START = "<!-- options: written by `make docs` -->"
README_END = "<!-- end of options -->"

MAN_PAGE = r'''.\" Written by svcd/reference.py from the table of options: change it there.
.TH SVCD 1 "" "svcd @VERSION@" "User Commands"
.nh
.ad l
.SH NAME
svcd \- search engine with an HTTP interface, in one daemon
.SH SYNOPSIS
.B svcd
.RI [ option ]...
.SH DESCRIPTION
.B svcd
takes documents over HTTP, keeps them in one folder, and finds them: with typos, by prefix, ranked.
It speaks version @INTERFACE@ of its interface, which it describes itself at
.IR /openapi.json .
.PP
It runs in the foreground, logs on standard error, and needs no other program.
Writing is asynchronous: a request that changes something is answered with a task at once, which is on disk
by then; the task is done in the background, by a process of its own, and searches go on meanwhile.
.PP
Chinese and Thai, which have no spaces between words, are cut by lists of words from the extra
.IR svcd[languages] ,
when it is installed; a line of the log says which lists are missing.
Without them searches over such text find other documents.
Documents that were added before are to be added again then.
.PP
.B SIGTERM
and
.B SIGINT
stop it: running requests end, and a batch that runs ends or is done again at the next start.
A second signal stops it at once, without loss.
.SH OPTIONS
Each option can be given in three ways: on the command line, as an environment variable, and as a key of a
TOML file. The command line wins over the environment, and the environment over the file.
A flag without a value is switched on by any value of its variable but
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
Each option has the variable that is named with it. An empty one counts as not given, but for those of
.B \-\-max\-indexing\-threads
and
.BR \-\-schedule\-snapshot .
A variable SVC_* that names no option is ignored, with a warning.
.TP
.B SVC_MASTER_KEY
The way to give the key that other users of the machine do not see.
.SH FILES
.TP
.I ./config.toml
Options, read when it exists; another file is named by
.BR \-\-config\-file\-path .
The file is flat: one key per option, spelled as the flag with underscores, or as its variable. An unknown key is
refused.
.TP
.I ./data.ms
The database. One daemon at a time uses it.
.SH EXIT STATUS
.TP
.B 0
Stopped as asked by a signal.
.TP
.B 1
Could not start or go on: the address or the folder is in use, for example. One line on standard error says why.
.TP
.B 2
Wrong options. One line on standard error says where, what, and what would be right.
.SH EXAMPLES
.TP
Start on the default address, for everybody on this machine:
.B svcd
.TP
Start for other machines, protected:
.B SVC_MASTER_KEY=\fIkey\fB svcd \-\-http\-addr 0.0.0.0:7700 \-\-env production
.TP
Add films from a file and search them:
.nf
.B curl \-H 'Content\-Type: application/x\-ndjson' \-\-data\-binary @films.ndjson \e
.B "    localhost:7700/indexes/films/documents"
.B curl 'localhost:7700/indexes/films/search?q=star+wars'
.fi
.SH SEE ALSO
.BR curl (1),
.BR systemd.service (5)
'''


# -- The man page --------------------------------------------------------------------------------------

def man_page() -> str:
    """svcd.1, in the macros of man(7)."""
    sections = "\n".join(f".SS {group}\n" + "\n".join(map(_man_option, _rows(group))) for group in GROUPS)
    page = MAN_PAGE.replace("@VERSION@", __version__).replace("@INTERFACE@", INTERFACE_VERSION)
    return page.replace("@OPTIONS@", sections)


def _man_option(option: Option) -> str:
    value = "" if option.is_switch else rf" \fI{_roff(option.kind.metavar or '')}\fP"
    names = [f"Variable {option.variable}"]
    names += [f"key {option.name}"] if _is_settable(option) else ["not in the file"]
    names += [f"default: {option.shown_default}"] if option.shown_default and not option.is_switch else []
    return f".TP\n\\fB{_roff(option.flag)}\\fP{value}\n{_roff(option.about)}\n.br\n{_roff('; '.join(names))}."


def _roff(text: str) -> str:
    r"""The text as roff prints it: `-` is typed as \-, and no line is a request by accident."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return r"\&" + escaped if escaped[:1] in (".", "'") else escaped


def _is_settable(option: Option) -> bool:
    """Whether the TOML file decides on it."""
    return option.is_in_file and option.counts_in_file


def _rows(group: str) -> list[Option]:
    return [option for option in OPTIONS if option.group == group]


# -- The sample config ---------------------------------------------------------------------------------

def sample_config() -> str:
    """A TOML file with every key, each a comment: what stands in it is what svcd does without it."""
    head = _comment(
        f"Options of svcd {__version__}. Each line shows a default, or an example where there is none: remove "
        "the # and change it. The command line and SVC_* variables win over this file. Use it with "
        "--config-file-path, or as ./config.toml."
    )
    parts = [head]
    for group in GROUPS:
        settable = [option for option in _rows(group) if _is_settable(option) and _sample(option)]
        parts += [f"# -- {group} --"] * bool(settable)
        parts += [f"{_comment(_words(option))}\n#{_toml_line(option)}" for option in settable]
    return "\n\n".join(parts) + "\n"


def _words(option: Option) -> str:
    """What the option is for; and its default where the line beneath shows an example instead."""
    return option.about + (f" Default: {option.default_words}." if option.default_words else "")


def _sample(option: Option) -> str:
    return option.default or option.example


def _toml_line(option: Option) -> str:
    """`key = value`, in the first type that the file takes for it and that holds the value."""
    text = _sample(option)
    if bool in option.kind.toml:
        return tomli_w.dumps({option.name: option.kind.parse(text)}).strip()
    is_number = int in option.kind.toml and text.isdigit()
    return tomli_w.dumps({option.name: int(text) if is_number else text}).strip()


def _comment(text: str) -> str:
    return "\n".join("# " + line for line in textwrap.wrap(text, 98, break_on_hyphens=False))


# -- The README ----------------------------------------------------------------------------------------

def readme() -> str:
    """The README with a fresh table of options between its markers."""
    text = (ROOT / "README.md").read_text()
    pattern = re.compile(re.escape(README_START) + r".*?" + re.escape(README_END), re.DOTALL)
    table = f"{README_START}\n{options_table()}\n{README_END}"
    return pattern.sub(lambda _found: table, text, count=1)


def options_table() -> str:
    """A Markdown table: flag, default, meaning."""
    lines = ["| Option | Default | Meaning |", "|---|---|---|"]
    lines += [f"| {_flag_cell(option)} | {_default_cell(option)} | {_cell(option.about)} |" for option in OPTIONS]
    return "\n".join(lines)


def _flag_cell(option: Option) -> str:
    return f"`{_cell(option.flag if option.is_switch else f'{option.flag} {option.kind.metavar}')}`"


def _default_cell(option: Option) -> str:
    if option.is_switch:
        return "off"
    return option.default_words or (f"`{option.default}`" if option.default else "none")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# -- The command ---------------------------------------------------------------------------------------

TARGETS: dict[str, tuple[Path, Callable[[], str]]] = {
    "man": (ROOT / "man" / "svcd.1", man_page),
    "config": (ROOT / "examples" / "svcd.toml", sample_config),
    "readme": (ROOT / "README.md", readme),
}


def main(arguments: Sequence[str]) -> int:
    """Write, or with --check compare, the named targets, all when none is named; the exit status."""
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
