"""The configuration of a start: the value of each option from command line, environment, TOML file or default, in this order
of precedence, and the combinations that are rejected.
"""
from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from svcd.base import machine
from svcd.base.errors import quoted, quoted_name
from svcd.cli import folder_checks, foreign_variables, options
from svcd.cli.options import AUTO, BY_NAME, BY_VARIABLE, OPTIONS, URL, Option, key_proposal

COMMAND_LINE, ENVIRONMENT, FILE, DEFAULT = "command line", "environment", "file", "default"
# The credential that is the master key (docs/systemd.md#master-key): a file in the folder of this variable.
CREDENTIALS_FOLDER, CREDENTIAL = "CREDENTIALS_DIRECTORY", "master-key"
# A command that starts a daemon for itself gives its own process id in this variable; the daemon ends with the command.
COMMAND_VARIABLE = "SVCD_COMMAND_PROCESS"
# A longer file cannot be a key file; svcd would read all of it into memory.
_MAX_KEY_FILE = 65536
# Common prefixes are ignored when names are compared. `__` are the dashes of a flag.
_COMMON_START = re.compile("(__|svc_)?(experimental_)?")
_LEAST_LIKENESS = 0.75  # ratio of difflib; below it half of the hints would be wrong


class ConfigError(Exception):
    """The configuration is invalid. str(): one line with the place, the fault and the correction."""


class Given(NamedTuple):
    """One given value. where: the flag, variable or key of the file, for messages."""

    text: str
    source: str
    where: str


class Config:
    """The values of one start, as read-only attributes named like the options.

    The kind of the option determines the type: `config.http_addr` is an Address.
    """

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, Given], without_effect: Mapping[str, Given]) -> None:
        self.__dict__.update(values, _given=dict(given), _without_effect=dict(without_effect))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name}: a Config is read-only")

    def __getattr__(self, name: str) -> Any:  # called only for unknown names
        raise AttributeError(f"no option is named {name}")

    def source(self, name: str) -> str:
        """Return the source of the value: COMMAND_LINE, ENVIRONMENT, FILE or DEFAULT."""
        return self._given[name].source if name in self._given else DEFAULT

    def where(self, name: str) -> str:
        """Return the flag, variable or key that gave the value; the flag for a default."""
        return self._given[name].where if name in self._given else BY_NAME[name].flag

    def without_effect(self) -> Iterator[tuple[str, str]]:
        """Yield (name, place) of keys that are ignored in the file."""
        return ((name, one.where) for name, one in self._without_effect.items())

    def described(self) -> Iterator[tuple[str, str, str]]:
        """Yield (name, value as text, source) of each option, for the log; secrets are ***, credentials in URLs are hidden."""
        for option in OPTIONS:
            value = getattr(self, option.name)
            hidden = option.is_secret and value is not None
            text = "***" if hidden else "" if value is None else _without_credentials(option, option.kind.to_text(value))
            yield option.name, text, self.source(option.name)


def load(flags: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Load the configuration of a start. Raises ConfigError.

    flags: command line values by option name: a text, True for a switch, or a tuple of texts for a repeatable option;
    absent, None or empty if not given. environ: the environment variables.
    """
    given = dict(_from_environment(environ))
    for name, value in flags.items():
        if value not in (None, False, ()):
            text = _comma_list(value) if isinstance(value, tuple) else "true" if value is True else str(value)
            given[name] = Given(text, COMMAND_LINE, BY_NAME[name].flag)
    in_file = _from_file(given.get("config_file_path"))
    idle = {name: one for name, one in in_file.items() if not BY_NAME[name].works_in_file}
    given = {**{name: one for name, one in in_file.items() if name not in idle}, **given}
    given.update(_from_key_file(given, environ))
    values = {name: _parsed(BY_NAME[name], one) for name, one in given.items()}
    for option in OPTIONS:
        if option.name not in values:
            parsed = None if option.default is None else option.kind.parse(option.default)
            values[option.name] = option.derived(values) if option.derived else parsed
    config = Config(values, given, idle)
    for check in CHECKS:
        check(config)
    if any(variable in environ for variable in options.RULE_VARIABLES):
        from svcd.rules.values import limits_of  # loaded only if one is set

        try:
            limits_of(environ)
        except ValueError as wrong:
            raise ConfigError(str(wrong)) from None
    return config


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of some names, None if no name is similar enough. Works for flags, variables and keys."""
    from difflib import get_close_matches  # loaded only for a wrong name

    by_rest = {_distinctive(each): each for each in names}
    found = get_close_matches(_distinctive(name[:80]), list(by_rest), n=1, cutoff=_LEAST_LIKENESS)
    return by_rest[found[0]] if found else None


def _distinctive(name: str) -> str:
    return _COMMON_START.sub("", name.lower().replace("-", "_"), count=1)


# -- Sources ----------------------------------------------------------------------------

def _comma_list(parts: Iterable[str]) -> str:
    return ",".join(filter(None, parts))


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Yield the value of each option with a variable: of svcd or, without it, of the reference engine."""
    for option in OPTIONS:
        for variable in (option.variable, foreign_variables.name_of(option.variable)):
            if environ.get(variable) or option.kind.accepts_empty and variable in environ:
                yield option.name, Given(environ[variable], ENVIRONMENT, variable)
                break


def _from_file(named: Given | None) -> dict[str, Given]:
    """Return the values of the TOML file. named: the given path; None for the default file, which may be absent."""
    option = BY_NAME["config_file_path"]
    path = _parsed(option, named) if named else Path(option.default or "")
    given: dict[str, Given] = {}
    for key, value in _read_toml(path, named).items():
        row = BY_NAME.get(key) or BY_VARIABLE.get(key)
        if row is None:
            if reason := options.why_unsupported(key):
                raise ConfigError(f"{path}: `{key}` is not supported: {reason}; remove it")
            near = nearest(key.replace("-", "_"), (name for name, known in BY_NAME.items() if known.is_in_file))
            hint = f"did you mean `{near}`?" if near else "`svcd --help` lists all options"
            raise ConfigError(f"{path}: unknown key {quoted_name(key)}; {hint}")
        if not row.is_in_file:
            raise ConfigError(f"{path}: `{key}` is not allowed in the file; use {row.flag} or {row.variable}")
        if row.name in given:
            raise ConfigError(f"{path}: `{row.name}` and `{row.variable}` are the same option; remove one")
        given[row.name] = Given(_toml_text(row, key, value, path), FILE, f"`{key}` in {path}")
    return given


def _from_key_file(given: Mapping[str, Given], environ: Mapping[str, str]) -> dict[str, Given]:
    """Return the master key of --master-key-file or, without this option and without a key, of systemd's credential."""
    named = given.get("master_key_file")
    if named is not None:
        if "master_key" in given:
            raise ConfigError(f"{named.where}: {given['master_key'].where} is given as well; remove one of them")
        key = _read_key(_parsed(BY_NAME["master_key_file"], named), named.where)
        return {"master_key": Given(key, named.source, named.where)}
    folder = environ.get(CREDENTIALS_FOLDER)
    if not folder or "master_key" in given or not machine.file_exists(path := Path(folder, CREDENTIAL)):
        return {}
    where = f"the credential {CREDENTIAL}"
    return {"master_key": Given(_read_key(path, where), ENVIRONMENT, where)}


def _read_key(path: Path, where: str) -> str:
    """Return the only line of a file. Messages never contain parts of it."""
    try:
        with path.open("rb") as file:
            lines = file.read(_MAX_KEY_FILE).decode().splitlines()
    except OSError as refused:
        raise ConfigError(f"{where}: cannot read {path}: {refused.strerror}") from None
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"{where}: {path} is not UTF-8 text: byte {wrong.start} is wrong") from None
    if len(lines) != 1:
        raise ConfigError(f"{where}: {path} has {len(lines)} lines; write the master key as its only line")
    return lines[0]


def _read_toml(path: Path, named: Given | None) -> dict[str, Any]:
    where = f"{named.where}: " if named else ""
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        if named is None:
            return {}
        raise ConfigError(f"{where}file {path} does not exist; create it, or remove the option") from None
    except OSError as refused:
        raise ConfigError(f"{where}cannot read {path}: {refused.strerror}") from None
    except UnicodeDecodeError as wrong:
        raise ConfigError(f"{where}{path} is not UTF-8 text: byte {wrong.start} is wrong") from None
    import tomllib  # 12 ms, saved without a file

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as wrong:  # ValueError also for a number of too many digits
        raise ConfigError(f"{where}{path} is not valid TOML: {' '.join(str(wrong).split())}") from None


def _toml_text(option: Option, key: str, value: Any, path: Path) -> str:
    if type(value) not in option.kind.toml:  # not isinstance: True is an int in Python
        raise ConfigError(f"`{key}` in {path}: expected {option.kind.expected}, found {_toml_type(value)}")
    if isinstance(value, int) and value.bit_length() > 64:  # str() raises for thousands of digits
        raise ConfigError(f"`{key}` in {path}: the number is too large")
    if isinstance(value, list):
        odd = next((each for each in value if not isinstance(each, str)), None)
        if odd is not None:
            raise ConfigError(f"`{key}` in {path}: expected {option.kind.expected}, found {_toml_type(odd)} in the array")
        return _comma_list(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml_type(value: Any) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a float", str: "a string", list: "an array", dict: "a table"}
    return names.get(type(value), "a date or time")


def _parsed(option: Option, given: Given) -> Any:
    try:
        return option.kind.parse(given.text)
    except ValueError as wrong:
        text = _without_credentials(option, given.text)
        described = f"the {(option.kind.metavar or '').lower()}" if option.is_secret else quoted(text)
        raise ConfigError(f"{given.where}: {described} {wrong}") from None


def _without_credentials(option: Option, text: str) -> str:
    """Return the text of an option; a URL without its credentials."""
    if option.kind is not URL:
        return text
    from svcd.validation.urls import redacted_url  # loaded only for options with URLs

    return redacted_url(text)


# -- Invalid combinations --------------------------------------------------------------------------

def _production_needs_a_key(config: Config) -> None:
    if config.env == "production" and config.master_key is None:
        raise ConfigError(f"{config.where('env')}: production requires a master key; set {BY_NAME['master_key'].variable}, "
                          f"--master-key-file or --master-key, for example {key_proposal()}")


def _tls_is_complete(config: Config) -> None:
    lacking = [name for name in ("ssl_cert_path", "ssl_key_path") if not getattr(config, name)]
    used = [row.name for row in OPTIONS if row.group == "TLS" and getattr(config, row.name)]
    if lacking and used:
        raise ConfigError(f"{config.where(used[0])}: has no effect without TLS; set {_flags(lacking)} as well")
    if config.ssl_require_auth and not config.ssl_auth_path:
        raise ConfigError(f"{config.where('ssl_require_auth')}: no client could connect; "
                          f"set the accepted authorities with {BY_NAME['ssl_auth_path'].flag}")


def _archives_are_consistent(config: Config) -> None:
    for noun in ("dump", "snapshot"):
        for name in (f"ignore_missing_{noun}", f"ignore_{noun}_if_db_exists"):
            if getattr(config, name) and getattr(config, f"import_{noun}") is None:
                raise ConfigError(f"{config.where(name)}: has no effect without a {noun}; "
                                  f"set one with {BY_NAME[f'import_{noun}'].flag}")
    if config.import_dump is not None and config.import_snapshot is not None:
        raise ConfigError(f"{config.where('import_snapshot')}: a dump and a snapshot cannot both be imported; "
                          f"remove {BY_NAME['import_dump'].flag} or this option")


def _object_store_is_complete(config: Config) -> None:
    """Check that an object store has all options that locate it, and one way to sign."""
    given = [row.name for row in OPTIONS if row.group == "Object store" and config.source(row.name) != DEFAULT]
    if not given:
        return
    where = config.where(given[0])
    lacking = [BY_NAME[name].flag for name in _BUCKET if getattr(config, name) is None]
    if lacking:
        raise ConfigError(f"{where}: snapshots in an object store also need {' and '.join(lacking)}")
    used = [pair for pair in (_KEYS, _ROLE) if any(getattr(config, name) is not None for name in pair)]
    if len(used) > 1:
        raise ConfigError(f"{where}: an object store is reached either by keys or by a role; remove {_flags(_KEYS)}, or "
                          f"{_flags(_ROLE)}")
    if not used:
        raise ConfigError(f"{where}: snapshots in an object store also need {_flags(_KEYS)}, or {_flags(_ROLE)}")
    if any(getattr(config, name) is None for name in used[0]):
        raise ConfigError(f"{where}: snapshots in an object store need both {_flags(used[0])}")


_BUCKET = ("s3_bucket_url", "s3_bucket_region", "s3_bucket_name", "s3_snapshot_prefix")
_KEYS = ("s3_access_key", "s3_secret_key")
_ROLE = ("experimental_s3_role_arn", "experimental_s3_web_identity_token_file")


def _flags(names: Iterable[str]) -> str:
    return " and ".join(BY_NAME[name].flag for name in names)


def _cluster_is_complete(config: Config) -> None:
    used = [name for name in ("node_name", "node_url") if getattr(config, name) is not None]
    if config.cluster is None:
        if used:
            raise ConfigError(f"{config.where(used[0])}: has no effect without {BY_NAME['cluster'].flag}")
    elif config.node_name is None or config.master_key is None:
        raise ConfigError(f"{config.where('cluster')}: a node of a cluster also needs {_flags(['node_name'])}, and "
                          f"{_flags(['master_key'])}, which is the same on all nodes")


def _workers_can_run(config: Config) -> None:
    if config.search_workers not in (0, AUTO) and not hasattr(os, "memfd_create"):
        raise ConfigError(f"{config.where('search_workers')}: search workers need Linux; remove the option")
    if config.exit_when_idle is not None and config.search_workers not in (0, AUTO):
        raise ConfigError(f"{config.where('exit_when_idle')}: a fixed number of search workers is never idle; "
                          f"set {BY_NAME['search_workers'].flag} to {AUTO} or 0, or remove the option")


def _named_folders_can_be_written(config: Config) -> None:
    """Default folders of dumps and snapshots are not checked: they may never be used."""
    for name in ("db_path", "dump_dir", "snapshot_dir"):
        if name == "db_path" or config.source(name) != DEFAULT:
            check = folder_checks.why_unusable if name == "db_path" else folder_checks.why_unwritable
            if wrong := check(getattr(config, name)):
                raise ConfigError(f"{config.where(name)}: {wrong}")


CHECKS: tuple[Callable[[Config], None], ...] = (
    _production_needs_a_key, _tls_is_complete, _archives_are_consistent, _object_store_is_complete, _cluster_is_complete,
    _workers_can_run, _named_folders_can_be_written,
)


def warnings(config: Config, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield log lines about options and variables without effect, and about a missing master key."""
    if config.master_key is None:
        yield (f"no master key: every request is allowed, and --env production is not; for example {key_proposal()}")
    if config.task_webhook_authorization_header is not None and config.task_webhook_url is None:
        yield (f"{config.where('task_webhook_authorization_header')}: has no effect without {BY_NAME['task_webhook_url'].flag}")
    if owner := folder_checks.foreign_owner(config.db_path):
        yield f"{config.where('db_path')}: {owner}"
    for name, where in config.without_effect():
        yield f"{where}: cannot be set in a file; use {BY_NAME[name].flag} or {BY_NAME[name].variable}"
    meant = sorted(name for name, text in environ.items() if text and options.is_meant_for_svcd(name))
    idle = [config.where(row.name) for row in OPTIONS if not row.has_effect and getattr(config, row.name)]
    idle += [variable for variable in meant if variable in options.VARIABLES_WITHOUT_EFFECT]
    if idle:
        yield f"accepted but ignored, because svcd does not need them: {', '.join(idle)}"
    for variable in meant:
        if variable not in BY_VARIABLE and variable not in options.VARIABLES_WITHOUT_EFFECT:
            reason, near = options.why_unsupported(variable), nearest(variable, BY_VARIABLE)
            yield f"the variable {quoted(variable)[1:-1]} " + (
                f"is not supported and is ignored: {reason}" if reason else
                f"is not an option and is ignored{f'; did you mean {near}?' if near else ''}")
