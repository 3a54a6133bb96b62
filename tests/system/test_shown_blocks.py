"""What must hold of every fenced block of README, docs and examples:

1. Its kind, the word after the fence, is in the table below, and a test runs blocks of that kind. There are no indented blocks.
2. A `text` is drawn: it has nothing that a reader could type.
3. Python runs, and prints what is shown. A grammar has exactly the sentences that the parser takes.
4. Settings of a unit are known to systemd.

Commands run in test_readme.py and tests/distribution/test_shown_setup.py, requests in test_shown_requests.py.
"""
from __future__ import annotations

import doctest
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from svcd.filters.lexer import FilterError
from svcd.filters.parser import parse
from tests.support.grammar import Grammar
from tests.support.shown_blocks import BLOCKS, PAGES, ROOT, Block, of_kind, unfenced
from tests.system import test_docs, test_readme

KINDS = {
    "console": "test_readme.py: `$ command` lines, with what they print",
    "sh": "tests/distribution/test_shown_setup.py: commands that set up, start or install something",
    "http": "test_shown_requests.py: requests, with answers",
    "toml": "test_readme.py, where it is a file of the page",
    "json": "test_readme.py, where it is a file of the page; tests/examples/test_agent_memory.py: configurations of assistants",
    "liquid": "test_shown_requests.py: templates",
    "python": "test_readme.py, where it is a file of the page; test_docs.py, in CONTRIBUTING.md",
    "pycon": "here: Python with what it prints",
    "ebnf": "here: grammars",
    "ini": "here: settings of units",
    "yaml": "tests/examples/test_container.py: services of compose files",
    "text": "nothing: diagrams",
}
# What the grammar leaves to the text of the page.
SAMPLES = {"geo_condition": "_geoRadius(1, 2, 3)", "field_condition": "a = 1", "vector_condition": "_vectors EXISTS",
           "quoted": '"b c"', "word": "d"}


# -- Every block is run


def test_every_kind_is_one_that_a_test_runs() -> None:
    """Who adds a block writes one of the kinds after the fence, or adds a kind with its test."""
    assert [str(block) for block in BLOCKS if block.kind not in KINDS] == []
    assert [kind for kind in KINDS if not of_kind(kind)] == []


def test_no_block_is_indented_instead() -> None:
    assert [(page.name, unfenced(page)) for page in PAGES if unfenced(page)] == []


def test_a_text_is_a_diagram() -> None:
    assert [str(block) for block in of_kind("text") if not block.is_diagram] == []


def test_commands_stand_on_pages_that_are_followed() -> None:
    assert [str(block) for block in of_kind("console")
            if block.page not in test_readme.PAGES and not (ROOT / block.note.partition("shown: run by ")[2]).is_file()] == []


def test_python_is_a_file_of_a_page_or_an_example_of_contributing() -> None:
    run = [code for _, code in test_docs.EXAMPLES]
    assert [str(block) for block in of_kind("python") if block.text not in run
            and not (block.note.startswith("file: ") and block.page in test_readme.PAGES)] == []


def test_toml_and_json_are_files_of_a_page_or_configure_an_assistant() -> None:
    assert [str(block) for kind in ("toml", "json") for block in of_kind(kind)
            if not (block.note.startswith("file: ") and block.page in test_readme.PAGES
                    or block.page == ROOT / "examples/agent_memory/README.md")] == []


# -- Kinds that need no daemon


@pytest.mark.parametrize("page", sorted({block.page for block in of_kind("pycon")}), ids=lambda page: page.name)
def test_python_prints_what_is_shown(page: Path) -> None:
    shown = "\n".join(block.text for block in of_kind("pycon") if block.page == page)
    found = doctest.DocTestParser().get_doctest(shown, {}, page.name, str(page), 0)
    said: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(found, out=said.append)
    assert found.examples and said == [], "".join(said)


@pytest.mark.parametrize("block", of_kind("ebnf"), ids=str)
def test_the_parser_takes_the_sentences_of_the_grammar_and_no_others(block: Block) -> None:
    grammar = Grammar(block.text)
    assert grammar.undefined == set(SAMPLES)
    for start, before, length in (("filter", "", 4), ("list", "a IN ", 6)):
        sentences = grammar.sentences(start, length)
        words = sorted({word for sentence in sentences for word in sentence} | ({"[", "]", ","} & grammar.terminals))
        assert sentences
        for size in range(1, length + 1):
            for sentence in product(words, repeat=size):
                text = before + " ".join(SAMPLES.get(word, word) for word in sentence)
                assert is_filter(text) == (sentence in sentences), text


def is_filter(text: str) -> bool:
    try:
        return parse(text) is not None
    except FilterError:
        return False


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("block", of_kind("ini"), ids=str)
def test_systemd_knows_settings_of_a_unit(block: Block, tmp_path: Path) -> None:
    unit = tmp_path / "svcd.service"
    unit.write_text(f"{(ROOT / 'examples/svcd.service').read_text()}\n{block.text}")
    made = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    faults = [line for line in made.stderr.splitlines() if re.search(r"svcd\.service", line) and "not executable" not in line]
    assert faults == []
