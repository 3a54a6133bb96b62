"""The standard library's clients, which know nothing of ours, get what they ask for."""
from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svcd.http import sockets
from svcd.http.message import Request, Response

Serve = Callable[..., Any]


def connection(served: Any) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)


def test_http_client_keeps_its_connection(serve: Serve) -> None:
    client = connection(serve())
    for method, body in (("GET", None), ("POST", b"abc"), ("PUT", b""), ("DELETE", None), ("PATCH", b"x" * 200_000)):
        client.request(method, "/a", body)
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"%s /a %s" % (method.encode(), body or b""))
        assert not answer.will_close
    client.close()


def test_http_client_sends_chunks(serve: Serve) -> None:
    def body() -> Iterator[bytes]:
        yield from (b"abc", b"d" * 100_000, b"e")

    client = connection(serve())
    client.request("POST", "/", body(), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    assert client.getresponse().read() == b"POST / abc" + b"d" * 100_000 + b"e"
    client.close()


def test_http_client_reads_chunks(serve: Serve) -> None:
    client = connection(serve(lambda request: Response(200, iter([b"a" * 70_000, b"b"]))))
    for _ in range(2):
        client.request("GET", "/")
        assert client.getresponse().read() == b"a" * 70_000 + b"b"
    client.close()


def test_http_client_reads_a_refusal_while_it_sends(serve: Serve) -> None:
    client = connection(serve(payload_limit=1000))
    client.request("POST", "/", b"a" * 5_000_000)
    assert client.getresponse().status == 413
    client.close()


def test_urllib_asks_once_a_connection(serve: Serve) -> None:
    served = serve()
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/a?b", b"c", 10) as answer:
        assert answer.read() == b"POST /a c"


def test_urllib_sees_errors(serve: Serve) -> None:
    served = serve(lambda request: Response(404, b"{}"))
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://127.0.0.1:{served.port}/", timeout=10)
    with error.value:
        assert (error.value.code, error.value.read()) == (404, b"{}")


@pytest.mark.parametrize("watch", ["", "SelectorWatch"])
def test_many_clients_at_once_get_their_own_answers(
    serve: Serve, watch: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    if watch:
        monkeypatch.setattr(sockets, "EpollWatch", sockets.SelectorWatch)
    served = serve(threads=4)
    wrong: list[Any] = []

    def ask(name: int) -> None:
        client = connection(served)
        for turn in range(30):
            body = b"%d-%d" % (name, turn)
            client.request("POST", "/", body)
            if (got := client.getresponse().read()) != b"POST / " + body:
                wrong.append(got)
        client.close()

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong and not any(thread.is_alive() for thread in threads)


def test_a_request_knows_what_was_sent(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        return Response(200, f"{request.query} {request.headers.get('X-Name')} {request.segments}".encode())

    client = connection(serve(answer))
    client.request("GET", "/a%20b/c?d=e%26", headers={"x-NAME": "value"})
    assert client.getresponse().read() == b"d=e%26 value ('a b', 'c')"
    client.close()
