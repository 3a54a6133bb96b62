"""Whatever a client sends, the answer is an answer: no query string, path or body becomes `internal`."""
from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.api.all_routes import ROUTES
from svcd.api.openapi import operation_id
from svcd.api.routes import Fields, Route

# The routes that read an index would all say that there is none; a few of them are enough.
READS = [row for row in ROUTES if row.query]
WRITES = [row for row in ROUTES if isinstance(row.body, Fields)]
ODD_TEXTS = st.one_of(
    st.sampled_from(["", "*", "1", "-1", "1e400", "9" * 100, "true", "null", "a,b", "0,", "2024-01-01", "9999-12-31",
                     "0001-01-01T00:00:00+23:59", "\0", "é", "\ud7ff", "%", "[]", "..", "a" * 500]),
    st.text(max_size=8))
ODD_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ODD_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXTS, inner, max_size=3), max_leaves=6)
quickly = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


def path_of(row: Route, uid: str) -> str:
    for name in row.parameters:
        uid_or_text = "0" if name in ("task_id", "batch_id") else uid
        row_path = row.path.replace(f"{{{name}}}", quote(uid_or_text, safe=""))
        return row_path.replace("{document_id}", quote(uid, safe=""))
    return row.path


@pytest.mark.parametrize("row", READS, ids=operation_id)
@quickly
@given(chosen=st.data())
def test_no_query_string_is_internal(client: Any, row: Route, chosen: st.DataObject) -> None:
    names = st.sampled_from([*row.query, "doggo"])
    values = chosen.draw(st.lists(st.tuples(names, ODD_TEXTS), max_size=3))
    assert client.send(row.method, f"{path_of(row, 'films')}?{urlencode(values)}").status < 500


@pytest.mark.parametrize("row", WRITES, ids=operation_id)
@quickly
@given(chosen=st.data())
def test_no_body_is_internal(client: Any, row: Route, chosen: st.DataObject) -> None:
    assert isinstance(row.body, Fields)
    names = st.sampled_from([*row.body.fields, "doggo"])
    body = chosen.draw(st.dictionaries(names, ODD_VALUES, max_size=3) | ODD_VALUES)
    content = json.dumps(body).encode()
    got = client.send(row.method, path_of(row, "films"), content, {"content-type": "application/json"})
    assert got.status < 500


@quickly
@given(segments=st.lists(ODD_TEXTS, max_size=4), method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "TRACE"]))
def test_no_path_is_internal(client: Any, segments: list[str], method: str) -> None:
    path = "/" + "/".join(quote(segment, safe="") for segment in segments)
    assert client.send(method, path, headers={"accept": "*/*"}).status < 500


@quickly
@given(content=st.binary(max_size=20))
def test_no_bytes_are_internal(client: Any, content: bytes) -> None:
    assert client.send("POST", "/indexes", content, {"content-type": "application/json"}).status < 500
