"""What must hold of calls of remotes:

1. A call goes to scheme, host and port of the remote, with its search key and the headers of instances under both names.
2. 401 and 403, and any other 4xx, end a call at once; 5xx and answers that cannot be read are tried four times.
3. What was sent back is quoted in the error: JSON compactly, other text as it is, nothing for nothing.
4. One that cannot be connected to is tried again; one that the guard forbids is not called, and the error says so.
5. Whatever has not answered at the deadline is late, and the other calls are not: they run at the same time.
6. Redirects are followed, each through the guard; the key of a remote stays with its host.
7. A URL that names no host is no remote.
"""
from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.instance.network import Network, Remote
from svcd.remote import remote_calls
from svcd.remote.client import Client
from svcd.remote.guard import Guard
from svcd.remote.remote_calls import DEFAULT_TIMEOUT_S, TIMEOUT_VARIABLE, RemoteCalls, timeout_s
from tests.support.scripted_server import PATIENCE_S, Reply, ScriptedServer

OK = Reply({"hits": []})
SAME_VERSION = "\n  - hint: check that the remote instance is a Svc instance running the same version"
ON_LOOPBACK = Guard([ip_network("127.0.0.0/8")])


@pytest.fixture
def remote_of(scripted_server: Callable[..., ScriptedServer]) -> Callable[..., ScriptedServer]:
    """remote_of(*replies) -> a remote that answers with them."""
    return scripted_server


def calls_of(within_s: float = PATIENCE_S, at_once: int | None = None, guard: Guard = ON_LOOPBACK, **urls: str) -> RemoteCalls:
    network = Network("a", {name: Remote(url, f"key of {name}") for name, url in urls.items()})
    return RemoteCalls(network, Client(guard), time.monotonic() + within_s, at_once)


def read_object(answer: Any) -> Any:
    if not isinstance(answer, dict):
        raise ValueError
    return answer


def ask(calls: RemoteCalls, name: str = "b", read: Callable[[Any], Any] = read_object) -> Any:
    return calls.start(name, "POST", "/multi-search", {"queries": []}, read)


def error_of(url: str, **others: Any) -> tuple[str, str]:
    """Code and message of a call that fails."""
    with pytest.raises(ApiError) as error:
        ask(calls_of(b=url, **others)).result()
    return error.value.code, error.value.message


def test_a_call_names_itself_and_brings_the_key(remote_of) -> None:
    remote = remote_of(OK)
    assert ask(calls_of(b=f"{remote.url}/some/path?query=1")).result() == {"hits": []}
    [call] = remote.requests
    assert (call.method, call.path, call.body) == ("POST", "/multi-search", {"queries": []})
    assert call.headers["authorization"] == "Bearer key of b" and call.headers["content-type"] == "application/json"
    assert call.headers["svc-proxy-search"] == call.headers["meili-proxy-search"] == "true"


def test_a_remote_without_key_gets_none(remote_of) -> None:
    remote = remote_of(OK)
    RemoteCalls(Network(remotes={"b": Remote(remote.url)}), Client(ON_LOOPBACK), time.monotonic() + PATIENCE_S).start(
        "b", "POST", "/multi-search", {}, read_object).result()
    assert "authorization" not in remote.requests[0].headers


KEY_REFUSED = ("could not authenticate against the remote host\n  - hint: check that the remote instance was registered with a "
               "valid API key having the `search` action")
REQUEST_HINTS = ("\n  - hint: check that the remote instance has the correct index configuration for that request"
                 "\n  - hint: check that the `network` experimental feature is enabled on the remote instance")
QUOTED = ":\n  - response from remote: "
UNREADABLE = "could not parse response from the remote host as a federated search response"


@pytest.mark.parametrize("reply, tries, code, message", [
    (Reply({"code": "x"}, 401), 1, "remote_invalid_api_key", KEY_REFUSED),
    (Reply({"code": "x"}, 403), 1, "remote_invalid_api_key", KEY_REFUSED),
    (Reply({"code": "x", "a": [1, None]}, 404), 1, "remote_bad_request",
     f'remote host responded with code 404{QUOTED}{{"code":"x","a":[1,null]}}{REQUEST_HINTS}'),
    (Reply(b"", 429), 1, "remote_bad_request", f"remote host responded with code 429{REQUEST_HINTS}"),
    (Reply(b"busy\n", 408), 1, "remote_bad_request", f"remote host responded with code 408{QUOTED}busy\n{REQUEST_HINTS}"),
    (Reply({"error": "y"}, 500), 4, "remote_remote_error", f'remote host responded with code 500{QUOTED}{{"error":"y"}}'),
    (Reply(b"", 503), 4, "remote_remote_error", "remote host responded with code 503"),
    (Reply(b"hello"), 4, "remote_bad_response", f"{UNREADABLE}{QUOTED}hello{SAME_VERSION}"),
    (Reply(b"", 204), 4, "remote_bad_response", f"{UNREADABLE}{SAME_VERSION}"),
    (Reply([1]), 4, "remote_bad_response", f"{UNREADABLE}{QUOTED}[1]{SAME_VERSION}"),
])
def test_failures_have_their_code_and_words(remote_of, reply: Reply, tries: int, code: str, message: str) -> None:
    remote = remote_of(reply)
    assert error_of(remote.url) == (code, message)
    assert len(remote.requests) == tries


def test_of_a_redirect_to_nowhere_the_body_counts(remote_of) -> None:
    assert ask(calls_of(b=remote_of(Reply({}, 302)).url)).result() == {}


def test_the_fourth_try_may_succeed(remote_of) -> None:
    remote = remote_of(Reply(b"", 500), Reply(b"no json"), Reply(b"", 502), OK)
    assert ask(calls_of(b=remote.url)).result() == {"hits": []}
    assert len(remote.requests) == 4


def test_the_caller_says_what_it_can_read(remote_of) -> None:
    remote = remote_of(Reply({"other": 1}), Reply({"hits": 5}))
    assert ask(calls_of(b=remote.url), read=lambda answer: answer["hits"] + 1).result() == 6
    assert len(remote.requests) == 2


def test_an_error_of_the_reader_is_the_result(remote_of) -> None:
    def read(answer: Any) -> None:
        raise ApiError("remote_bad_response", "no hit")

    remote = remote_of(OK)
    with pytest.raises(ApiError, match="no hit"):
        ask(calls_of(b=remote.url), read=read).result()
    assert len(remote.requests) == 1


def test_a_response_that_breaks_off_is_unreadable(remote_of) -> None:
    code, message = error_of(remote_of(Reply(b"{}", length=9)).url)
    assert code == "remote_bad_response" and f"{UNREADABLE}:\n  - additionally, could not retrieve response" in message


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert error_of(url) == ("remote_could_not_send_request", "error sending request")


@pytest.mark.parametrize("host, message", [("127.0.0.1", "Rejected IP"), ("localhost", "error sending request")])
def test_a_forbidden_host_is_not_called(remote_of, host: str, message: str) -> None:
    remote = remote_of(OK)
    assert error_of(f"http://{host}:{remote.server_port}", guard=Guard()) == ("remote_could_not_send_request", message)
    assert not remote.requests


@pytest.mark.parametrize("url, code, message", [
    ("host:7700", "invalid_network_url", "Invalid remote url: scheme missing"),
    ("mailto:a/b", "invalid_network_url", "Invalid remote url: invalid format"),
    ("http://a b", "invalid_network_url", "Invalid remote url: invalid uri character"),
    ("ftp://127.0.0.1", "remote_could_not_send_request", "builder error"),
])
def test_other_urls_are_not_called(url: str, code: str, message: str) -> None:
    assert error_of(url) == (code, message)


def test_a_late_remote_does_not_hold_up_the_others(remote_of) -> None:
    hung, quick = remote_of(Reply(is_held=True)), remote_of(OK)
    calls = calls_of(0.2, b=hung.url, c=quick.url)
    late, answered = ask(calls, "b"), ask(calls, "c")
    with pytest.raises(ApiError) as error:
        late.result()
    assert (error.value.code, error.value.message) == ("remote_timeout", "remote host did not answer before the deadline")
    assert answered.result() == {"hits": []}
    assert len(hung.requests) == 1


def test_a_resolver_without_answer_is_late(remote_of) -> None:
    def resolve(*_: Any, **__: Any) -> Any:
        time.sleep(0.3)  # nothing can interrupt it
        raise OSError("too late")

    assert error_of("http://somewhere", within_s=0.05, guard=Guard(resolve=resolve))[0] == "remote_timeout"


def test_so_many_calls_run_at_once(remote_of) -> None:
    remote = remote_of(Reply({}, is_held=True))
    names = [f"r{number}" for number in range(5)]
    calls = calls_of(at_once=2, **dict.fromkeys(names, remote.url))
    pending = [ask(calls, name) for name in names]
    remote.wait_for_call()
    remote.wait_for_call()
    remote.release()
    assert [call.result() for call in pending] == [{}] * 5
    assert remote.most_at_once == 2


def test_beyond_so_many_calls_none_is_begun(remote_of, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = remote_of(Reply({}, is_held=True))
    monkeypatch.setattr(remote_calls, "_free", threading.BoundedSemaphore(1))
    calls = calls_of(b=remote.url)
    first, second = ask(calls), ask(calls)
    with pytest.raises(ApiError) as error:
        second.result()
    assert error.value.code == "remote_could_not_send_request"
    remote.release()
    assert first.result() == {}
    assert len(remote.requests) == 1


@pytest.mark.parametrize("status, method, body", [(301, "GET", None), (303, "GET", None), (308, "POST", {"queries": []})])
def test_redirects_are_followed(remote_of, status: int, method: str, body: Any) -> None:
    there = remote_of(OK)
    here = remote_of(Reply({}, status, {"Location": f"{there.url}/moved"}))
    assert ask(calls_of(b=here.url)).result() == {"hits": []}
    [call] = there.requests
    assert (call.method, call.path, call.body) == (method, "/moved", body)
    assert "authorization" not in call.headers  # it is another host


def test_a_circle_of_redirects_ends(remote_of) -> None:
    remote = remote_of(Reply({}, 307, {"Location": "/again"}))
    assert error_of(remote.url) == ("remote_could_not_send_request", "error following redirect")
    assert len(remote.requests) == 4 * 11


def test_a_redirect_to_a_forbidden_host_is_not_followed(remote_of) -> None:
    remote = remote_of(Reply({}, 307, {"Location": "http://10.0.0.1/"}))
    assert error_of(remote.url) == ("remote_could_not_send_request", "Rejected IP")


def test_the_time_is_that_of_the_variable() -> None:
    assert timeout_s({}) == DEFAULT_TIMEOUT_S == 25
    assert timeout_s({TIMEOUT_VARIABLE: "3"}) == 3
    with pytest.raises(ApiError, match=TIMEOUT_VARIABLE):
        timeout_s({TIMEOUT_VARIABLE: "soon"})
