"""The page at `/`, in a real browser, as somebody meets it who has just started the daemon:

1. An empty instance says what to do, and example films are there after one click.
2. Words find films as they are typed; typos and synonyms show on the words; a hit says why it is here.
3. Facets narrow and widen, each keeping the counts of its own values; hits can be ordered.
4. A file becomes documents, with its progress; tasks show how they ended.
5. Text of documents stays text.
6. A key is asked for where one is needed.
7. All can be done without a mouse, and on a phone nothing has to be scrolled sideways.
8. Scripts run without a complaint, and the policy of the page forbids all but its own.
9. With a query log, searches are counted and drawn.
"""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import browser as webdriver
from tests.support.browser import DOWN, ENTER, Browser
from tests.support.daemon import ROOT, Daemon, running

pytestmark = pytest.mark.skipif(not webdriver.is_installed(), reason=webdriver.MISSING)

FILMS = json.loads((ROOT / "examples/films.json").read_text())
MASTER_KEY = "a-master-key-of-some-length"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with webdriver.browser(tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the films, which no test changes."""
    with running(tmp_path_factory.mktemp("films")) as daemon:
        add_films(daemon, FILMS)
        yield daemon


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with a film of words that no line has room for."""
    with running(tmp_path_factory.mktemp("long")) as daemon:
        add_films(daemon, [*FILMS, {"id": 99, "title": "x" * 200, "overview": "y" * 4000, "genres": ["z" * 200]}])
        yield daemon


def add_films(daemon: Daemon, documents: object) -> None:
    daemon.call("PATCH", "/indexes/films/settings", json.dumps({
        "filterableAttributes": ["genres", "director", "year"], "sortableAttributes": ["year"],
        "synonyms": {"robot": ["machine"]},
    }))
    daemon.post("/indexes/films/documents", documents)
    daemon.drain()


def opened(window: Browser, daemon: Daemon, *size: object) -> None:
    window.open(f"http://127.0.0.1:{daemon.port}/", *size)  # type: ignore[arg-type]


def titles(window: Browser) -> list[str]:
    return window.texts(".hit h2")


def facet(name: str, value: str) -> str:
    return f'input[data-facet="{name}"][data-value="{value}"]'


def test_an_empty_instance_says_what_to_do_and_has_films_after_one_click(window: Browser, daemon: Daemon) -> None:
    opened(window, daemon)
    window.until(lambda: window.texts("#empty h2") == ["Nothing to search yet"])
    window.click("#empty button.main")
    window.until(lambda: len(titles(window)) == len(FILMS))
    assert daemon.get("/indexes/films/documents?limit=100")["results"] == FILMS
    assert not window.complaints()


def test_words_find_films_as_they_are_typed_and_hits_say_why(window: Browser, films: Daemon) -> None:
    opened(window, films)
    window.type("#query", "bladd runner")
    window.until(lambda: titles(window) == ["Blade Runner"])
    assert window.texts("h2 mark.typo") == ["Blade"] and "Runner" in window.texts("h2 mark:not(.typo)")
    window.click(".hit summary")
    reasons = window.until(lambda: window.texts(".why li"))
    assert reasons[0] == "2 of 2 words found" and reasons[1].startswith("1 typo")
    assert len(window.texts(".why .bar")) == len(reasons)
    window.type("#query", "robot")
    window.until(lambda: titles(window) == ["Metropolis"])
    assert window.texts(".hit mark.synonym") == ["machine"]
    window.type("#query", "xyzzy")
    window.until(lambda: window.texts("li.empty"))
    assert not window.complaints()


def test_facets_narrow_and_widen_and_hits_are_ordered(window: Browser, films: Daemon) -> None:
    opened(window, films)
    window.until(lambda: window.texts("aside label"))
    window.click(facet("genres", "Comedy"))
    window.until(lambda: len(titles(window)) == 3)
    window.click(facet("genres", "Fantasy"))
    window.until(lambda: len(titles(window)) == 5)
    assert any("Science fiction" in label for label in window.texts("aside label"))
    window.run("const order = document.getElementById('sort'); order.value = 'year:desc'; order.dispatchEvent(new Event('change'))")
    window.until(lambda: titles(window)[0] in ("Amélie", "Spirited Away"))
    for _ in range(2):
        left = len(window.texts("#chips button"))
        window.click("#chips button")
        window.until(lambda: len(window.texts("#chips button")) == left - 1)
    window.type('input[data-facet="year"][data-end="0"]', "2001" + ENTER)
    window.until(lambda: sorted(titles(window)) == ["Amélie", "Spirited Away"])
    assert not window.complaints()


def test_a_file_becomes_documents_and_its_task_is_shown(window: Browser, daemon: Daemon, tmp_path: Path) -> None:
    add_films(daemon, FILMS)
    books = tmp_path / "my books.csv"
    books.write_text("id,title\n1,Emma\n2,Persuasion\n")
    opened(window, daemon)
    window.until(lambda: titles(window))
    window.click("#add")
    window.attach("#upload-file", books)
    window.type("#upload-index", "books")
    window.click("#upload-form [type=submit]")
    window.until(lambda: titles(window) == ["Emma", "Persuasion"])
    window.until(lambda: not window.texts("#upload"))
    window.click("#tasks-open")
    window.until(lambda: any("documentAdditionOrUpdate" in task and "succeeded" in task for task in window.texts(".task")))
    window.click("#tasks [data-close]")
    broken = tmp_path / "broken.json"
    broken.write_text("[{]")
    window.click("#add")
    window.attach("#upload-file", broken)
    window.click("#upload-form [type=submit]")
    window.until(lambda: any("malformed" in text for text in window.texts("#upload-words")))


def test_searches_of_the_query_log_are_counted_and_drawn(window: Browser, tmp_path: Path) -> None:
    with running(tmp_path, "--query-log", "10 MiB") as daemon:
        add_films(daemon, FILMS)
        for person in range(3):
            for q in ("space opera", "star wars"):
                daemon.call("POST", "/indexes/films/search", json.dumps({"q": q, "matchingStrategy": "all"}),
                            {"x-ms-user-id": str(person)})
        window.complaints()  # those of the test before
        opened(window, daemon)
        window.click("#searches-open")
        window.until(lambda: any("star wars" in text for text in window.texts("#searches-body li")))
        assert window.texts("#searches-body h3") == ["Frequent", "Without hits", "Suggestions"]
        assert any("space opera \u2192 star wars" in text for text in window.texts("#searches-body li"))
        assert len(window.texts("#chart rect")) == 2 * 48
        assert not window.complaints()


def test_a_dropped_file_asks_where_to_put_it(window: Browser, daemon: Daemon) -> None:
    daemon.post("/indexes/films/documents", FILMS)
    daemon.drain()
    opened(window, daemon)
    window.until(lambda: titles(window))
    window.run("""
        const files = new DataTransfer();
        files.items.add(new File(['{"id": 9, "title": "Dropped"}'], 'new.json'));
        dispatchEvent(new DragEvent('drop', {dataTransfer: files, cancelable: true}));
    """)
    window.until(lambda: window.texts("#upload h2"))
    window.click("#upload-form [type=submit]")
    window.until(lambda: "Dropped" in titles(window))


def test_text_of_documents_stays_text(window: Browser, daemon: Daemon) -> None:
    hostile = {"id": 1, "title": "<img src=x onerror=alert(1)>", "<b>": "\ue000<script>alert(1)</script>\ue001", "n": {"a": None}}
    daemon.post("/indexes/hostile/documents", [hostile])
    daemon.drain()
    opened(window, daemon)
    window.until(lambda: titles(window) == [hostile["title"]])
    assert window.run("return document.querySelectorAll('.hit img, .hit script, .hit b').length") == 0


def test_a_key_is_asked_for_where_one_is_needed(window: Browser, tmp_path: Path) -> None:
    with running(tmp_path, "--master-key", MASTER_KEY) as daemon:
        key = {"authorization": f"Bearer {MASTER_KEY}"}
        daemon.call("POST", "/indexes/films/documents", json.dumps(FILMS), key)
        window.until(lambda: daemon.call("GET", "/tasks/0", headers=key).json["status"] == "succeeded")
        opened(window, daemon)
        window.until(lambda: window.texts("#key h2"))
        window.type("#key-value", MASTER_KEY)
        window.click("#key-form [type=submit]")
        window.until(lambda: len(titles(window)) == len(FILMS))


def test_it_works_without_a_mouse(window: Browser, films: Daemon) -> None:
    opened(window, films)
    window.until(lambda: titles(window))
    window.press("s", "t", "a", "r")
    window.until(lambda: len(titles(window)) == 4)
    window.press(DOWN, DOWN, ENTER)
    window.until(lambda: window.texts("#hits li:nth-child(2) .why li"))
    window.press("/", "s", "e", "v", "e", "n")
    window.until(lambda: titles(window) == ["Seven Samurai"])


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_has_to_be_scrolled_sideways(window: Browser, long_texts: Daemon, width: int, scheme: str) -> None:
    opened(window, long_texts, width, 844, scheme)
    window.type("#query", "x" * 10)
    window.until(lambda: len(titles(window)) == 1)
    assert window.run("return document.documentElement.scrollWidth") <= width
    if width < 760:
        window.click("#facets-toggle")
    window.until(lambda: window.texts("aside label"))
    assert window.run("return document.documentElement.scrollWidth") <= width
    ground = window.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(246, 246, 243)", "dark": "rgb(21, 25, 27)"}[scheme]
    assert window.run("return document.elementFromPoint(arguments[0] / 2, 60) !== null", width)


def test_the_policy_forbids_other_scripts_and_addresses(window: Browser, films: Daemon) -> None:
    opened(window, films)
    window.until(lambda: titles(window))
    window.run("""
        const script = document.createElement('script');
        script.textContent = 'document.title = "hacked"';
        document.body.append(script);
        new Image().src = 'http://127.0.0.1:9/x.png';
    """)
    assert window.run("return document.title") == "Svc: search and tasks"
    window.until(lambda: sum("Content Security Policy" in said for said in window.complaints()) >= 1)
