"""Waits for events on connections and listening sockets on behalf of all request threads (docs/http.md#poller).

The thread that learns that a request is there also answers it. With epoll many threads may wait at once, and the kernel
gives each event to one of them; on other systems they wait in turns.
"""
from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from svcd.http.sockets import READABLE, WRITABLE


class Pollable(Protocol):
    """What can be registered. deadline: monotonic time at which it has waited too long."""

    deadline: float

    def fileno(self) -> int: ...


class Watch(Protocol):
    """Reports descriptors, each once per arm(). Thread-safe."""

    def arm(self, descriptor: int, events: int) -> None:
        """Report the descriptor once when one of the events is there, or was there before."""

    def wake(self, descriptor: int) -> None:
        """Report the descriptor to every thread, again and again, once it is readable."""

    def next(self) -> int:
        """Wait for a descriptor with an event; may return -1 without one."""

    def disarm(self, descriptor: int) -> None:
        """Stop watching a descriptor; must be called before it is closed.

        If a forked process still holds it open, the kernel would go on reporting it.
        """

    def release(self) -> None:
        """Close the descriptors of the watch itself; no thread may be waiting."""


class EpollWatch:
    """Linux: EPOLLONESHOT reports each event to one thread."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._known: set[int] = set()  # descriptors that the kernel has, armed or not

    def arm(self, descriptor: int, events: int) -> None:
        if descriptor in self._known:
            self._epoll.modify(descriptor, events | select.EPOLLONESHOT)
            return
        self._known.add(descriptor)
        self._epoll.register(descriptor, events | select.EPOLLONESHOT)

    def wake(self, descriptor: int) -> None:
        self._epoll.register(descriptor, select.EPOLLIN)

    def next(self) -> int:
        ready = self._epoll.poll(None, 1)
        return ready[0][0] if ready else -1

    def disarm(self, descriptor: int) -> None:
        if descriptor in self._known:
            self._known.discard(descriptor)
            self._epoll.unregister(descriptor)

    def release(self) -> None:
        self._epoll.close()


class SelectorWatch:
    """Other systems: one thread waits for all, the others for their turn.

    Registering while another thread waits works with kqueue as it does with epoll.
    """

    def __init__(self) -> None:
        import selectors  # not needed where there is epoll

        self._selector = selectors.DefaultSelector()
        self._events = {READABLE: selectors.EVENT_READ, WRITABLE: selectors.EVENT_WRITE}
        self._turn = threading.Lock()
        self._ready: deque[int] = deque()
        self._closed_reader = -1

    def arm(self, descriptor: int, events: int) -> None:
        self._selector.register(descriptor, self._events[events])

    def wake(self, descriptor: int) -> None:
        self._closed_reader = descriptor
        self.arm(descriptor, READABLE)

    def next(self) -> int:
        with self._turn:
            if not self._ready:
                self._ready.extend(key.fd for key, _ in self._selector.select())
            if not self._ready:
                return -1
            descriptor = self._ready.popleft()
        if descriptor != self._closed_reader:
            self.disarm(descriptor)
        return descriptor

    def disarm(self, descriptor: int) -> None:
        try:
            self._selector.unregister(descriptor)
        except KeyError:
            pass  # reported and not armed again

    def release(self) -> None:
        self._selector.close()


class Poller:
    """Registered pollables, the one that waits longest first.

    A pollable that `next()` or `take_out_where()` has returned belongs to that caller until it is registered again.
    """

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch or (EpollWatch() if hasattr(select, "epoll") else SelectorWatch())
        self._pollables: dict[int, Pollable] = {}  # by descriptor, the longest registered first
        # Guards _pollables together with arming: between the two, a pollable must not be taken out and closed, and its
        # descriptor be given to another file.
        self._lock = threading.Lock()
        self._closed_reader, self._closed_writer = os.pipe()
        self._watch.wake(self._closed_reader)  # a pipe without writer is always readable

    def register(self, pollable: Pollable, events: int) -> None:
        """Wait for events (READABLE or WRITABLE). From here on another thread may get the pollable."""
        descriptor = pollable.fileno()
        with self._lock:
            self._pollables[descriptor] = pollable
            self._watch.arm(descriptor, events)

    def next(self) -> Pollable | None:
        """Wait for a pollable with an event and take it out; None once the poller is closed."""
        while True:
            descriptor = self._watch.next()
            if descriptor == self._closed_reader:
                return None
            with self._lock:
                pollable = self._pollables.pop(descriptor, None)
            if pollable is not None:  # else another thread took it out meanwhile
                return pollable

    def take_out_where(self, condition: Callable[[Pollable], bool], max_count: int = 1 << 30) -> list[Pollable]:
        """Take out those for which the condition holds, the longest registered first."""
        with self._lock:
            pollables = list(self._pollables.values())
        taken: list[Pollable] = []
        for pollable in filter(condition, pollables):
            if len(taken) == max_count:
                break
            if self._take(pollable):
                taken.append(pollable)
        return taken

    def _take(self, pollable: Pollable) -> bool:
        with self._lock:
            # A closed pollable has descriptor -1; its old descriptor may belong to another one by now.
            is_registered = self._pollables.get(pollable.fileno()) is pollable
            if is_registered:
                del self._pollables[pollable.fileno()]
            return is_registered

    def unregister(self, pollable: Pollable) -> None:
        """Stop watching a pollable that was taken out; must be called before its descriptor is closed."""
        self._watch.disarm(pollable.fileno())

    def close(self) -> None:
        """Make every call of next() return None."""
        os.close(self._closed_writer)

    def release(self) -> None:
        """Close the descriptors of the poller, once no thread is left."""
        self._watch.release()
        os.close(self._closed_reader)
