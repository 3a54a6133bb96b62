"""Many queries, one list. What must hold:

1. The order, the queries that show the hits, the weighted scores and the total are those of the reference engine.
2. Queries whose rules disagree are refused with the rules, where they stand and what was changed in them.
"""
from __future__ import annotations

import json
from typing import Any

import pytest

from svcd.engine.federation import federated
from svcd.engine.request import Answer, Federation, IndexedQuery, SearchQuery
from svcd.errors import ApiError
from tests.engine.dict_reader import DictReader
from tests.engine.searching import never
from tests.engine.shared_material import CONTRACT, contract, needs_contract

CASES = contract("cases-federation.json")["cases"] if CONTRACT.is_dir() else []


def merged(indexes: dict[str, DictReader], *queries: dict[str, Any], **federation: Any) -> Answer:
    """The answer to queries as the interface has them."""
    asked = [IndexedQuery(query["indexUid"], SearchQuery(q=query.get("q"), sort=query.get("sort")),
                          float(query.get("federationOptions", {}).get("weight", 1))) for query in queries]
    return federated(indexes.__getitem__, asked, Federation(**federation), never)


@needs_contract
@pytest.mark.parametrize("case", CASES)
def test_the_cases_of_the_contract(case: dict[str, Any]) -> None:
    indexes = {uid: DictReader(index["documents"], index["settings"]) for uid, index in case["indexes"].items()}
    for search in case["searches"]:
        if "status" in search:
            with pytest.raises(ApiError) as refused:
                merged(indexes, *search["queries"], limit=100)
            assert (refused.value.status, refused.value.message) == (search["status"], search["message"])
            continue
        answer = merged(indexes, *search["queries"], limit=100)
        hits = [json.loads(hit) for hit in answer.hits]
        shown = [[hit["_federation"]["indexUid"], hit["id"], hit["_federation"]["queriesPosition"],
                  hit["_federation"]["weightedRankingScore"]] for hit in hits]
        assert shown == search["hits"]
        assert answer.pagination["estimatedTotalHits"] == search["estimatedTotalHits"]
