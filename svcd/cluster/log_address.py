"""Parses the address of a replicated log, which `--cluster` names, and opens the log with the backend of its scheme."""
from __future__ import annotations

from urllib.parse import parse_qsl, unquote

from svcd.cluster.log import Address, Log

# The port of a server whose address names none.
PORTS = {"rqlite": 4001, "nats": 4222}
_OPTIONS = {"rqlite": ("name",), "nats": ("name", "replicas")}
_TLS = "+tls"
_MOST_REPLICAS = 5
_FORM = "it must look like rqlite://HOST:PORT,HOST:PORT,HOST:PORT or nats://HOST:PORT,HOST:PORT,HOST:PORT"


def parsed_address(text: str) -> Address:
    """Parse `SCHEME[+tls]://[USER:PASSWORD@|TOKEN@]HOST[:PORT],...[?name=NAME&replicas=N]`. Raises ValueError.

    USER, PASSWORD and TOKEN may be percent-encoded. An IPv6 host needs brackets.
    """
    scheme, separator, rest = text.partition("://")
    is_tls = scheme.endswith(_TLS)
    scheme = scheme.removesuffix(_TLS)
    if not separator or scheme not in PORTS:
        raise ValueError(_FORM)
    rest, _, query = rest.partition("?")
    credentials, _, hosts = rest.rpartition("@")
    servers = tuple(_server(each, PORTS[scheme]) for each in hosts.rstrip("/").split(","))
    if len(set(servers)) < len(servers):
        raise ValueError("a server is named twice")
    user, colon, password = credentials.partition(":")
    if user and not colon and scheme == "rqlite":
        raise ValueError("rqlite wants USER:PASSWORD before the @")
    options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    for key in options:
        if key not in _OPTIONS[scheme]:
            raise ValueError(f"`{key}` is not an option of {scheme}: {', '.join(_OPTIONS[scheme])}")
    replicas = options.get("replicas")
    if replicas is not None and not (replicas.isascii() and replicas.isdigit() and 1 <= int(replicas) <= _MOST_REPLICAS):
        raise ValueError(f"`replicas` must be a number from 1 to {_MOST_REPLICAS}")
    name = options.get("name", "svcd")
    if not (name.isascii() and name.replace("_", "").isalnum()):
        raise ValueError("`name` must consist of letters, digits and underscores")
    return Address(
        scheme, servers, user=unquote(user) if colon else None, password=unquote(password) if colon else None,
        token=unquote(user) if user and not colon else None, is_tls=is_tls, name=name,
        replicas=int(replicas) if replicas else None)


def open_log(address: str, timeout_s: float) -> Log:
    """Return the log at an address that parsed_address() reads. The log calls the servers at its first use, not here.

    timeout_s: limit of each call; read() may wait wait_s longer.
    Raises ValueError if the address is wrong, or an extra is not installed.
    """
    parsed = parsed_address(address)
    # Imported late: a node needs one backend only, and NATS needs an extra.
    if parsed.scheme == "rqlite":
        from svcd.cluster.rqlite import RqliteLog

        return RqliteLog(parsed, timeout_s)
    try:
        from svcd.cluster.nats import NatsLog
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "nats":
            raise
        raise ValueError("a log in NATS needs an extra: pip install 'svcd[nats]'") from None
    return NatsLog(parsed, timeout_s)


def _server(text: str, port: int) -> tuple[str, int]:
    """Return host and port of a server. Raises ValueError."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, number = rest[:1], rest[1:]
        is_right = bool(bracket) and (not rest or colon == ":")
    else:
        host, colon, number = text.partition(":")
        is_right = True
    if not is_right or not host or any(character in host for character in " /@?#"):
        raise ValueError(_FORM)
    if not colon:
        return host, port
    if not (number.isascii() and number.isdigit() and 0 < int(number) < 1 << 16):
        raise ValueError(f"`{number}` is not a port")
    return host, int(number)
