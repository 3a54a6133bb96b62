"""What must hold of headers that others name: what passes can be sent, and nothing that could end a header does."""
from __future__ import annotations

import http.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.validation.urls import is_header_name, is_header_value


class Sink(http.client.HTTPConnection):
    """A connection that goes nowhere; what would be sent is in `sent`."""

    def __init__(self) -> None:
        super().__init__("sink.test")
        self.sent = b""

    def send(self, data: bytes) -> None:  # type: ignore[override]
        self.sent += data


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_passes_is_one_header(name: str, value: str) -> None:
    if is_header_name(name) and is_header_value(value):
        sink = Sink()
        sink.request("POST", "/", headers={name: value})
        assert f"{name}: {value}".encode() in sink.sent.split(b"\r\n")


@pytest.mark.parametrize("name", ["", "invalid header name", "a:b", "é", "a\n", "a\r\nb", "(a)", "a\0"])
def test_these_are_no_names(name: str) -> None:
    assert not is_header_name(name)


@pytest.mark.parametrize("value", ["token\nwith\nnewlines", "a\r\nX: y", "é", "\0", "\x7f", "a\n"])
def test_these_are_no_values(value: str) -> None:
    assert not is_header_value(value)


@pytest.mark.parametrize(("name", "value"), [("Authorization", "Bearer a b\tc"), ("x-1_!#$", ""), ("A", " ~")])
def test_these_are_both(name: str, value: str) -> None:
    assert is_header_name(name) and is_header_value(value)
