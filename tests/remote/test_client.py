"""What must hold of a call:

1. It is taken when the answer is 2xx; any other end says why, in words without URL and headers.
2. No redirect is followed and no proxy is asked, but for those who want it: then each address is checked, credentials stay
   with their host, and a proxy passes on what the guard was not asked about.
3. A body is sent part by part, with its length; what the headers of others say of it counts for nothing.
4. Over TLS, the certificate is of the host that the URL names, and one that the system's authorities vouch for.
5. A call ends at its deadline, or when it is aborted, whatever the other side does.
6. An exchange gives the whole response, or says why there is none: it is cut, too long, or too late.
7. A stream gives what came as soon as it came, for as long as it takes; errors of its reader are not those of the call.
"""
from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from svcd.remote import Failure, Undelivered
from svcd.remote.client import Answer, Client, request_target
from svcd.remote.guard import Guard
from tests.remote.conftest import LOOPBACK, PATIENCE_S, Receiver

Receive = Callable[..., Receiver]
SECRET = "Bearer some-secret"


def failure(client: Client, url: str) -> str:
    with pytest.raises(Undelivered) as undelivered:
        client.post(url, {"Authorization": SECRET}, [b"{}\n"], 3)
    words = str(undelivered.value)
    assert "secret" not in words and "token" not in words
    return words


def url_of(receiver: Receiver, path: str = "/hook?token=1") -> str:
    return f"http://127.0.0.1:{receiver.port}{path}"


def test_a_body_arrives_with_its_headers(client: Client, receive: Receive) -> None:
    receiver = receive()
    client.post(url_of(receiver), {"Authorization": SECRET, "X-Empty": ""}, [b"{1}\n", b"", b"{2}\n"], 8)
    [(head, body)] = receiver.requests
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /hook?token=1 HTTP/1.1" and body == b"{1}\n{2}\n"
    assert {f"Authorization: {SECRET}", "X-Empty: ", "Content-Length: 8", "Connection: close",
            f"Host: 127.0.0.1:{receiver.port}"} <= set(lines)
    assert [line for line in lines if line.startswith("User-Agent: svcd/")]


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_is_taken(client: Client, receive: Receive, status: int) -> None:
    client.post(url_of(receive(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())), {}, [], 0)


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 410, 413, 429, 500, 503])
def test_any_other_status_is_a_failure(client: Client, receive: Receive, status: int) -> None:
    words = failure(client, url_of(receive(f"HTTP/1.1 {status} x\r\n\r\n".encode())))
    assert words.startswith(f"answered with status {status}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(client: Client, receive: Receive, status: int) -> None:
    """Not even where the guard would let it: whoever answers must not choose where secrets go."""
    other = receive()
    words = failure(client, url_of(receive(
        f"HTTP/1.1 {status} x\r\nLocation: {url_of(other)}\r\nRefresh: 0; {url_of(other)}\r\n\r\n".encode())))
    assert words == f"answered with status {status}; redirects are not followed, name the address itself"
    assert not other.requests


def test_a_proxy_is_not_asked(client: Client, receive: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, proxy = receive(), receive()
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    client.post(url_of(receiver), {}, [], 0)
    assert receiver.requests and not proxy.requests


@pytest.mark.parametrize("name", ["Content-Length", "content-length", "Transfer-Encoding", "Connection"])
def test_headers_cannot_change_the_framing_of_a_request(client: Client, receive: Receive, name: str) -> None:
    receiver = receive()
    client.post(url_of(receiver), {name: "chunked"}, [b"{}\n"], 3)
    [(head, body)] = receiver.requests
    assert b"chunked" not in head and body == b"{}\n"


def test_a_large_body_is_never_held_whole(client: Client, receive: Receive) -> None:
    receiver, part, count = receive(), b"x" * 65536, 256

    def parts() -> Iterator[bytes]:
        for _ in range(count):
            yield bytes(bytearray(part))  # each a new one

    receiver.handle = lambda connection: _swallow(connection, len(part) * count)  # type: ignore[method-assign]
    tracemalloc.start()
    client.post(url_of(receiver), {}, parts(), len(part) * count)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2 << 20


def _swallow(connection: socket.socket, length: int) -> None:
    while length > 0:
        length -= len(connection.recv(65536))
    connection.sendall(b"HTTP/1.1 204 x\r\n\r\n")


def test_what_reading_the_body_raises_comes_through(client: Client, receive: Receive) -> None:
    def parts() -> Iterator[bytes]:
        yield b"x"
        raise LookupError("gone")

    with pytest.raises(LookupError):
        client.post(url_of(receive()), {}, parts(), 10)


@pytest.mark.parametrize(("answer", "words"), [
    (b"", "Remote end closed connection without response"), (b"nonsense token\r\n\r\n", "BadStatusLine"),
    (b"HTTP/1.1 200 x\r\n" + b"token: " + b"x" * 70_000, "LineTooLong"),
])
def test_an_answer_that_is_none_is_a_failure(client: Client, receive: Receive, answer: bytes, words: str) -> None:
    assert failure(client, url_of(receive(answer))) == words


def test_a_header_that_cannot_be_sent_is_not_repeated(client: Client, receive: Receive) -> None:
    with pytest.raises(Undelivered, match="^ValueError$"):
        client.post(url_of(receive()), {"Authorization": "Bearer secret\nX: y"}, [], 0)


def test_an_unreachable_host_is_a_failure(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert failure(client, f"http://127.0.0.1:{port}/?token=1") == "Connection refused"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_silence_ends_at_the_deadline(receive: Receive, scheme: str) -> None:
    receiver = receive(None)
    url = f"{scheme}://127.0.0.1:{receiver.port}/"
    assert failure(Client(Guard(LOOPBACK), timeout_s=0.05), url) == "no answer in time"


def test_who_drips_does_not_get_for_ever(receive: Receive) -> None:
    receiver, is_over = receive(), threading.Event()

    def drip(connection: socket.socket) -> None:
        while not is_over.wait(0.01):
            connection.sendall(b"H")

    receiver.handle = drip  # type: ignore[method-assign]
    assert failure(Client(Guard(LOOPBACK), timeout_s=0.2), url_of(receiver)) == "no answer in time"
    is_over.set()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_call_can_be_aborted(client: Client, receive: Receive, scheme: str) -> None:
    receiver = receive(None)
    threading.Thread(target=lambda: (receiver.asked.wait(), client.abort())).start()
    if scheme == "https":  # it waits for an answer to its first words, which are no request
        receiver.handle = lambda connection: (connection.recv(1), receiver.asked.set(), receiver.released.wait())  # type: ignore
    assert failure(client, f"{scheme}://127.0.0.1:{receiver.port}/") == "no answer in time"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem and key.pem of the host `localhost`."""
    if not shutil.which("openssl"):
        pytest.skip("the openssl command, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("pem")
    subprocess.run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
                   "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem".split(),
                   cwd=folder, check=True, capture_output=True)
    return folder


def _receive_tls(receive: Receive, pem: Path) -> Receiver:
    receiver = receive()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem / "cert.pem", pem / "key.pem")
    take = receiver.handle

    def take_wrapped(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            take(wrapped)

    receiver.handle = take_wrapped  # type: ignore[method-assign]
    return receiver


def test_a_certificate_must_be_of_the_host_and_accepted(
    client: Client, receive: Receive, pem: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    receiver = _receive_tls(receive, pem)
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", receiver.port))]
    words = failure(Client(Guard(LOOPBACK, lambda *_, **__: here)), f"https://localhost:{receiver.port}/")
    assert words.startswith("its certificate is not accepted: self") and not receiver.requests
    monkeypatch.setenv("SSL_CERT_FILE", str(pem / "cert.pem"))
    trusting = Client(Guard(LOOPBACK, lambda *_, **__: here))
    trusting.post(f"https://localhost:{receiver.port}/x", {}, [b"{}\n"], 3)
    [(head, body)] = receiver.requests
    assert head.startswith(b"POST /x HTTP/1.1\r\n") and body == b"{}\n"
    assert f"Host: localhost:{receiver.port}".encode() in head
    words = failure(trusting, f"https://other.test:{receiver.port}/")
    assert "not accepted: Hostname mismatch" in words and len(receiver.requests) == 1


def test_a_certificate_of_a_plain_authority_is_accepted(receive: Receive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                        pem: Path) -> None:
    """One as the commands of many manuals make it, without the extensions that Python asks for from 3.13 on."""
    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost")
    for command in (f"req -x509 {key} -days 2 -subj /CN=authority -keyout authority.key -out authority.pem",
                    f"req {key} -subj /CN=localhost -keyout key.pem -out request.pem",
                    "x509 -req -in request.pem -CA authority.pem -CAkey authority.key -CAcreateserial -days 2 -extfile names -out cert.pem"):
        subprocess.run(["openssl", *command.split()], cwd=tmp_path, check=True, capture_output=True)
    receiver = _receive_tls(receive, tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", receiver.port))]
    Client(Guard(LOOPBACK, lambda *_, **__: here)).post(f"https://localhost:{receiver.port}/x", {}, [b"{}"], 2)
    assert receiver.requests[0][1] == b"{}"


def test_who_speaks_no_tls_is_a_failure(client: Client, receive: Receive) -> None:
    receiver = receive()
    receiver.handle = lambda connection: connection.sendall(b"HTTP/1.1 400 x\r\n\r\n")  # type: ignore[method-assign]
    assert "SSL" in failure(client, f"https://127.0.0.1:{receiver.port}/")


@pytest.mark.parametrize(("url", "target"), [
    ("http://h", "http://h/"), ("HTTPS://h:8/a?b=c#d", "https://h:8/a?b=c"), ("http://bücher.test/é", "http://"
     "xn--bcher-kva.test/%C3%A9"), ("http://[::1]:7/%20", "http://[::1]:7/%20"), ("http://h/a b\\c", "http://h/a%20b/c"),
    ("http:h/x", "http://h/x"),
])
def test_a_url_is_called_in_ascii(url: str, target: str) -> None:
    assert request_target(url) == (target, {})


def test_user_and_password_become_a_header(client: Client, receive: Receive) -> None:
    receiver = receive()
    client.post(f"http://ann:p%40ss@127.0.0.1:{receiver.port}/", {}, [], 0)
    assert b"Authorization: Basic YW5uOnBAc3M=\r\n" in receiver.requests[0][0] + b"\r\n"


@pytest.mark.parametrize("url", ["ftp://h/", "file:///etc/passwd", "http://", "http:///", "mailto:x", "http://h:99999/",
                                 "http://" + "x" * 300])
def test_what_cannot_be_called_is_a_failure(client: Client, url: str) -> None:
    assert "its URL" in failure(client, url)


# exchange(): a request and the whole response


def exchanged(client: Client, receiver: Receiver, most_bytes: int = 1000, within_s: float = 20.0) -> Answer:
    return client.exchange(f"http://127.0.0.1:{receiver.port}/", {"X-A": "b"}, b"{}", within_s, most_bytes)


def test_an_exchange_returns_the_whole_response_whatever_its_status(receive, client):
    receiver = receive(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\nbusy")
    answer = exchanged(client, receiver)
    assert (answer.status, answer.headers["retry-after"], answer.body) == (429, "3", b"busy")
    assert receiver.requests[0][1] == b"{}"


@pytest.mark.parametrize("sent, reason", [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "its answer ends early"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", "its answer ends early"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000, "its answer is longer than 1000 bytes"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000, "its answer is longer than 1000 bytes"),
])
def test_a_response_that_is_cut_or_too_long_is_no_answer(receive, client, sent, reason):
    with pytest.raises(Undelivered, match=reason) as failure:
        exchanged(client, receive(sent))
    assert not failure.value.is_final


def test_an_exchange_ends_at_its_deadline(receive, client):
    with pytest.raises(Undelivered, match="no answer in time"):
        exchanged(client, receive(None), within_s=0.05)


def test_an_address_that_is_not_allowed_stays_so(receive):
    with pytest.raises(Undelivered) as failure:
        exchanged(Client(Guard()), receive())
    assert failure.value.is_final


def test_a_request_may_have_another_method_and_no_body(receive, client):
    receiver = receive(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    assert client.exchange(url_of(receiver), {}, None, 20, 10, method="GET").body == b"x"
    [(head, body)] = receiver.requests
    assert head.startswith(b"GET /hook?token=1 HTTP/1.1\r\n") and not body and b"ontent-" not in head


# Redirects


def moved(receiver: Receiver, status: int) -> bytes:
    return f"HTTP/1.1 {status} x\r\nLocation: {url_of(receiver, '/there')}\r\nContent-Length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status, line, body", [
    (301, b"GET /there", b""), (302, b"GET /there", b""), (303, b"GET /there", b""),
    (307, b"POST /there", b"{}"), (308, b"POST /there", b"{}"),
])
def test_who_wants_it_follows_redirects_without_credentials_to_another_host(receive, client, status, line, body):
    target = receive(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    answer = client.exchange(url_of(receive(moved(target, status))), {"Authorization": SECRET, "X-A": "b"}, b"{}", 20, 10,
                             redirects=1)
    [(head, received)] = target.requests
    assert answer.body == b"ok" and head.startswith(line) and received == body
    assert b"X-A: b" in head and b"secret" not in head


def test_redirects_within_a_host_keep_its_credentials_and_end(receive, client):
    receiver = receive()
    receiver.answer = moved(receiver, 307)
    with pytest.raises(Undelivered) as failure:
        client.exchange(url_of(receiver), {"Authorization": SECRET}, b"{}", 20, 10, redirects=3)
    assert failure.value.kind is Failure.REDIRECTS and len(receiver.requests) == 4
    assert all(b"secret" in head for head, _ in receiver.requests)


def test_a_redirect_leads_only_where_the_guard_lets_it(receive):
    target = receive()
    answer = f"HTTP/1.1 307 x\r\nLocation: http://127.0.0.2:{target.port}/\r\n\r\n".encode()
    with pytest.raises(Undelivered) as failure:
        Client(Guard((ip_network("127.0.0.1/32"),))).exchange(url_of(receive(answer)), {}, b"", 20, 10, redirects=1)
    assert failure.value.kind is Failure.FORBIDDEN_ADDRESS


def test_a_redirect_without_a_place_is_the_answer(receive, client):
    assert client.exchange(url_of(receive(b"HTTP/1.1 302 x\r\n\r\n")), {}, b"", 20, 10, redirects=1).status == 302


# Proxies


def test_a_proxy_is_asked_by_who_wants_it_but_not_for_excepted_hosts(receive, client, monkeypatch):
    receiver, proxy = receive(), receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nproxy")
    monkeypatch.setenv("http_proxy", f"http://ann:pw@127.0.0.1:{proxy.port}")
    answer = client.exchange("http://far.test/x", {}, b"{}", 20, 10, proxies=True)
    [(head, _)] = proxy.requests
    assert answer.body == b"proxy" and head.startswith(b"POST http://far.test/x HTTP/1.1\r\n")
    assert b"\r\nHost: far.test" in head and b"Proxy-Authorization: Basic YW5uOnB3" in head
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert client.exchange(url_of(receiver), {}, b"{}", 20, 10, proxies=True).status == 204


def test_tls_goes_through_a_tunnel_of_the_proxy(receive, pem, monkeypatch):
    receiver, proxy = _receive_tls(receive, pem), receive()

    def tunnel(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        proxy.requests.append((head, b""))
        with socket.create_connection(("127.0.0.1", receiver.port)) as far:
            connection.sendall(b"HTTP/1.1 200 x\r\n\r\n")
            back = threading.Thread(target=_copy, args=(far, connection))
            back.start()
            _copy(connection, far)
            back.join()

    proxy.handle = tunnel
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem / "cert.pem"))
    assert Client(Guard()).exchange("https://localhost/x", {}, b"{}", 20, 10, proxies=True).status == 204
    assert proxy.requests[0][0].startswith(b"CONNECT localhost:443 ") and receiver.requests[0][1] == b"{}"


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(65536):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


# stream(): a response as it comes


def test_a_stream_gives_what_came_as_soon_as_it_came(receive, client):
    receiver, read_one = receive(), threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        read_one.wait(PATIENCE_S)
        connection.sendall(b"3\r\ntwo\r\n0\r\n\r\n")

    receiver.handle = answer
    with client.stream(url_of(receiver), {}, b"{}") as incoming:
        assert (incoming.status, incoming.headers["x-a"], incoming.read()) == (200, "b", b"one")
        read_one.set()
        assert (incoming.read(), incoming.read()) == (b"two", b"")


@pytest.mark.parametrize("sent", [b"Content-Length: 9\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"])
def test_a_stream_that_breaks_off_says_so(receive, client, sent):
    with client.stream(url_of(receive(b"HTTP/1.1 200 OK\r\n" + sent)), {}, b"{}") as incoming:
        assert incoming.read() == b"half"
        with pytest.raises(Undelivered, match="ends early") as failure:
            incoming.read()
    assert failure.value.kind is Failure.RESPONSE


def test_a_stream_can_be_aborted_and_errors_of_its_reader_pass_through(receive, client):
    receiver = receive(None)
    receiver.handle = lambda connection: (connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n"), receiver.released.wait(PATIENCE_S))
    with pytest.raises(BrokenPipeError), client.stream(url_of(receiver), {}, b"{}") as incoming:
        threading.Thread(target=incoming.abort).start()
        with pytest.raises(Undelivered, match="no answer in time"):
            incoming.read()
        raise BrokenPipeError
