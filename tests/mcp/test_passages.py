"""Passages. What must hold:

1. Documents come in their order, and their JSON texts fit in the budget together; the first one may exceed it only by what cannot be cut.
2. A document is cut only if it does not fit, and says which fields were cut; their texts begin as they did.
3. An address of a document is read back; other addresses are no resources.
4. A passage has the title, the identifier and the crops of a hit.
"""
from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.base.json_text import dumps
from svcd.mcp.passages import CUT, parts_of, passage, uri_of, within

TEXTS = st.text("ab \n\"é", max_size=600)
DOCUMENTS = st.lists(st.fixed_dictionaries({"id": st.integers(0, 9), "fields": st.dictionaries(
    st.sampled_from("abcd"), st.one_of(TEXTS, st.integers(), st.lists(TEXTS, max_size=3)), max_size=4)}), max_size=6)


@given(DOCUMENTS, st.integers(500, 3000))
@settings(max_examples=60, deadline=None)
def test_documents_fit_the_budget(documents, characters: int) -> None:
    kept = within(documents, characters)
    assert len(kept) >= min(len(documents), 1)
    assert sum(len(dumps(document)) for document in kept) <= characters
    for document, shown in zip(documents, kept):
        assert shown["fields"].keys() == document["fields"].keys() and shown["id"] == document["id"]
        cut = shown.get("cut", [])
        for name, value in document["fields"].items():
            whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            assert (shown["fields"][name] == value) != (name in cut)
            assert name not in cut or whole.startswith(shown["fields"][name].rstrip(CUT)[:-1])
    if sum(len(dumps(document)) for document in documents) <= characters - 200:
        assert kept == documents


def test_addresses_are_read_back() -> None:
    for parts in (("films", "1"), ("films", "a/b c?é"), ("films", None)):
        assert parts_of(uri_of(*parts)) == parts
    assert parts_of("file:///etc/passwd") is None


def test_a_passage_has_the_crops_of_a_hit() -> None:
    hit = {"id": 7, "_formatted": {"id": "7", "name": "Heat", "text": "…thief…", "_geo": {}}, "_rankingScore": 0.12345}
    assert passage(hit, "films", "id") == {"id": 7, "uri": "svcd://films/7", "title": "Heat", "score": 0.123, "fields": {"text": "…thief…"}}
    assert passage({"text": 7}, "films", None) == {"fields": {"text": 7}}
