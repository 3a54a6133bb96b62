"""What all processes that answer requests have in common: how many threads, and how requests are logged.

Refuses to know which processes there are.
"""
from __future__ import annotations

import resource
import ssl
from typing import TYPE_CHECKING

from svcd.base import descriptors, logs
from svcd.cli import machine
from svcd.cli.config import Config, ConfigError
from svcd.http.tls import TlsError, tls_context

if TYPE_CHECKING:
    from svcd.cli.config import Config
    from svcd.http.message import Request


# How long running requests may take to end after a signal.
GRACE_S = 20.0
# Threads for all that is no search. A search that waits for its place holds a thread, too; the server starts
# threads only when they are needed, but beyond this many waiting the memory of a small machine would be.
OTHER_THREADS = 8
MOST_WAITING_THREADS = 1000
# Answers that go on until their client leaves, and writes that wait for their task: each holds a thread of its own,
# 40 kB, so that they never take those of others.
MOST_STREAMS = 64
MOST_WAITING_WRITES = 128
# Answers made in portions, as their clients take them: each holds a state of an index, and up to half a MB.
MOST_LARGE_ANSWERS = 128
MOST_FILES = 65536
# Descriptors of pipes and sockets that the main process has for each of its other processes.
PER_WRITER, PER_SEARCH_WORKER = 2, 4
# Longer than nearly every search takes, shorter than anybody notices.
HEAD_START_S = 0.02


def parallel_searches(config: Config) -> int:
    """Searches that run at once, in all processes together."""
    return config.experimental_nb_searches_per_core * machine.cores()


def threads(config: Config) -> int:
    """Threads that answer requests in one process: running searches, waiting ones, all that waits, and all else."""
    waiting = min(config.experimental_search_queue_size, MOST_WAITING_THREADS)
    return parallel_searches(config) + waiting + MOST_STREAMS + MOST_WAITING_WRITES + OTHER_THREADS


def reports_usage(config: Config) -> bool:
    """The owner has said where to, and not that there shall be none."""
    return bool(config.analytics_url) and not config.no_analytics


def allow_many_files() -> None:
    """Take what the system allows: each connection and each open index is a file, and 1024 is a usual limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_descriptors(config: Config) -> None:
    """Raises TooFewDescriptors when the system allows fewer files than this configuration needs."""
    writers = config.max_indexing_threads or machine.cores()
    descriptors.check(PER_WRITER * writers + PER_SEARCH_WORKER * config.search_workers)


def warm_up() -> None:
    """Load what the first search would have to wait for."""


def log_request(request: Request, status: int, seconds: float, size: int) -> None:
    """The line of a request that was answered."""
    path = "/" + "/".join(request.segments)  # decoded: a key in it is known only then, and hidden
    logs.request(request.verb, path, status, seconds, size, request.client)


def log_bug(traceback: str) -> None:
    """The line, and the traceback, of a bug."""
    logs.failure("bug", traceback)


# TLS from the options: which of them go where, and where a wrong one was given.
#
# Refuses to know how TLS is done: svcd.http.tls does. Imported only when TLS is on, for ssl takes 15 ms.


def server_context(config: Config) -> ssl.SSLContext:
    """The context that the `--ssl-*` options describe; raises ConfigError for a file that is not what it should be."""
    try:
        return tls_context(
            config.ssl_cert_path, config.ssl_key_path, auth_path=config.ssl_auth_path,
            require_auth=config.ssl_require_auth, resumption=config.ssl_resumption, tickets=config.ssl_tickets,
        )
    except TlsError as wrong:
        raise ConfigError(str(wrong)) from None
