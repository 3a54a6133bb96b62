"""What must hold of the documentation:

1. Each path and each module that a page names exists, and each link leads somewhere.
2. Nothing in the repository cites a file that it does not have.
3. The examples of CONTRIBUTING.md run: rules, operators and events in a whole search.
4. Each term stands once in the glossary, and each page is reached from the architecture page.
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from svcd.instance.instance import Instance
from tests.api.conftest import Client, client_of
from tests.support.tasks_in_process import instance, work  # noqa: F401 (fixtures)

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md",
                ROOT / "examples/shop/README.md"])
SOURCES = sorted(path for folder in ("svcd", "tests", "docs", "examples", "man", "benchmarks", "distribution")
                 for path in (ROOT / folder).rglob("*")
                 if path.suffix in (".py", ".md", ".1", ".5", ".toml") and "node_modules" not in path.parts)
EXAMPLES = re.findall(r"### (.*?)\n.*?```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)

_PATH = re.compile(r"`((?:svcd/|tests/|docs/|examples/|man/)[\w./-]+)`")
_MODULE = re.compile(r"`([a-z_]+/[a-z_]+\.py)`")
_FILE = re.compile(r"(?<![\w/.])([a-z_]+\.py)\b")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#([^)]*))?\)")
# Pages that came with the work on svcd and are not part of it; our own have other names.
_FOREIGN = re.compile(r"(?<![\w/-])(?:relevance|tasks|dumps|chats|network|DESIGN|STYLE|NAMES|SCALE|measurements)\.md\b"
                      r"|(?<![\w/-])(?:openapi|permissions|options|errors|messages|relevance-[a-z-]+|cases-[a-z-]+)\.json\b")
_OWN = re.compile(r"docs/(?:dumps|chats)\.md|\[?dumps\.md\]?\(dumps\.md|\]\((?:dumps|chats|network)\.md|tests/contract/[\w-]+\.json"
                  r"|/?openapi\.json|docs/guide/relevance\.md|\]\((?:guide/)?relevance\.md")


def named_paths(page: Path) -> Iterator[Path]:
    text = page.read_text()
    yield from (ROOT / path for path in _PATH.findall(text))
    yield from (ROOT / "svcd" / path for path in _MODULE.findall(text) if not path.startswith(("svcd/", "tests/")))


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_paths_exist(page: Path) -> None:
    missing = [str(path.relative_to(ROOT)) for path in named_paths(page)
               if not path.exists() and not path.with_suffix(".py").exists() and "<" not in path.name]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_modules_exist(page: Path) -> None:
    known = {path.name for path in SOURCES} | set(re.findall(r"<!-- file: (.*?) -->", page.read_text()))
    assert [name for name in _FILE.findall(page.read_text()) if name not in known] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_table_of_modules_has_one_row_for_each(page: Path) -> None:
    named = [path for line in page.read_text().splitlines() if line.startswith("| `svcd/")
             for path in re.findall(r"`([\w/]+\.py)`", line.split("|")[1])]
    assert [path for path in named if named.count(path) > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        linked = page.parent / target
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"


def test_sections_that_code_cites_exist() -> None:
    cited = {(path, page, anchor) for path in SOURCES
             for page, anchor in re.findall(r"docs/([\w-]+\.md)(?:#([\w-]+))?", path.read_text())}
    missing = [(str(path.relative_to(ROOT)), page, anchor) for path, page, anchor in cited
               if not (ROOT / "docs" / page).exists() or (anchor and anchor not in anchors(ROOT / "docs" / page))]
    assert missing == []


def test_no_file_is_cited_that_is_not_here() -> None:
    cited = [f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for path in SOURCES if path != Path(__file__).resolve()
             for number, line in enumerate(path.read_text().splitlines(), 1) if _FOREIGN.search(_OWN.sub("", line))]
    assert cited == []


@pytest.fixture
def client(instance: Instance, work: Callable[[], None]) -> Client:
    """Sends requests to an instance with an index `films`."""
    connected = client_of(instance, None, time.time_ns, instance.keys)
    connected.json("POST", "/indexes/films/documents", [{"id": 1, "title": "Star Wars"}, {"id": 2, "title": "Gravity"}])
    work()
    return connected


@pytest.mark.parametrize(("title", "code"), EXAMPLES, ids=[title for title, _ in EXAMPLES])
def test_examples_of_contributing_run(title: str, code: str, client: Client) -> None:
    exec(compile(code, f"CONTRIBUTING.md: {title}", "exec"), {"__name__": "example", "client": client})


def test_there_are_examples_of_what_is_added_most() -> None:
    assert [title for title, _ in EXAMPLES] == [
        "A setting of an index", "A launch option", "A route", "A ranking rule", "A filter operator", "A kind of posting",
        "An event at the end of a search"]


def test_terms_stand_once_in_the_glossary() -> None:
    terms = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.M)[2:]
    assert len(terms) > 40
    assert sorted(set(terms)) == sorted(terms)


def test_every_page_is_reached_from_the_architecture() -> None:
    linked = {target for target, _ in _LINK.findall((ROOT / "docs" / "architecture.md").read_text())}
    assert linked >= {page.name for page in ROOT.glob("docs/*.md")} - {"architecture.md"}
