"""Common parts of all processes that answer requests: limits derived from the options, TLS, and the configuration that the main
process passes to search workers.

Explained in docs/http.md#threads and #worker-processes.
"""
from __future__ import annotations

import gc
import json
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from svcd.base import machine
from svcd.cli.config import Config, ConfigError
from svcd.cli.options import AUTO, MAX_PROCESSES

if TYPE_CHECKING:
    import ssl

    from svcd.api.admission import SearchQueue
    from svcd.embedding import Embedders
    from svcd.http.server import Server
    from svcd.remote.client import Client
    from svcd.remote.guard import Guard
    from svcd.remote.reranking import Reranker

# Seconds that running requests get to end after a stop signal.
GRACE_S = 20.0
# Threads for requests other than searches. A search that waits for its turn holds a thread as well; threads are started
# on demand, but more waiting ones than this would exhaust the memory of a small machine.
OTHER_THREADS = 8
MAX_WAITING_THREADS = 1000
# Event streams, and writes that wait for their task (?wait): each holds a thread (40 kB) for long, so they are limited
# apart and never use up the threads of other requests.
MAX_STREAMS = 64
MAX_WAITING_WRITES = 128
# Responses produced while the client reads them: each holds a read transaction and up to half a MB.
MAX_LARGE_ANSWERS = 128
MAX_FILES = 65536
# Descriptors (pipes, sockets) that the main process holds for each indexing process and each search worker.
PER_WRITER, PER_SEARCH_WORKER = 2, 4
# Calls of other instances have only the deadline of their request, which the operator sets.
_MOST_WAIT_S = 86_400.0
# The time that a search runs alone in its process before the next may start: longer than nearly every search takes, too short
# to be noticed.
HEAD_START_S = 0.02
# The time until a computing thread lets a waiting thread run. A search waits after each step of SQLite: with Python's 5 ms a
# dozen steps took 60 ms beside a thread that computes or makes a large response.
_SWITCH_S = 0.0005
# New objects, less freed objects, before Python looks for cycles among the youngest objects. A search makes some ten thousand,
# few of them in cycles: with Python's limit of 700 collecting took up to a tenth of a search.
_NEW_OBJECTS = 10_000
# With --search-workers auto: the memory that each worker needs, the part of all memory that workers may take, and their part of
# the descriptors.
BYTES_PER_WORKER, MEMORY_PART, DESCRIPTOR_PART = 64 << 20, 4, 32


def parallel_searches(config: Config) -> int:
    """Return the maximum number of concurrent searches of all processes."""
    return config.experimental_nb_searches_per_core * machine.cores()


def threads(config: Config) -> int:
    """Return the maximum number of request threads of one process: running and waiting searches, streams, waits, others."""
    waiting = min(config.experimental_search_queue_size, MAX_WAITING_THREADS)
    return parallel_searches(config) + waiting + MAX_STREAMS + MAX_WAITING_WRITES + OTHER_THREADS


def reports_usage(config: Config) -> bool:
    """Return whether svcd sends a usage report: only with --analytics-url, and without --no-analytics."""
    return bool(config.analytics_url) and not config.no_analytics


def raise_file_limit() -> None:
    """Raise the soft limit of open files (usually 1024): each connection and each open index needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_descriptors(config: Config) -> None:
    """Raises TooFewDescriptors if the limit of open files is too low for this configuration."""
    writers = config.max_indexing_threads or machine.cores()
    workers = 0 if config.search_workers == AUTO else config.search_workers
    machine.check_descriptors(PER_WRITER * writers + PER_SEARCH_WORKER * workers)


def most_search_workers(config: Config) -> int:
    """How many search workers there may be: with `auto` as many as cores, memory and descriptors allow."""
    if config.search_workers != AUTO:
        number: int = config.search_workers
        return number
    if not hasattr(os, "memfd_create"):
        return 0
    by_descriptors = machine.allowed_descriptors() // DESCRIPTOR_PART // PER_SEARCH_WORKER
    memory = machine.memory()
    by_memory = MAX_PROCESSES if memory is None else memory // MEMORY_PART // BYTES_PER_WORKER
    return max(0, min(machine.cores() - 1, by_descriptors, by_memory, MAX_PROCESSES))


def embedders(networks: Sequence[str], cache_entries: int) -> Embedders:
    """The embedders of queries. networks: see allowed_networks(); cache_entries: an option."""
    from svcd.embedding import Embedders, Environment  # loaded with the first query that is embedded

    return Embedders(Environment(guard=_guard(networks), query_cache_entries=cache_entries))


def remote_client(networks: Sequence[str]) -> Client:
    """The client that calls other hosts. networks: see allowed_networks()."""
    from svcd.remote.client import Client  # loaded with the first call

    return Client(_guard(networks), _MOST_WAIT_S)


def _guard(networks: Sequence[str]) -> Guard:
    from ipaddress import ip_network

    from svcd.remote.guard import Guard

    return Guard(tuple(map(ip_network, networks)))


def reranker(key: str | None, networks: Sequence[str]) -> Callable[[], Reranker] | None:
    """Makes the client of the rerank service; None without a key of it. networks: see allowed_networks()."""
    if key is None:
        return None

    def make() -> Reranker:
        from svcd.remote.reranking import DEFAULT_URL, URL_VARIABLE, Reranker  # loaded with the first search that is personalized

        return Reranker(key, remote_client(networks).exchange, os.environ.get(URL_VARIABLE) or DEFAULT_URL)

    return make


def allowed_networks(config: Config) -> list[str]:
    """The networks that services may be in though they are not global, as texts."""
    return [str(network) for network in config.experimental_allowed_ip_networks]


def answer_in_turn(server: Server, searches: SearchQueue) -> None:
    """Have the thread that leads answer searches one after the other, and have them queue up while others wait for that."""
    from svcd.api.routes import is_for_all

    server.is_quick, server.on_backlog = is_for_all, searches.note_backlog
    searches.on_wait = server.give_lead_away


def preload_search() -> None:
    """Import the code of searches now, so that the first search need not wait for it."""
    import svcd.index.reader
    import svcd.search.search  # noqa: F401


def preload_search_parameters() -> None:
    """Import the code of filters, places and vectors, which takes as long as a search; a first search by words does without."""
    import svcd.filters.evaluation
    import svcd.filters.parser
    import svcd.index.geo_reader
    import svcd.search.semantic  # noqa: F401


def preload_routes() -> None:
    """Import the code of the routes other than searches."""
    import svcd.api.all_routes  # noqa: F401


def settle() -> None:
    """Call when all code is loaded: it stays, and threads take turns more often."""
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(_SWITCH_S)


def server_context(config: Config) -> ssl.SSLContext | None:
    """The TLS context that the `--ssl-*` options describe, None without TLS. Raises ConfigError for an unusable file."""
    if not config.ssl_cert_path:
        return None
    from svcd.http.tls import TlsError, tls_context  # importing ssl takes 15 ms, which a start without TLS saves

    try:
        return tls_context(
            config.ssl_cert_path, config.ssl_key_path, auth_path=config.ssl_auth_path,
            require_auth=config.ssl_require_auth, resumption=config.ssl_resumption, tickets=config.ssl_tickets,
        )
    except TlsError as wrong:
        raise ConfigError(str(wrong)) from None


class WorkerConfiguration(NamedTuple):
    """The message of the main process to a search worker at its start; sockets and memory are inherited descriptors.

    number: number of the worker, from 1; listeners: listening sockets, empty with TLS; load_table, incoming, outgoing: see
    svcd.http.worker_sharing; counters: shared memory, with a region for each process (svcd.api.traffic).
    processes: number of processes that answer searches now. log_targets: targets set by POST /logs/stderr, followed: targets of
    the client of /logs/stream, "" by default. counts_usage: count for the usage report. logs_queries: report searches
    for the query log. search_memory, embedding_cache: the options. networks: see allowed_networks(). network: from
    Network.as_json(), or None. personalization_key: the option, a secret. files: to open at the start.
    """

    number: int
    listeners: list[int]
    load_table: int
    incoming: int
    outgoing: list[int]
    counters: int
    processes: int
    path: str
    start: str
    features: Mapping[str, bool | None]
    master_key: str | None
    payload_limit: int
    threads: int
    parallel_searches: int
    queue_size: int
    drop_after_s: float
    log_level: str
    logs_mode: str
    log_targets: str = ""
    followed: str = ""
    counts_usage: bool = False
    logs_queries: bool = False
    search_memory: int | None = None
    embedding_cache: int = 0
    networks: Sequence[str] = ()
    network: Mapping[str, Any] | None = None
    personalization_key: str | None = None
    files: Sequence[str] = ()

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self._asdict())
