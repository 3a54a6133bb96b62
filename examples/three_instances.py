"""Split the documents of a file over three instances, and check that they answer searches like one instance with all documents.

    python3 examples/three_instances.py films.ndjson --facet genres --sort id

The file has one JSON object per line, with an `id`. Document number n goes to instance n mod 3; a fourth one gets all documents.
The script sends the same searches to the three and to the fourth, and compares the answers: searches of one index with
`useNetwork`, and federated searches that name the three instances. Then it makes one of the three hang, stops it, and searches
again.

The script needs svcd and the standard library. Exit status: 0 if all answers agree, else 1.
"""
from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMES = ("east", "north", "south")
FILMS = "films"


class Instance:
    """One svcd daemon on a free port, with its own data folder."""

    def __init__(self, name, folder, command, timeout_s):
        self.name, self.folder = name, Path(folder) / name
        self.folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # svcd calls private addresses only if an option allows them.
        self._command = [*shlex.split(command), "--http-addr", f"127.0.0.1:{self.port}", "--db-path", str(self.folder / "data"),
                         "--no-analytics", "--experimental-allowed-ip-networks", "127.0.0.0/8"]
        self._environment = {**os.environ, "SVC_EXPERIMENTAL_REMOTE_SEARCH_TIMEOUT_SECONDS": str(timeout_s)}
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        for _ in range(600):
            with contextlib.suppress(OSError):
                return self.call("GET", "/health")
            time.sleep(0.05)
        raise SystemExit(f"{self.name} does not start: {(self.folder / 'log').read_text()}")

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.wait()

    def hang(self):
        """Freeze the process: it still accepts connections, but answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def call(self, method, path, value=None):
        """Send a request and return the JSON of the response. value: the body; bytes are sent as NDJSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        kind = "application/x-ndjson" if isinstance(value, bytes) else "application/json"
        body = value if isinstance(value, bytes) or value is None else json.dumps(value)
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            answer = connection.getresponse()
            content = json.loads(answer.read() or b"null")
        finally:
            connection.close()
        if answer.status >= 400:
            raise SystemExit(f"{self.name} {method} {path}: {answer.status} {content}")
        return content

    def fill(self, lines, facets, sort):
        """Add the documents, and wait until they are indexed."""
        self.call("PATCH", "/experimental-features", {"network": True})
        self.call("PATCH", f"/indexes/{FILMS}/settings", {"filterableAttributes": facets, "sortableAttributes": [sort]})
        self.call("POST", f"/indexes/{FILMS}/documents?primaryKey=id", b"\n".join(lines))
        while self.call("GET", "/tasks?statuses=enqueued,processing")["total"]:
            time.sleep(0.05)
        (failed,) = [self.call("GET", "/tasks?statuses=failed")["results"]]
        if failed:
            raise SystemExit(f"{self.name}: {failed[0]['error']}")

    def search(self, query, **others):
        return self.call("POST", f"/indexes/{FILMS}/search", {**query, **others})

    def search_all(self, query, **federation):
        """Run a federated search that names the three instances."""
        queries = [{"indexUid": FILMS, **query, "federationOptions": {"remote": name}} for name in NAMES]
        return self.call("POST", "/multi-search", {"federation": federation, "queries": queries})


def queries_of(documents, title, sort):
    """Return searches that have hits: whole words, prefixes, a typo, two distant words, and a sort."""
    queries = [{"q": ""}, {"q": "", "sort": [f"{sort}:desc"]}]
    titled = [document for document in documents if len(str(document.get(title, "")).split()) > 1]
    for document in titled[:: max(1, len(titled) // 8)][:8]:
        words = sorted(str(document[title]).split(), key=len)
        long = words[-1]
        queries += [{"q": long}, {"q": long[:3]}, {"q": f"{words[-2]} {long}"}, {"q": long[0] + long[2:]},
                    {"q": long[:2], "sort": [f"{sort}:asc"]}]
    return queries


def groups(hits):
    """Return [(score, ids)]. Instances order hits with equal scores differently, so the ids of such hits are sorted."""
    runs = itertools.groupby(hits, key=lambda hit: round(hit["_rankingScore"], 9))
    return [(score, sorted(str(hit["id"]) for hit in run)) for score, run in runs]


def whole_groups(answer):
    """Return the groups of equal scores that the page contains completely; a page may cut the first and the last group."""
    is_cut = len(answer["hits"]) == answer["limit"]
    return groups(answer["hits"])[1 if answer["offset"] else 0 : -1 if is_cut else None]


def difference(query, one, several):
    """Return how two answers to a query differ; None if they agree."""
    if one["estimatedTotalHits"] != several["estimatedTotalHits"]:
        return f"{one['estimatedTotalHits']} hits, and over the network {several['estimatedTotalHits']}"
    mine, theirs = one["hits"], several["hits"]
    if [round(hit["_rankingScore"], 9) for hit in mine] != [round(hit["_rankingScore"], 9) for hit in theirs]:
        return "other scores"
    if "sort" in query and [hit["id"] for hit in mine] != [hit["id"] for hit in theirs]:
        return "another order"
    if "sort" not in query and whole_groups(one) != whole_groups(several):
        return "other documents"
    if one.get("facetDistribution") != several.get("facetDistribution") or one.get("facetStats") != several.get("facetStats"):
        return "other facets"
    return None


def compare(what, queries, ask_one, ask_several):
    """Compare the answers to all queries; return the number of differing answers."""
    differing = 0
    for query in queries:
        found = difference(query, ask_one(query), ask_several(query))
        if found:
            differing += 1
            print(f"  {query}: {found}")
    print(f"{what}: {len(queries) - differing} of {len(queries)} answers agree with one instance")
    return differing


def without_one(whole, asked, name, queries, is_elsewhere, expected_code, most_s):
    """Search while an instance is down: the answers must name it, and contain all hits of the other two.

    Returns the number of faults. is_elsewhere: whether another instance holds a hit; most_s: maximum seconds per search.
    """
    differing, codes, longest = 0, set(), 0.0
    for query in queries:
        started = time.monotonic()
        several = asked.search(query, useNetwork=True, limit=1000)
        longest = max(longest, time.monotonic() - started)
        codes |= {(remote, error["code"]) for remote, error in several["remoteErrors"].items()}
        one = whole.search(query, limit=1000)
        left = sorted(str(hit["id"]) for hit in one["hits"] if is_elsewhere(hit))
        if one["estimatedTotalHits"] < 1000 and left != sorted(str(hit["id"]) for hit in several["hits"]):
            differing += 1
            print(f"  {query}: does not contain exactly the hits of the other two instances")
    print(f"{name} does not answer: {len(queries) - differing} of {len(queries)} searches return exactly the hits of the others, "
          f"after at most {longest:.2f} s; remoteErrors: {dict(codes)}")
    return differing + (codes != {(name, expected_code)}) + (longest > most_s)


def latency(what, queries, ask, rounds):
    """Print the median and 95th percentile of the response times in milliseconds."""
    took = []
    for query in queries * rounds:
        started = time.perf_counter()
        ask(query)
        took.append((time.perf_counter() - started) * 1000)
    took.sort()
    print(f"{what}: median {statistics.median(took):.1f} ms, 95th percentile {took[int(len(took) * 0.95)]:.1f} ms")


def run(options, folder, started):
    lines = [line for line in Path(options.file).read_bytes().splitlines() if line.strip()]
    documents = [json.loads(line) for line in lines]
    place = {str(document["id"]): number % 3 for number, document in enumerate(documents)}
    whole, *three = [started.enter_context(running(name, folder, options)) for name in ("whole", *NAMES)]
    for number, instance in enumerate(three):
        instance.fill(lines[number::3], options.facet, options.sort)
    whole.fill(lines, options.facet, options.sort)
    for instance in three:
        remotes = {each.name: {"url": each.url} for each in three}
        instance.call("PATCH", "/network", {"self": instance.name, "remotes": remotes})
    east, _, south = three
    queries = [{**query, "showRankingScore": True} for query in queries_of(documents, options.title, options.sort)]
    facets = {"facets": options.facet}
    wrong = compare("useNetwork", queries, lambda query: whole.search(query, **facets),
                    lambda query: east.search(query, useNetwork=True, **facets))
    wrong += compare("page 2 of useNetwork", queries, lambda query: whole.search(query, offset=20),
                     lambda query: east.search(query, useNetwork=True, offset=20))
    wrong += compare("federated", queries, whole.search, east.search_all)
    if options.rounds:
        latency("one instance", queries, whole.search, options.rounds)
        latency("a third of the documents", queries, east.search, options.rounds)
        latency("useNetwork", queries, lambda query: east.search(query, useNetwork=True), options.rounds)
        latency("federated", queries, east.search_all, options.rounds)
    few = queries[:: max(1, len(queries) // 4)]

    def is_elsewhere(hit):
        return NAMES[place[str(hit["id"])]] != south.name

    south.hang()
    wrong += without_one(whole, east, south.name, few[:2], is_elsewhere, "remote_timeout", options.timeout + 2)
    south.stop()
    wrong += without_one(whole, east, south.name, few, is_elsewhere, "remote_could_not_send_request", options.timeout)
    south.start()
    south.search({"q": ""})  # the first search after a start is slow, because it loads the code of searches
    return wrong + compare("all three again", few, whole.search, lambda query: east.search(query, useNetwork=True))


@contextlib.contextmanager
def running(name, folder, options):
    instance = Instance(name, folder, options.svcd, options.timeout)
    try:
        yield instance
    finally:
        instance.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="documents, one JSON object per line")
    parser.add_argument("--title", default="title", help="attribute from which the searches take their words")
    parser.add_argument("--facet", action="append", default=[], help="attribute to count the values of; may be repeated")
    parser.add_argument("--sort", default="id", help="attribute to sort by; its values must be distinct")
    parser.add_argument("--timeout", type=int, default=3, help="seconds before a search gives up on an instance (default: 3)")
    parser.add_argument("--rounds", type=int, default=0, help="measure response times; repeat each search N times")
    command = shutil.which("svcd") or f"{sys.executable} -m svcd"
    parser.add_argument("--svcd", default=command, help="command that starts svcd")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as started:
        return 1 if run(options, folder, started) else 0


if __name__ == "__main__":
    sys.exit(main())
