"""TLS from the options: which of them go where, and where a wrong one was given.

Refuses to know how TLS is done: svcd.http.tls does. Imported only when TLS is on, for ssl takes 15 ms.
"""
from __future__ import annotations

import ssl

from svcd.cli.config import Config, ConfigError
from svcd.http.tls import TlsError, tls_context


def server_context(config: Config) -> ssl.SSLContext:
    """The context that the `--ssl-*` options describe; raises ConfigError for a file that is not what it should be."""
    try:
        return tls_context(
            config.ssl_cert_path, config.ssl_key_path, auth_path=config.ssl_auth_path,
            require_auth=config.ssl_require_auth, resumption=config.ssl_resumption, tickets=config.ssl_tickets,
        )
    except TlsError as wrong:
        raise ConfigError(str(wrong)) from None
