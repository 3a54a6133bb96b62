"""Which value each option has: command line, then environment, then TOML file, then default.

Knows where values are given, who wins, and which values do not go together; refuses to know what
they are used for. Source: options.json, rules.
"""
from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from svcd.cli import options
from svcd.cli.options import BY_NAME, BY_VARIABLE, OPTIONS, URL, Option, key_proposal

COMMAND_LINE, ENVIRONMENT, FILE, DEFAULT = "command line", "environment", "file", "default"
# What many names begin with says nothing about which one was meant. `__` are the dashes of a flag.
_COMMON_START = re.compile("(__|svc_)?(experimental_)?")
_LEAST_LIKENESS = 0.75  # of what was meant; with less, half of the hints would be wrong


class ConfigError(Exception):
    """The start is refused. str(): one line that says where, what was wrong and what would be right."""


class Given(NamedTuple):
    """One value as it was given. where: how the operator spells the place, for messages."""

    text: str
    source: str
    where: str


class Config:
    """The values of one start, as attributes named like the options; nothing changes them.

    Types are those that the option's kind parses to: `config.http_addr` is an Address.
    """

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Given], idle: Mapping[str, Given]) -> None:
        self.__dict__.update(values, _given=dict(given), _idle=dict(idle))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: a Config does not change")

    def __getattr__(self, name: str) -> Any:  # only for names that are absent
        raise AttributeError(f"no option is named {name}")

    def source(self, name: str) -> str:
        """Who decided this option: COMMAND_LINE, ENVIRONMENT, FILE or DEFAULT."""
        return self._given[name].source if name in self._given else DEFAULT

    def where(self, name: str) -> str:
        """The place where the option was given; its flag when it was not."""
        return self._given[name].where if name in self._given else BY_NAME[name].flag

    def idle(self) -> Iterator[tuple[str, str]]:
        """Name and place of what the file gives without effect."""
        return ((name, one.where) for name, one in self._idle.items())

    def shown(self) -> Iterator[tuple[str, str, str]]:
        """Name, value as one would write it, and source of each option; secrets as ***, credentials of URLs hidden."""
        for option in OPTIONS:
            value = getattr(self, option.name)
            hidden = option.is_secret and value is not None
            text = "***" if hidden else "" if value is None else _without_credentials(option, option.kind.written(value))
            yield option.name, text, self.source(option.name)


def load(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """The Config of a start; raises ConfigError.

    flags: what the command line gives, by option name: a text, True for a switch, or the texts of an option that adds
    up. What it does not give is absent, None or empty. environ: the environment variables.
    """
    given = {**_from_environment(environ), **_from_flags(flags)}
    in_file = _from_file(given.get("config_file_path"))
    idle = {name: one for name, one in in_file.items() if not BY_NAME[name].counts_in_file}
    given = {**{name: one for name, one in in_file.items() if name not in idle}, **given}
    values = {name: _parsed(BY_NAME[name], one) for name, one in given.items()}
    for option in OPTIONS:
        if option.name not in values:
            values[option.name] = _default(option, values)
    config = Config(values, given, idle)
    for check in CHECKS:
        check(config)
    return config


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant; None where none comes near. Flags, variables and keys are spelled alike."""
    from difflib import get_close_matches  # only a wrong name pays for it

    by_rest = {_distinctive(each): each for each in names}
    found = get_close_matches(_distinctive(name[:80]), list(by_rest), n=1, cutoff=_LEAST_LIKENESS)
    return by_rest[found[0]] if found else None


def _distinctive(name: str) -> str:
    return _COMMON_START.sub("", name.lower().replace("-", "_"), count=1)


def quoted(text: str) -> str:
    """A given text in a message: in quotes, on one line, and not endless."""
    return json.dumps(text if len(text) <= 80 else text[:77] + "...", ensure_ascii=not text.isprintable())


# -- Where values come from ----------------------------------------------------------------------------

def _from_flags(flags: Mapping[str, Any]) -> dict[str, Given]:
    return {
        name: Given(_flag_text(value), COMMAND_LINE, BY_NAME[name].flag)
        for name, value in flags.items() if value not in (None, False, ())
    }


def _flag_text(value: Any) -> str:
    if isinstance(value, tuple):
        return _comma_list(value)
    return "true" if value is True else str(value)


def _comma_list(parts: Iterable[str]) -> str:
    return ",".join(filter(None, parts))


def _from_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    return {
        option.name: Given(environ[option.variable], ENVIRONMENT, option.variable)
        for option in OPTIONS
        if environ.get(option.variable) or option.kind.takes_empty and option.variable in environ
    }


def _from_file(named: Given | None) -> dict[str, Given]:
    """named: where the file was named, None for the default file, which may be absent."""
    option = BY_NAME["config_file_path"]
    path = _parsed(option, named) if named else Path(option.default or "")
    table = _read_toml(path, named)
    given: dict[str, Given] = {}
    for key, value in table.items():
        row = _option_of(key, path)
        if row.name in given:
            raise ConfigError(f"{path}: `{row.name}` and `{row.variable}` are the same option; leave one out")
        given[row.name] = Given(_toml_text(row, key, value, path), FILE, f"`{key}` in {path}")
    return given


def _read_toml(path: Path, named: Given | None) -> dict[str, Any]:
    where = f"{named.where}: " if named else ""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        if named is None:
            return {}
        raise ConfigError(f"{where}there is no file {path}; create it, or leave the option out") from None
    except OSError as refused:
        raise ConfigError(f"{where}cannot read {path}: {refused.strerror}") from None
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"{where}{path} is not UTF-8 text: byte {wrong.start} is wrong") from None
    import tomllib  # 12 ms that a start without a file need not pay

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as wrong:  # ValueError: also a number of too many digits
        raise ConfigError(f"{where}{path} is not valid TOML: {' '.join(str(wrong).split())}") from None


def _option_of(key: str, path: Path) -> Option:
    """The option of a key: its name, or its variable, as the specification writes that of the webhook."""
    option = BY_NAME.get(key) or BY_VARIABLE.get(key)
    if option is None:
        reason = options.why_unsupported(key)
        if reason:
            raise ConfigError(f"{path}: `{key}` is not supported: {reason}; leave it out")
        near = nearest(key.replace("-", "_"), (name for name, row in BY_NAME.items() if row.is_in_file))
        hint = f"did you mean `{near}`?" if near else "`svcd --help` names all options"
        raise ConfigError(f"{path}: unknown key `{quoted(key)[1:-1]}`; {hint}")
    if not option.is_in_file:
        raise ConfigError(f"{path}: `{key}` cannot stand in the file; give {option.flag} or {option.variable}")
    return option


def _toml_text(option: Option, key: str, value: Any, path: Path) -> str:
    if type(value) not in option.kind.toml:  # not isinstance: to Python, true is an integer
        raise ConfigError(f"`{key}` in {path}: expected {option.kind.expected}, found {_toml_type(value)}")
    if isinstance(value, int) and value.bit_length() > 64:  # str() refuses thousands of digits
        raise ConfigError(f"`{key}` in {path}: the number is too large")
    if isinstance(value, list):
        odd = next((each for each in value if not isinstance(each, str)), None)
        if odd is not None:
            raise ConfigError(f"`{key}` in {path}: expected {option.kind.expected}, found {_toml_type(odd)} in the array")
        return _comma_list(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml_type(value: Any) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array",
             dict: "a table"}
    return names.get(type(value), "a date or time")


def _parsed(option: Option, given: Given) -> Any:
    try:
        return option.kind.parse(given.text)
    except ValueError as wrong:
        text = _without_credentials(option, given.text)
        shown = f"the {(option.kind.metavar or '').lower()}" if option.is_secret else quoted(text)
        raise ConfigError(f"{given.where}: {shown} {wrong}") from None


def _without_credentials(option: Option, text: str) -> str:
    """The text of an option as it may be printed."""
    if option.kind is not URL:
        return text
    from svcd.validation.redaction import redacted_url  # see svcd.cli.options: few starts have such an option

    return redacted_url(text)


def _default(option: Option, values: Mapping[str, Any]) -> Any:
    if option.derived:
        return option.derived(values)
    return None if option.default is None else option.kind.parse(option.default)


# -- What does not go together --------------------------------------------------------------------------

def _production_needs_a_key(config: Config) -> None:
    if config.env == "production" and config.master_key is None:
        raise ConfigError(
            f"{config.where('env')}: in production a master key is needed; give {BY_NAME['master_key'].variable} "
            f"or --master-key, or take {key_proposal()}"
        )


def _tls_needs_certificate_and_key(config: Config) -> None:
    pair = ("ssl_cert_path", "ssl_key_path")
    if all(getattr(config, name) for name in pair):
        return
    used = [row for row in OPTIONS if row.group == "TLS" and getattr(config, row.name)]
    if used:
        lacking = " and ".join(BY_NAME[name].flag for name in pair if not getattr(config, name))
        raise ConfigError(f"{config.where(used[0].name)}: has no effect without TLS; give {lacking} too")


def _required_certificates_need_authorities(config: Config) -> None:
    if config.ssl_require_auth and not config.ssl_auth_path:
        raise ConfigError(
            f"{config.where('ssl_require_auth')}: no client could pass; "
            f"name the accepted authorities with {BY_NAME['ssl_auth_path'].flag}"
        )


def _companions_need_an_archive(config: Config) -> None:
    for noun in ("dump", "snapshot"):
        for name in (f"ignore_missing_{noun}", f"ignore_{noun}_if_db_exists"):
            if getattr(config, name) and getattr(config, f"import_{noun}") is None:
                raise ConfigError(f"{config.where(name)}: has no effect without a {noun}; "
                                  f"name one with {BY_NAME[f'import_{noun}'].flag}")


def _one_archive_is_imported(config: Config) -> None:
    if config.import_dump is not None and config.import_snapshot is not None:
        raise ConfigError(f"{config.where('import_snapshot')}: a database begins with a dump or with a snapshot; "
                          f"leave out {BY_NAME['import_dump'].flag}, or this")


def _workers_need_linux_and_no_tls(config: Config) -> None:
    if not config.search_workers:
        return
    where = config.where("search_workers")
    if not hasattr(os, "memfd_create"):
        raise ConfigError(f"{where}: search workers need Linux; leave the option out")
    if config.ssl_cert_path:
        raise ConfigError(
            f"{where}: search workers cannot share connections with TLS; leave out the one or the other, "
            "or let a reverse proxy speak TLS"
        )


def _named_folders_can_be_written(config: Config) -> None:
    """A default folder may stay unusable: nobody asked for it yet."""
    for name in ("db_path", "dump_dir", "snapshot_dir"):
        if name == "db_path" or config.source(name) != DEFAULT:
            wrong = _why_unwritable(getattr(config, name))
            if wrong:
                raise ConfigError(f"{config.where(name)}: {wrong}; name a folder that svcd may write to")


def _why_unwritable(folder: Path) -> str | None:
    """None when the folder can be written to, or could be made; nothing is created here."""
    try:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    except OSError as refused:
        return f"cannot look at {folder}: {refused.strerror}"
    if not existing.is_dir():
        return f"{existing} is not a folder"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written to"
    return None


CHECKS: tuple[Callable[[Config], None], ...] = (
    _production_needs_a_key,
    _tls_needs_certificate_and_key,
    _required_certificates_need_authorities,
    _companions_need_an_archive,
    _one_archive_is_imported,
    _workers_need_linux_and_no_tls,
    _named_folders_can_be_written,
)


def warnings(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """What does not stop the start, but the operator should know."""
    if config.master_key is None:
        yield ("no master key: anybody who reaches the address may do everything, and production would be "
               f"refused; start with {key_proposal()}")
    if config.task_webhook_authorization_header is not None and config.task_webhook_url is None:
        yield (f"{config.where('task_webhook_authorization_header')}: has no effect without "
               f"{BY_NAME['task_webhook_url'].flag}")
    for name, where in config.idle():
        yield f"{where}: has no effect in a file; give {BY_NAME[name].flag} or {BY_NAME[name].variable}"
    meant = sorted(name for name, text in environ.items() if text and options.is_meant_for_svcd(name))
    idle = [config.where(row.name) for row in OPTIONS if not row.has_effect and getattr(config, row.name)]
    idle += [variable for variable in meant if variable in options.VARIABLES_WITHOUT_EFFECT]
    if idle:
        yield f"no effect in svcd, which has nothing that they could tune: {', '.join(idle)}"
    for variable in meant:
        if variable not in BY_VARIABLE and variable not in options.VARIABLES_WITHOUT_EFFECT:
            yield f"the variable {quoted(variable)[1:-1]} {_why_ignored(variable)}"


def _why_ignored(variable: str) -> str:
    reason = options.why_unsupported(variable)
    if reason:
        return f"is not supported and is ignored: {reason}"
    near = nearest(variable, BY_VARIABLE)
    return "names no option and is ignored" + (f"; did you mean {near}?" if near else "")
