"""nginx and HAProxy with the files of examples/, in front of a port of the loopback."""
from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.daemon import ROOT

EXAMPLES = ROOT / "examples"
START_S = 20.0


def with_replaced(text: str, replaced: Mapping[str, object]) -> str:
    """An example with our ports and paths in place of its own, each of which it must have."""
    for theirs, ours in replaced.items():
        assert theirs in text, f"the example has no {theirs}"
        text = text.replace(theirs, str(ours))
    return text


def nginx(folder: Path, port: int, upstream: int) -> list[str]:
    text = with_replaced((EXAMPLES / "nginx.conf").read_text(), {
        "127.0.0.1:7700": f"127.0.0.1:{upstream}", "listen 443": f"listen 127.0.0.1:{port}",
        "/etc/ssl/search.example.org.pem": folder / "cert.pem", "/etc/ssl/private/search.example.org.key": folder / "key.pem"})
    (folder / "svcd.conf").write_text(text)
    paths = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main = f"""{'user root;' if os.geteuid() == 0 else ''}
daemon off; master_process on; worker_processes 1; pid {folder}/pid; error_log {folder}/log;
events {{}}
http {{
    log_format seen '$request_method $uri';
    access_log {folder}/access seen;
    {paths} include {folder}/svcd.conf;
}}
"""
    (folder / "nginx.conf").write_text(main)
    return ["-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")]


def haproxy(folder: Path, port: int, upstream: int) -> list[str]:
    (folder / "both.pem").write_text((folder / "cert.pem").read_text() + (folder / "key.pem").read_text())
    (folder / "haproxy.cfg").write_text(with_replaced((EXAMPLES / "haproxy.cfg").read_text(), {
        "127.0.0.1:7700": f"127.0.0.1:{upstream}", "bind :443": f"bind 127.0.0.1:{port}",
        "/etc/haproxy/search.example.org.pem": folder / "both.pem",
        # Of two threads that log at the same moment one loses its line (haproxy/haproxy#1861), and the log is what `seen` reads.
        "log stdout format raw local0": "log stdout format raw local0\n    nbthread 1"}))
    return ["-db", "-f", str(folder / "haproxy.cfg")]


PROXIES = {"nginx": nginx, "haproxy": haproxy}


class Proxy:
    """One that runs. port: where it takes TLS."""

    def __init__(self, port: int, folder: Path) -> None:
        self.port = port
        self._folder = folder
        self._context = ssl.create_default_context(cafile=folder / "cert.pem")
        self._context_of_2 = ssl.create_default_context(cafile=folder / "cert.pem")
        self._context_of_2.set_alpn_protocols(["h2"])

    def socket(self, is_http_2: bool = False) -> ssl.SSLSocket:
        """A connection for who writes its bytes alone."""
        sock = socket.create_connection(("127.0.0.1", self.port), 30)
        context = self._context_of_2 if is_http_2 else self._context
        return context.wrap_socket(sock, server_hostname="localhost")

    def seen(self) -> Counter[tuple[str, str]]:
        """How many requests with each method and path it has read, as its log tells."""
        nginx_log, haproxy_log = self._folder / "access", self._folder / "output"
        if nginx_log.exists():
            return Counter(re.findall(r"^(\S+) (\S+)$", nginx_log.read_text(errors="replace"), re.MULTILINE))
        found = re.findall(r' "(\S+) (?:https?://[^/ ]+)?(/[^ ?"]*)', haproxy_log.read_text(errors="replace"))
        return Counter(found)

    def connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, context=self._context, timeout=30)

    def call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of an answer, over a connection of its own."""
        connection = self.connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@contextmanager
def running_proxy(name: str, folder: Path, upstream: int) -> Iterator[Proxy]:
    command = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if command is None or shutil.which("openssl") is None:
        pytest.skip(f"{name} or openssl is not installed: `make examples` does that where it can")
    request = ("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
               "-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem")
    subprocess.run(request.split(), cwd=folder, check=True, capture_output=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen([command, *PROXIES[name](folder, port, upstream)], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, (folder / "output").read_text()
                time.sleep(0.02)
        yield Proxy(port, folder)
    finally:
        process.terminate()
        process.wait(START_S)
