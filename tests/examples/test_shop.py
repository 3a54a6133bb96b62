"""The shop page of examples/shop, in a real browser, with the packages of npm as they are:

1. Its README shows what happens.
2. Words find products as they are typed, also with typos and synonyms; what was found is marked.
3. A brand narrows, and keeps the counts of the others; a price narrows; an order orders; pages turn.
4. It has room on a phone, and scripts run without a complaint.
"""
from __future__ import annotations

import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support import browser as webdriver
from tests.support import shown_commands
from tests.support.browser import Browser
from tests.support.daemon import ROOT, Daemon

SHOP = ROOT / "examples/shop"
NAMES = [product["name"] for product in json.loads((SHOP / "products.json").read_text())]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def products(daemon: Daemon) -> Daemon:
    """A daemon that was filled as the README says."""
    if shutil.which("curl") is None:
        pytest.skip("the commands of the README need curl")
    shown_commands.follow(SHOP / "README.md", daemon.folder, daemon.port)
    return daemon


@pytest.fixture(scope="module")
def shop(products: Daemon, node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, which knows the daemon's."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(SHOP, folder / "shop")
    (folder / "node_modules").symlink_to(node_modules)
    config = folder / "shop/config.js"
    theirs = config.read_text()
    config.write_text(theirs.replace("localhost:7700", f"127.0.0.1:{products.port}"))
    assert config.read_text() != theirs
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/shop/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if not webdriver.is_installed():
        pytest.skip(webdriver.MISSING)
    with webdriver.browser(tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.fixture
def page(shop: str, window: Browser) -> Iterator[Browser]:
    """The page with all products; no script of it may complain."""
    window.open(shop)
    window.until(lambda: window.texts("#stats") == [f"{len(NAMES)} products"])
    yield window
    assert [line for line in window.complaints() if "favicon" not in line] == []


def names(page: Browser) -> list[str]:
    return page.texts("#hits h3")


def type_words(page: Browser, text: str) -> None:
    """Type over what is in the search field: the widget puts back what a driver clears without keys."""
    page.run('const field = document.querySelector("#searchbox input"); field.focus(); field.select()')
    page.press(*text)


def test_the_readme_shows_what_happens(products: Daemon) -> None:
    assert products.get("/indexes/products/stats")["numberOfDocuments"] == len(NAMES)


def test_words_find_products_as_they_are_typed(page: Browser) -> None:
    assert names(page) == NAMES[:9]
    type_words(page, "notebok")
    page.until(lambda: names(page) == ["Pocket Notebook, dotted", "Field Notebook, waterproof"])
    type_words(page, "note")
    page.until(lambda: page.texts("#hits h3 mark") == ["Note", "Note"])
    type_words(page, "rucksack")
    page.until(lambda: names(page) == ["Trail Backpack 30", "City Backpack 18"])
    type_words(page, "zeppelin")
    page.until(lambda: page.texts("#hits") == ["Nothing found for “zeppelin”."])


def test_facets_narrow_and_keep_the_counts_of_the_others(page: Browser) -> None:
    brands = page.texts("#brand .ais-RefinementList-labelText")
    assert sorted(brands) == ["Fleetfoot", "Inkwell", "Nordwand", "Paperbird"]
    page.click('#brand input[value="Inkwell"]')
    page.until(lambda: page.texts("#stats") == ["4 products"])
    assert sorted(page.texts("#category .ais-RefinementList-labelText")) == ["Paper", "Pens"]
    assert sorted(page.texts("#brand .ais-RefinementList-labelText")) == sorted(brands)
    page.click('#brand input[value="Paperbird"]')
    page.until(lambda: page.texts("#stats") == ["9 products"])
    page.click('#category input[value="Pens"]')
    page.until(lambda: sorted(names(page)) == ["Brush Pen Set", "Fountain Pen, fine", "Rollerball Pen"])
    page.click("#clear button")
    page.until(lambda: page.texts("#stats") == [f"{len(NAMES)} products"])


def test_prices_orders_and_pages(page: Browser) -> None:
    page.type("#price .ais-RangeInput-input--min", "150")
    page.click("#price button")
    page.until(lambda: sorted(names(page)) == ["Hiking Boots, mid", "Two-person Tent"])
    page.click("#clear button")
    page.click('#sort option[value="products:price:asc"]')
    page.until(lambda: names(page)[:2] == ["Pocket Notebook, dotted", "Titanium Spork"])
    page.click(".ais-Pagination-item--nextPage a")
    page.until(lambda: names(page)[-1] == "Two-person Tent")


def test_it_has_room_on_a_phone(shop: str, window: Browser) -> None:
    window.open(shop, 390, 844)
    window.until(lambda: names(window))
    assert window.run("return document.documentElement.scrollWidth") <= 390
