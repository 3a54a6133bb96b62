"""Time-outs and amounts of HTTP connections (docs/http.md#limits-and-time-outs)."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds, amounts in bytes. Sizes of heads and chunks stand beside the rules they belong to."""

    head_s: float = 10.0  # the TLS handshake, or a head from its first byte to its last
    idle_s: float = 75.0  # between requests; browsers and proxies keep a connection for 60 to 120
    body_stall_s: float = 20.0  # without a byte of a body
    body_waits_s: float = 60.0  # all waits for one body together, and a second more for each body_rate bytes
    body_rate: int = 1024
    write_stall_s: float = 30.0  # without taking a byte of an answer
    # All waits for one answer together, and a second more for each answer_rate bytes taken. The snapshot of an index that
    # the answer is read from is kept as long: a client that takes a byte now and then must not keep it for ever.
    answer_waits_s: float = 60.0
    answer_rate: int = 32768
    linger_s: float = 3.0  # for a client that is still sending to read why it was rejected
    linger_bytes: int = 1 << 26
    skip_bytes: int = 1 << 20  # of a body nobody read; where more is to come, the connection is closed instead
    sweep_s: float = 1.0  # how often the server looks for connections past their deadline
    spare_s: float = 10.0  # threads that were idle for so long end
    idle_call_s: float = 20.0  # after work until on_idle is called, and between two calls
