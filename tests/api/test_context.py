"""What handlers receive (svcd.api.context). What must hold:

1. A search worker, whose services cannot write, answers every route that is handed to it as the main process does.
2. Each part that a service makes on demand is made once.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svcd.api.admission import SearchQueue
from svcd.api.app import App
from svcd.api.context import Services
from svcd.auth.keys import Keys
from svcd.instance.data_folder import DataFolderReader
from svcd.instance.instance import Instance
from tests.api.conftest import Client

_EMBEDDERS = {"e": {"source": "userProvided", "dimensions": 2}}
_QUERY = {"indexUid": "films", "q": "heat", "facets": ["genre"], "filter": "genre EXISTS"}


@pytest.fixture
def worker(client: Client, instance: Instance, work: Callable[[], None]) -> Iterator[Client]:
    """A client of an App whose services only read, over the folder of `client`, which has an index `films`."""
    client.json("PATCH", "/indexes/films/settings", {"filterableAttributes": ["genre"], "embedders": _EMBEDDERS})
    client.json("POST", "/indexes/films/documents?primaryKey=id", [
        {"id": 1, "title": "Heat", "genre": "crime", "_vectors": {"e": [1, 0]}},
        {"id": 2, "title": "White Heat", "genre": "noir", "_vectors": {"e": [0, 1]}},
    ])
    work()
    folder, searches = DataFolderReader(instance.path), SearchQueue(2)
    keys = Keys(None)
    yield Client(App(Services(folder, keys, searches)), instance, searches, keys, [])
    folder.close()


@pytest.mark.parametrize(("path", "body"), [
    ("/indexes/films/search", {name: value for name, value in _QUERY.items() if name != "indexUid"}),
    ("/indexes/films/facet-search", {"facetName": "genre", "facetQuery": "cr"}),
    ("/indexes/films/similar", {"id": 1, "embedder": "e"}),
    ("/multi-search", {"queries": [_QUERY]}),
    ("/multi-search", {"federation": {}, "queries": [{"indexUid": "films", "q": "heat"}]}),
    ("/indexes/unknown/search", {}),
])
def test_a_search_worker_answers_as_the_main_process(client: Client, worker: Client, path: str, body: Any) -> None:
    here, there = client.json("POST", path, body), worker.json("POST", path, body)
    assert (there.status, _lasting(there.value)) == (here.status, _lasting(here.value))


def test_a_search_worker_answers_a_search_by_query_string(client: Client, worker: Client) -> None:
    here, there = (each.get("/indexes/films/search?q=heat&filter=genre=noir") for each in (client, worker))
    assert [hit["id"] for hit in there.value["hits"]] == [2] and _lasting(there.value) == _lasting(here.value)


def test_a_service_is_made_once(instance: Instance) -> None:
    made: list[object] = []
    services = Services(instance, Keys(None), SearchQueue(1), make_client=lambda: made.append(object()) or made[-1],
                        make_reranker=lambda: None)
    for name in ("client", "embedding", "search_cache", "active_rules", "personalization"):
        assert getattr(services, name) is getattr(services, name), name
    assert len(made) == 1


def _lasting(value: Any) -> Any:
    """An answer without the members that differ from request to request."""
    if isinstance(value, list):
        return [_lasting(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _lasting(each) for name, each in value.items() if name not in ("processingTimeMs", "requestUid")}
