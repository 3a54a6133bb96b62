"""TLS.

1. Everything that holds without TLS holds with it: keeping, large bodies, idle clients that hold no thread.
2. A handshake that is not finished, or is none, holds no thread and ends at its deadline.
3. Clients show certificates as the options ask; sessions are resumed where the options allow it.
4. Wrong files raise a TlsError that says which and why.
"""
from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from svcd.http.message import Response
from svcd.http.sockets import Limits
from svcd.http.tls import TlsError, tls_context

Serve = Callable[..., Any]
QUICK = Limits(sweep_s=0.02)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem, key.pem, other.pem (another key) and locked.pem (the key with a passphrase)."""
    if not shutil.which("openssl"):
        pytest.skip("the openssl command, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("pem")
    for line in (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem",
        "openssl ecparam -genkey -name prime256v1 -noout -out other.pem",
        "openssl ec -in key.pem -aes256 -passout pass:secret -out locked.pem",
    ):
        subprocess.run(line.split(), cwd=folder, check=True, capture_output=True)
    return folder


def server_context(pem: Path, **options: Any) -> ssl.SSLContext:
    return tls_context(pem / "cert.pem", pem / "key.pem", **options)


def client_context(pem: Path, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(pem / "cert.pem"))
    context.minimum_version = context.maximum_version = version
    return context


def connect(served: Any, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> Any:
    sock = socket.create_connection(("127.0.0.1", served.port), 10)
    client = type(served.connect())(0, context.wrap_socket(sock, server_hostname="localhost", session=session))
    served.clients.append(client)
    return client


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_are_answered_and_the_connection_kept(serve: Serve, pem: Path, version: ssl.TLSVersion) -> None:
    client = connect(serve(ssl_context=server_context(pem)), client_context(pem, version))
    for _ in range(3):
        assert client.send(GET).answer()[2] == b"GET / "
    assert [client.send(GET * 3) and client.answer()[0] for _ in range(3)] == [200] * 3


def test_large_bodies_go_in_and_out(serve: Serve, pem: Path) -> None:
    body = b"0123456789" * 300_000
    served = serve(lambda request: Response(200, request.body.read()), ssl_context=server_context(pem))
    client = connect(served, client_context(pem))
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert client.answer()[2] == body


def test_a_large_head_leaves_nothing_over(serve: Serve, pem: Path) -> None:
    """TLS records hold bytes that the operating system no longer has."""
    client = connect(serve(ssl_context=server_context(pem)), client_context(pem))
    heads = b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\nX: %b\r\n\r\n" % (n, b"a" * 9000) for n in range(20))
    client.send(heads)
    assert [client.answer()[2] for _ in range(20)] == [b"GET /%d " % n for n in range(20)]


def test_unfinished_handshakes_hold_no_thread(serve: Serve, pem: Path) -> None:
    served = serve(ssl_context=server_context(pem), threads=1)
    for raw in (b"", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01"):
        for _ in range(5):
            served.send(raw)
    assert connect(served, client_context(pem)).send(GET).answer()[0] == 200


def test_an_unfinished_handshake_ends_at_its_deadline(serve: Serve, pem: Path) -> None:
    served = serve(ssl_context=server_context(pem), limits=QUICK._replace(head_s=0.05))
    assert served.send(b"\x16\x03\x01").is_closed()


def test_a_client_without_tls_is_not_answered(serve: Serve, pem: Path) -> None:
    served = serve(ssl_context=server_context(pem))
    client = served.send(GET)
    with suppress(ConnectionResetError):
        assert b"HTTP" not in client.sock.recv(4096)
        assert client.is_closed()
    assert not served.errors


def test_the_end_of_a_connection_is_announced(serve: Serve, pem: Path) -> None:
    """With close_notify, so that the client can tell an end from a cut."""
    client = connect(serve(ssl_context=server_context(pem)), client_context(pem))
    client.sock.suppress_ragged_eofs = False
    client.send(b"nonsense\r\n\r\n")
    assert client.answer()[0] == 400
    assert client.sock.recv(1) == b""


def test_clients_may_show_a_certificate(serve: Serve, pem: Path) -> None:
    context = server_context(pem, auth_path=pem / "cert.pem")
    served = serve(ssl_context=context)
    with_certificate = client_context(pem)
    with_certificate.load_cert_chain(pem / "cert.pem", pem / "key.pem")
    assert connect(served, with_certificate).send(GET).answer()[0] == 200
    assert connect(served, client_context(pem)).send(GET).answer()[0] == 200


def test_clients_must_show_a_certificate_where_it_is_required(serve: Serve, pem: Path) -> None:
    served = serve(ssl_context=server_context(pem, auth_path=pem / "cert.pem", require_auth=True))
    with_certificate = client_context(pem)
    with_certificate.load_cert_chain(pem / "cert.pem", pem / "key.pem")
    assert connect(served, with_certificate).send(GET).answer()[0] == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        # In TLS 1.3 the client learns of it with its first answer.
        connect(served, client_context(pem)).send(GET).sock.recv(1)


@pytest.mark.parametrize(("options", "is_reused"), [
    ({}, False), ({"resumption": True}, True), ({"tickets": True}, True), ({"resumption": True, "tickets": True}, True),
])
def test_sessions_are_resumed_where_allowed(serve: Serve, pem: Path, options: Any, is_reused: bool) -> None:
    served = serve(ssl_context=server_context(pem, **options))
    context = client_context(pem)
    first = connect(served, context)
    assert first.send(GET).answer()[0] == 200
    second = connect(served, context, session=first.sock.session)
    assert second.send(GET).answer()[0] == 200
    assert second.sock.session_reused is is_reused


@pytest.mark.parametrize(("cert", "key", "options", "words"), [
    ("none.pem", "key.pem", {}, "ssl-cert-path .* cannot be read: No such file"),
    ("cert.pem", "none.pem", {}, "ssl-key-path .* cannot be read: No such file"),
    ("key.pem", "key.pem", {}, "not a certificate chain and its unprotected private key"),
    ("cert.pem", "other.pem", {}, "not a certificate chain and its unprotected private key"),
    ("cert.pem", "locked.pem", {}, "not a certificate chain and its unprotected private key"),
    ("cert.pem", "key.pem", {"auth_path": "key.pem"}, "ssl-auth-path .* has no certificates"),
    ("cert.pem", "key.pem", {"require_auth": True}, "ssl-require-auth needs ssl-auth-path"),
])
def test_wrong_files_are_reported(pem: Path, cert: str, key: str, options: dict[str, Any], words: str) -> None:
    if "auth_path" in options:
        options = {"auth_path": pem / options["auth_path"]}
    with pytest.raises(TlsError, match=words):
        tls_context(pem / cert, pem / key, **options)
