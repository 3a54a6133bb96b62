"""Where connections wait while no thread works for them.

Knows descriptors, events and deadlines; refuses to know what a guest does when its turn comes. The thread that
learns that a request is there is the one that answers it, without a hand-over: with epoll many threads may ask at
once, and the kernel gives each event to one of them; elsewhere they ask in turns.
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
    """What can be parked. deadline: when (monotonic) it has waited long enough."""

    deadline: float

    def fileno(self) -> int: ...


class Watch(Protocol):
    """Descriptors that wait for one event each. May be used by many threads at once."""

    def arm(self, descriptor: int, events: int) -> None:
        """Report it once when an event is there, or was there before."""

    def wake(self, descriptor: int) -> None:
        """Report it to every thread, again and again, once it is readable."""

    def next(self) -> int:
        """Wait for a descriptor with an event; -1 now and then for nothing."""

    def disarm(self, descriptor: int) -> None:
        """Forget it; to be called before it is closed.

        A forked process may hold it open: the system would then go on to report it.
        """

    def release(self) -> None:
        """Give back what it holds of the system; nobody may be waiting."""


class EpollWatch:
    """Linux: the kernel does it all."""

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
    """Elsewhere: one thread waits for all, the others for their turn to do so.

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
    """Each guest belongs to whoever took it out last: `next()`, `take_where()`, or the one who never parked it."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch or (EpollWatch() if hasattr(select, "epoll") else SelectorWatch())
        self._pollables: dict[int, Pollable] = {}  # those parked now, the longest first
        # Over _guests and the arming of what stands in it: a guest must not be taken out, closed and its number
        # given to another between the two.
        self._lock = threading.Lock()
        self._closed_reader, self._closed_writer = os.pipe()
        self._watch.wake(self._closed_reader)  # a pipe closed at its other end is readable for ever

    def register(self, pollable: Pollable, events: int) -> None:
        """Wait for events (READABLE or WRITABLE). From here on another thread may have the guest."""
        descriptor = pollable.fileno()
        with self._lock:
            self._pollables[descriptor] = pollable
            self._watch.arm(descriptor, events)

    def next(self) -> Pollable | None:
        """Wait for a guest whose event is there and take it out; None when the parking is closed."""
        while True:
            descriptor = self._watch.next()
            if descriptor == self._closed_reader:
                return None
            with self._lock:
                pollable = self._pollables.pop(descriptor, None)
            if pollable is not None:  # else somebody else took it out meanwhile
                return pollable

    def take_out_where(self, condition: Callable[[Pollable], bool], max_count: int = 1 << 30) -> list[Pollable]:
        """Take out the guests, longest parked first, for which the condition holds."""
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
            # Its descriptor is -1 once it was closed, and another guest's when that was parked since.
            is_registered = self._pollables.get(pollable.fileno()) is pollable
            if is_registered:
                del self._pollables[pollable.fileno()]
            return is_registered

    def unregister(self, pollable: Pollable) -> None:
        """To be called, once it was taken out, before a guest's descriptor is closed."""
        self._watch.disarm(pollable.fileno())

    def close(self) -> None:
        """Let every call of next() return None."""
        os.close(self._closed_writer)

    def release(self) -> None:
        """Give the descriptors back, once no thread is left."""
        self._watch.release()
        os.close(self._closed_reader)
