"""Generated documentation: man pages, sample configuration, docs/options.md, docs/errors.md; snippets copied between pages.

The texts of the man pages svcd.1 and svcd.toml.5 and of docs/errors.md are in docs/sources.

    python -m svcd.reference              writes all of them
    python -m svcd.reference man sample   writes the named ones
    python -m svcd.reference --check      writes nothing; names the stale ones and exits with 1
"""
from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from svcd import INTERFACE_VERSION, __version__
from svcd.base.errors import ERRORS
from svcd.cli.main import COMMAND, COMMANDS
from svcd.cli.options import GROUPS, OPTIONS, Option
from svcd.commands.config import is_settable, options_of, sample_config

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "docs" / "sources"
# A page takes a marked part of another page: a figure is written once.
SNIPPET = r"<!-- snippet: {name} -->\n(.*?)<!-- end of snippet -->"
INCLUDE = re.compile(r"(<!-- include: (\S+) (\w+) -->\n).*?(<!-- end of include -->)", re.DOTALL)

EXAMPLE = (  # key and value in TOML, as a server has them
    ("env", '"production"'), ("http_addr", '"127.0.0.1:7700"'), ("master_key_file", '"/etc/svcd/master-key"'),
    ("db_path", '"/var/lib/svcd/data.ms"'), ("schedule_snapshot", "86400"), ("snapshot_dir", '"/var/backups/svcd"'),
    ("max_indexing_memory", '"512 MiB"'), ("experimental_allowed_ip_networks", '["10.0.0.0/8", "fd00::/8"]'),
)
PIPE = "\\|"  # in a cell of a Markdown table
TOML_TYPES = {str: "string", int: "integer", bool: "boolean", list: "array of strings"}


# -- The man pages svcd.1 and svcd.toml.5, in macros of man(7) -------------------------------------------

def _filled(source: str, **texts: str) -> str:
    """Return a file of docs/sources with each @NAME@ replaced by a text."""
    page = (SOURCES / source).read_text()
    for name, text in texts.items():
        page = page.replace(f"@{name}@", text)
    return page


def man_page() -> str:
    """Return the text of svcd.1."""
    sections = "\n".join(f".SS {group}\n" + "\n".join(map(_man_option, options_of(group))) for group in GROUPS)
    commands = "\n".join(f".BR svcd\\-{name} (1)," for name in COMMANDS)
    return _filled("svcd.1.in", VERSION=__version__, INTERFACE=INTERFACE_VERSION, OPTIONS=sections, COMMANDS=commands)


def _man_option(option: Option) -> str:
    value = "" if option.is_switch else rf" \fI{roff_text(option.kind.metavar or '')}\fP"
    names = [f"Variable {option.variable}", f"key {option.name}" if is_settable(option) else "not in the file"]
    names += [f"default: {option.default_text}"] if option.default_text and not option.is_switch else []
    return f".TP\n\\fB{roff_text(option.flag)}\\fP{value}\n{roff_text(option.about)}\n.br\n{roff_text('; '.join(names))}."


def file_page() -> str:
    """Return the text of svcd.toml.5."""
    keys = {group: [_man_key(option) for option in options_of(group) if is_settable(option)] for group in GROUPS}
    sections = "\n".join("\n".join([f".SH {roff_text(group.upper())}", *keys[group]]) for group in GROUPS if keys[group])
    idle = "\n.TQ\n".join(f".B {option.name}" for option in OPTIONS if option.is_in_file and not option.works_in_file)
    example = "\n".join(roff_text(f"{key} = {value}") for key, value in EXAMPLE)
    return _filled("svcd.toml.5.in", VERSION=__version__, EXAMPLE=example, KEYS=sections, IDLE=idle)


def _man_key(option: Option) -> str:
    types = " or ".join(TOML_TYPES[kind] for kind in option.kind.toml)
    default = f"default: {option.default_text}" if option.default_text else "no default"
    value = roff_text(option.kind.metavar or "true|false")
    return (f".TP\n\\fB{option.name}\\fP = \\fI{value}\\fP\n{roff_text(option.about)}\n.br\n"
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
    return [f".SS {name}", f".B {name}\n{roff_text(usage)}", ".PP", roff_text(command.help or ""), *_man_flags(command)]


def _man_flags(command: click.Command) -> list[str]:
    context = click.Context(command)
    records = [record for each in command.params if isinstance(each, click.Option) and (record := each.get_help_record(context))]
    return [f".TP\n\\fB{roff_text(flags)}\\fP\n{roff_text(about)}" for flags, about in records]


# -- Pages of docs -------------------------------------------------------------------------------------

def options_page() -> str:
    """Return the text of docs/options.md."""
    return _filled("options.md.in", OPTIONS=options_table())


def options_table() -> str:
    """Return the Markdown table of options: flag, default, description."""
    lines = ["| Option | Default | Description |", "|---|---|---|"]
    for option in OPTIONS:
        flag = option.flag if option.is_switch else f"{option.flag} {option.kind.metavar}"
        default = option.default_description or (f"`{option.default}`" if option.default else "none")
        cells = f"`{flag}`", "off" if option.is_switch else default, option.about
        lines.append(f"| {' | '.join(cell.replace('|', PIPE) for cell in cells)} |")
    return "\n".join(lines)


class ErrorTexts(NamedTuple):
    """The texts of docs/errors.md, from docs/sources/errors.toml.

    remedies: (pattern of codes, remedy); the first pattern that matches the whole code counts. when: code -> when it occurs.
    """

    introduction: str
    remedies: list[tuple[str, str]]
    when: dict[str, str]

    def is_never(self, code: str) -> bool:
        """Return whether svcd never answers a code."""
        return self.when[code].startswith("Never: ")

    def action(self, code: str) -> str:
        """Return the remedy of a code. Raises KeyError for a code without a pattern."""
        if self.is_never(code):
            return "Nothing: svcd never answers it."
        for pattern, text in self.remedies:
            if re.fullmatch(pattern, code):
                return text
        raise KeyError(code)


def error_texts() -> ErrorTexts:
    """Read docs/sources/errors.toml."""
    return ErrorTexts(**tomllib.loads((SOURCES / "errors.toml").read_text()))


def error_page() -> str:
    """Return the text of docs/errors.md, to which the `link` of every error leads: a section for each code."""
    texts = error_texts()
    sections = [f"## {code}\n\n`{kind}`, status {status}. {texts.when[code]}\n\n{texts.action(code)}\n"
                for code, (kind, status) in ERRORS.items()]
    return "\n".join([texts.introduction, *sections])


def with_snippets(page: Path) -> str:
    """Return a page with the current text of each snippet that it includes."""
    def included(found: re.Match[str]) -> str:
        source = re.search(SNIPPET.format(name=found[3]), (ROOT / found[2]).read_text(), re.DOTALL)
        if source is None:
            raise LookupError(f"{page.name} includes the snippet {found[3]}, which {found[2]} does not have")
        return found[1] + source[1] + found[4]

    return INCLUDE.sub(included, page.read_text())


# -- The command ---------------------------------------------------------------------------------------

TARGETS: dict[str, tuple[Path, Callable[[], str]]] = {
    "man": (ROOT / "man" / "svcd.1", man_page),
    "file": (ROOT / "man" / "svcd.toml.5", file_page),
    "sample": (ROOT / "examples" / "svcd.toml", sample_config),
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
    stale = [path for path, make in map(TARGETS.__getitem__, names) if not path.exists() or path.read_text() != make()]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for name in names:
        path, make = TARGETS[name]
        path.write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
