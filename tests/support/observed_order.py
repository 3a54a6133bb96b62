"""Can what several clients saw at once be explained? A checker that knows the order of the tasks, and when each request began and ended.

svcd runs the tasks of an index in the order of their uids, and a swap between those before and after it under both names. So each name of
an index has one sequence of states, and all that a read may show is one of them: none older than what somebody has seen before the read
began or knew to be done, none of a task that was asked for after the read had ended. A read of several names may see them at different
moments, but no swap of two of them half.

Nothing here knows HTTP or svcd. A state is what tests.support.history.Model holds of an index, None where there is none.
"""
from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.history import Index, Model, Write

ENDED = ("succeeded", "failed", "canceled")
State = Index | None
View = Callable[[State], Any]
START = -1  # the uid of what was before all tasks


@dataclass(frozen=True)
class Event:
    """A request and its answer, in seconds of one clock."""

    begin: float
    end: float


@dataclass(frozen=True)
class Sent(Event):
    """A write that was acknowledged."""

    uid: int
    write: Write


@dataclass(frozen=True)
class TaskSeen(Event):
    """A task as it was shown; None: as if it did not exist."""

    uid: int
    status: str | None


@dataclass(frozen=True)
class NewestSeen(Event):
    """The first task of a list of all."""

    uid: int


@dataclass(frozen=True)
class Read(Event):
    """What one request showed of some indexes: for each name the value that `view` gives of its state.

    is_of_ended: it shows what tasks that have ended did. Others may show what a task did from its commit on, a moment before its end.
    """

    what: str
    view: View
    values: Mapping[str, Any]
    is_of_ended: bool = False


@dataclass(frozen=True)
class KeyUse(Event):
    """did: made, deleted, accepted or refused."""

    key: str
    did: str


@dataclass
class History:
    """All that the clients did and saw, and the tasks as they ended."""

    sent: list[Sent] = field(default_factory=list)
    tasks: list[TaskSeen] = field(default_factory=list)
    newest: list[NewestSeen] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    keys: list[KeyUse] = field(default_factory=list)
    ended: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    def violations(self) -> list[str]:
        """What cannot be explained, one sentence each."""
        model = Model()
        states = _sequences(model, self)
        return [*model.wrong, *_of_uids(self), *_of_tasks(self), *_of_reads(self, states), *_of_keys(self.keys)]


# Tasks


def _of_uids(history: History) -> Iterator[str]:
    """Uids are given once, and in the order of requests that follow each other; every acknowledged task is there."""
    known = _Growing()
    for each in sorted(history.sent, key=lambda sent: sent.begin):
        before = known.at(each.begin)
        if each.uid <= before:
            yield f"task {each.uid} was asked for after task {before} had been acknowledged"
        if each.uid not in history.ended:
            yield f"task {each.uid} was acknowledged, and is lost"
        known.add(each.end, each.uid)
    times = Counter(each.uid for each in history.sent)
    yield from (f"task {uid} was acknowledged twice" for uid, number in times.items() if number > 1)


def _of_tasks(history: History) -> Iterator[str]:
    """A task is there once it was acknowledged, stays as it ended, and is in the list of all."""
    sent = {each.uid: each for each in history.sent}
    ended: dict[int, float] = {}  # since when it is known to have ended
    for seen in sorted(history.tasks, key=lambda each: each.end):
        if seen.status in ENDED:
            ended.setdefault(seen.uid, seen.end)
    for seen in history.tasks:
        if seen.status is None and seen.uid in sent and sent[seen.uid].end < seen.begin:
            yield f"task {seen.uid} was acknowledged, and not there afterwards"
        elif seen.status in ENDED and seen.status != history.ended[seen.uid]["status"]:
            yield f"task {seen.uid} was {seen.status} before it was {history.ended[seen.uid]['status']}"
        elif seen.status not in ENDED and seen.begin > ended.get(seen.uid, seen.begin):
            yield f"task {seen.uid} was {seen.status} after it had ended"
    known = _Growing()
    for each in history.sent:
        known.add(each.end, each.uid)
    for newest in sorted(history.newest, key=lambda each: each.begin):
        if newest.uid < (most := known.at(newest.begin)):
            yield f"the list of tasks began with {newest.uid} after task {most} had been acknowledged"


# Indexes


def _sequences(model: Model, history: History) -> dict[str, list[tuple[int, State]]]:
    """name -> (uid, the state after this task), ascending; only tasks that changed something."""
    found: dict[str, list[tuple[int, State]]] = defaultdict(lambda: [(START, None)])
    for sent in sorted(history.sent, key=lambda each: each.uid):
        task = history.ended.get(sent.uid)
        if task is None:
            continue
        model.apply([(sent.write, task)])
        if task["status"] == "succeeded":
            for name in sent.write.swap if any(sent.write.swap) else (sent.write.index,):
                found[name].append((sent.uid, _copy(model.indexes.get(name))))
    return found


def _copy(index: Index | None) -> State:
    return replace(index, documents=dict(index.documents), settings=dict(index.settings)) if index else None


def _of_reads(history: History, states: Mapping[str, Sequence[tuple[int, State]]]) -> Iterator[str]:
    """Each read shows for each name the earliest state that it can be: so later reads are free to see the most."""
    checker = _Reads(history, states)
    for read in sorted(history.reads, key=lambda each: each.begin):
        yield from checker.explain(read)


class _Reads:
    """How far reads have seen the sequence of each name, as positions in it."""

    def __init__(self, history: History, states: Mapping[str, Sequence[tuple[int, State]]]) -> None:
        self._states = states
        self._asked = {each.uid: each.begin for each in history.sent}
        self._seen: dict[str, _Growing] = defaultdict(_Growing)  # by any read
        self._ended: dict[str, _Growing] = defaultdict(_Growing)  # what tasks did that are known to have ended
        self._swaps = [(each.uid, each.write.swap) for each in history.sent if any(each.write.swap)
                       and history.ended.get(each.uid, {}).get("status") == "succeeded"]
        positions = {(name, uid): position for name, sequence in states.items() for position, (uid, _) in enumerate(sequence)}
        names: dict[int, list[str]] = defaultdict(list)
        for name, uid in positions:
            names[uid].append(name)
        for seen in history.tasks:
            if seen.status == "succeeded":
                for name in names.get(seen.uid, ()):
                    self._add(name, positions[name, seen.uid], seen.end, "its status", is_of_ended=True)

    def _add(self, name: str, position: int, since: float, told: str, is_of_ended: bool) -> None:
        self._seen[name].add(since, position, told)
        if is_of_ended:
            self._ended[name].add(since, position, told)

    def explain(self, read: Read) -> Iterator[str]:
        known = self._ended if read.is_of_ended else self._seen
        least = {name: max(0, known[name].at(read.begin)) for name in read.values}
        found = dict(least)
        names = list(read.values)
        while names:
            for name in names:
                position = self._next(read, name, found[name])
                if position is None:
                    yield self._complaint(read, name, least[name], found[name], known[name].told)
                    return
                found[name] = position
            names = self._catch_up(found)
        for name, position in found.items():
            self._add(name, position, read.end, f"{read.what} {read.begin:.4f} to {read.end:.4f}", read.is_of_ended)

    def _next(self, read: Read, name: str, position: int) -> int | None:
        """The first position from here on at which the name is as the read showed it, and which it could know."""
        sequence = self._states.get(name, [(START, None)])
        for number in range(position, len(sequence)):
            uid, state = sequence[number]
            if uid != START and self._asked[uid] > read.end:
                return None
            if read.view(state) == read.values[name]:
                return number
        return None

    def _catch_up(self, found: dict[str, int]) -> list[str]:
        """Names that must be seen later, because another was seen after a swap of both; `found` has the swap then."""
        for uid, (left, right) in self._swaps:
            for early, late in ((left, right), (right, left)):
                if early in found and late in found and self._uid(early, found[early]) < uid <= self._uid(late, found[late]):
                    found[early] = next(number for number, (each, _) in enumerate(self._states[early]) if each == uid)
                    return [early]
        return []

    def _uid(self, name: str, position: int) -> int:
        return self._states[name][position][0] if name in self._states else START

    def _complaint(self, read: Read, name: str, least: int, reached: int, told: str) -> str:
        sequence = self._states.get(name, [(START, None)])
        alike = [uid for uid, state in sequence if read.view(state) == read.values[name]]
        half = f", and with the swaps not before task {sequence[reached][0]}" if reached > least else ""
        return (f"{read.what} of {name}, {read.begin:.4f} to {read.end:.4f}, shows {str(read.values[name])[:200]}, which was so after tasks "
                f"{alike[-5:]}; task {sequence[least][0]} was known to be done by {told}{half}")


class _Growing:
    """The greatest of some numbers that were known at a moment; moments are asked for in ascending order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, str]] = []
        self._most = START
        self.told = "the beginning"  # who told the greatest

    def add(self, since: float, number: int, told: str = "") -> None:
        heapq.heappush(self._waiting, (since, number, told))

    def at(self, moment: float) -> int:
        while self._waiting and self._waiting[0][0] < moment:
            _, number, told = heapq.heappop(self._waiting)
            if number > self._most:
                self._most, self.told = number, told
        return self._most


# Keys


def _of_keys(uses: Sequence[KeyUse]) -> Iterator[str]:
    """A key opens from the answer that it is made to the request that deletes it, and never again once it was refused."""
    by_key: dict[str, list[KeyUse]] = defaultdict(list)
    for use in uses:
        by_key[use.key].append(use)
    for key, its in by_key.items():
        made = min((use.end for use in its if use.did == "made"), default=float("inf"))
        deletions = [use for use in its if use.did == "deleted"]
        asked = min((use.begin for use in deletions), default=float("inf"))
        gone = min((use.end for use in its if use.did == "deleted" or use.did == "refused" and use.begin > made), default=float("inf"))
        for use in its:
            if use.did == "refused" and made < use.begin and use.end < asked:
                yield f"key {key} was refused before it was deleted"
            if use.did == "accepted" and use.begin > gone:
                yield f"key {key} was accepted after it was deleted or refused"
