"""Random writes, and a model that says what they lead to: independent of the store, a dict per index.

A write is known by the uid of its task. The model applies tasks in the order of their uids, each as it ended:
that is what the queue promises, whatever was batched, canceled, killed and done again in between.
"""
from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

INDEXES = ("i0", "i1", "i2", "i3")
# Beside these, one whose documents have vectors, and a large one whose documents change a little. Neither is swapped or deleted.
VECTORS, LARGE = "vectors", "large"
DIMENSIONS = 3
DIED = "the indexing process ended with status -9"  # in the error of a task whose batch had no effect
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()

Document = dict[str, Any]


@dataclass
class Write:
    """One request, and what the model needs to know of it. is_bad: its task must fail, it holds a bad identifier."""

    kind: str
    method: str
    path: str
    body: str | None = None
    index: str = ""
    documents: Sequence[Document] = ()
    is_update: bool = False
    is_bad: bool = False
    ids: Sequence[int] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    swap: tuple[str, str] = ("", "")
    is_rename: bool = False
    uids: Sequence[int] = ()
    vectors: Mapping[int, Sequence[float]] = field(default_factory=dict)

    @property
    def is_clear(self) -> bool:
        """Does it take all documents away?"""
        return self.kind == "indexDeletion" or self.kind == "documentDeletion" and self.ids is None


class Writes:
    """An endless supply of random writes. large: how many documents the large index has, with identifiers from 1."""

    def __init__(self, seed: int, large: int) -> None:
        self._random = random.Random(seed)
        self._large = large
        self._count = 0

    def first(self) -> list[Write]:
        """What the two indexes of their own are made with; the documents of the large one are sent apart."""
        embedder = {"source": "userProvided", "dimensions": DIMENSIONS}
        return [_settings_of(VECTORS, {"embedders": {"e": embedder}, "filterableAttributes": ["a"]}),
                _settings_of(LARGE, {"filterableAttributes": ["genres", "year"], "sortableAttributes": ["year"]})]

    def next(self, newest: int, settled: Sequence[int]) -> Write:
        """newest: the uid acknowledged last; settled: tasks whose end is known, which may be deleted."""
        self._count += 1
        make = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        return make(self, self._random.choice(INDEXES), newest, settled)

    def _add(self, index: str, *_: Any) -> Write:
        chance = self._random.random()
        is_update, is_large = chance < 0.4, chance > 0.93
        ids = range(1000, 2500) if is_large else self._random.sample(range(60), self._random.randint(1, 30))
        documents: list[Document] = [
            {"id": n, self._random.choice("abc"): self._count, "text": " ".join(self._random.choices(WORDS, k=6)),
             "mark": f"w{self._count}x{n}"} for n in ids]
        is_bad = self._random.random() < 0.1
        if is_bad:
            documents.insert(self._random.randrange(len(documents) + 1), {"id": "no good"})
        return Write("documentAdditionOrUpdate", "PUT" if is_update else "POST", f"/indexes/{index}/documents",
                     json.dumps(documents), index, documents, is_update, is_bad)

    def _delete(self, index: str, *_: Any) -> Write:
        ids = self._random.sample(range(60), 10)
        if self._random.random() < 0.3:
            return Write("documentDeletion", "DELETE", f"/indexes/{index}/documents/{ids[0]}", None, index, ids=ids[:1])
        return Write("documentDeletion", "POST", f"/indexes/{index}/documents/delete-batch", json.dumps(ids), index, ids=ids)

    def _clear(self, index: str, *_: Any) -> Write:
        return Write("documentDeletion", "DELETE", f"/indexes/{index}/documents", None, index)

    def _settings(self, index: str, *_: Any) -> Write:
        changes: dict[str, Any] = self._random.choice([
            {"stopWords": sorted(self._random.sample(WORDS, 2))}, {"searchableAttributes": ["text", "mark"]},
            {"searchableAttributes": ["*"]}, {"displayedAttributes": ["*"], "sortableAttributes": ["a"]},
            {"filterableAttributes": sorted(self._random.sample(["a", "b", "text"], 2))}])
        return _settings_of(index, changes)

    def _embed(self, *_: Any) -> Write:
        if self._random.random() < 0.2:
            return self._delete(VECTORS)
        ids = self._random.sample(range(60), self._random.randint(1, 20))
        documents: list[Document] = [{"id": n, "a": self._count, "mark": f"w{self._count}x{n}"} for n in ids]
        vectors = {n: [float(self._count), float(n), 1.0] for n in ids}
        sent = [{**document, "_vectors": {"e": vectors[document["id"]]}} for document in documents]
        return Write("documentAdditionOrUpdate", "POST", f"/indexes/{VECTORS}/documents", json.dumps(sent), VECTORS, documents,
                     vectors=vectors)

    def _touch(self, *_: Any) -> Write:
        ids = self._random.sample(range(1, self._large + 1), self._random.randint(1, 40))
        documents = [{"id": n, "year": self._count, "mark": f"w{self._count}x{n}"} for n in ids]
        return Write("documentAdditionOrUpdate", "PUT", f"/indexes/{LARGE}/documents", json.dumps(documents), LARGE, documents,
                     is_update=True)

    def _dump(self, *_: Any) -> Write:
        return Write("dumpCreation", "POST", "/dumps")

    def _snapshot(self, *_: Any) -> Write:
        return Write("snapshotCreation", "POST", "/snapshots")

    def _create(self, index: str, *_: Any) -> Write:
        return Write("indexCreation", "POST", "/indexes", json.dumps({"uid": index, "primaryKey": "id"}), index)

    def _drop(self, index: str, *_: Any) -> Write:
        return Write("indexDeletion", "DELETE", f"/indexes/{index}", None, index)

    def _swap(self, index: str, *_: Any) -> Write:
        other = self._random.choice([each for each in INDEXES if each != index])
        is_rename = self._random.random() < 0.3
        body = [{"indexes": [index, other], **({"rename": True} if is_rename else {})}]
        return Write("indexSwap", "POST", "/swap-indexes", json.dumps(body), swap=(index, other), is_rename=is_rename)

    def _compact(self, index: str, *_: Any) -> Write:
        return Write("indexCompaction", "POST", f"/indexes/{index}/compact", None, index)

    def _cancel(self, index: str, newest: int, _: Any) -> Write:
        recent = ",".join(str(max(0, newest - n)) for n in range(4))
        wanted = self._random.choice([f"uids={recent}", f"uids={recent}", f"indexUids={index}", "statuses=enqueued"])
        return Write("taskCancelation", "POST", f"/tasks/cancel?{wanted}")

    def _forget(self, index: str, newest: int, settled: Sequence[int]) -> Write:
        uids = self._random.sample(list(settled), min(3, len(settled)))
        if not uids:
            return self._add(index)
        return Write("taskDeletion", "DELETE", f"/tasks?uids={','.join(map(str, uids))}", uids=uids)


def _settings_of(index: str, changes: Mapping[str, Any]) -> Write:
    return Write("settingsUpdate", "PATCH", f"/indexes/{index}/settings", json.dumps(changes), index, settings=changes)


_Maker = Callable[[Writes, str, int, Sequence[int]], Write]
_WEIGHTS: dict[_Maker, int] = {
    Writes._add: 50, Writes._delete: 12, Writes._clear: 3, Writes._settings: 6, Writes._create: 4, Writes._drop: 4,
    Writes._swap: 6, Writes._compact: 2, Writes._cancel: 7, Writes._forget: 3, Writes._embed: 8, Writes._touch: 12,
    Writes._dump: 1, Writes._snapshot: 1,
}


@dataclass
class Index:
    """What the model knows of one index."""

    documents: dict[int, Document] = field(default_factory=dict)
    vectors: dict[int, Sequence[float]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class Model:
    """The indexes after some tasks. wrong: what ended otherwise than it should have. died: how many tasks failed because their
    indexing process was killed."""

    def __init__(self) -> None:
        self.indexes: dict[str, Index] = {}
        self.died = 0
        self.forgotten: set[int] = set()
        self.wrong: list[str] = []

    def apply(self, ended: Sequence[tuple[Write, Mapping[str, Any]]]) -> None:
        """Take tasks over, ascending: what was asked for, and the task as it ended."""
        clears = {(task["batchUid"], write.index): task["uid"] for write, task in ended
                  if write.is_clear and task["status"] == "succeeded"}
        for write, task in ended:
            is_void = clears.get((task["batchUid"], write.index), -1) > task["uid"]
            self._take(write, task, is_void)

    def _take(self, write: Write, task: Mapping[str, Any], is_void: bool) -> None:
        if task["type"] != write.kind:
            self.wrong.append(f"not a {write.kind}: {task}")
        if task["status"] == "canceled":
            return
        if task["status"] == "failed" and DIED in task["error"]["message"]:
            self.died += 1
            return
        expected = _EFFECTS[write.kind](self, write, is_void)
        if expected and task["status"] != expected:
            self.wrong.append(f"should have {expected}: {write}, {task}")

    def _add(self, write: Write, is_void: bool) -> str:
        index = self.indexes.setdefault(write.index, Index())
        if is_void:
            return "succeeded"
        if write.is_bad:
            return "failed"
        for document in write.documents:
            held = index.documents.get(document["id"], {}) if write.is_update else {}
            index.documents[document["id"]] = {**held, **document}
        index.vectors.update(write.vectors)
        return "succeeded"

    def _delete(self, write: Write, _: bool) -> str:
        index = self.indexes.get(write.index)
        if index is None:
            return "failed"
        for document_id in list(index.documents) if write.ids is None else write.ids:
            index.documents.pop(document_id, None)
            index.vectors.pop(document_id, None)
        return "succeeded"

    def _settings(self, write: Write, _: bool) -> str:
        self.indexes.setdefault(write.index, Index()).settings.update(write.settings)
        return "succeeded"

    def _create(self, write: Write, _: bool) -> str:
        if write.index in self.indexes:
            return "failed"
        self.indexes[write.index] = Index()
        return "succeeded"

    def _drop(self, write: Write, _: bool) -> str:
        return "failed" if self.indexes.pop(write.index, None) is None else "succeeded"

    def _swap(self, write: Write, _: bool) -> str:
        left, right = write.swap
        if left not in self.indexes or (right in self.indexes) == write.is_rename:
            return "failed"
        moved = {right: self.indexes.pop(left)}
        if right in self.indexes:
            moved[left] = self.indexes.pop(right)
        self.indexes.update(moved)
        return "succeeded"

    def _forget(self, write: Write, _: bool) -> str:
        self.forgotten.update(write.uids)
        return "succeeded"

    def _compact(self, *_: Any) -> str:
        return ""  # it overtakes what makes or deletes its index: either end is right


_EFFECTS: dict[str, Callable[[Model, Write, bool], str]] = {
    "documentAdditionOrUpdate": Model._add, "documentDeletion": Model._delete, "settingsUpdate": Model._settings,
    "indexCreation": Model._create, "indexDeletion": Model._drop, "indexSwap": Model._swap,
    "indexCompaction": Model._compact, "dumpCreation": lambda *_: "succeeded", "snapshotCreation": lambda *_: "succeeded",
    "taskCancelation": lambda *_: "succeeded", "taskDeletion": Model._forget,
}
