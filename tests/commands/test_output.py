"""What commands show: the bar tells how much is done and how long it will take; sizes and durations are for people."""
from __future__ import annotations

import pytest

from svcd.commands import output, search


@pytest.mark.parametrize("count, share, seconds, shown", [
    (0, None, 0.0, "0 films"),
    (1500, None, 3.0, "1,500 films  500/s"),
    (1500, 0.5, 3.0, " 50% ████████████░░░░░░░░░░░░  1,500 films  500/s  0:03 left"),
    (3000, 1.0, 6.0, "100% ████████████████████████  3,000 films  500/s"),
])
def test_the_bar_tells_share_rate_and_time_left(count, share, seconds, shown):
    assert output.Bar("films").text(count, share, seconds) == shown


def test_what_an_earlier_import_did_is_not_part_of_the_rate():
    bar = output.Bar("films")
    bar.skip(1000)
    assert bar.text(1500, None, 5.0) == "1,500 films  100/s"


def test_without_a_terminal_a_line_comes_every_ten_seconds(capsys):
    moments = iter((0.0, 5.0, 10.0, 12.0))
    bar = output.Bar("films", clock=lambda: next(moments))
    for count in (1, 2, 3):
        bar.show(count, None)
    bar.end()
    assert capsys.readouterr().err == "2 films  0/s\n"


@pytest.mark.parametrize("count, shown", [(0, "0 B"), (1023, "1023 B"), (1 << 20, "1.0 MiB"), (3 << 29, "1.5 GiB")])
def test_sizes_are_for_people(count, shown):
    assert output.size(count) == shown


@pytest.mark.parametrize("seconds, shown", [(0, "0:00"), (65, "1:05"), (3661, "1:01:01")])
def test_durations_are_for_people(seconds, shown):
    assert output.duration(seconds) == shown


def test_there_are_no_colours_outside_a_terminal():
    assert output.styled("x", "found") == "x"


@pytest.mark.parametrize("name, shown", [
    ("films", "films"), ("x" * 40, "x" * 40), ("a" * 399 + "b", "a" * 20 + "…" + "a" * 18 + "b"),
])
def test_a_long_name_leaves_a_table_readable(name, shown):
    assert output.shortened(name) == shown and len(shown) <= output.MOST_NAME


def test_status_is_as_wide_as_a_terminal_whatever_the_uids(capsys):
    indexes = {uid: {"documents": 3, "isIndexing": True} for uid in ("films", "x" * 400)}
    search._print_status({"url": "http://localhost:7700", "status": "available", "version": "1", "databaseSize": 1, "progress": None,
                   "tasks": dict.fromkeys(("enqueued", "processing", "failed"), 0), "indexes": indexes})
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("value, formatted, shown", [
    ([1, 2.5, "a"], ["1", "2.5", "a"], "1, 2.5, a"),
    ([1, None, True], ["1", None, True], "[1, null, true]"),
    ([[1, "1"], {"n": 2, "t": "2"}], [["1", "1"], {"n": "2", "t": "2"}], '[[1, "1"], {"n": 2, "t": "2"}]'),
    ({"n": [1984]}, {"n": ["\ue0001984\ue001"]}, '{"n": [1984]}'),
    (1984, "\ue0001984\ue001", "1984"),
    ([], [], ""),
])
def test_numbers_of_hits_are_shown_as_numbers(value, formatted, shown):
    found = {"hits": [{"id": 1, "of": value, "_formatted": {"id": "1", "of": formatted}}], "processingTimeMs": 1}
    assert search.shown(found).splitlines()[1] == f"  of: {shown}"
