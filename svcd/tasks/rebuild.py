"""Makes the file of an index afresh from what follows from nothing else: its documents, vectors and settings.

`svcd repair` puts it in the place of a damaged file, `svcd verify --full` compares it with the file. Documents keep their docids,
fields their numbers and FTS columns, so that a sound file has the same rows. See docs/storage.md#damage.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from svcd.base.errors import ApiError
from svcd.index.salvage import Salvage
from svcd.index.writer import IndexWriter, StoredDocument
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.documents import DocumentWriter
from svcd.tasks.indexing_client import MemoryBudget

_AT_ONCE = 250  # documents


def rebuild(source: sqlite3.Connection, target: Path, primary_key: str | None = None,
            progress: Callable[[int], None] = lambda documents: None) -> list[str]:
    """Write a new index with all that can be read of another one; returns what was lost, a sentence each.

    source: a connection on its file, or on a copy. target: a file that does not exist. primary_key: of the index, if its file
    does not tell. progress: called with the number of documents written so far.
    """
    salvage = Salvage(source)
    salvage.meta.setdefault("primary_key", primary_key)
    budget = MemoryBudget()
    with closing(IndexWriter(target, cache_kib=budget.page_cache >> 10, hash_bytes=budget.postings)) as writer:
        with writer.transaction():
            salvage.meta["settings"] = json.dumps(_settings(salvage), ensure_ascii=False)
            writer.take_over(salvage.meta, salvage.fields(), salvage.embedders)
            documents = DocumentWriter(writer, budget.documents)
            written = 0
            for part in _parts(salvage.documents(), salvage.lost):
                documents.restore(part, salvage.vectors([each.docid for each in part]))
                written += len(part)
                progress(written)
        writer.checkpoint()
    return salvage.lost


def _settings(salvage: Salvage) -> dict[str, Any]:
    """The settings that were stored, with the embedders that have a row; without settings, users have given all vectors."""
    rows = {row.name: row for row in salvage.embedders}
    try:
        stored: dict[str, Any] = json.loads(salvage.meta["settings"])
        named = set(IndexSettings.of(stored).embedders)
    except (ApiError, ValueError, TypeError, AttributeError, LookupError):
        if "settings" in salvage.meta:
            salvage.lost.append("the settings, which svcd would not accept")
        return {"embedders": {name: {"source": "userProvided", "dimensions": row.dimensions, "binaryQuantized": row.is_quantized}
                              for name, row in rows.items()}} if rows else {}
    for name in sorted(named ^ rows.keys()):
        salvage.lost.append(f"the embedder {name}")
        stored.get("embedders", {}).pop(name, None)
    salvage.embedders = [row for row in salvage.embedders if row.name in named]
    return stored


def _parts(documents: Iterator[StoredDocument], lost: list[str]) -> Iterator[list[StoredDocument]]:
    """Documents in portions; of several with one identifier the first."""
    known: set[str] = set()
    while part := list(islice(documents, _AT_ONCE)):
        kept = []
        for each in part:
            if each.document_id in known:
                lost.append(f"the document {each.docid}: another one has its identifier")
            else:
                known.add(each.document_id)
                kept.append(each)
        yield kept
