"""What must hold of requests that nest deeply, on any Python.

1. No request ends the daemon or one of its processes: neither bodies of any route, nor filters, templates, functions, tokens and names
   of attributes, wherever in a request they are, at any depth.
2. Each is answered, and not with `internal`; no task ends so.

The interpreter bounds the recursion of its own C code since Python 3.12 by a constant that does not know the stack of a thread, so what
follows is run on each version: 10,000 requests in the long form.
"""
from __future__ import annotations

import http.client
import json
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from svcd.validation.names import FEATURES
from tests.support.bearers import MASTER_KEY, part, signed, uid, value_of
from tests.support.daemon import Daemon, Reply, running

pytestmark = pytest.mark.slow

KEY = {"authorization": f"Bearer {MASTER_KEY}"}
JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
FILM = {"id": 1, "title": "Star Wars", "a": {"a": {"a": [1, [2]]}}, "_geo": {"lat": 1, "lng": 2}}
SETTINGS = {"filterableAttributes": ["*"], "sortableAttributes": ["title"], "displayedAttributes": ["*"],
            "embedders": {"e": {"source": "userProvided", "dimensions": 2}}}
MOST_TOKEN = 11_000  # bytes of a part of a token: a header may have 16,384 characters

# Routes that take a JSON body, with a member that may hold anything.
ROUTES = [
    ("POST", "/indexes/films/search", "filter"), ("POST", "/indexes/films/search", "attributesToRetrieve"), ("POST", "/multi-search", "queries"),
    ("POST", "/multi-search", "federation"), ("POST", "/indexes/films/facet-search", "filter"), ("POST", "/indexes/films/similar", "id"),
    ("POST", "/indexes/films/documents", "a"), ("PUT", "/indexes/films/documents", "a"), ("POST", "/indexes/films/documents/fetch", "filter"),
    ("POST", "/indexes/films/documents/delete", "filter"), ("POST", "/indexes/films/documents/delete-batch", "a"),
    ("POST", "/indexes/films/documents/edit", "context"), ("PATCH", "/indexes/films/settings", "embedders"), ("PATCH", "/indexes/films/settings", "synonyms"),
    ("PUT", "/indexes/films/settings/stop-words", "a"), ("POST", "/indexes", "uid"), ("PATCH", "/indexes/films", "primaryKey"), ("POST", "/swap-indexes", "indexes"),
    ("POST", "/keys", "actions"), ("POST", "/webhooks", "headers"), ("PATCH", "/network", "remotes"), ("PATCH", "/experimental-features", "metrics"),
    ("POST", "/export", "indexes"), ("POST", "/render-template", "input"), ("PATCH", "/dynamic-search-rules/r", "conditions"), ("POST", "/logs/stderr", "target"),
    ("PATCH", "/chats/c/settings", "prompts"), ("POST", "/chats/c/chat/completions", "messages"), ("POST", "/network/control", "a"), ("POST", "/indexes/films/fields", "filter"),
]
# What opens a level and what closes it, by the language.
LEVELS = {
    "JSON": [("[", "]"), ('{"a":', "}"), ("[1,", ",2]"), ('{"b":"]}[{\\"","a":', ',"c":[]}'), ("[[],{},", "]"), (' [ "[\\\\", ', "]"), ('{"a":[', "]}")],
    "filter": [("(", ")"), ("NOT ", ""), ("NOT(", ")"), ("a = 1 AND (", ")"), ("(", ") OR a = 1"), ("a IN [", "]"), ("a = 1 OR ", ""), ("_foreign(a, ", ")"),
               ("_geoPolygon([", "])"), ("[", "]"), ("a = 1 AND NOT ", " ")],
    "template": [("{{ doc[", "] }}"), ("{% if doc.a %}", "{% endif %}"), ("{% for x in doc.a %}", "{% endfor %}"), ("{% if doc.a %}{% elsif doc.a %}", "{% endif %}"),
                 ("{% case doc.a %}{% when 1 %}", "{% endcase %}"), ("{% capture x %}", "{% endcapture %}"), ("{% comment %}", "{% endcomment %}"), ("{{", "}}"), ("{% raw %}", "{% endraw %}")],
    "expression": [("[", "]"), ("doc[", "]"), ("(1..", ")"), ("doc.", ""), ("doc.a and ", ""), ("doc.a or ", ""), ("1 | plus: ", ""), ("(", ")"), ("'a' | append: ", ""), ("doc.a == ", ""),
                   ("not ", ""), ("doc['a'][", "]"), ("-", "")],
    "function": [("(", ")"), ("[", "]"), ("#{a:", "}"), ("!", ""), ("-", ""), ("{", "}"), ("if true {", "}"), ("if true {} else ", ""), ("|x| ", ""), ("f(", ")"), ("doc.a(", ")"), ("`${", "}`"),
                 ("switch 1 { _ => ", "}"), ("1 + ", ""), ("1 ** ", ""), ("doc.", ""), ("doc[", "]"), ("fn f() {", "}"), ("loop {", "}"), ("try {", "} catch {}"), ("return ", ""), ("/*", "*/"),
                 ("x = ", ""), ("let x = ", ""), ("doc?.", ""), ("a ?? ", ""), ("while true {", "}"), ("for x in [", "] {}"), ("do {", "} while true;"), ("throw ", ""), ("f.call(", ")")],
}
INNER = {"JSON": "1", "filter": "a = 1", "template": "x", "expression": "doc.a", "function": "1"}
# Functions that nest values and calls when they run.
NESTING_FUNCTIONS = [
    "let a = []; for i in 0..{depth} {{ a = [a]; }} doc.b = a;", "let a = #{{}}; for i in 0..{depth} {{ a = #{{x: a}}; }} doc.b = a;",
    "fn f(n) {{ if n == 0 {{ 0 }} else {{ f(n - 1) }} }} doc.b = f({depth});", "let a = []; for i in 0..{depth} {{ a.push(a); }} doc.b = a.len();",
    "fn f(n) {{ [n].map(|x| f(x + 1)) }} doc.b = f(0);", "fn f(n) {{ [2, 1].sort(|x, y| {{ f(n + 1); 1 }}); n }} doc.b = f({depth});",
    "let a = []; let b = []; for i in 0..{depth} {{ a = [a]; b = [b]; }} doc.b = a == b;", "let a = 1; for i in 0..{depth} {{ a = [a]; }} doc.b = a.to_string();",
    "let a = 1; for i in 0..{depth} {{ a = [a]; }} doc.b = a.to_json();", "let a = |x| x; for i in 0..{depth} {{ let b = a; a = |x| b.call(x); }} doc.b = a.call(1);",
    "doc.b = parse_json(\"[\".pad({depth}, '['));", "let a = 1; for i in 0..{depth} {{ a = [a]; }} doc.b = [a, a].index_of(a);", "let f = Fn(\"to_string\"); for i in 0..{depth} {{ f = f.curry(f); }} doc.b = f.to_string();",
]

Request = tuple[str, str, str | bytes, dict[str, str]]


def nested(dice: random.Random, language: str, depth: int) -> str:
    """A text of so many levels: of one kind or of all of them, and mostly closed."""
    kinds = LEVELS[language]
    kinds = dice.sample(kinds, dice.choice((1, 1, 2, len(kinds))))
    levels = dice.choices(kinds, k=depth)
    closers = [close for _, close in reversed(levels)]
    is_cut = dice.random() < 0.2
    return "".join([*(begin for begin, _ in levels), INNER[language], *(closers[:dice.randrange(depth + 1)] if is_cut else closers)])


def depth_of(dice: random.Random, most: int = 100_000) -> int:
    """Of any magnitude up to `most`."""
    return int(10 ** dice.uniform(0, len(str(most)) - 1))


def body(dice: random.Random) -> Request:
    method, path, member = dice.choice(ROUTES)
    text = nested(dice, "JSON", depth_of(dice))
    text = dice.choice([text, f'{{"{member}":{text}}}', f'[{{"id":1,"{member}":{text}}}]', f'{{"id":1,"{member}":{text}}}\n' * dice.randrange(1, 4)])
    kind = dice.choice((JSON, NDJSON)) if path.endswith("/documents") else JSON
    return method, path, text, {"content-type": kind}


def cells(dice: random.Random) -> Request:
    text = nested(dice, dice.choice(("JSON", "filter")), depth_of(dice)).replace('"', '""')
    return "POST", "/indexes/films/documents", f'id,"{dice.choice(("a", text))}"\n1,"{text}"\n', {"content-type": CSV}


def filters(dice: random.Random) -> Request:
    text = nested(dice, "filter", depth_of(dice))
    value: Any = text
    for _ in range(depth_of(dice, 100) if dice.random() < 0.3 else 0):
        value = [value]
    if dice.random() < 0.1:
        return "GET", f"/indexes/films/search?filter={text[:6000].replace(' ', '%20')}", "", {}
    path = dice.choice(("search", "documents/fetch", "documents/delete", "facet-search", "similar"))
    return "POST", f"/indexes/films/{path}", json.dumps({"filter": value, "facetName": "a", "id": 1, "embedder": "e"} if path in ("similar", "facet-search") else {"filter": value}), {}


def templates(dice: random.Random) -> Request:
    if dice.random() < 0.5:
        expression = nested(dice, "expression", depth_of(dice, 1000))
        template: Any = dice.choice(["{{ %s }}", "{%% if %s %%}{%% endif %%}", "{%% for x in %s %%}{%% endfor %%}", "{%% assign x = %s %%}", "{%% case %s %%}{%% when 1 %%}{%% endcase %%}", "{%% cycle %s %%}"]) % expression
    else:
        template = nested(dice, "template", depth_of(dice, 10_000))
    kind = "inlineDocumentTemplate"
    if dice.random() < 0.3:
        kind = "inlineFragment"
        for _ in range(depth_of(dice, 100)):
            template = dice.choice(([template], {"a": template}))
    document = f'{{"id": 1, "a": {nested(dice, "JSON", depth_of(dice, 100))}}}'
    if dice.random() < 0.2:
        settings = {"embedders": {"t": {"source": "rest", "url": "http://127.0.0.1:9", "request": {"a": "{{text}}"}, "response": {"b": "{{embedding}}"}, "dimensions": 2, "documentTemplate": template}}}
        return "PATCH", "/indexes/other/settings", json.dumps(settings), {}
    return "POST", "/render-template", f'{{"template": {{"kind": "{kind}", "inline": {json.dumps(template)}}}, "input": {{"kind": "inlineDocument", "inline": {document}}}}}', {}


def functions(dice: random.Random) -> Request:
    if dice.random() < 0.3:
        text = dice.choice(NESTING_FUNCTIONS).format(depth=depth_of(dice, 10_000))
    else:
        text = nested(dice, "function", depth_of(dice, 10_000))
    return "POST", "/indexes/films/documents/edit", json.dumps({"function": text}), {}


def tokens(dice: random.Random) -> Request:
    deep = nested(dice, "JSON", depth_of(dice))[:MOST_TOKEN].encode()
    key = uid(1)
    token = dice.choice([
        lambda: f"{part(deep)}.{part(b'{}')}.{part(b's')}", lambda: f"{part({'alg': 'HS256'})}.{part(deep)}.{part(b's')}",
        lambda: f"{part(deep.decode().encode('utf-16')[:MOST_TOKEN])}.{part(b'{}')}.{part(b's')}", lambda: signed(deep, value_of(key)),
        lambda: signed(b'{"searchRules":' + deep + b',"apiKeyUid":"%s"}' % key.encode(), value_of(key)),
        lambda: signed({"searchRules": {"films": {"filter": nested(dice, "filter", depth_of(dice, 1000))[:MOST_TOKEN // 2]}}, "apiKeyUid": key}, value_of(key)),
    ])()
    return "POST", "/indexes/films/search", "{}", {"authorization": f"Bearer {token}"}


def names(dice: random.Random) -> Request:
    """Attributes with many dots."""
    name = dice.choice(("a.", "a*.", "*.", ".", "a.*")) * depth_of(dice, 10_000) + dice.choice(("a", "*", ""))
    member = dice.choice(("attributesToRetrieve", "attributesToHighlight", "attributesToCrop", "attributesToSearchOn", "facets", "sort", "distinct"))
    return dice.choice([
        ("POST", "/indexes/films/search", json.dumps({member: f"{name}:asc" if member == "sort" else name if member == "distinct" else [name]}), {}),
        ("POST", "/indexes/films/search", json.dumps({"filter": f"{name} = 1"}), {}),
        ("POST", "/indexes/films/documents", json.dumps({"id": 1, name: {"a": {name: 1}}}), {}),
        ("PATCH", "/indexes/other/settings", json.dumps({dice.choice(("filterableAttributes", "displayedAttributes", "searchableAttributes", "sortableAttributes")): [name]}), {}),
        ("POST", "/indexes/films/documents/fetch", json.dumps({"fields": [name]}), {}),
    ])


KINDS: dict[str, tuple[Callable[[random.Random], Request], int]] = {  # what is nested: a request, and its share
    "bodies": (body, 5), "CSV cells": (cells, 1), "filters": (filters, 4), "templates": (templates, 4), "functions": (functions, 3), "tokens": (tokens, 2), "names": (names, 1),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with every feature, a film, and the key that tokens are signed with."""
    with running(tmp_path_factory.mktemp("deep"), "--master-key", MASTER_KEY) as started:
        ask(started, "PATCH", "/experimental-features", json.dumps({**dict.fromkeys(FEATURES, True), "legacySearch": False}))
        ask(started, "POST", "/keys", json.dumps({"uid": uid(1), "actions": ["*"], "indexes": ["*"], "expiresAt": None}))
        ask(started, "PATCH", "/indexes/films/settings", json.dumps(SETTINGS))
        ask(started, "POST", "/indexes/films/documents", json.dumps(FILM))
        drained(started)
        yield started
        assert started.bugs() == []


def ask(daemon: Daemon, method: str, path: str, content: str | bytes | None = None, headers: dict[str, str] | None = None) -> Reply:
    return daemon.call(method, path, content or None, {**KEY, **(headers or {})})


def drained(daemon: Daemon) -> None:
    """Wait for the last task."""
    while json.loads(ask(daemon, "GET", "/tasks?statuses=enqueued,processing&limit=0").body)["total"]:
        time.sleep(0.05)


def test_no_depth_ends_the_daemon(daemon: Daemon, seed: int, amount: Callable[[int, int], int], figure: Callable[..., None], tmp_path: Path) -> None:
    wanted, kinds = amount(250, 10_000), list(KINDS)
    statuses: dict[str, dict[int, int]] = {kind: {} for kind in kinds}
    python = ".".join(map(str, sys.version_info[:3]))
    for number in range(wanted):
        dice = random.Random(f"{seed}:{number}")
        kind = dice.choices(kinds, [share for _, share in KINDS.values()])[0]
        method, path, content, headers = KINDS[kind][0](dice)
        try:
            reply = ask(daemon, method, path, content, headers)
        except (OSError, http.client.HTTPException) as error:
            (tmp_path / "content").write_bytes(content if isinstance(content, bytes) else content.encode())
            pytest.fail(f"{kind} {number} of seed {seed}: {method} {path[:200]} ended the daemon ({error!r}); {tmp_path / 'content'}: {content[:300]!r}")
        assert reply.code != "internal" and reply.status != 500, (kind, number, method, path[:200], content[:300], reply.body[:500])
        statuses[kind][reply.status] = statuses[kind].get(reply.status, 0) + 1
        if number % 100 == 99:  # else the functions of all would wait to the end
            drained(daemon)
    drained(daemon)
    figure(f"requests of any depth, Python {python}", f"none of {wanted} ended the daemon", limit="none")
    print({kind: dict(sorted(counts.items())) for kind, counts in statuses.items()})
    failed = json.loads(ask(daemon, "GET", "/tasks?statuses=failed&limit=20000").body)["results"]
    assert [task["error"] for task in failed if task["error"]["code"] == "internal"] == []
    assert ask(daemon, "GET", "/health").status == 200
