"""TLS: the server context that the `--ssl-*` options describe, the client context, a non-blocking transport (docs/http.md#tls).

Imported only when TLS is used.
"""
from __future__ import annotations

import socket
import ssl
from os import PathLike

from svcd.http.sockets import READABLE, WRITABLE


class TlsError(Exception):
    """Unusable options: the message says which one and why."""


def tls_context(
    cert_path: str | PathLike[str],
    key_path: str | PathLike[str],
    *,
    auth_path: str | PathLike[str] | None = None,
    require_auth: bool = False,
    resumption: bool = False,
    tickets: bool = False,
) -> ssl.SSLContext:
    """Return a server's context for TLS 1.2 and 1.3. Raises TlsError.

    auth_path: certificate authorities; clients may show a certificate signed by one of them, or must (require_auth).
    resumption: clients may resume sessions that the server keeps; tickets: sessions that they keep (a superset in TLS 1.3).
    With both off the server issues no tickets; Python cannot switch off that clients resume a TLS 1.2 session by its id.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _check_readable("ssl-cert-path", cert_path)
    _check_readable("ssl-key-path", key_path)
    try:
        # Without a password function a protected key would ask for it on the terminal, and wait.
        context.load_cert_chain(cert_path, key_path, password=lambda: "")
    except (ssl.SSLError, ValueError) as broken:
        raise TlsError(f"ssl-cert-path `{cert_path}` and ssl-key-path `{key_path}` are not a certificate chain and "
                       f"its unprotected private key, both in PEM ({_reason(broken)})") from broken
    if auth_path is not None:
        _check_readable("ssl-auth-path", auth_path)
        try:
            context.load_verify_locations(auth_path)
        except ssl.SSLError as broken:
            raise TlsError(f"ssl-auth-path `{auth_path}` has no certificates in PEM ({_reason(broken)})") from broken
        context.verify_mode = ssl.CERT_REQUIRED if require_auth else ssl.CERT_OPTIONAL
    elif require_auth:
        raise TlsError("ssl-require-auth needs ssl-auth-path: the certificate authorities to accept")
    if not tickets:
        context.options |= ssl.OP_NO_TICKET
        # With OP_NO_TICKET, the tickets of TLS 1.3 only name sessions that the server keeps.
        context.num_tickets = 2 if resumption else 0
    return context


def client_context() -> ssl.SSLContext:
    """Return a client's context with the certificate authorities of the system, or of SSL_CERT_FILE.

    From 3.13 on Python refuses certificates without extensions that many private authorities leave out: a remote or an embedder
    that worked on Python 3.11 must not fail after an update of the interpreter.
    """
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _check_readable(option: str, path: str | PathLike[str]) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as broken:
        raise TlsError(f"{option} `{path}` cannot be read: {broken.strerror}") from broken


def _reason(broken: Exception) -> str:
    reason = getattr(broken, "reason", None) or str(broken)
    return str(reason).replace("_", " ").lower()


class TlsTransport:
    """HTTP over TLS. A send may need to read and a receive to write: `blocked_on` says which event to wait for."""

    __slots__ = ("sock", "blocked_on")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        """sock: connected and not blocking; the transport owns it from now on."""
        self.sock = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        self.blocked_on = READABLE

    def handshake(self) -> bool:
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self.blocked_on = READABLE
            return False
        except ssl.SSLWantWriteError:
            self.blocked_on = WRITABLE
            return False
        return True

    def receive(self, max_bytes: int) -> bytes | None:
        try:
            return self.sock.recv(max_bytes)
        except (ssl.SSLWantReadError, BlockingIOError):
            self.blocked_on = READABLE
        except ssl.SSLWantWriteError:
            self.blocked_on = WRITABLE
        return None

    def send(self, view: memoryview) -> int:
        try:
            return self.sock.send(view)
        except (ssl.SSLWantWriteError, BlockingIOError):
            self.blocked_on = WRITABLE
        except ssl.SSLWantReadError:
            self.blocked_on = READABLE
        return 0

    def has_pending(self) -> bool:
        return self.sock.pending() > 0

    def end_output(self) -> None:
        try:
            self.sock.unwrap()  # sends close_notify: the client can tell an end from a cut
        except (OSError, ValueError):
            pass  # at most the close_notify of the client is missing, for which nobody waits
        self.sock.shutdown(socket.SHUT_WR)
