"""TLS from the options. What must hold:

1. A client with the certificate authority connects; versions before TLS 1.2 are rejected.
2. A client certificate is required only with --ssl-require-auth.
3. Sessions are resumed only if the options ask for it.
4. A wrong file is one line that names the option and the file.
"""
from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from svcd.cli.config import ConfigError, load
from svcd.cli.serving import server_context


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem, key.pem and locked.pem (the key with a passphrase)."""
    if not shutil.which("openssl"):
        pytest.skip("the openssl command, which makes the certificate, is not installed")
    made = tmp_path_factory.mktemp("tls")
    request = ("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
               "-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem")
    lock = "openssl ec -in key.pem -aes256 -passout pass:secret -out locked.pem"
    for line in (request, lock):
        subprocess.run(line.split(), cwd=made, check=True, capture_output=True)
    return made


def context(folder: Path, **flags: Any) -> ssl.SSLContext:
    """The context made from these flags, the right certificate and key unless they say otherwise."""
    paths = {"ssl_cert_path": str(folder / "cert.pem"), "ssl_key_path": str(folder / "key.pem")}
    return server_context(load({**paths, **flags}, {}))


def handshake(server: ssl.SSLContext, folder: Path, *, with_certificate: bool = False) -> ssl.SSLObject:
    """One TLS 1.3 handshake in memory; the client's end. Raises SSLError when one side refuses."""
    client = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    if with_certificate:
        client.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(down, up, server_hostname="localhost"), server.wrap_bio(up, down, server_side=True))
    for _ in range(3):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[1].write(b"hello")
    assert ends[0].read(5) == b"hello"
    return ends[0]


def test_a_client_connects(folder: Path) -> None:
    assert handshake(context(folder), folder).version() == "TLSv1.3"


def test_old_versions_are_rejected(folder: Path) -> None:
    assert context(folder).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_required_certificate_is_asked_for(folder: Path) -> None:
    server = context(folder, ssl_auth_path=str(folder / "cert.pem"), ssl_require_auth=True)
    assert handshake(server, folder, with_certificate=True)
    with pytest.raises(ssl.SSLError):
        handshake(server, folder)


def test_a_certificate_may_be_left_out_unless_required(folder: Path) -> None:
    server = context(folder, ssl_auth_path=str(folder / "cert.pem"))
    assert server.verify_mode == ssl.CERT_OPTIONAL
    assert handshake(server, folder)


@pytest.mark.parametrize(("flags", "resumes"), [
    ({}, False), ({"ssl_resumption": True}, True), ({"ssl_tickets": True}, True),
])
def test_a_session_is_offered_only_on_request(flags: dict[str, bool], resumes: bool, folder: Path) -> None:
    session = handshake(context(folder, **flags), folder).session
    assert (session is not None and session.has_ticket) == resumes


@pytest.mark.parametrize(("flags", "words"), [
    ({"ssl_cert_path": "no.pem"}, "ssl-cert-path `no.pem` cannot be read"),
    ({"ssl_key_path": "no.pem"}, "ssl-key-path `no.pem` cannot be read"),
    ({"ssl_auth_path": "no.pem"}, "ssl-auth-path `no.pem` cannot be read"),
    ({"ssl_key_path": "cert.pem"}, "are not a certificate chain and its unprotected private key"),
    ({"ssl_cert_path": "key.pem"}, "are not a certificate chain and its unprotected private key"),
    ({"ssl_key_path": "locked.pem"}, "are not a certificate chain and its unprotected private key"),
    ({"ssl_auth_path": "key.pem"}, "ssl-auth-path `key.pem` has no certificates"),
])
def test_a_wrong_file_is_rejected_with_one_line(
    flags: dict[str, str], words: str, folder: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError) as refused:
        context(folder, **flags)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
