"""OPTIONS: one row per launch option.

Knows names, kinds, defaults and words of every option; from each row follow the flag, the `SVC_*`
variable, the key of the TOML file, the help, the man page, the sample config and the README's table.
Refuses to know where a value was given, and what it is used for. Source: options.json.

An option stands here only once it has an effect, or when existing set-ups give it to tune what svcd does not have
(`has_effect`); those that svcd cannot take stand in svcd.cli.options.
"""
from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from svcd.base import logs
from svcd.base.sizes import parse_size, print_size
from svcd.cli import machine
from svcd.cli.addresses import parse_address, parse_networks

MASTER_KEY_BYTES = 16
LARGEST_COUNT = 2**63 - 1
DAY_S = 86_400
MOST_PROCESSES = 128  # more than cores of most machines; a slip of the finger shall not start a million
# Half of the indexing memory, but a batch beyond this is only slower to stop and to show progress.
LARGEST_BATCH_BYTES = parse_size("10 GiB")
_FALSE = frozenset({"", "0", "n", "no", "f", "false", "off"})


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of value is written.

    metavar: its name in the help; None for a flag that takes no value.
    parse: text -> value; raises ValueError with words that follow the text: `is not a size; ...`.
    alone: the text that the flag without a value stands for; None where it needs one.
    toml: the types a TOML file may give it in, each read through its text; expected: the same in words.
    written: value -> text; parse reads it back.
    adds_up: whether it is a comma list: flags that are given again add to it, and the file takes an array.
    takes_empty: whether an empty variable says something. That of other kinds counts as not given, as compose files
        write it.
    """

    metavar: str | None
    parse: Callable[[str], Any]
    toml: tuple[type, ...] = (str,)
    expected: str = "a string in quotes"
    written: Callable[[Any], str] = str
    alone: str | None = None
    adds_up: bool = False
    takes_empty: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """One row. The first argument is the flag; all other names follow from it.

    default: as one would write it; None where there is none, or `derived` computes it.
    derived: values so far -> value, when the default depends on the machine or on another option;
        `default_words` then says it in words.
    example: a value for the sample config where there is no default.
    counts_in_file: False where the file may hold the key, without effect: each start reads the file, and what the
        option is for is done once.
    has_effect: False where the option is only accepted; the log of a start that gives it says so.
    own_variable: its variable, where that does not follow from the flag.
    """

    flag: str
    kind: Kind
    group: str
    about: str
    default: str | None = None
    derived: Callable[[Mapping[str, Any]], Any] | None = None
    default_words: str = ""
    example: str = ""
    is_secret: bool = False
    is_in_file: bool = True
    counts_in_file: bool = True
    has_effect: bool = True
    own_variable: str = ""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.flag.removeprefix("--").replace("-", "_"))

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return self.own_variable or "SVC_" + self.name.upper()

    @property
    def is_switch(self) -> bool:
        """True when the flag takes no value."""
        return self.kind.metavar is None

    @property
    def shown_default(self) -> str:
        """The default in words, "" where there is none."""
        return self.default_words or self.default or ""


# -- Kinds -------------------------------------------------------------------------------------------

def _boolean(text: str) -> bool:
    return text.strip().lower() not in _FALSE


def _path(text: str) -> Path:
    if not text:
        raise ValueError("is empty; name a path")
    if "\0" in text:
        raise ValueError("holds a NUL character, which no path can")
    return Path(text)


def _count(least: int, most: int = LARGEST_COUNT) -> Callable[[str], int]:
    bounds = f"of {least} or more" if most == LARGEST_COUNT else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
            raise ValueError(f"is not an integer {bounds}")
        return int(text)

    return parse


def _limit(text: str) -> int | None:
    """A count; None, for no bound, when the text is empty or `unlimited`."""
    if text.strip().lower() in ("", "unlimited"):
        return None
    try:
        return _count(1)(text)
    except ValueError as wrong:
        raise ValueError(f"{wrong}, nor `unlimited`") from None


def _interval(text: str) -> int | None:
    """Seconds; a day when it is only said that there is one, None when there is none."""
    folded = text.strip().lower()
    if folded in ("", "false"):
        return None
    try:
        return DAY_S if folded == "true" else _count(1)(text)
    except ValueError as wrong:
        raise ValueError(f"{wrong}, nor `true` or `false`") from None


def _choice(*names: str) -> Kind:
    """One of the names, in any letter case."""
    by_folded = {name.lower(): name for name in names}

    def parse(text: str) -> str:
        found = by_folded.get(text.lower())
        if found is None:
            raise ValueError(f"is none of {', '.join(names)}")
        return found

    return Kind("|".join(names), parse, expected=f"one of {', '.join(names)}, in quotes")


def key_proposal() -> str:
    """Words that offer a fresh master key: 32 random bytes, URL-safe base64 without padding."""
    key = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    return f"a secure one, made just now: >> --master-key {key} <<"


def _master_key(text: str) -> str:
    """A key that can stand in a header. The text itself is never repeated in a message."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"is not UTF-8 text; {key_proposal()}") from None
    if size < MASTER_KEY_BYTES:
        raise ValueError(f"has {size} bytes, and at least {MASTER_KEY_BYTES} are needed; {key_proposal()}")
    if any(mark < " " or mark == "\x7f" for mark in text):
        raise ValueError(f"holds a control character, which no request can send; {key_proposal()}")
    return text


def _url(text: str) -> str:
    """An address that can be called over HTTP."""
    from svcd.validation.urls import parse_web_url  # a start without such an option need not wait for it

    try:
        return parse_web_url(text)
    except ValueError as wrong:
        raise ValueError(f"is not a URL that can be called ({wrong}); write https://host/path") from None


def _header_value(text: str) -> str:
    """What may stand in a header. The text itself is never repeated in a message."""
    from svcd.validation.urls import is_header_value

    if not is_header_value(text):
        raise ValueError("cannot be sent in a header: it holds something else than visible ASCII characters")
    return text


def _refuse_ocsp(_text: str) -> NoReturn:
    raise ValueError(
        "cannot be used: svcd has no OCSP stapling, for Python's TLS library offers none; "
        "leave the option out, or let a reverse proxy staple the answer"
    )


SWITCH = Kind(None, _boolean, (bool,), "true or false", written=lambda value: str(value).lower())
PATH = Kind("PATH", _path, expected="a path in quotes")
ADDRESS = Kind("HOST:PORT", parse_address)
SIZE = Kind("SIZE", parse_size, (str, int), 'a number of bytes or a string such as "100 MB"', print_size)
COUNT = Kind("N", _count(0), (int,), "an integer")
POSITIVE = Kind("N", _count(1), (int,), "an integer")
PROCESSES = Kind("N", _count(0, MOST_PROCESSES), (int,), "an integer")
LIMIT = Kind("N", _limit, (int, str), 'an integer or "unlimited"',
             written=lambda limit: "unlimited" if limit is None else str(limit), takes_empty=True)
INTERVAL = Kind("[SECONDS]", _interval, (int, bool), "an integer, or true or false",
                written=lambda seconds: "false" if seconds is None else str(seconds), alone="true", takes_empty=True)
NETWORKS = Kind("CIDR,...", parse_networks, (str, list),
                'a string such as "10.0.0.0/8, fd00::/8", or an array of such strings',
                lambda networks: ",".join(map(str, networks)), adds_up=True)
KEY = Kind("KEY", _master_key)
URL = Kind("URL", _url, expected="a URL in quotes")
HEADER = Kind("VALUE", _header_value)
OCSP = Kind("PATH", _refuse_ocsp)


ENVS = ("development", "production")


# -- Defaults that depend on something ----------------------------------------------------------------

def _indexing_memory(_values: Mapping[str, Any]) -> int | None:
    memory = machine.memory()
    return None if memory is None else memory * 2 // 3


def _indexing_threads(_values: Mapping[str, Any]) -> int:
    return max(1, machine.cores() // 2)


def _batch_bytes(values: Mapping[str, Any]) -> int:
    memory = values["max_indexing_memory"]
    return LARGEST_BATCH_BYTES if memory is None else min(memory // 2, LARGEST_BATCH_BYTES)


# -- The table ---------------------------------------------------------------------------------------

OPTIONS: tuple[Option, ...] = (
    Option("--config-file-path", PATH, "General", default="./config.toml", is_in_file=False,
           about="TOML file with options. The default file may be absent; a file named here must exist."),
    Option("--env", _choice(*ENVS), "General", default="development",
           about="In production the start is refused without a master key."),
    Option("--analytics-url", URL, "General", example="https://stats.example.com/svcd",
           about="Address to which an anonymous usage report is sent, hourly. Without it, none is made."),
    Option("--no-analytics", SWITCH, "General", default="false",
           about="Never send the anonymous usage report, also where --analytics-url is given."),

    Option("--http-addr", ADDRESS, "Network", default="localhost:7700",
           about="Address to listen on. Port 0 takes a free port, which the start banner names."),
    Option("--http-payload-size-limit", SIZE, "Network", default="100 MB",
           about="Largest request body, before and after decompression; a larger one is answered 413."),
    Option("--experimental-allowed-ip-networks", NETWORKS, "Network", default="", default_words="none",
           example="10.0.0.0/8, fd00::/8",
           about="Private networks that calls to other hosts may reach, as a comma list, or any. Given again, it adds to "
                 "the list; an array in the file."),

    Option("--master-key", KEY, "Access", is_secret=True, example="at-least-16-bytes",
           about="Key that allows everything, of at least 16 bytes. Without it anybody may do everything. "
                 "Better given as a variable than on the command line, which other users can see."),

    Option("--db-path", PATH, "Folders", default="./data.ms",
           about="Folder of the database, created when absent."),
    Option("--dump-dir", PATH, "Folders", default="dumps/",
           about="Folder for dumps. Refused at the start when it could not be written to."),
    Option("--snapshot-dir", PATH, "Folders", default="snapshots/",
           about="Folder for snapshots. Refused at the start when it could not be written to."),
    Option("--import-dump", PATH, "Folders", counts_in_file=False,
           about="Dump that a new database begins with. Refused at the start when there is a database already."),
    Option("--ignore-missing-dump", SWITCH, "Folders", default="false", counts_in_file=False,
           about="Start with an empty database when the dump of --import-dump is not there."),
    Option("--ignore-dump-if-db-exists", SWITCH, "Folders", default="false", counts_in_file=False,
           about="Start the database that is there already instead of importing the dump of --import-dump."),
    Option("--schedule-snapshot", INTERVAL, "Folders", default_words="never", example="86400",
           about="Make a snapshot every so many seconds, once a day when the flag stands alone."),
    Option("--import-snapshot", PATH, "Folders", counts_in_file=False,
           about="Snapshot that a new database begins with. Refused at the start when there is a database already."),
    Option("--ignore-missing-snapshot", SWITCH, "Folders", default="false", counts_in_file=False,
           about="Start with an empty database when the snapshot of --import-snapshot is not there."),
    Option("--ignore-snapshot-if-db-exists", SWITCH, "Folders", default="false", counts_in_file=False,
           about="Start the database that is there already instead of importing the snapshot of --import-snapshot."),
    Option("--upgrade-db", SWITCH, "Folders", default="false",
           about="Accepted for scripts that pass it: svcd upgrades an older database at the start anyway."),

    Option("--task-webhook-url", URL, "Webhook", example="https://hooks.example.com/tasks",
           about="Tell this address of the tasks that have finished: a POST for each batch, a line of JSON for each "
                 "task, until it is taken. Private networks need --experimental-allowed-ip-networks."),
    Option("--task-webhook-authorization-header", HEADER, "Webhook", is_secret=True, example="Bearer some-secret",
           about="Authorization header that it gets. Better given as a variable than on the command line, which "
                 "other users can see."),

    Option("--ssl-cert-path", PATH, "TLS", example="/etc/svcd/cert.pem",
           about="Certificate chain (PEM). With --ssl-key-path it turns TLS on."),
    Option("--ssl-key-path", PATH, "TLS", example="/etc/svcd/key.pem",
           about="Private key of the certificate (PEM, not encrypted)."),
    Option("--ssl-auth-path", PATH, "TLS", example="/etc/svcd/clients.pem",
           about="Authorities (PEM) whose client certificates are accepted."),
    Option("--ssl-require-auth", SWITCH, "TLS", default="false",
           about="Refuse clients without a certificate of those authorities."),
    Option("--ssl-resumption", SWITCH, "TLS", default="false",
           about="Let TLS 1.3 clients resume a session that the daemon remembers (TLS 1.2 clients always may)."),
    Option("--ssl-tickets", SWITCH, "TLS", default="false",
           about="Let clients resume a session from a ticket that they keep."),
    Option("--ssl-ocsp-path", OCSP, "TLS",
           about="Refuses the start: OCSP stapling is not available in svcd."),

    Option("--log-level", _choice(*logs.LEVELS), "Logs", default="INFO",
           about="Least grave events to print on stderr, in any letter case."),
    Option("--experimental-logs-mode", _choice(*logs.MODES), "Logs", default="HUMAN",
           about="Form of the log: lines for people, or one JSON object a line."),

    Option("--experimental-enable-metrics", SWITCH, "Features", default="false",
           about="Start with the feature `metrics` on: GET /metrics answers with figures for Prometheus."),
    Option("--experimental-contains-filter", SWITCH, "Features", default="false",
           about="Start with the feature `containsFilter` on: filters may use CONTAINS."),
    Option("--experimental-enable-logs-route", SWITCH, "Features", default="false",
           about="Start with the feature `logsRoute` on: /logs/stream follows the log, /logs/stderr changes it."),
    Option("--experimental-legacy-search-default", SWITCH, "Features", default="false",
           own_variable="SVC_EXPERIMENTAL_LEGACY_SEARCH",
           about="Start with the feature `legacySearch` on. Its variable is SVC_EXPERIMENTAL_LEGACY_SEARCH."),

    Option("--experimental-search-queue-size", COUNT, "Search", default="1000",
           about="Searches that may wait. One more drops a waiting one, which is answered 503."),
    Option("--experimental-drop-search-after", POSITIVE, "Search", default="60",
           about="Seconds after which a waiting search is dropped instead of run."),
    Option("--experimental-nb-searches-per-core", POSITIVE, "Search", default="4",
           about="Searches that run at once, per processor core."),
    Option("--search-workers", PROCESSES, "Search", default="0",
           about="Processes that answer searches besides the main one, each with its own memory: for cores to "
                 "spare. On Linux, and without TLS: let a reverse proxy speak it."),

    Option("--max-indexing-memory", SIZE, "Indexing", derived=_indexing_memory,
           default_words="two thirds of the memory", example="1 GiB",
           about="Memory that indexing may use."),
    Option("--max-indexing-threads", LIMIT, "Indexing", derived=_indexing_threads,
           default_words="half of the cores", example="2",
           about="Threads that indexing may use; unlimited, or an empty variable, removes the bound."),
    Option("--experimental-max-number-of-batched-tasks", COUNT, "Indexing", default_words="unlimited",
           example="1000",
           about="Most tasks in one batch."),
    Option("--experimental-limit-batched-tasks-total-size", SIZE, "Indexing", derived=_batch_bytes,
           default_words="half of --max-indexing-memory, 10 GiB at most", example="512 MiB",
           about="Most bytes of documents in one batch; a single task always fits."),

    Option("--experimental-reduce-indexing-memory-usage", SWITCH, "Without effect", default="false", has_effect=False,
           about="Accepted for scripts that pass it: indexing keeps within its memory anyway."),
    Option("--experimental-no-edition-2024-for-settings", SWITCH, "Without effect", default="false", has_effect=False,
           about="Accepted for scripts that pass it: svcd has one way to apply settings."),
    Option("--experimental-embedding-cache-entries", COUNT, "Without effect", default="0", has_effect=False,
           about="Accepted for scripts that pass it: svcd keeps no embeddings of queries."),
)

BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_VARIABLE: dict[str, Option] = {option.variable: option for option in OPTIONS}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(option.group for option in OPTIONS))


# Options of the reference engine that svcd does not have: which they are, and what is said of them.
#
# Those that only tune what svcd does not have, and that the command line knows, stand in the table of options
# (`has_effect`); here are the rest. A row leaves this file when svcd gets what it is about. Source: options.json.


_OBJECT_STORE = "svcd keeps snapshots in a folder, which --snapshot-dir names, and in no object store"

UNSUPPORTED: dict[str, str] = {  # name of the option: why, and what would be right
    **dict.fromkeys((
        "s3_bucket_url", "s3_bucket_region", "s3_bucket_name", "s3_snapshot_prefix", "s3_access_key", "s3_secret_key",
        "experimental_s3_role_arn", "experimental_s3_web_identity_token_file", "experimental_s3_max_in_flight_parts",
        "experimental_s3_compression_level", "experimental_s3_signature_duration_seconds",
        "experimental_s3_multipart_part_size"), _OBJECT_STORE),
    "experimental_personalization_api_key": "svcd does not personalize searches",
    "experimental_dumpless_upgrade": "its name is --upgrade-db since version 1.51, and svcd upgrades anyway",
}

# What the reference reads from variables alone: limits and time-outs of what svcd lacks or bounds otherwise.
VARIABLES_WITHOUT_EFFECT = frozenset((
    "SVC_EXPERIMENTAL_DSR_FUEL_MAX_COUNTED_WORDS", "SVC_EXPERIMENTAL_DSR_FUEL_MAX_ACTIVE_RULES",
    "SVC_EXPERIMENTAL_DSR_FUEL_MAX_PIN_ACTIONS", "SVC_EXPERIMENTAL_DSR_FUEL_WORD_FUEL",
    "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_FUEL", "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_OR_FUEL",
    "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_AND_FUEL", "SVC_EXPERIMENTAL_DSR_FUEL_FILTER_DEPTH_FUEL",
    "SVC_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_PROXY_REQUEST_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_REST_EMBEDDER_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_REST_EMBEDDER_MAX_RETRY_DURATION_SECONDS",
    "SVC_EXPERIMENTAL_DISABLE_FID_BASED_DATABASES_CLEANUP", "SVC_OLLAMA_URL", "SVC_OPENAI_API_KEY",
))

# Variables that are no option, and have an effect all the same (the usage report reads it).
OTHER_VARIABLES = frozenset(("SVC_SERVER_PROVIDER",))

# Kubernetes gives such variables to every container beside a service that is called `svc`.
_OF_A_SERVICE = re.compile(r"SVC_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII)


def why_unsupported(name: str) -> str | None:
    """Why svcd does not take an option of the reference; None where it does, or where there is none of that name.

    name: in any of its spellings, as --s3-bucket-url, SVC_S3_BUCKET_URL or s3_bucket_url.
    """
    return UNSUPPORTED.get(name.removeprefix("--").removeprefix("SVC_").replace("-", "_").lower())


def is_meant_for_svcd(variable: str) -> bool:
    """Whether somebody who sets this variable may expect an effect of it."""
    return variable.startswith("SVC_") and variable not in OTHER_VARIABLES and not _OF_A_SERVICE.fullmatch(variable)
