"""What tests of more than one package share: a daemon in a process of its own."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from svcd.text import segmenters
from tests.conformance import ratchet
from tests.support import halves, open_connections
from tests.support.daemon import ROOT, Daemon, running
from tests.support.scripted_server import Reply, Script, ScriptedServer

# The process that plays the recordings, when their test has been selected.
PLAYED = pytest.StashKey["subprocess.Popen[str]"]()

# The suite often runs beside other work: how long one example takes says nothing about the code under test. Its examples are always
# the same. `make soak` tries others each time, and keeps those that fail in .hypothesis, to begin with them the next time.
settings.register_profile("test", deadline=None, derandomize=True, database=None, max_examples=25)
settings.register_profile("soak", deadline=None, max_examples=500, print_blob=True)
settings.load_profile("soak" if os.environ.get("SVCD_SOAK") == "1" else "test")

open_connections.watch()


def pytest_sessionstart(session: pytest.Session) -> None:
    halves.split(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Play the recordings with what the other tests leave of the processor, and look at the result when those have ended."""
    last = [item for item in items if item.name == "test_what_passed_still_passes"]
    if not last or config.option.collectonly or not ratchet.recordings():
        return
    items[:] = [item for item in items if item not in last] + last
    config.stash[PLAYED] = subprocess.Popen(["nice", sys.executable, "-m", "tests.conformance.ratchet", "--check"], cwd=ROOT,
                                            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def pytest_unconfigure(config: pytest.Config) -> None:
    """A run that is given up leaves no process."""
    if (played := config.stash.get(PLAYED, None)) is not None and played.poll() is None:
        played.terminate()
        played.wait()


@pytest.fixture(scope="module", autouse=True)
def _connections_are_closed() -> Iterator[None]:
    """What opens an SQLite connection closes it: one that waits to be collected keeps its file, its lock and three descriptors."""
    before = open_connections.unclosed()
    yield
    left = [place for number, place in open_connections.unclosed().items() if number not in before]
    assert not left, "connections are left open, which were opened at\n" + "\n".join(sorted(set(left)))


@pytest.fixture(autouse=True)
def _held_connections_are_closed() -> Iterator[None]:
    yield
    open_connections.close_held()


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables by which all processes share compiled files: compiling svcd takes most of the time of a start."""
    return {"PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode")), "PYTHONDONTWRITEBYTECODE": ""}


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file svcd.pyz."""
    from distribution import build  # few tests need it

    return build.pyz(tmp_path_factory.mktemp("pyz"))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon for the tests of one file. Its log must not speak of a bug when they have ended."""
    with running(tmp_path_factory.mktemp("daemon")) as started:
        yield started
        assert started.bugs() == []


@pytest.fixture
def scripted_server() -> Iterator[Callable[..., ScriptedServer]]:
    """scripted_server(*replies) -> a server that answers with them, until the test ends."""
    opened: list[ScriptedServer] = []

    def start(*replies: Reply | Script) -> ScriptedServer:
        opened.append(ScriptedServer(*replies))
        return opened[-1]

    yield start
    for server in opened:
        server.close()


@pytest.fixture
def service() -> Iterator[ScriptedServer]:
    """An embedding service."""
    made = ScriptedServer(Reply(status=500), path="/api/embed")
    yield made
    made.close()


@pytest.fixture
def no_word_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra `languages` were not installed; the oracle has no other mode."""
    monkeypatch.setattr(segmenters, "load_word_list", lambda language: None)
    monkeypatch.setattr(segmenters, "_made", {})
