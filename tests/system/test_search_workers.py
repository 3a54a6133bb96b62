"""What must hold of a daemon whose searches are answered by several processes (`--search-workers`).

1. Every process gives the answers that the main one gives, refusals and keys included.
2. Writes, and all else, go through the same port, also on a connection that searches.
3. A committed write is seen by the next search, whoever answers it; so is the end, the renaming and the new making
   of an index, a feature that is switched, a search rule that is changed, and a change of the network.
4. A worker that is killed loses no write, and comes back; searches go on meanwhile.
5. Killed, the main process takes the workers along, and a new one can have the folder.
6. SIGTERM ends all in good order: what is asked is answered, and the exit status is 0.
7. /metrics counts the requests of all processes, also those of one that was killed; so the log of all can be followed.
8. With TLS all of this holds, too.
9. With `auto` workers start when clients search without pause, and not for one client; no client notices a start or end. The
    process that forks them ends some time after them.
10. Workers are forked from a process without threads, which opens no file of the data folder; killed, it takes them along, and all
    come back. Signals that all processes get do not end it.
11. A key opens searches in every process from its making on, and in none from its deletion on, nor do its tokens.

How requests are dealt out: tests/http/test_worker_sharing.py.
"""
from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.bearers import signed
from tests.support.daemon import Daemon, running

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="search workers need Linux")

WORKERS = 2
KEY = "a-master-key-of-some-length"
PATIENCE_S = 15.0
FILMS = [{"id": number, "title": title} for number, title in enumerate(
    ("The General", "The Gold Rush", "Metropolis", "Sunrise", "The Kid", "Nosferatu", "Faust", "City Lights"))]
_MODULES = ("svcd.cli.search_worker", "svcd.cli.fork_server")  # the second while the fork server rests
_numbers = itertools.count()


def workers(daemon: Daemon) -> list[int]:
    """The pids of the workers."""
    return fork_server_and_workers(daemon)[1:]


def fork_server_and_workers(daemon: Daemon) -> list[int]:
    """The pid of the process that forks the workers, then theirs."""
    return [pid for pid in daemon.pids if any(module in _command(pid) for module in _MODULES)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def await_workers(daemon: Daemon, but: int = 0) -> None:
    """Wait until all answer: each has a thread that waits for connections. but: one that was killed."""
    deadline = time.monotonic() + PATIENCE_S
    while sum(map(_serves, pids := workers(daemon))) < WORKERS or but in pids:
        assert time.monotonic() < deadline, f"workers: {pids}"
        time.sleep(0.01)


def _serves(pid: int) -> bool:
    """It has the thread that reads orders, and one that waits for connections."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) >= 3
    except OSError:  # it ended
        return False


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("workers"), "--search-workers", str(WORKERS), "--master-key", KEY,
                 "--experimental-enable-metrics") as one:
        await_workers(one)
        client = Client(one)
        client.done("POST", "/indexes/films/documents", FILMS)
        client.close()
        yield one


class Client:
    """A client that keeps its connection."""

    def __init__(self, daemon: Daemon, key: str | None = KEY, context: ssl.SSLContext | None = None) -> None:
        """context: for TLS."""
        self._connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=PATIENCE_S)
        if context:
            self._connection = http.client.HTTPSConnection("localhost", daemon.port, timeout=PATIENCE_S, context=context)
        self._headers = {"content-type": "application/json", "accept": "*/*"}
        self._headers |= {"authorization": f"Bearer {key}"} if key else {}

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self._connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if content[:1] in (b"{", b"[") else content.decode()

    def done(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        status, summary = self.call(method, path, body)
        assert status == 202, summary
        deadline = time.monotonic() + PATIENCE_S
        while (task := self.call("GET", f"/tasks/{summary['taskUid']}")[1])["status"] in ("enqueued", "processing"):
            assert time.monotonic() < deadline, task
            time.sleep(0.002)
        assert task["status"] == "succeeded", task
        return task

    def titles(self, text: str, index_uid: str = "films") -> list[str]:
        status, answer = self.call("POST", f"/indexes/{index_uid}/search", {"q": text})
        assert status == 200, answer
        return [hit["title"] for hit in answer["hits"]]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Client]:
    one = Client(daemon)
    yield one
    one.close()


def everywhere(daemon: Daemon, ask: Any, clients: int = 12, rounds: int = 12, **options: Any) -> list[Any]:
    """What many clients at once are answered: so many that every process has some. options: of Client."""
    answers: list[Any] = []

    def work() -> None:
        client = Client(daemon, **options)
        for _ in range(rounds):
            answers.append(ask(client))
        client.close()

    threads = [threading.Thread(target=work) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == clients * rounds
    return answers


def same(answers: list[Any]) -> Any:
    shown = {json.dumps(answer, sort_keys=True) for answer in answers}
    assert len(shown) == 1, shown
    return answers[0]


def _without_times(answer: tuple[int, Any]) -> tuple[int, Any]:
    status, shown = answer
    return status, {name: value for name, value in shown.items() if name not in ("processingTimeMs", "requestUid")}


@pytest.mark.parametrize(("method", "path", "body"), [
    ("POST", "/indexes/films/search", {"q": "the", "showRankingScore": True}),
    ("GET", "/indexes/films/search?q=the+kid&attributesToHighlight=title", None),
    ("POST", "/indexes/none/search", {}),
    ("POST", "/indexes/films/search", {"limit": "many"}),
    ("POST", "/indexes/films/search", {"media": {}, "hybrid": {"embedder": "x"}}),
    ("GET", "/indexes/films/search?limit=-1", None),
])
def test_all_processes_answer_alike(daemon: Daemon, method: str, path: str, body: Any) -> None:
    same(everywhere(daemon, lambda client: _without_times(client.call(method, path, body))))


@pytest.mark.parametrize(("key", "code"), [(None, "missing_authorization_header"), ("wrong", "invalid_api_key")])
def test_all_processes_ask_for_the_key(daemon: Daemon, key: str | None, code: str) -> None:
    def ask(_: Client) -> tuple[int, str]:
        stranger = Client(daemon, key)
        status, answer = stranger.call("POST", "/indexes/films/search", {})
        stranger.close()
        return status, answer["code"]

    assert same(everywhere(daemon, ask))[1] == code


def test_a_key_counts_everywhere_from_its_making_to_its_deletion(daemon: Daemon, client: Client) -> None:
    def ask(secret: str) -> list[tuple[int, str | None]]:
        def searched(_: Client) -> tuple[int, str | None]:
            one = Client(daemon, secret)
            status, answer = one.call("POST", "/indexes/films/search", {"q": "kid"})
            one.close()
            return status, answer.get("code")

        return same(everywhere(daemon, searched, clients=8, rounds=4))

    for _ in range(3):
        body = {"actions": ["search"], "indexes": ["films"], "expiresAt": None}
        status, key = client.call("POST", "/keys", body)
        assert status == 201
        tenant = signed({"searchRules": ["films"], "apiKeyUid": key["uid"]}, key["key"])
        forbidden = signed({"searchRules": ["films"], "apiKeyUid": key["uid"]}, key["key"][::-1])
        assert ask(key["key"]) == ask(tenant) == (200, None)
        assert ask(forbidden) == (403, "invalid_api_key")
        assert client.call("DELETE", f"/keys/{key['uid']}")[0] == 204
        assert ask(key["key"]) == ask(tenant) == (403, "invalid_api_key")


def test_one_connection_searches_and_writes(client: Client) -> None:
    for number in range(10):
        title = f"Film zq{number}x"
        assert client.titles(f"zq{number}x") == []
        client.done("POST", "/indexes/films/documents", [{"id": 100 + number, "title": title}])
        assert client.titles(f"zq{number}x") == [title]
        client.done("DELETE", f"/indexes/films/documents/{100 + number}")
        assert client.titles(f"zq{number}x") == []


def test_a_body_that_follows_its_head_late_is_read_by_who_answers(daemon: Daemon) -> None:
    body = json.dumps([{"id": 200, "title": "Late zlate"}]).encode()
    head = (f"POST /indexes/films/documents HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {KEY}\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", daemon.port), PATIENCE_S) as sock:
        sock.sendall(head)
        assert sock.recv(100).startswith(b"HTTP/1.1 100")
        sock.sendall(body)
        assert sock.recv(1000).startswith(b"HTTP/1.1 202")


def test_requests_sent_at_once_are_answered_in_their_order(daemon: Daemon) -> None:
    lines = (b"GET /indexes/films/search?q=kid", b"GET /health", b"GET /indexes/none/search", b"GET /version")
    headers = b" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + KEY.encode() + b"\r\n"
    raw = b"".join(line + headers + b"\r\n" for line in lines[:-1]) + lines[-1] + headers + b"Connection: close\r\n\r\n"
    answer = daemon.raw(raw).decode()
    marks = ('"hits"', '"available"', '"index_not_found"', '"pkgVersion"')
    places = [answer.index(mark) for mark in marks]
    assert places == sorted(places)


def test_a_write_is_seen_by_the_next_search_of_every_process(daemon: Daemon, client: Client) -> None:
    for number in range(5):
        client.done("PUT", "/indexes/films/documents", [{"id": 0, "title": f"The General zr{number}y"}])
        assert same(everywhere(daemon, lambda one: one.titles(f"zr{number}y"), rounds=3)) \
            == [f"The General zr{number}y"]


def test_indexes_come_go_and_change_names_under_searches(daemon: Daemon, client: Client) -> None:
    for number in range(3):
        client.done("POST", "/indexes/coming/documents", [{"id": 1, "title": f"made {number}"}])
        assert same(everywhere(daemon, lambda one: one.titles("made", "coming"), rounds=3)) == [f"made {number}"]
        client.done("POST", "/swap-indexes", [{"indexes": ["coming", "gone"], "rename": True}])
        assert same(everywhere(daemon, lambda one: one.call("GET", "/indexes/coming/search")[0], rounds=3)) == 404
        assert same(everywhere(daemon, lambda one: one.titles("made", "gone"), rounds=3)) == [f"made {number}"]
        client.done("DELETE", "/indexes/gone")
        assert same(everywhere(daemon, lambda one: one.call("GET", "/indexes/gone/search")[0], rounds=3)) == 404
    assert not [name for pid in daemon.pids for name in _open_files(pid) if "(deleted)" in name and ".sqlite" in name]


def _open_files(pid: int) -> list[str]:
    return [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir() if file.is_symlink()]


def test_a_feature_that_is_switched_is_known_to_all_processes(daemon: Daemon, client: Client) -> None:
    def code(one: Client) -> str:
        return one.call("POST", "/indexes/films/search", {"useNetwork": True})[1].get("code", "none")

    for is_on in (True, False, True, False):
        client.call("PATCH", "/experimental-features", {"network": is_on})
        assert (same(everywhere(daemon, code, rounds=3)) == "feature_not_enabled") != is_on


def test_a_change_of_the_network_is_known_to_all_processes(daemon: Daemon, client: Client) -> None:
    def asked(one: Client) -> list[str]:
        answer = one.call("POST", "/indexes/films/facet-search", {"facetName": "title", "useNetwork": True})[1]
        return [f"{name}: {error['message']}" for name, error in answer["remoteErrors"].items()]

    client.call("PATCH", "/experimental-features", {"network": True})
    client.done("PATCH", "/indexes/films/settings", {"filterableAttributes": ["title"]})
    for name in ("b", "c"):
        client.call("PATCH", "/network", {"remotes": None})
        client.call("PATCH", "/network", {"remotes": {name: {"url": "http://10.1.2.3"}}})
        assert same(everywhere(daemon, asked, rounds=3)) == [f"{name}: Rejected IP"]
    client.call("PATCH", "/experimental-features", {"network": False})


def test_a_search_rule_that_is_changed_is_known_to_all_processes(daemon: Daemon, client: Client) -> None:
    def first(client: Client) -> int:
        return client.call("POST", "/indexes/films/search", {})[1]["hits"][0]["id"]

    client.call("PATCH", "/experimental-features", {"dynamicSearchRules": True})
    unpinned = same(everywhere(daemon, first, rounds=3))
    for pinned in (5, 6):
        actions = [{"selector": {"id": str(pinned)}, "action": {"type": "pin", "position": 0}}]
        client.done("PATCH", "/dynamic-search-rules/a", {"actions": actions})
        assert same(everywhere(daemon, first, rounds=3)) == pinned
    client.done("DELETE", "/dynamic-search-rules")
    assert same(everywhere(daemon, first, rounds=3)) == unpinned
    client.call("PATCH", "/experimental-features", {"dynamicSearchRules": False})


def test_the_requests_of_all_processes_are_counted(daemon: Daemon, client: Client) -> None:
    before = _counted(client)
    everywhere(daemon, lambda one: one.titles("kid"), clients=6, rounds=5)
    assert _counted(client) - before == 30


def test_what_a_killed_worker_has_counted_and_logged_is_not_lost(daemon: Daemon, client: Client) -> None:
    before = _counted(client)
    assert client.call("PATCH", "/experimental-features", {"logsRoute": True})[0] == 200
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=PATIENCE_S)) as following:
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        following.request("POST", "/logs/stream", json.dumps({"mode": "json"}), headers)
        lines = following.getresponse()
        for rounds in (5, 10):  # of the worker, and of the one that takes its place
            everywhere(daemon, lambda one: one.titles("kid"), clients=8, rounds=5)
            logged = 0
            while logged < 40:
                logged += json.loads(lines.readline()).get("path") == "/indexes/films/search"
            os.kill(killed := workers(daemon)[0], signal.SIGKILL)
            await_workers(daemon, but=killed)
            assert _counted(client) - before == rounds * 8


def _counted(client: Client) -> int:
    mark = 'svc_http_requests_total{method="POST",path="/indexes/{index_uid}/search",status="200"} '
    lines = client.call("GET", "/metrics")[1].splitlines()
    return sum(int(line.removeprefix(mark)) for line in lines if line.startswith(mark))


def test_a_killed_worker_comes_back_and_no_write_is_lost(daemon: Daemon, client: Client) -> None:
    for number in range(2):
        killed = workers(daemon)[0]
        acknowledged = []
        for each in range(6):
            writer = Client(daemon)  # may be let in by a worker
            if each == 3:
                os.kill(killed, signal.SIGKILL)
            try:
                status, summary = writer.call("POST", "/indexes/films/documents", [{"id": 300 + each, "title": "more"}])
                acknowledged.append(summary["taskUid"])
                assert status == 202
            except (OSError, http.client.HTTPException):
                pass
            writer.close()
        assert len(acknowledged) >= 3
        for uid in acknowledged:
            while client.call("GET", f"/tasks/{uid}")[1]["status"] in ("enqueued", "processing"):
                time.sleep(0.005)
            assert client.call("GET", f"/tasks/{uid}")[1]["status"] == "succeeded"
        await_workers(daemon, but=killed)
        same(everywhere(daemon, lambda one: one.titles("kid"), rounds=3))


def test_the_fork_server_has_neither_threads_nor_open_files(daemon: Daemon) -> None:
    pid, *_ = fork_server_and_workers(daemon)
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    assert [name for name in _open_files(pid) if str(daemon.data) in name] == [str(daemon.data / "LOCK")]


def test_a_killed_fork_server_comes_back_with_its_workers(daemon: Daemon) -> None:
    pid, *killed = fork_server_and_workers(daemon)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    same(everywhere(daemon, lambda one: one.titles("kid"), rounds=3))
    assert fork_server_and_workers(daemon) == [pid, *killed]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while not {pid, *killed}.isdisjoint(daemon.pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    await_workers(daemon)
    same(everywhere(daemon, lambda one: one.titles("kid"), rounds=3))


def test_the_log_speaks_of_no_bug(daemon: Daemon) -> None:
    assert not daemon.bugs()
    assert KEY not in daemon.log.read_text() + "".join(_command(pid) for pid in workers(daemon))


def test_killed_the_main_process_takes_its_workers_along(tmp_path: Path) -> None:
    one = Daemon(tmp_path, ["--search-workers", str(WORKERS)]).start()
    await_workers(one)
    one.kill9()  # asserts that all end
    one.start()
    await_workers(one)
    assert one.get("/health")
    one.kill9()


def _is_answered(connection: http.client.HTTPConnection) -> bool:
    """A search is answered, and another may be sent; False when the connection has ended, which it may between two."""
    try:
        connection.request("GET", "/indexes/films/search?q=the")
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    assert answer.status == 200 and answer.read()
    return answer.getheader("connection") != "close"


def test_sigterm_ends_all_in_good_order(tmp_path: Path) -> None:
    one = Daemon(tmp_path, ["--search-workers", str(WORKERS)]).start()
    await_workers(one)
    one.done(one.post("/indexes/films/documents", FILMS))
    answered = [0]

    def ask() -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", one.port, timeout=PATIENCE_S)) as connection:
            while _is_answered(connection):
                answered[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    pids = one.pids
    while answered[0] < 50:
        time.sleep(0.005)
    assert one.stop() == 0
    for thread in threads:
        thread.join()
    assert not [pid for pid in pids if _command(pid)]
    assert not one.bugs()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A folder with cert.pem and key.pem."""
    if not shutil.which("openssl"):
        pytest.skip("the openssl command, which makes the certificate, is not installed")
    line = ("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
            "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem")
    subprocess.run(line.split(), cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_with_tls_workers_answer_as_without(tmp_path: Path, certificate: Path) -> None:
    context = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with running(tmp_path, "--search-workers", str(WORKERS), "--experimental-enable-metrics",
                 "--ssl-cert-path", str(certificate / "cert.pem"), "--ssl-key-path", str(certificate / "key.pem")) as one:
        await_workers(one)
        client = Client(one, context=context)
        client.done("POST", "/indexes/films/documents", FILMS)

        def ask(each: Client) -> list[str]:
            assert each.call("GET", "/health")[0] == 200
            return each.titles("kid")

        assert same(everywhere(one, ask, context=context)) == ["The Kid"]
        assert _counted(client) == 12 * 12
        client.done("PUT", "/indexes/films/documents", [{"id": 4, "title": "The Kid zt"}])
        assert same(everywhere(one, lambda each: each.titles("zt"), rounds=3, context=context)) == ["The Kid zt"]
        client.close()
        assert one.stop() == 0 and not one.bugs()


def test_workers_start_with_the_load_and_end_without_it(tmp_path: Path) -> None:
    quickly = ("from svcd.base import machine\nfrom svcd.cli import search_processes\nmachine.cores = lambda: 2\n"
               "search_processes.IDLE_S, search_processes.KEPT_S = 0.5, 0.3")
    one = Daemon(tmp_path, prelude=quickly).start()
    try:
        one.done(one.post("/indexes/films/documents", FILMS))
        alone = Client(one, None)
        for _ in range(100):
            alone.titles("kid")
        assert not workers(one)
        for _ in range(2):
            stopping, failures = threading.Event(), []
            threads = [threading.Thread(target=_search_until, args=(one, stopping, failures)) for _ in range(8)]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + PATIENCE_S
            while not sum(map(_serves, workers(one))):
                assert time.monotonic() < deadline
                time.sleep(0.005)
            stopping.set()
            while workers(one):
                assert alone.titles("kid") == ["The Kid"]
                assert time.monotonic() < deadline + PATIENCE_S
                time.sleep(0.02)
            for thread in threads:
                thread.join()
            assert not failures
        while fork_server_and_workers(one):
            assert time.monotonic() < deadline + 2 * PATIENCE_S
            time.sleep(0.02)
        alone.close()
        assert one.stop() == 0 and not one.bugs()
    finally:
        one.kill9()


def _search_until(daemon: Daemon, stopping: threading.Event, failures: list[Exception]) -> None:
    """Search without pause, then hold the connection, and search again when the workers have ended."""
    client = Client(daemon, None)
    try:
        while not stopping.is_set():
            client.titles(f"the {next(_numbers)}")  # what another one has asked is kept, and not searched
        while workers(daemon):
            time.sleep(0.05)
        client.titles("kid")
    except Exception as failure:  # whatever a client notices
        failures.append(failure)
    finally:
        client.close()
