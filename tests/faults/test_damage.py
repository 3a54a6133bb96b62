"""What must hold when a file of the data folder is damaged, wherever the damage is:

1. No request and no task ends with `internal`; those that meet damage of an index say `index_corrupted`, those that meet damage of
   `instance.sqlite` say `instance_corrupted`, or the start says it in one line.
2. Every answer that differs from that of the undamaged folder is found by `svcd verify --full`, which never ends in a traceback.
3. The other index answers as before, and the damaged one can be deleted.
4. `svcd repair` makes an index in which `svcd verify --full` finds nothing.

All in this process, with one damage at a time: a bit, a byte, a page (zeroed, random, swapped with another), a file cut short.
"""
from __future__ import annotations

import gzip
import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from svcd.index.connections import open_reader
from tests.api.conftest import client_of
from tests.support.shared_material import SHARED
from tests.support.verification import found_faults
from tests.tasks.conftest import TaskHarness

FILMS = SHARED / "data" / "movies.ndjson.gz"
DOCUMENTS = 80
SHORT, LONG = 12, int(os.environ.get("SVCD_DAMAGES", "500"))
PAGE = 8192
KEY = "11111111-1111-4111-8111-111111111111"
SETTINGS = {
    "filterableAttributes": ["year", "genres", "_geo", "id"], "sortableAttributes": ["year", "title", "_geo"],
    "synonyms": {"movie": ["film"]}, "stopWords": ["the"], "embedders": {"e": {"source": "userProvided", "dimensions": 8}},
    "searchCutoffMs": 600_000,  # a busy machine changes no answer
}
WORDS = "star alien love war night city lost of house red blue dark king queen film river".split()
SEARCHES: list[tuple[str, str, Any]] = [
    ("POST", "/indexes/films/search", {"q": "", "limit": 1000, "facets": ["*"]}),
    *(("POST", "/indexes/films/search", {"q": q, "limit": 1000, "showRankingScore": True}) for q in (
        "the love", "dark king", "alein", "\"red house\"", "movie", "n", "1")),
    ("POST", "/indexes/films/search", {"q": "", "limit": 1000, "filter": "year > 1950 AND genres = Drama", "sort": ["year:desc"]}),
    ("POST", "/indexes/films/search", {"q": "a", "limit": 1000, "sort": ["title:asc"], "facets": ["year", "genres"]}),
    ("POST", "/indexes/films/search", {"q": "", "limit": 1000, "filter": "genres != War"}),
    ("POST", "/indexes/films/search", {"limit": 1000, "filter": "_geoRadius(20, 20, 4000000)", "sort": ["_geoPoint(0, 0):asc"]}),
    ("POST", "/indexes/films/search", {"vector": [0.1] * 8, "hybrid": {"embedder": "e", "semanticRatio": 1.0}, "limit": 50,
                                       "retrieveVectors": True}),
    ("POST", "/indexes/films/facet-search", {"facetName": "genres", "facetQuery": "d"}),
    ("GET", "/indexes/films/documents?limit=1000&retrieveVectors=true", None),
    ("GET", "/indexes/films/settings", None),
    ("GET", "/indexes/films/stats", None),
]
# Answers of what is in instance.sqlite.
LISTS: list[tuple[str, str, Any]] = [
    ("GET", "/tasks?limit=1000", None), ("GET", "/batches?limit=1000", None), ("GET", "/indexes", None), ("GET", "/keys", None),
    ("GET", "/webhooks", None), ("GET", "/experimental-features", None), ("GET", "/stats", None), ("GET", "/tasks/1", None),
]
DOCUMENTS_AFTER = ("GET", "/indexes/films/documents?limit=1000", None)
OTHER = ("POST", "/indexes/other/search", {"q": "star"})
VOLATILE = ("processingTimeMs", "databaseSize", "usedDatabaseSize", "rawDocumentDbSize", "key", "requestUid")

Answers = list[tuple[int, Any]]


def film(chance: random.Random, number: int) -> dict[str, Any]:
    return {"id": number, "title": " ".join(chance.choices(WORDS, k=4)), "overview": " ".join(chance.choices(WORDS, k=30)),
            "year": 1900 + number % 100, "genres": chance.sample(["Drama", "War", "drama", "Crime"], 2), **place(chance)}


def place(chance: random.Random) -> dict[str, Any]:
    return {"_geo": {"lat": chance.uniform(-60, 60), "lng": chance.uniform(-179, 179)},
            "_vectors": {"e": [chance.uniform(-1, 1) for _ in range(8)]}}


def documents(chance: random.Random) -> list[dict[str, Any]]:
    """Real films if there are any and the run is long, with a place and a vector each."""
    films = [film(chance, number) for number in range(DOCUMENTS)]
    if os.environ.get("SVCD_SOAK") == "1" and FILMS.exists():
        with gzip.open(FILMS) as lines:
            films = [{**json.loads(line), **place(chance)} for line, _ in zip(lines, range(DOCUMENTS))]
    return films


class Folder:
    """A data folder as a daemon left it, and what it answers. has_logs: its last commits are in logs, as after a kill."""

    def __init__(self, work: Path, has_logs: bool) -> None:
        self.work, self.path = work, work / "sound"
        chance = random.Random(7)
        harness = TaskHarness(work / "data")
        harness.instance.rows.change("keys", KEY, lambda _: {
            "name": "shop", "description": None, "actions": '["search"]', "indexes": '["films"]', "expires_at": None,
            "created_at": 5, "updated_at": 6})
        harness.instance.update_features({"metrics": True})
        harness.change(SETTINGS, "films")
        films = documents(chance)
        harness.add([{"id": 1, "title": "star"}], "other")
        harness.add(films, "films")
        harness.run()
        self.uuid = harness.instance.require_index("films").uuid
        readers = [open_reader(path) for path in (harness.instance.index_path(self.uuid), harness.path / "instance.sqlite")]
        for reader in readers if has_logs else ():  # what they read keeps logs from being truncated
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        harness.delete([each["id"] for each in films[::9]], "films")
        harness.run()
        harness.add([film(chance, number) for number in range(900_000, 900_010)], "films")
        harness.run()
        payload = harness.path / "payloads" / KEY
        payload.write_text("".join(json.dumps(film(chance, number)) + "\n" for number in range(900_100, 900_110)))
        harness.queue.enqueue(
            "documentAdditionOrUpdate", "films", payload=payload, payload_bytes=payload.stat().st_size, content={
                "method": "replace", "primaryKey": None, "mayCreate": True, "checksum": crc32(payload.read_bytes())},
            details={"receivedDocuments": 10, "indexedDocuments": None})  # waits
        if not has_logs:
            for reader in readers:
                reader.close()
            harness.instance.close()  # truncates the logs
        shutil.copytree(harness.path, self.path, ignore=shutil.ignore_patterns("*-shm", "LOCK", "reserve"))
        if has_logs:
            harness.instance.close()
            for reader in readers:
                reader.close()
        assert verified(self.path, True) == []
        shutil.copytree(self.path, work / "asked")
        sound = asked(work / "asked")
        self.expected, self.after = sound.answers, sound.after

    def file(self, name: str) -> Path:
        """The file to damage, in the sound folder."""
        path = self.path / name.format(uuid=self.uuid)
        return next(path.iterdir()) if path.is_dir() else path


class Asked:
    """What a folder answers. refusal: why it did not open; other: the answer of the other index; task: the error of a task;
    after: the documents after it.
    """

    def __init__(self) -> None:
        self.answers: Answers = []
        self.refusal: Exception | None = None
        self.other: tuple[int, Any] = (0, None)
        self.after: tuple[int, Any] = (0, None)
        self.task: str | None = None
        self.bugs: list[str] = []
        self.is_deleted = False


def asked(folder: Path) -> Asked:
    """Open a folder, send all requests, run a task, delete the index."""
    found = Asked()
    try:
        harness = TaskHarness(folder)
    except Exception as refusal:  # what the start of a daemon shows in one line
        found.refusal = refusal
        return found
    try:
        client = client_of(harness.instance, None, lambda: 0, harness.instance.keys)

        def answer(method: str, url: str, value: Any) -> tuple[int, Any]:
            got = client.send(method, url) if value is None else client.json(method, url, value)
            try:
                return got.status, shown(got.value)
            except ValueError:
                return got.status, got.text

        def text_of(request: tuple[str, str, Any]) -> tuple[int, Any]:
            try:
                return answer(*request)
            except Exception as error:  # an answer that is made while it is sent is cut off
                return 0, f"cut off: {error!r}"

        found.answers = [text_of(request) for request in (*SEARCHES, *LISTS)]
        found.other = text_of(OTHER)
        try:
            for _ in range(6):
                if not harness.runner.step():
                    break
            failed = [task.error for task in harness.queue.tasks_of(range(20)) if task.error]
            found.task = str(failed[-1]["code"]) if failed else None
            found.after = text_of(DOCUMENTS_AFTER)
            harness.do("indexDeletion", "films")
            for _ in range(3):
                harness.runner.step()
            found.is_deleted = harness.instance.index("films") is None
        except Exception as error:  # the thread of a daemon logs it, and goes on
            found.task = f"{type(error).__name__}: {error}"
        found.bugs = harness.bugs
    finally:
        harness.instance.close()
    return found


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items() if name not in VOLATILE}
    return [shown(each) for each in value] if isinstance(value, list) else value


Damage = Callable[[bytearray, random.Random], None]


def a_bit(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def a_byte(content: bytearray, chance: random.Random) -> None:
    content[chance.randrange(len(content))] = chance.randrange(256)


def a_page(content: bytearray, chance: random.Random, fill: Callable[[int], bytes] = bytes) -> None:
    start = chance.randrange(len(content)) // PAGE * PAGE
    size = min(PAGE, len(content) - start)
    content[start:start + size] = fill(size)


def a_random_page(content: bytearray, chance: random.Random) -> None:
    a_page(content, chance, chance.randbytes)


def two_pages(content: bytearray, chance: random.Random) -> None:
    pages = len(content) // PAGE
    if pages < 2:
        return a_byte(content, chance)
    left, right = (page * PAGE for page in chance.sample(range(pages), 2))
    content[left:left + PAGE], content[right:right + PAGE] = content[right:right + PAGE], content[left:left + PAGE]
    return None


def the_end(content: bytearray, chance: random.Random) -> None:
    del content[chance.randrange(len(content)):]


DAMAGES: tuple[Damage, ...] = (a_bit, a_bit, a_byte, a_byte, a_page, a_random_page, two_pages, the_end)
CODES = {"index_corrupted", "instance_corrupted", "io_error", "index_not_found", "document_not_found", "task_not_found"}


def verified(folder: Path, is_full: bool) -> list[str]:
    """The faults that `svcd verify` finds; one that begins with TRACEBACK if it ends in one."""
    try:
        return [fault for faults in found_faults(folder, is_full).values() for fault in faults]
    except Exception as error:
        return [f"TRACEBACK {error!r}"]


def outcome_of(folder: Folder, name: str, damage: Damage, chance: random.Random) -> tuple[set[str], str]:
    """Damage a copy of the folder and see what holds. What it came to, and a description of what must not be."""
    copy = folder.work / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder.path, copy)
    path = copy / folder.file(name).relative_to(folder.path)
    content = bytearray(path.read_bytes())
    before = bytes(content)
    damage(content, chance)
    if content == before:
        return {"unchanged"}, ""
    path.write_bytes(content)
    for_verify = folder.work / "verified"
    shutil.rmtree(for_verify, ignore_errors=True)
    shutil.copytree(copy, for_verify)
    said = verified(for_verify, False)
    found = asked(copy)
    outcomes: set[str] = set()
    details: list[str] = []

    def note(outcome: str, detail: Any = "") -> None:
        outcomes.add(outcome)
        details.append(f"{outcome} {detail!s:.300}")

    if found.refusal is not None:
        note("refused" if damaged_start(found.refusal, copy) else "BAD START", repr(found.refusal))
    wrong = [(request[1:], got) for request, got, sound in zip((*SEARCHES, *LISTS), found.answers, folder.expected) if got != sound]
    for request, (status, value) in wrong:
        code = value.get("code") if isinstance(value, dict) else None
        if status == 200:
            note("wrong answer", (request, value))
        elif code in CODES or name.startswith("instance") and code:
            note("documented error", code)
        else:  # settings that are lost make a sound request wrong
            note("INTERNAL" if code in (None, "internal") else "wrong answer", (request, status, value))
    if found.task is not None and found.task not in CODES:
        note("BAD TASK" if "instance" not in name else "task not run", found.task)
    elif found.task:
        note("documented error", found.task)
    if found.task is None and found.after[0] == 200 and found.after != folder.after:
        note("wrong answer", "after the task")
    if found.bugs and "instance" not in name:
        note("BUG", found.bugs[0][-300:])
    if "instance" not in name:
        if found.other[0] != 200:
            note("OTHER INDEX", found.other)
        if not found.refusal and not found.is_deleted:
            note("NOT DELETED", found.task)
    if (outcomes and not said) or chance.random() < 0.1:
        said += verified(for_verify, True)
    if any(fault.startswith("TRACEBACK") for fault in said):
        note("TRACEBACK", said[-1])
    if not said and "wrong answer" in outcomes:
        is_earlier = name == "instance.sqlite-wal" and is_earlier_state(folder, name, before, bytes(content), found)
        note("earlier state" if is_earlier else "UNNOTICED")
    if said:
        outcomes.add("found by verify")
    return outcomes or {"no effect"}, "; ".join(details)


def is_earlier_state(folder: Folder, name: str, before: bytes, after: bytes, found: Asked) -> bool:
    """Return whether the answers are those of the log cut off where the damage begins.

    A log whose last frames are destroyed looks like a log that a crash cut off: it is an earlier state of the queue. Only an index
    that is ahead of the queue, or a later frame of the same log, tells the two apart.
    """
    start = next((at for at, (old, new) in enumerate(zip(before, after)) if old != new), len(after))
    copy = folder.work / "cut"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder.path, copy)
    (copy / folder.file(name).relative_to(folder.path)).write_bytes(before[:start])
    return asked(copy).answers == found.answers


def damaged_start(refusal: Exception, folder: Path) -> bool:
    """Whether the daemon says in one line that instance.sqlite is damaged."""
    from svcd.cli import daemon

    told = getattr(daemon, "_told_from_damage", None)
    if told is None:
        return False
    try:
        with told(folder / "instance.sqlite"):
            raise refusal
    except daemon.InstanceDamaged:
        return True
    except Exception as error:
        return type(error).__module__.startswith("svcd.") or isinstance(error, RuntimeError)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[bool, Folder]:
    """Without and with logs."""
    return {has_logs: Folder(tmp_path_factory.mktemp("damage"), has_logs) for has_logs in (False, True)}


FILES = ["indexes/{uuid}.sqlite", "indexes/{uuid}.sqlite-wal", "instance.sqlite", "instance.sqlite-wal", "payloads", "instance-uid",
         "VERSION"]
SMALL = ("payloads", "instance-uid", "VERSION")


@pytest.mark.parametrize("name", FILES)
def test_damage_is_told_from_bugs_and_found(name: str, folders: Mapping[bool, Folder], seed: int,
                                            amount: Callable[[int, int], int], figure: Callable[..., None]) -> None:
    folder, chance = folders[name.endswith("-wal")], random.Random(f"{seed} {name}")
    counts: Counter[str] = Counter()
    bad = []
    tried = amount(SHORT, LONG)
    for number in range(tried):
        outcomes, detail = outcome_of(folder, name, DAMAGES[number % len(DAMAGES)], chance)
        counts.update(outcomes)
        if any(outcome.isupper() for outcome in outcomes):
            bad.append(f"{number} {DAMAGES[number % len(DAMAGES)].__name__}: {detail}")
            print(bad[-1])
    figure(f"damages of {name.replace('{uuid}', 'UUID')}", ", ".join(f"{count} {what}" for what, count in sorted(counts.items())),
           f"of {tried}", limit="none internal, unnoticed or without a word")
    assert bad == []
