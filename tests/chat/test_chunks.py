"""1. The data of an event are its data lines, joined; an empty line ends it, and nothing but that.
2. Line ends are those of any system; where bytes are cut does not matter.
"""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chat.chunks import MOST_EVENT, EventReader, EventTooLong

STREAM = "\ufeff: hello\n\nevent: x\nid: 1\ndata: one\n\ndata:two\ndata\ndata:  three\nretry: 1\n\ndatum: no\n\ndata: é\n\ndata: lost\n"
EVENTS = ["one", "two\n\n three", "é"]


def read(*pieces: bytes) -> list[str]:
    reader = EventReader()
    return [text for piece in pieces for text in reader.feed(piece)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_events_are_read(end: str) -> None:
    assert read(STREAM.replace("\n", end).encode()) == EVENTS


@given(st.sampled_from(["\n", "\r\n", "\r"]), st.lists(st.integers(0, 140)))
def test_pieces_do_not_matter(end: str, cuts: list[int]) -> None:
    raw = STREAM.replace("\n", end).encode()
    places = [0, *sorted(cuts), len(raw)]
    assert read(*(raw[begin:stop] for begin, stop in zip(places, places[1:]))) == EVENTS


def test_an_event_comes_with_its_last_byte() -> None:
    reader = EventReader()
    assert list(reader.feed(b"data: a\r")) == [] and list(reader.feed(b"\r")) == ["a"]


def test_other_encodings_are_refused() -> None:
    with pytest.raises(UnicodeDecodeError):
        read(b"data: \xff\n\n")


def test_an_event_without_an_end_is_given_up() -> None:
    """A service that sends no line end would fill the memory."""
    reader = EventReader()
    with pytest.raises(EventTooLong):
        for _ in range(2 * MOST_EVENT // (1 << 20)):
            list(reader.feed(b"x" * (1 << 20)))
    reader = EventReader()
    with pytest.raises(EventTooLong):
        for _ in range(2 * MOST_EVENT // (1 << 20)):
            list(reader.feed(b"data: " + b"x" * (1 << 20) + b"\n"))
