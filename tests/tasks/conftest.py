from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from svcd.instance.instance import Instance
from svcd.instance.task_records import Task, TaskFilter
from svcd.tasks import indexing
from svcd.tasks.runner import Runner
from tests.support.tasks_in_process import new_instance


class LocalWriter:
    """Runs batches in this process. before, after: called around each batch, to fail or to inspect the state there."""

    is_started = False

    def __init__(self, _lock: int = -1) -> None:
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None

    def run(self, request: dict[str, Any], progress: Callable[[str, int, int], None]) -> dict[str, Any]:
        request = json.loads(json.dumps(request))  # what the pipe would carry
        if request["do"] in ("commitNothing", "materialize"):
            return indexing.handle_request(request, progress)
        self.before()
        answer = indexing.handle_request(request, progress)
        self.after()
        return answer

    def interrupt(self) -> None:
        """Nothing that could end early."""

    def kill(self) -> None:
        """Nothing to kill."""

    def close(self) -> None:
        """Nothing to close."""


class TaskHarness:
    """An instance with a runner that is stepped by hand. writer: does its batches; options: of the runner."""

    def __init__(self, path: Path, writer: Callable[[], LocalWriter] = LocalWriter, **options: Any) -> None:
        self.path = path
        self.make_writer = writer
        self.options = options
        self.open()

    def open(self) -> None:
        self.writer = self.make_writer()
        self.bugs: list[str] = []
        self.instance = Instance(self.path) if self.path.exists() else new_instance(self.path)
        self.runner = Runner(self.instance, make_writer=lambda _: self.writer, on_bug=self.bugs.append,
                             retry_s=0, quiet_s=0, **self.options)
        self.queue = self.instance.queue

    def restart(self) -> None:
        self.instance.close()
        self.open()

    def add(self, documents: Sequence[Any], index_uid: str = "movies", method: str = "replace",
            key: str | None = None, may_create: bool = True, has_checksum: bool = True) -> Task:
        text = "".join(json.dumps(document) + "\n" for document in documents)
        path = self.queue.payload_folder / f"{len(list(self.queue.payload_folder.iterdir()))}-{id(text)}"
        path.write_text(text)
        return self.queue.enqueue(
            "documentAdditionOrUpdate", index_uid, payload=path, payload_bytes=len(text),
            content={"method": method, "primaryKey": key, "mayCreate": may_create,
                     "checksum": crc32(text.encode()) if has_checksum else None},
            details={"receivedDocuments": len(documents), "indexedDocuments": None})

    def delete(self, ids: Sequence[Any], index_uid: str = "movies") -> Task:
        return self.queue.enqueue("documentDeletion", index_uid, content={"ids": list(ids)}, details={
            "providedIds": len(ids), "deletedDocuments": None, "originalFilter": None})

    def clear(self, index_uid: str = "movies") -> Task:
        return self.queue.enqueue("documentDeletion", index_uid, content={"all": True},
                                  details={"deletedDocuments": None})

    def change(self, settings: dict[str, Any], index_uid: str = "movies") -> Task:
        return self.queue.enqueue("settingsUpdate", index_uid, details=settings, content={
            "settings": settings, "mayCreateIndex": True, "reset": False})

    def do(self, kind: str, index_uid: str | None = "movies", details: dict[str, Any] | None = None,
           **content: Any) -> Task:
        return self.queue.enqueue(kind, index_uid, details=details, content=content)

    def run(self) -> None:
        while self.runner.step():
            pass

    def come_to_rest(self, most_steps: int) -> None:
        """All tasks, in a bounded number of batches."""
        for _ in range(most_steps):
            if not self.runner.step():
                break
        else:
            raise AssertionError("the queue does not come to rest")
        assert not self.queue.matching(TaskFilter(statuses=["enqueued", "processing"]))

    def task(self, task: Task) -> Task:
        found = self.queue.task(task.uid)
        assert found is not None
        return found

    def documents(self, index_uid: str = "movies") -> dict[int, Any]:
        with self.instance.read(index_uid) as reader:
            docids = list(reader.docids_page(0, 1000))
            return dict(zip(docids, map(json.loads, reader.documents(docids))))

    def find(self, word: str, index_uid: str = "movies") -> list[int]:
        """The docids of the documents with a word."""
        with self.instance.read(index_uid) as reader:
            return list(reader.terms.word_docids(word))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TaskHarness]:
    harness = TaskHarness(tmp_path / "data")
    yield harness
    harness.instance.close()
    assert not harness.bugs
