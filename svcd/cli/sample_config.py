"""The sample configuration: a TOML file with every option as a comment (examples/svcd.toml, `svcd config init`)."""
from __future__ import annotations

import textwrap

import tomli_w

from svcd import __version__
from svcd.cli.options import GROUPS, OPTIONS, Option


def sample_config() -> str:
    """Return a TOML file with every key as a comment, with its default or an example."""
    head = _comment(
        f"Options of svcd {__version__}. Each line shows the default or an example: remove "
        "the # to change it. The command line and SVC_* variables override this file. Use it with "
        "--config-file-path, or as ./config.toml."
    )
    parts = [head]
    for group in GROUPS:
        settable = [option for option in options_of(group) if is_settable(option) and _sample(option)]
        parts += [f"# -- {group} --"] * bool(settable)
        for option in settable:  # the line below the description shows an example when the default is only described
            default = f" Default: {option.default_description}." if option.default_description else ""
            parts.append(f"{_comment(option.about + default)}\n#{_toml_line(option)}")
    return "\n\n".join(parts) + "\n"


def _sample(option: Option) -> str:
    return option.default or option.example


def _toml_line(option: Option) -> str:
    """Return `key = value`, in the first TOML type of the option that can hold the value."""
    text = _sample(option)
    if bool in option.kind.toml:
        return tomli_w.dumps({option.name: option.kind.parse(text)}).strip()
    is_number = int in option.kind.toml and text.isdigit()
    return tomli_w.dumps({option.name: int(text) if is_number else text}).strip()


def _comment(text: str) -> str:
    return "\n".join("# " + line for line in textwrap.wrap(text, 98, break_on_hyphens=False))


def is_settable(option: Option) -> bool:
    """Return whether the TOML file can set the option."""
    return option.is_in_file and option.works_in_file


def options_of(group: str) -> list[Option]:
    """Return the options of a group, in the order of the table."""
    return [option for option in OPTIONS if option.group == group]
