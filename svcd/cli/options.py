"""OPTIONS: the table of launch options, one row for each; and the options of the reference engine that are not supported.

From a row follow the flag, the `SVC_*` variable, the key of the TOML file, the help, the man page, the sample
configuration and the table in README. An option is added when it has an effect, or to accept existing set-ups that pass
it (`has_effect=False`).
"""
from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from svcd.base import logs, machine
from svcd.base.errors import DOCUMENTATION
from svcd.base.quantities import parse_size, print_size
from svcd.http.sockets import parse_address

MASTER_KEY_BYTES = 16
MAX_COUNT = 2**63 - 1
DAY_S = 86_400
AUTO = "auto"
MAX_PROCESSES = 128  # more than the cores of most machines: a typing error must not start a million processes
# The limit of a batch is half of the indexing memory, but at most this: a larger batch only stops and reports progress later.
MAX_BATCH_BYTES = parse_size("10 GiB")
_SMALLEST_LOG = 1 << 20
_FALSE = frozenset({"", "0", "n", "no", "f", "false", "off"})


class Kind(NamedTuple):
    """The syntax of one kind of value.

    metavar: its placeholder in the help; None for a flag that takes no value.
    parse: text -> value; raises ValueError with a message that follows the text: `is not a size; ...`.
    toml: the TOML types it may have in the file, each parsed from its text; expected: the same for messages.
    to_text: value -> text that parse accepts.
    value_of_flag_alone: the text for the flag without a value; None if it needs one.
    is_repeatable: a comma-separated list: a repeated flag adds to it, and the file may give an array.
    accepts_empty: an empty environment variable is a value. For other kinds it counts as not set, because compose files
        pass unset variables as empty ones.
    """

    metavar: str | None
    parse: Callable[[str], Any]
    toml: tuple[type, ...] = (str,)
    expected: str = "a string in quotes"
    to_text: Callable[[Any], str] = str
    value_of_flag_alone: str | None = None
    is_repeatable: bool = False
    accepts_empty: bool = False


class Option(NamedTuple):
    """One launch option. The flag is the first argument; all other names are derived from it.

    about: its description. default: as text; None without a default, or if `derived` computes it.
    derived: (values of other options) -> value, for a default that depends on the machine or on another option;
        `default_description` describes it.
    example: a value for the sample configuration of an option without default.
    is_in_file: whether the file may contain the key. works_in_file: False for options that act once (imports): every start
        reads the file, so the key is accepted there and ignored.
    has_effect: False for an option that is only accepted; a start with it logs that.
    own_variable: the name of its variable, if it differs from the flag.
    """

    flag: str
    kind: Kind
    group: str
    about: str
    default: str | None = None
    derived: Callable[[Mapping[str, Any]], Any] | None = None
    default_description: str = ""
    example: str = ""
    is_secret: bool = False
    is_in_file: bool = True
    works_in_file: bool = True
    has_effect: bool = True
    own_variable: str = ""

    @property
    def name(self) -> str:
        """Return its name in the configuration."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def variable(self) -> str:
        """Return the name of its environment variable."""
        return self.own_variable or "SVC_" + self.name.upper()

    @property
    def is_switch(self) -> bool:
        """Return whether the flag takes no value."""
        return self.kind.metavar is None

    @property
    def default_text(self) -> str:
        """Return the default as text or description, "" without a default."""
        return self.default_description or self.default or ""


# -- Kinds -------------------------------------------------------------------------------------------

def _path(text: str) -> Path:
    if not text:
        raise ValueError("is empty; set a path")
    if "\0" in text:
        raise ValueError("contains a NUL character")
    return Path(text)


def _text(text: str) -> str:
    if not text:
        raise ValueError("is empty; set a value")
    return text


def _cluster(text: str) -> str:
    from svcd.cluster.log import parsed_address  # imported late: few instances are nodes of a cluster

    try:
        parsed_address(text)
    except ValueError as wrong:
        raise ValueError(f"is not the address of a log: {wrong}") from None
    return text


def _node_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,60}", text):
        raise ValueError("is not a valid node name; use at most 60 letters, digits, - and _")
    return text


def _prefix(text: str) -> str:
    """Parse the beginning of a name, which may be empty."""
    if any(mark < " " or mark == "\x7f" for mark in text):
        raise ValueError("contains a control character")
    return text


def _count(least: int, most: int = MAX_COUNT) -> Callable[[str], int]:
    bounds = f"of {least} or more" if most == MAX_COUNT else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
            raise ValueError(f"is not an integer {bounds}")
        return int(text)

    return parse


def _or_word(count: Callable[[str], int], words: Mapping[str, Any], others: str) -> Callable[[str], Any]:
    """Return a parser of a count or one of some words. words: word in lower case -> value; others: the words, for messages."""
    def parse(text: str) -> Any:
        word = text.strip().lower()
        if word in words:
            return words[word]
        try:
            return count(text)
        except ValueError as wrong:
            raise ValueError(f"{wrong}, nor {others}") from None

    return parse


def _choice(*names: str) -> Kind:
    """Return the kind of options that take one of the names, in any letter case."""
    by_folded = {name.lower(): name for name in names}

    def parse(text: str) -> str:
        found = by_folded.get(text.lower())
        if found is None:
            raise ValueError(f"is not one of {', '.join(names)}")
        return found

    return Kind("|".join(names), parse, expected=f"one of {', '.join(names)}, in quotes")


def key_proposal() -> str:
    """Return an option with a new master key, for messages: 32 random bytes, URL-safe base64 without padding."""
    key = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
    return f"a new random one: >> --master-key {key} <<"


def _master_key(text: str) -> str:
    """Parse a key for an HTTP header. Messages never contain the text."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"is not UTF-8 text; {key_proposal()}") from None
    if size < MASTER_KEY_BYTES:
        raise ValueError(f"has {size} bytes, and at least {MASTER_KEY_BYTES} are needed; {key_proposal()}")
    if any(mark < " " or mark == "\x7f" for mark in text):
        raise ValueError(f"contains a control character, which no request can send; {key_proposal()}")
    return text


def _url(text: str) -> str:
    """Parse a URL that can be called over HTTP."""
    from svcd.validation.urls import parse_web_url  # loaded only for options with URLs

    try:
        return parse_web_url(text)
    except ValueError as wrong:
        raise ValueError(f"is not a valid URL ({wrong}); write https://host/path") from None


def _header_value(text: str) -> str:
    """Parse a value of an HTTP header. Messages never contain the text."""
    from svcd.validation.urls import is_header_value

    if not is_header_value(text):
        raise ValueError("cannot be sent in a header: it contains characters other than visible ASCII")
    return text


def _networks(text: str) -> tuple[Any, ...]:
    """Parse a list of networks."""
    if not text:
        return ()
    from svcd.remote.guard import parse_networks  # loaded only for options with networks

    return parse_networks(text)


def _part(text: str) -> int:
    """Parse the size of a part, at least a byte."""
    size = parse_size(text)
    if not size:
        raise ValueError("is not a valid part size; write at least 1 B")
    return size


def _log_size(text: str) -> int:
    """Parse the size of the query log: 0, or enough for some thousand searches."""
    size = parse_size(text)
    if 0 < size < _SMALLEST_LOG:
        raise ValueError("is too small for a query log; write at least 1 MiB, or 0 for none")
    return size


def _refuse_ocsp(_text: str) -> NoReturn:
    raise ValueError("is not supported: Python's TLS library cannot staple OCSP responses; remove the option, or use a reverse "
                     "proxy that staples")


SWITCH = Kind(None, lambda text: text.strip().lower() not in _FALSE, (bool,), "true or false", lambda value: str(value).lower())
PATH = Kind("PATH", _path, expected="a path in quotes")
ADDRESS = Kind("HOST:PORT", parse_address)
SIZE = Kind("SIZE", parse_size, (str, int), 'a number of bytes or a string such as "100 MB"', print_size)
PART = Kind("SIZE", _part, SIZE.toml, SIZE.expected, print_size)
LOG_SIZE = Kind("SIZE", _log_size, SIZE.toml, SIZE.expected, print_size)
TEXT = Kind("TEXT", _text)
PREFIX = Kind("TEXT", _prefix, accepts_empty=True)
SECRET = Kind("KEY", _text)
GZIP_LEVEL = Kind("LEVEL", _count(0, 9), (int,), "an integer")
COUNT = Kind("N", _count(0), (int,), "an integer")
POSITIVE = Kind("N", _count(1), (int,), "an integer")
PROCESSES = Kind(f"{AUTO}|N", _or_word(_count(0, MAX_PROCESSES), {AUTO: AUTO}, f"`{AUTO}`"), (int, str),
                 f'an integer or "{AUTO}"')
LIMIT = Kind("N", _or_word(_count(1), {"": None, "unlimited": None}, "`unlimited`"), (int, str), 'an integer or "unlimited"',
             to_text=lambda limit: "unlimited" if limit is None else str(limit), accepts_empty=True)
INTERVAL = Kind("[SECONDS]", _or_word(_count(1), {"": None, "false": None, "true": DAY_S}, "`true` or `false`"), (int, bool),
                "an integer, or true or false", lambda seconds: "false" if seconds is None else str(seconds), "true",
                accepts_empty=True)
NETWORKS = Kind("CIDR,...", _networks, (str, list), 'a string such as "10.0.0.0/8, fd00::/8", or an array of such strings',
                lambda networks: ",".join(map(str, networks)), is_repeatable=True)
SECONDS = Kind("SECONDS", _count(1), (int,), "an integer")
WAIT = Kind("SECONDS", _count(0), (int,), "an integer")
KEY = Kind("KEY", _master_key)
CLUSTER = Kind("URL", _cluster, expected="a URL in quotes")
NODE = Kind("NAME", _node_name)
URL = Kind("URL", _url, expected="a URL in quotes")
HEADER = Kind("VALUE", _header_value)
OPTIONAL_HEADER = Kind("VALUE", lambda text: _header_value(text.strip()) if text.strip() else None)  # None for only spaces
OCSP = Kind("PATH", _refuse_ocsp)


ENVS = ("development", "production")


# -- Derived defaults ----------------------------------------------------------------

def _indexing_memory(_values: Mapping[str, Any]) -> int | None:
    memory = machine.memory()
    return None if memory is None else memory * 2 // 3


def _batch_bytes(values: Mapping[str, Any]) -> int:
    memory = values["max_indexing_memory"]
    return MAX_BATCH_BYTES if memory is None else min(memory // 2, MAX_BATCH_BYTES)


# -- The table ---------------------------------------------------------------------------------------

OPTIONS: tuple[Option, ...] = (
    Option("--config-file-path", PATH, "General", default="./config.toml", is_in_file=False,
           about="TOML file with options. The default file is optional; a file named here must exist. SIGHUP reloads its "
                 "log_level."),
    Option("--env", _choice(*ENVS), "General", default="development",
           about="Environment. With production a master key is required."),
    Option("--analytics-url", URL, "General", example="https://stats.example.com/svcd",
           about="Send an anonymous usage report to this URL every hour. By default svcd sends no report."),
    Option("--no-analytics", SWITCH, "General", default="false",
           about="Do not send the usage report even if --analytics-url is set."),
    Option("--error-docs-url", URL, "General", derived=lambda _values: DOCUMENTATION, default_description=DOCUMENTATION,
           example="https://wiki.example.com/svcd/errors",
           about="URL of the page that explains error codes (docs/errors.md). The `link` of an error is this URL, # "
                 "and the code."),
    Option("--exit-when-idle", SECONDS, "General", default_description="never", example="300",
           about="Exit after SECONDS without connections, tasks or pending webhooks. With socket activation the next connection "
                 "starts svcd again."),

    Option("--http-addr", ADDRESS, "Network", default="localhost:7700",
           about="Address to listen on. Port 0 selects a free port, which the start banner shows."),
    Option("--http-payload-size-limit", SIZE, "Network", default="100 MB",
           about="Maximum size of a request body, before and after decompression; larger bodies get status 413."),
    Option("--experimental-allowed-ip-networks", NETWORKS, "Network", default="", default_description="none",
           example="10.0.0.0/8, fd00::/8",
           about="Private networks that outgoing calls may reach: a comma-separated list, or any. Can be repeated; an "
                 "array in the file."),

    Option("--master-key", KEY, "Access", is_secret=True, example="at-least-16-bytes",
           about="Key with all permissions, at least 16 bytes. Without it every request is allowed. "
                 "Prefer the variable or a file: other users can see the command line."),
    Option("--master-key-file", PATH, "Access", example="/etc/svcd/master-key",
           default_description="master-key in $CREDENTIALS_DIRECTORY, if it exists",
           about="File with the master key as its only line; replaces --master-key."),

    Option("--cluster", CLUSTER, "Cluster", is_secret=True, example="rqlite://10.0.0.1:4001,10.0.0.2:4001,10.0.0.3:4001",
           about="Replicated log of the cluster: rqlite://HOST:PORT,... or nats://HOST:PORT,... Needs --node-name, and the same "
                 "master key on all nodes."),
    Option("--node-name", NODE, "Cluster", example="a", about="Node name. Unique per node, stable across restarts."),
    Option("--node-url", URL, "Cluster", default_description="http:// and the address of --http-addr",
           example="http://10.0.0.1:7700", about="URL at which the other nodes reach this one."),

    Option("--db-path", PATH, "Folders", default="./data.ms", about="Data folder, created if it does not exist."),
    Option("--dump-dir", PATH, "Folders", default="dumps/",
           about="Folder for dumps. If the option is given, the folder must be writable."),
    Option("--snapshot-dir", PATH, "Folders", default="snapshots/",
           about="Folder for snapshots. If the option is given, the folder must be writable."),
    Option("--models-dir", PATH, "Folders", default="embedders", own_variable="SVC_EMBEDDER_FILES_PATH",
           about="Folder of the models of embedders that svcd runs itself: sources `huggingFace` and `staticFile`."),
    Option("--import-dump", PATH, "Folders", works_in_file=False,
           about="Dump to import into a new database. The start fails if a database already exists."),
    Option("--ignore-missing-dump", SWITCH, "Folders", default="false", works_in_file=False,
           about="Start with an empty database if the dump of --import-dump does not exist."),
    Option("--ignore-dump-if-db-exists", SWITCH, "Folders", default="false", works_in_file=False,
           about="Ignore --import-dump if a database already exists."),
    Option("--schedule-snapshot", INTERVAL, "Folders", default_description="never", example="86400",
           about="Interval of snapshots in seconds; the flag without a value means one day."),
    Option("--import-snapshot", PATH, "Folders", works_in_file=False,
           about="Snapshot to import as a new database. The start fails if a database already exists."),
    Option("--ignore-missing-snapshot", SWITCH, "Folders", default="false", works_in_file=False,
           about="Start with an empty database if the snapshot of --import-snapshot does not exist."),
    Option("--ignore-snapshot-if-db-exists", SWITCH, "Folders", default="false", works_in_file=False,
           about="Ignore --import-snapshot if a database already exists."),
    Option("--upgrade-db", SWITCH, "Folders", default="false",
           about="Accepted for compatibility: svcd always upgrades an older database at the start."),

    Option("--s3-bucket-url", TEXT, "Object store", example="https://s3.eu-west-1.amazonaws.com",
           about="URL of an S3 object store, which receives snapshots instead of --snapshot-dir. Needs the next three options, "
                 "and either a pair of keys or a role with its token."),
    Option("--s3-bucket-region", TEXT, "Object store", example="eu-west-1", about="Region of the bucket."),
    Option("--s3-bucket-name", TEXT, "Object store", example="backups", about="Name of the bucket."),
    Option("--s3-snapshot-prefix", PREFIX, "Object store", example="svcd/",
           about="Prefix of the names of snapshots, may be empty; the name of the data folder follows."),
    Option("--s3-access-key", SECRET, "Object store", is_secret=True, example="AKIAIOSFODNN7EXAMPLE",
           about="Access key of the store."),
    Option("--s3-secret-key", SECRET, "Object store", is_secret=True, example="some-secret",
           about="Secret key of the store. Prefer the variable: other users can see the command line."),
    Option("--experimental-s3-role-arn", TEXT, "Object store", example="arn:aws:iam::123456789012:role/backups",
           about="Role to assume for the store, instead of keys."),
    Option("--experimental-s3-web-identity-token-file", PATH, "Object store", example="/run/secrets/token",
           about="File with the web identity token of the role, read for each snapshot."),
    Option("--experimental-s3-max-in-flight-parts", POSITIVE, "Object store", default="10",
           about="Maximum number of concurrent part uploads. A snapshot takes the memory of all these parts."),
    Option("--experimental-s3-compression-level", GZIP_LEVEL, "Object store", default="0",
           about="Compression level, from 0 (none) to 9."),
    Option("--experimental-s3-signature-duration-seconds", POSITIVE, "Object store", default="28800",
           about="Validity of signed requests in seconds."),
    Option("--experimental-s3-multipart-part-size", PART, "Object store", default="375 MiB",
           about="Size of a part. Stores accept at most 10,000 parts; most require at least 5 MiB."),

    Option("--task-webhook-url", URL, "Webhook", example="https://hooks.example.com/tasks",
           about="Send finished tasks to this URL: one POST per batch, one line of JSON per task, repeated until it succeeds. "
                 "Private networks need --experimental-allowed-ip-networks."),
    Option("--task-webhook-authorization-header", HEADER, "Webhook", is_secret=True, example="Bearer some-secret",
           about="Authorization header of these requests. Prefer the variable: other users can see the command line."),

    Option("--ssl-cert-path", PATH, "TLS", example="/etc/svcd/cert.pem",
           about="Certificate chain (PEM). Enables TLS, together with --ssl-key-path."),
    Option("--ssl-key-path", PATH, "TLS", example="/etc/svcd/key.pem",
           about="Private key of the certificate (PEM, not encrypted)."),
    Option("--ssl-auth-path", PATH, "TLS", example="/etc/svcd/clients.pem",
           about="Certificate authorities (PEM) for client certificates."),
    Option("--ssl-require-auth", SWITCH, "TLS", default="false", about="Require a client certificate."),
    Option("--ssl-resumption", SWITCH, "TLS", default="false",
           about="Enable session resumption from the server's cache for TLS 1.3 (always enabled for TLS 1.2)."),
    Option("--ssl-tickets", SWITCH, "TLS", default="false", about="Enable session resumption with tickets."),
    Option("--ssl-ocsp-path", OCSP, "TLS", about="Not supported: svcd refuses to start with it."),

    Option("--log-level", _choice(*logs.LEVELS), "Logs", default="INFO",
           about="Lowest level of events to print on stderr, in any letter case."),
    Option("--experimental-logs-mode", _choice(*logs.MODES), "Logs", default="HUMAN",
           about="Format of the log: readable lines, or one JSON object per line."),

    Option("--experimental-enable-metrics", SWITCH, "Features", default="false",
           about="Enable the feature `metrics` at the start: GET /metrics for Prometheus."),
    Option("--experimental-contains-filter", SWITCH, "Features", default="false",
           about="Enable the feature `containsFilter` at the start: the filter operator CONTAINS."),
    Option("--experimental-enable-logs-route", SWITCH, "Features", default="false",
           about="Enable the feature `logsRoute` at the start: /logs/stream follows the log, /logs/stderr sets its level."),
    Option("--experimental-legacy-search-default", SWITCH, "Features", default="false",
           own_variable="SVC_EXPERIMENTAL_LEGACY_SEARCH",
           about="Enable the feature `legacySearch` at the start. The variable is SVC_EXPERIMENTAL_LEGACY_SEARCH."),
    Option("--experimental-rename-by-patch", SWITCH, "Features", default="false",
           about="Let `uid` in PATCH /indexes/{index_uid} rename the index, as clients of the reference engine expect. By "
                 "default svcd refuses this request; a swap with `rename` has the same effect."),
    Option("--experimental-mcp", SWITCH, "Features", default="false",
           about="Enable the feature `mcp` at the start: assistants search by the Model Context Protocol, at POST /mcp."),
    Option("--mcp-write", SWITCH, "Features", default="false",
           about="Offer assistants the tools that add and delete documents, if their key may do so."),
    Option("--mcp-calls-per-minute", POSITIVE, "Features", default="600",
           about="Maximum number of calls of tools and reads of documents by an assistant in a minute, for each key."),

    Option("--experimental-search-queue-size", COUNT, "Search", default="1000",
           about="Maximum number of waiting searches. Beyond it svcd drops a random waiting search with status 503."),
    Option("--experimental-drop-search-after", POSITIVE, "Search", default="60",
           about="Drop searches that have waited for this number of seconds."),
    Option("--experimental-nb-searches-per-core", POSITIVE, "Search", default="4",
           about="Maximum number of concurrent searches per processor core."),
    Option("--search-workers", PROCESSES, "Search", default=AUTO,
           about="Extra search processes. auto: up to cores - 1, started under load, stopped when idle. Linux only."),

    Option("--search-memory", SIZE, "Search", example="64 MiB",
           default_description="a twentieth of the indexes searched, 24 to 56 MiB, of large ones a fiftieth; at most an eighth "
                               "of the memory",
           about="Memory of the search caches of all processes: a quarter for results, the rest for parts of the indexes."),

    Option("--query-log", LOG_SIZE, "Query log", default="0", default_description="off", example="100 MiB",
           about="Log searches and clicks in the data folder, at most this much; the oldest are deleted. Nothing leaves the "
                 "machine."),
    Option("--query-log-days", POSITIVE, "Query log", default="90", about="Delete searches from the query log after this time."),
    Option("--query-log-hashes", SWITCH, "Query log", default="false",
           about="Log hashes of queries, keyed by the master key, instead of their texts. svcd then cannot suggest synonyms."),

    Option("--experimental-personalization-api-key", OPTIONAL_HEADER, "Search", is_secret=True, example="a-key-of-cohere",
           about="API key of the rerank service for searches with `personalize`; without it such searches fail. Prefer the "
                 "variable: other users can see the command line."),
    Option("--experimental-embedding-cache-entries", COUNT, "Search", default="0",
           about="Number of query vectors that each process caches per embedder, to save calls to the service."),

    Option("--max-indexing-memory", SIZE, "Indexing", derived=_indexing_memory,
           default_description="two thirds of the memory", example="1 GiB",
           about="Maximum memory of indexing."),
    Option("--max-indexing-threads", LIMIT, "Indexing", default_description="half of the cores, 2 of 2 or 3", example="1",
           derived=lambda _values: max(machine.cores() // 2, min(machine.cores(), 2)),
           about="Maximum number of concurrent batches. With 2 or more, one process analyzes a large batch that runs alone, and "
                 "a second process writes it. unlimited, or an empty variable, removes the limit."),
    Option("--parallel-batches-after", WAIT, "Indexing", default="1",
           about="Start a batch beside running batches of other indexes once each of them has run for SECONDS. Until then "
                 "batches end in the order of their tasks. 0: batches of different indexes start at once."),
    Option("--changes-keep", INTERVAL, "Indexing", default_description="never", example="604800",
           about="Keep the changes of documents for SECONDS, so that programs can follow them; the flag without a value means "
                 "one day."),
    Option("--experimental-max-number-of-batched-tasks", COUNT, "Indexing", default_description="unlimited",
           example="1000",
           about="Maximum number of tasks in one batch."),
    Option("--experimental-limit-batched-tasks-total-size", SIZE, "Indexing", derived=_batch_bytes,
           default_description="half of --max-indexing-memory, at most 10 GiB", example="512 MiB",
           about="Maximum size of the documents in one batch; a single task may be larger."),

    Option("--experimental-reduce-indexing-memory-usage", SWITCH, "Without effect", default="false", has_effect=False,
           about="Accepted for compatibility: indexing always keeps to its memory limit."),
    Option("--experimental-no-edition-2024-for-settings", SWITCH, "Without effect", default="false", has_effect=False,
           about="Accepted for compatibility: svcd has one way to apply settings."),
)

BY_NAME: dict[str, Option] = {option.name: option for option in OPTIONS}
BY_VARIABLE: dict[str, Option] = {option.variable: option for option in OPTIONS}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(option.group for option in OPTIONS))


# -- Options of the reference engine that svcd does not support ----------------------------------------
# svcd rejects these. It accepts options that would only tune features which svcd lacks (`has_effect=False` above).


UNSUPPORTED: dict[str, str] = {  # name of the option: why it is not supported
    "experimental_dumpless_upgrade": "it is called --upgrade-db since version 1.51, and svcd always upgrades",
}

# Variables of the reference engine without a flag: limits and time-outs that svcd lacks or sets differently.
VARIABLES_WITHOUT_EFFECT = frozenset((
    "SVC_EXPERIMENTAL_PROXY_CONNECT_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_PROXY_BACKOFF_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_PROXY_REQUEST_TIMEOUT_SECONDS", "SVC_EXPERIMENTAL_DISABLE_FID_BASED_DATABASES_CLEANUP",
))

# Limits of search rules (docs/search-rules.md#limits). The module that reads them is loaded only if one is set.
RULE_VARIABLES = tuple(f"SVC_EXPERIMENTAL_DSR_FUEL_{name}" for name in (
    "MAX_COUNTED_WORDS", "MAX_ACTIVE_RULES", "MAX_PIN_ACTIONS", "WORD_FUEL", "FILTER_FUEL", "FILTER_OR_FUEL",
    "FILTER_AND_FUEL", "FILTER_DEPTH_FUEL",
))

# Variables that are not options but have an effect. The usage report reads the first one; search rules, embedders
# (docs/embedders.md), calls of remotes (docs/network.md), of object stores (docs/dumps.md#object-store) and of the rerank service
# (docs/personalization.md) the others.
OTHER_VARIABLES = frozenset((
    *RULE_VARIABLES,
    "SVC_SERVER_PROVIDER", "SVC_OPENAI_API_KEY", "SVC_OLLAMA_URL",
    "SVC_EXPERIMENTAL_CONFIG_EMBEDDER_FAILURE_MODES", "SVC_EXPERIMENTAL_REST_EMBEDDER_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_REST_EMBEDDER_MAX_RETRY_DURATION_SECONDS", "SVC_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS",
    "SVC_EXPERIMENTAL_S3_WEB_IDENTITY_TOKEN_DURATION_SECONDS", "SVC_EXPERIMENTAL_PERSONALIZATION_URL",
))

# Kubernetes sets such variables in every container next to a service named `svc` or `meili`.
OF_A_SERVICE = re.compile(r"(SVC|MEILI)_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)", re.ASCII)


def why_unsupported(name: str) -> str | None:
    """Return the reason why an option of the reference engine is not supported; None for any other name.

    name: a flag, variable or key: --experimental-dumpless-upgrade, or one of its other names.
    """
    return UNSUPPORTED.get(name.removeprefix("--").removeprefix("SVC_").replace("-", "_").lower())


def is_meant_for_svcd(variable: str) -> bool:
    """Return whether an environment variable was probably set for svcd."""
    return variable.startswith("SVC_") and variable not in OTHER_VARIABLES and not OF_A_SERVICE.fullmatch(variable)
