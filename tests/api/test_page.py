"""The page at `/`: for browsers in development, and one file that needs nothing else."""
from __future__ import annotations

import json
import re

import pytest

from svcd.api.instance import _page
from tests.support.daemon import ROOT

RUNNING = {"status": "Svc is running"}
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
MOST_BYTES = 80_000


@pytest.mark.parametrize("shows_page, accept, is_page", [
    (True, BROWSER, True), (True, "*/*", False), (True, "application/json", False), (True, None, False), (False, BROWSER, False),
])
def test_browsers_get_it_in_development_and_all_others_a_sign_of_life(client, shows_page, accept, is_page):
    client.app.services.shows_page = shows_page
    answer = client.get("/", **({} if accept is None else {"accept": accept}))
    assert answer.status == 200
    assert answer.text.startswith("<!doctype html>") if is_page else answer.value == RUNNING


def test_it_is_one_small_file_that_asks_no_other_address():
    text, headers = _page()
    assert len(text.encode()) < MOST_BYTES
    assert not re.findall(r"https?://|//[a-z]+\.|@import|src=", text)
    policy = dict(headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_its_films_are_those_of_the_examples():
    (films,) = re.findall(r'id="examples">(.*?)</script>', _page()[0], re.DOTALL)
    assert json.loads(films) == json.loads((ROOT / "examples/films.json").read_text())
