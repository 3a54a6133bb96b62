"""The network for routes with `useNetwork`: which remotes take part, and calls to them.

See docs/network.md.
"""
from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from svcd.api.streaming import ConcurrencyLimit

if TYPE_CHECKING:
    from svcd.api.context import Context
    from svcd.instance.network import Network
    from svcd.remote.remote_calls import RemoteCalls

# Each request that waits for remotes holds a thread, and perhaps readers.
MAX_WAITING = 64
_waiting = ConcurrencyLimit(MAX_WAITING)


class Partition(NamedTuple):
    """The instances that answer a query that uses the network. remotes: names of the remotes to call, in byte order.

    is_local: this instance answers, too. place: its position among all instances.
    """

    remotes: tuple[str, ...]
    is_local: bool
    place: int = 0


def partition(network: Network) -> Partition:
    """Each remote of the network once; a remote with the name of this instance is this instance."""
    names = tuple(network.remotes)
    if network.self_name is None or network.self_name not in network.remotes:
        return Partition(names, is_local=False)
    place = names.index(network.self_name)
    return Partition(names[:place] + names[place + 1:], is_local=True, place=place)


def begin_calls(ctx: Context, network: Network, at_once: int | None = None) -> RemoteCalls:
    """Calls to remotes for a request, or a part of it, that begins now: the deadline counts from here.

    at_once: how many calls run at the same time; None for all.
    """
    from svcd.remote.remote_calls import RemoteCalls, timeout_s  # loaded with the first request over the network

    return RemoteCalls(network, ctx.services.client, time.monotonic() + timeout_s(os.environ), at_once)


def waiting(ctx: Context) -> AbstractContextManager[None]:
    """Wait for remotes in this block. Raises too_many_search_requests if too many requests of this process wait already."""
    return ctx.services.searches.one_of(_waiting)
