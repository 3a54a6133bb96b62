"""Requests and templates that the pages show are sent to a daemon with the example films. What must hold of a block:

1. `http`: paragraphs `METHOD PATH`, headers, body are requests, in their order; one without an answer beneath it succeeds, and
   so does its task. `STATUS REASON` and a body are the answer to the request before it; `...` stands for what differs.
2. `http` after `<!-- svcd sends -->`: what a service got, when the last request was answered.
3. `liquid`: a template that each of the films can be put into.

Services elsewhere are played by this test: of embedders, of a language model, of reranking.
"""
from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from pathlib import Path

import pytest

from svcd.embedding import make_word_vectors
from svcd.vectors.nearest import numpy
from tests.support.chat_source import DONE, SEARCH, Source, c, f, t
from tests.support.daemon import ROOT, Daemon, running
from tests.support.daemon import Reply as Answer
from tests.support.scripted_server import Received, Reply, ScriptedServer
from tests.support.shown_blocks import Block, of_kind
from tests.support.shown_commands import fits
from tests.support.tiny_model import tensors, write_model

FILMS = json.loads((ROOT / "examples/films.json").read_text())
SETTINGS = {"filterableAttributes": ["genres", "year"], "sortableAttributes": ["year"],
            "embedders": {"default": {"source": "ollama", "model": "m"}}}
DIMENSIONS = 512
KEY = "KEY"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class Services(ScriptedServer):
    """Embedders, which find all texts alike, and a service of reranking, which keeps the order."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    @staticmethod
    def _answer(received: Received) -> Reply:
        vector, body = [0.5] * DIMENSIONS, received.body
        match received.path:
            case "/v1/rerank":
                return Reply({"results": [{"index": place} for place in range(len(body["documents"]))]})
            case "/v1/embeddings":
                return Reply({"data": [{"embedding": vector} for _ in body["input"]]})
            case "/api/embed":
                return Reply({"embeddings": [vector for _ in body["input"]]})
            case "/api/embeddings":
                return Reply({"embedding": vector})
        match body:
            case {"texts": texts}:
                return Reply({"vectors": [{"numbers": vector} for _ in texts]})
            case {"input": fragments}:
                return Reply({"output": [vector for _ in fragments]})
        return Reply(vector)


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    made = Services()
    yield made
    made.close()


@pytest.fixture(scope="module")
def model() -> Iterator[Source]:
    """A language model that searches an index which does not exist before it answers."""
    call = json.dumps({"index_uid": "x", "q": "heist", "filter": ""})
    made = Source([[t(0, "c1", SEARCH, call), f("tool_calls"), DONE], [c(content="None."), f("stop"), DONE]] * 2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory, services: Services, bytecode: Mapping[str, str]) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("daemon")
    (folder / "embedders").mkdir()
    (folder / "words.txt").write_text("film 0.1 0.2\nspace 0.3 0.1\n")
    make_word_vectors.main([str(folder / "words.txt"), str(folder / "embedders/glove.vectors")])
    write_model(folder / "embedders" / MODEL, tensors(random.Random(1)))
    variables = {**bytecode, "SVC_OLLAMA_URL": f"{services.url}/api/embeddings", "SVC_EXPERIMENTAL_PERSONALIZATION_API_KEY": KEY,
                 "SVC_EXPERIMENTAL_PERSONALIZATION_URL": f"{services.url}/v1/rerank"}
    with running(folder, "--experimental-allowed-ip-networks", "127.0.0.0/8", variables=variables) as started:
        features = dict.fromkeys(started.get("/experimental-features"), True)
        features["legacySearch"] = False
        assert started.call("PATCH", "/experimental-features", json.dumps(features)).status == 200
        for method, path, body in (("PATCH", "/indexes/films/settings", SETTINGS), ("POST", "/indexes/films/documents", FILMS)):
            succeeded(started, started.call(method, path, json.dumps(body)))
        yield started
        assert started.bugs() == []


def succeeded(daemon: Daemon, answer: Answer) -> Answer:
    """The same answer: its task has ended well, if it has one."""
    assert answer.status < 300, answer.body
    if answer.status == 202:
        task = daemon.done(answer)
        assert task["status"] == "succeeded", task
    return answer


def request_of(paragraph: str) -> tuple[str, str, dict[str, str], str]:
    """Method, path, headers with names in lower case, body."""
    found = re.fullmatch(r"([A-Z]+) (\S+)((?:\n[\w-]+: [^\n]*)*)(?:\n(.*))?", paragraph, re.S)
    assert found, paragraph
    method, path, headers, body = found.groups("")
    return method, path, {name.lower(): value for name, _, value in (line.partition(": ") for line in headers.split("\n")[1:])}, body


class Conversation:
    """The requests of one page, and what comes back."""

    def __init__(self, daemon: Daemon, services: Services, model: Source) -> None:
        self._daemon, self._services = daemon, services
        # What a page names, or leaves out -> what plays it.
        self._played = {
            "https://vectors.example": services.url, "http://127.0.0.1:11434": services.url,
            '{"source": "openAi", "model"': f'{{"source": "openAi", "url": "{services.url}/v1/embeddings", "model"',
            '{"source": "openAi", "apiKey"': f'{{"source": "openAi", "baseUrl": "{model.url}", "apiKey"'}
        if numpy() is None:
            self._played[f'"source": "huggingFace", "model": "{MODEL}"'] = '"source": "staticFile", "model": "glove"'
        self._last: Answer | None = None

    def read(self, block: Block) -> None:
        for paragraph in block.text.strip().split("\n\n"):
            if block.note == "svcd sends":
                self._see_what_was_sent(paragraph)
            elif paragraph[0].isdigit():
                self._compare(paragraph)
            else:
                self.end()
                for shown, here in self._played.items():
                    paragraph = paragraph.replace(shown, here)
                method, path, headers, body = request_of(paragraph)
                self._last = self._daemon.call(method, path, body or None, headers)

    def end(self) -> None:
        """A request without a shown answer must have succeeded."""
        if self._last:
            succeeded(self._daemon, self._last)
            self._last = None

    def _compare(self, shown: str) -> None:
        assert self._last, f"an answer without a request: {shown}"
        answer = f"{self._last.status} {HTTPStatus(self._last.status).phrase}\n{self._last.body.decode()}"
        assert fits(answer, shown), f"the answer is {answer}"
        self._last = None

    def _see_what_was_sent(self, shown: str) -> None:
        method, path, headers, body = request_of(shown)
        got = [each for each in self._services.requests if each.call == f"{method} {path}"][-1]
        assert headers.items() <= got.headers.items()
        sent = json.dumps(got.body, ensure_ascii=False)
        assert fits(sent, body), f"it sends {sent}"


@pytest.mark.parametrize("page", sorted({block.page for block in of_kind("http")}), ids=lambda page: page.name)
def test_requests_are_answered_as_shown(page: Path, daemon: Daemon, services: Services, model: Source) -> None:
    conversation = Conversation(daemon, services, model)
    for block in of_kind("http"):
        if block.page == page:
            conversation.read(block)
    conversation.end()


@pytest.mark.parametrize("block", of_kind("liquid"), ids=str)
def test_films_can_be_put_into_a_template(block: Block, daemon: Daemon) -> None:
    for film in FILMS:
        asked = {"template": {"kind": "inlineDocumentTemplate", "inline": block.text},
                 "input": {"kind": "inlineDocument", "inline": film}}
        assert film["title"] in succeeded(daemon, daemon.post("/render-template", asked)).json["rendered"]

