"""What must hold of every reader of what others write: it raises what it declares, and nothing else.

TARGETS has them with what they are given: texts made of the pieces of their language, valid inputs with something replaced, and noise.
Those that a request reaches are tried through the whole application, where an undeclared exception is a 500. Readers of bytes also
give the same when the bytes are cut otherwise. Each input is read within MOST_S. SVCD_FAULTS_SEED chooses other inputs.
"""
from __future__ import annotations

import copy
import csv
import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import brotli
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from svcd.api.openapi import operation_id
from svcd.auth.tokens import claims_of
from svcd.base import docids, json_text, plain_bitmaps, roaring_format
from svcd.base.errors import ApiError
from svcd.base.json_scanner import JsonError
from svcd.filters.lexer import FilterError
from svcd.filters.parser import parse as parse_filter
from svcd.http.framing import ChunkedBody, head_end, read_head
from svcd.http.message import Body, HttpError
from svcd.instance.instance import Instance
from svcd.rhai import FunctionError, NotAnObject, Program
from svcd.tasks import dump_lines
from svcd.tasks.archive_import import import_dump
from svcd.tasks.global_tasks import Folders
from svcd.tasks.runner import Runner
from svcd.tasks.unpacking import ArchiveRefused, Malformed
from svcd.templates import TemplateError
from svcd.templates.template import JsonTemplate, Template
from svcd.validation.names import FEATURES
from tests.api.conftest import JSON_TYPE, Client, client_of
from tests.faults.conftest import IS_LONG
from tests.support.bearers import MASTER_KEY, signed
from tests.support.daemon import ROOT
from tests.support.malformed_requests import BROKEN_CHUNKS, GET, POST, REFUSED_HEADS
from tests.support.random_filters import expression
from tests.support.rhai_words import texts_of_words
from tests.support.tasks_in_process import LocalWriter

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("SVCD_FAULTS_SEED", "1"))
# The values that parsers stumble over.
ODD_TEXTS = st.sampled_from(["", "*", "_geo", "_vectors", "a.b.c", "é", "日本", "\0", "\ud7ff", "\U0010ffff", "x" * 600, "-1", "1e400", "9" * 100,
                             "2024-01-01", "null", "id", "title", "{{ doc }}", "(", "[", '"']) | st.text(max_size=8)
ODD_NUMBERS = st.sampled_from([0, -1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, -2**63 - 1, 10**30, 0.1, -0.0, 1e308, 5e-324]) | st.integers() \
    | st.floats(allow_nan=False, allow_infinity=False)
ODD_VALUES = st.recursive(st.none() | st.booleans() | ODD_NUMBERS | ODD_TEXTS, lambda inner: st.lists(inner, max_size=4)
                          | st.dictionaries(ODD_TEXTS, inner, max_size=4), max_leaves=8)


def of_pieces(pieces: list[str], most: int = 14) -> st.SearchStrategy[str]:
    """Texts of these pieces, with and without spaces, and some with anything else in between."""
    some = st.sampled_from(pieces) | st.text(max_size=3)
    return st.lists(some, max_size=most).flatmap(lambda parts: st.sampled_from([" ".join(parts), "".join(parts)]))


def with_replaced(value: Any, data: st.DataObject) -> Any:
    """A JSON value with one of its parts replaced, doubled or taken out."""
    root = [copy.deepcopy(value)]
    at: Any = root
    key: Any = 0
    while isinstance(at[key], (dict, list)) and at[key] and data.draw(st.integers(0, 3)):
        at, key = at[key], data.draw(st.sampled_from(sorted(at[key], key=str) if isinstance(at[key], dict) else range(len(at[key]))))
    if data.draw(st.booleans()) or at is root:
        at[key] = data.draw(ODD_VALUES)
    elif isinstance(at, dict):
        at[data.draw(ODD_TEXTS)] = at.pop(key)
    else:
        at.insert(key, at[key]) if data.draw(st.booleans()) else at.pop(key)
    return root[0]


def damaged(valid: bytes, data: st.DataObject) -> bytes:
    """Bytes with some of them changed, cut, doubled or put in."""
    at = data.draw(st.integers(0, len(valid)))
    size = data.draw(st.integers(0, 8))
    return valid[:at] + data.draw(st.binary(max_size=8) | st.just(valid[at:at + size] * 2)) + valid[at + size:]


# -- Through the application


class Application:
    """An App over an index with everything on, and what it logs."""

    FILMS = [{"id": n, "title": f"Film {n} é 日本", "year": 1990 + n, "genres": ["a", "b"], "_geo": {"lat": n, "lng": n}, "cast": {"x": [n]},
              "_vectors": {"e": [float(n), 1.0]}} for n in range(5)]
    SETTINGS = {"filterableAttributes": ["title", "year", "genres", "_geo", "cast", {"attributePatterns": ["x*"]}], "sortableAttributes": ["year", "title", "_geo"],
                "embedders": {"e": {"source": "userProvided", "dimensions": 2}}, "synonyms": {"film": ["movie"]}, "chat": {"description": "x"}}

    def __init__(self, folder: Path) -> None:
        self.instance = Instance(folder / "data")
        self.folder = folder
        for feature in FEATURES:
            self.instance.force_feature(feature)
        self._bugs: list[str] = []
        self._runner = Runner(self.instance, make_writer=lambda _: LocalWriter(), folders=Folders(folder / "dumps", folder / "snapshots"),
                              on_bug=lambda text: self._bugs.append(f"{text}\n{traceback.format_exc()}"), retry_s=0.0)
        self.client: Client = client_of(self.instance, None, lambda: 1, self.instance.keys)
        self.ask("PATCH", "/indexes/films/settings", self.SETTINGS)
        self.ask("POST", "/indexes/films/documents", self.FILMS)
        self.ask("POST", "/indexes/films/documents", [{"no": "id"}])
        self.ask("DELETE", "/indexes/films/documents/4")
        self.ask("POST", "/webhooks", {"url": "https://example.com", "headers": {"A": "b"}})
        self.work()

    def ask(self, method: str, url: str, value: Any = None) -> None:
        """It answers, and not with a 500."""
        self.send(method, url, json.dumps(value).encode(), JSON_TYPE)

    def send(self, method: str, url: str, content: bytes, headers: dict[str, str]) -> None:
        """As ask(), with bytes."""
        got = self.client.send(method, url, content, headers)
        assert got.status < 500, (method, url, content[:500], got.text)

    def work(self) -> None:
        """Run what is enqueued: no task fails with a bug."""
        while not self._bugs and self._runner.step():
            pass
        if self._bugs:
            bug, self._bugs[:] = self._bugs[0], []
            self.ask("POST", "/tasks/cancel?statuses=enqueued")  # it would be tried for ever
            self._runner.step()
            pytest.fail(bug)

    @cached_property
    def dump(self) -> dict[str, bytes]:
        """The entries of a dump of it: other inputs have made some already."""
        self.work()
        before = {*self.folder.glob("dumps/*")}
        self.ask("POST", "/dumps")
        self.work()
        (path,) = {*self.folder.glob("dumps/*")} - before
        with tarfile.open(path) as tar:
            return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    made = Application(tmp_path_factory.mktemp("fuzzing"))
    yield made
    made.instance.close()


FILTER_PIECES = [*"()[],'\"\\=<>!", ">=", "!=", "AND", "OR", "NOT", "IN", "TO", "EXISTS", "IS NULL", "IS EMPTY", "STARTS WITH", "CONTAINS", "title", "year", "genres",
                 "cast.x", "_geoRadius(1, 2, 3)", "_geoBoundingBox([1,2],[3,4])", "_geoPolygon([0,0],[1,1],[2,0])", "_foreign(", "_vectors.e", ".regenerate",
                 "-2.5e", "1", "1e999", "\\u12", "'a b'", "\u00a0", "日本", "\0"]
QUERY_PIECES = ["film", "fi", '"', "-", "*", "日本", "ไทย", "שלום", "é", "e\u0301", "-film", '"film 1"', "\u200b", "\0", "a" * 300, "1.5", "c++", "🎬", "ﬃ", "ß", "'"]
SORT_PIECES = ["year", ":", "asc", "desc", "title:asc", "_geoPoint", "_geoPoint(1,2):asc", "(", ")", ",", "1e999", "-91", "_geo:asc", "_vectors"]


def search(application: Application, data: st.DataObject) -> None:
    body = data.draw(st.fixed_dictionaries({}, optional={
        "q": of_pieces(QUERY_PIECES), "filter": of_pieces(FILTER_PIECES) | st.lists(of_pieces(FILTER_PIECES, 5) | ODD_VALUES, max_size=3) | ODD_VALUES,
        "sort": st.lists(of_pieces(SORT_PIECES, 4), max_size=3) | ODD_VALUES, "facets": st.just(["*"]) | ODD_VALUES, "distinct": st.just("year") | ODD_TEXTS,
        "attributesToHighlight": st.just(["*"]) | ODD_VALUES, "attributesToCrop": st.just(["*"]) | st.lists(ODD_TEXTS, max_size=3),
        "showRankingScoreDetails": st.booleans(), "matchingStrategy": st.sampled_from(["all", "last", "frequency", "x"]),
        "hybrid": st.just({"embedder": "e", "semanticRatio": 0.5}) | ODD_VALUES, "vector": st.lists(ODD_NUMBERS, max_size=3), "limit": ODD_NUMBERS,
        "offset": ODD_NUMBERS, "page": ODD_NUMBERS, "cropLength": ODD_NUMBERS, "locales": st.just(["jpn"]) | ODD_VALUES, "rankingScoreThreshold": ODD_NUMBERS}))
    application.ask("POST", "/indexes/films/search", body)


def upload(application: Application, data: st.DataObject) -> None:
    documents = with_replaced(Application.FILMS, data)
    kind = data.draw(st.sampled_from(["application/json", "application/x-ndjson", "text/csv"]))
    content = json.dumps(documents).encode()
    if kind == "application/x-ndjson" and isinstance(documents, list):
        content = "\n".join(map(json.dumps, documents)).encode()
    elif kind == "text/csv":
        text = io.StringIO()
        csv.writer(text).writerows([["id", "title:string", "year:number", "a:boolean"], *data.draw(st.lists(st.lists(ODD_TEXTS, max_size=5), max_size=4))])
        content = text.getvalue().encode("utf-8", "surrogatepass")
    if data.draw(st.booleans()):
        content = damaged(content, data)
    query = data.draw(st.sampled_from(["", "?primaryKey=id", "?primaryKey=", "?csvDelimiter=;", "?csvDelimiter=%22", "?csvDelimiter=é"]))
    application.send("POST", f"/indexes/uploads/documents{query}", content, {"content-type": kind})
    application.work()


def settings_of(application: Application, data: st.DataObject) -> None:
    every = {**Application.SETTINGS, "typoTolerance": {"minWordSizeForTypos": {"oneTypo": 5}}, "pagination": {"maxTotalHits": 9}, "stopWords": ["the"],
             "rankingRules": ["words", "year:asc"], "localizedAttributes": [{"attributePatterns": ["t*"], "locales": ["jpn"]}], "faceting": {"sortFacetValuesBy": {"*": "count"}}}
    application.ask("PATCH", "/indexes/settled/settings", with_replaced(every, data))
    application.work()


def edit(application: Application, data: st.DataObject) -> None:
    application.ask("POST", "/indexes/films/documents/edit", with_replaced(
        {"function": data.draw(texts_of_words), "context": {"a": [1]}, "filter": "year > 1990"}, data))


def members(application: Application, data: st.DataObject) -> None:
    """Bodies and query strings of any route, of the members that it declares."""
    row = data.draw(st.sampled_from(_routes()))
    path = row.path
    for name in row.parameters:
        path = path.replace(f"{{{name}}}", data.draw(st.sampled_from(["0", "films", "none", "%00", "%E9", "*", "a" * 600])))
    declared = sorted(getattr(row.body, "fields", {}))
    names = st.sampled_from([*declared, "doggo"])
    query = "&".join(f"{name}={data.draw(st.sampled_from(['', '*', '-1', '1', '9' * 40, 'true', '%00', '%FF', 'a,b', '2024-01-01', '[]']))}"
                     for name in data.draw(st.lists(st.sampled_from([*row.query, "doggo"]), max_size=3)))
    body = data.draw(st.dictionaries(names, ODD_VALUES, max_size=4) | ODD_VALUES)
    application.ask(row.method, f"{path}?{query}", body)


@cache
def _routes() -> list[Any]:
    """Those that end at once, and neither stop the log nor call another host."""
    from svcd.api.all_routes import ROUTES

    return [row for row in ROUTES if not row.path.endswith(("/stream", "/completions")) and operation_id(row) not in {
        "post_logs_stderr", "patch_experimental_features", "post_export"}]


# -- Alone


def filter_text(_: Application, data: st.DataObject) -> None:
    text = data.draw(of_pieces(FILTER_PIECES, 30) | st.integers(0, 10**6).map(lambda number: expression(random.Random(number))[0]))
    try:
        parse_filter(text)
    except FilterError as error:
        assert 0 <= error.place.start <= error.place.end <= len(error.place.source)


def head(_: Application, data: st.DataObject) -> None:
    valid = data.draw(st.sampled_from([*(raw for raw in REFUSED_HEADS if len(raw) < 1000), GET + b"\r\n", POST + b"Content-Length: 5\r\n\r\n"]))
    raw = damaged(valid, data)
    try:
        if (end := head_end(raw)) >= 0:
            read_head(raw[:end])
    except HttpError as error:
        assert error.status in {400, 414, 431, 501, 505}


class Tape:
    """A wire that gives its bytes in pieces of one size."""

    def __init__(self, content: bytes, piece: int) -> None:
        self._rest, self._piece = content, piece

    def take(self, max_bytes: int) -> bytes:
        if not self._rest:
            raise HttpError(400, "cut off")
        size = min(max_bytes, self._piece)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def take_line(self, max_bytes: int) -> bytes:
        end = self._rest.find(b"\n", 0, max_bytes) + 1 or max_bytes
        if len(self._rest) < end:
            raise HttpError(400, "cut off")
        taken, self._rest = self._rest[:end], self._rest[end:]
        return taken


def chunks(_: Application, data: st.DataObject) -> None:
    valid = data.draw(st.sampled_from([b"3\r\nabc\r\n0\r\n\r\n", b"1;x=y\r\na\r\n10\r\n" + b"b" * 16 + b"\r\n0\r\nX: y\r\n\r\n",
                                       *(wire for wire in BROKEN_CHUNKS if len(wire) < 1000)]))
    raw, found = damaged(valid, data), []
    for piece in (1, 3, 1 << 20):
        try:
            found.append(b"".join(ChunkedBody(Tape(raw, piece))))
        except HttpError as error:
            found.append(error.status)
    assert found == found[:1] * 3


class _Wire:
    length = None

    def __init__(self, content: bytes, piece: int) -> None:
        self._content, self._piece = content, piece

    def __iter__(self) -> Iterator[bytes]:
        return (self._content[at:at + self._piece] for at in range(0, len(self._content), self._piece))


def codings(_: Application, data: st.DataObject) -> None:
    packers: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}
    name = data.draw(st.sampled_from(sorted(packers)))
    raw = damaged(packers[name](data.draw(st.binary(max_size=300))), data)
    found = []
    for piece in (1, 1 << 20):
        try:
            found.append(Body(_Wire(raw, piece), name, 100_000).read())
        except ApiError as error:
            found.append(error.code)
    assert found == found[:1] * 2


def json_bytes(_: Application, data: st.DataObject) -> None:
    raw = damaged(json.dumps(data.draw(ODD_VALUES), ensure_ascii=data.draw(st.booleans())).encode("utf-8", "surrogatepass"), data)
    try:
        value = json_text.loads(raw)
    except JsonError:
        return
    assert json_text.loads(json_text.dumps(value)) == value


def claims(_: Application, data: st.DataObject) -> None:
    payload = with_replaced({"searchRules": {"films": {"filter": "a = 1"}}, "apiKeyUid": "00000001-0000-4000-8000-000000000000", "exp": 5, "nbf": 1}, data)
    token = signed(json.dumps(payload).encode(), MASTER_KEY * 4)
    if data.draw(st.booleans()):
        token = damaged(token.encode(), data).decode("latin-1")
    try:
        claims_of(token, lambda uid: MASTER_KEY * 4, 3)
    except ApiError as error:
        assert error.code == "invalid_api_key"


def rhai(_: Application, data: st.DataObject) -> None:
    text = data.draw(texts_of_words | st.text(st.characters(max_codepoint=0x3000), max_size=20))
    try:
        Program(text).edited({"id": 1, "title": "a", "list": [3, 1], "o": {"b": None}, "n": 2.5}, {"a": [1]})
    except (FunctionError, NotAnObject):
        pass


LIQUID = ["{{", "}}", "{%", "%}", "{{-", "-%}", "doc", "doc.title", "fields", "field.value", ".size", "[0]", "['a']", "|", "upcase", "split: ','", "slice: -1, 2", "date: '%Y'",
          "truncate: 9999999999", "times: 1e300", "divided_by: 0", "default:", "sort", "map: 'a'", "join", "if", "elsif", "else", "endif", "unless", "for x in doc.tags",
          "endfor", "reversed", "limit: -1", "offset: continue", "(1..99999999)", "assign a = doc", "capture a", "endcapture", "raw", "endraw", "comment", "endcomment",
          "case doc", "when 1", "endcase", "cycle 'a'", "tablerow x in doc", "increment a", "==", "contains", "and", "nil", "blank", "'", '"', "1.5", "-", "\0", "日"]


def liquid(_: Application, data: st.DataObject) -> None:
    text = data.draw(of_pieces(LIQUID, 20))
    document = data.draw(st.dictionaries(st.sampled_from(["title", "tags", "a"]), ODD_VALUES))
    template = data.draw(st.sampled_from([text, f"{{{{ {text} }}}}", f"{{% {text} %}}"]))
    try:
        Template.parse(template).render({"doc": document, "fields": []})
    except TemplateError as error:
        assert error.message.startswith("liquid: ")
    try:
        JsonTemplate.parse(with_replaced({"a": [template, {"b": "{{ doc.title }}"}]}, data)).render({"doc": document})
    except TemplateError:
        pass


def bitmaps(_: Application, data: st.DataObject) -> None:
    numbers = data.draw(st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 70_000), max_size=60)) | set(data.draw(st.sampled_from([range(0), range(65000, 66000), range(0, 20000, 2)])))
    stored = docids.to_bytes(docids.DocIds(sorted(numbers)))
    assert set(docids.from_bytes(stored)) == numbers
    assert set(dump_lines.unpack_bitmap(dump_lines.pack_bitmap(sorted(numbers)))) == numbers
    raw = damaged(data.draw(st.sampled_from([stored, dump_lines.pack_bitmap(sorted(numbers))])), data)
    for read, declared in ((docids.from_bytes, ValueError), (plain_bitmaps.with_size, ValueError), (dump_lines.unpack_bitmap, Malformed), (roaring_format.read, ValueError)):
        try:
            read(raw)  # type: ignore[operator]
        except declared:
            pass


def dump(application: Application, data: st.DataObject) -> None:
    entries = dict(application.dump)
    name = data.draw(st.sampled_from(sorted(entries)))
    text = entries[name]
    lines = text.splitlines() or [b""]
    at = data.draw(st.integers(0, len(lines) - 1))
    kind = data.draw(st.integers(0, 4))
    if kind == 0:
        entries[name] = damaged(text, data)
    elif kind == 1:
        del entries[name]
    elif kind == 2:
        entries[data.draw(ODD_TEXTS.map(lambda text: f"indexes/{text}/settings.json"))] = text
    else:
        try:
            lines[at] = json.dumps(with_replaced(json.loads(lines[at]), data)).encode()
        except ValueError:  # a line that is no JSON
            lines[at] = damaged(lines[at], data)
        entries[name] = b"\n".join(lines) + b"\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for each, content in entries.items():
            entry = tarfile.TarInfo(each)
            entry.size = len(content)
            try:
                tar.addfile(entry, io.BytesIO(content))
            except (UnicodeError, ValueError):  # no name of a file
                pass
    folder = Path(tempfile.mkdtemp(dir=application.folder))
    try:
        archive = packed.getvalue()
        (folder / "x.dump").write_bytes(damaged(archive, data) if not data.draw(st.integers(0, 5)) else archive)
        import_dump(folder / "x.dump", folder / "new", make_writer=LocalWriter)
    except ArchiveRefused:
        assert [each.name for each in folder.iterdir()] == ["x.dump"], "nothing is left of an import that failed"
    finally:
        shutil.rmtree(folder)


Target = Callable[[Application, st.DataObject], None]
TARGETS: dict[str, tuple[Target, int, int]] = {  # what is read: how, inputs in the short form, and in the long form
    "searches": (search, 50, 5_000), "filters": (filter_text, 100, 15_000), "request heads": (head, 100, 30_000), "chunks": (chunks, 100, 20_000),
    "content codings": (codings, 60, 10_000), "JSON": (json_bytes, 60, 15_000), "tenant tokens": (claims, 40, 5_000), "uploads": (upload, 20, 2_000),
    "settings": (settings_of, 15, 1_000), "members of bodies and queries": (members, 60, 10_000), "functions (Rhai)": (rhai, 80, 20_000),
    "edits": (edit, 30, 5_000), "templates (Liquid)": (liquid, 50, 10_000), "bitmaps": (bitmaps, 30, 5_000), "dumps": (dump, 6, 600),
}

# Those that need no application: what coverage_fuzzing.py tries.
PURE = ("filters", "request heads", "chunks", "content codings", "JSON", "tenant tokens", "functions (Rhai)", "templates (Liquid)", "bitmaps")
GUIDED_S = 20
MOST_S = 30  # for an input, on a busy machine: who reads for ever is found by it


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in a block that takes longer, wherever it is."""
    def end(*_: object) -> None:
        raise TimeoutError(f"not read within {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", TARGETS)
def test_readers_raise_what_they_declare(name: str, application: Application, figure: Callable[..., None]) -> None:
    target, short, long = TARGETS[name]
    tried = 0

    @seed(SEED)
    @settings(max_examples=long if IS_LONG else short, suppress_health_check=list(HealthCheck), phases=(Phase.reuse, Phase.generate, Phase.shrink))
    @given(st.data())
    def fuzz(data: st.DataObject) -> None:
        nonlocal tried
        tried += 1
        with time_limit(MOST_S):
            target(application, data)

    try:
        fuzz()
    except Exception:
        figure(f"fuzzing: {name}", f"an undeclared exception in {tried} inputs", limit="none")
        raise
    figure(f"fuzzing: {name}", f"no undeclared exception in {tried} inputs", limit="none")


def test_who_reads_for_ever_is_found() -> None:
    with pytest.raises(TimeoutError), time_limit(0.05):
        while True:
            pass


@pytest.mark.skipif(not IS_LONG or find_spec("atheris") is None, reason="takes minutes, and needs atheris")
@pytest.mark.parametrize("name", PURE)
def test_coverage_leads_to_nothing_else(name: str, tmp_path: Path, figure: Callable[..., None]) -> None:
    command = [sys.executable, "-m", "tests.faults.coverage_fuzzing", name, f"-max_total_time={GUIDED_S}", f"-seed={SEED}",
               f"-artifact_prefix={tmp_path}/", "-rss_limit_mb=0", "-len_control=0", "-max_len=4096"]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=GUIDED_S * 10)
    tried = re.findall(r"Done (\d+) runs", ended.stderr)
    figure(f"fuzzing by coverage: {name}", f"no undeclared exception in {tried[-1]} inputs" if tried else "an undeclared exception", limit="none")
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-5000:]
