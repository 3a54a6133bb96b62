"""Add, search and filter films with the Python client `meilisearch`, which works with svcd unchanged.

    pip install meilisearch
    python3 examples/python_client.py [URL [KEY]]
"""
from __future__ import annotations

import json
import sys
from pathlib import Path

import meilisearch

FILMS = Path(__file__).with_name("films.json")


def main(url: str = "http://localhost:7700", key: str | None = None) -> None:
    client = meilisearch.Client(url, key)
    films = client.index("films")

    def done(info) -> None:
        """Wait for a write; a failed one ends the program."""
        task = client.wait_for_task(info.task_uid, timeout_in_ms=30_000)
        if task.status != "succeeded":
            sys.exit(f"task {task.uid} {task.status}: {task.error['message'] if task.error else ''}")

    done(films.update_settings({"filterableAttributes": ["genres", "year"], "sortableAttributes": ["year"]}))
    done(films.add_documents(json.loads(FILMS.read_text()), primary_key="id"))

    found = films.search("star wras")  # typos are forgiven
    print("star wras:", ", ".join(hit["title"] for hit in found["hits"][:2]))

    found = films.search("", {"filter": "year < 1970", "sort": ["year:desc"], "facets": ["genres"]})
    print("before 1970:", ", ".join(f"{hit['title']} ({hit['year']})" for hit in found["hits"]))
    print("their genres:", ", ".join(f"{genre} {count}" for genre, count in found["facetDistribution"]["genres"].items()))

    found = films.facet_search("genres", "sci")
    print("genres like sci:", ", ".join(f"{hit['value']} {hit['count']}" for hit in found["facetHits"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
