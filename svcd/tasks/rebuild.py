"""Builds a new index file from the primary content of an old one: its documents, vectors and settings.

`svcd repair` replaces a damaged file by the new one; `svcd verify --full` compares the two. Documents keep their docids, fields
keep their numbers and FTS columns, so that the new file has the same rows as a sound old one. See docs/storage.md#damage.
"""
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from svcd.base.errors import ApiError
from svcd.index.salvage import Salvage
from svcd.index.writer import IndexWriter
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.documents import DocumentWriter
from svcd.tasks.indexing_client import MemoryBudget

_AT_ONCE = 250  # documents


def rebuild(source: sqlite3.Connection, target: Path, primary_key: str | None = None,
            progress: Callable[[int], None] = lambda documents: None) -> list[str]:
    """Write a new index file with everything that can be read from an old one; return a sentence for each loss.

    source: connection to the old file, or to a copy. target: path that does not exist yet. primary_key: used if the old file
    does not have it. progress: called with the number of documents written so far.
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
            salvaged = salvage.documents()
            known: set[str] = set()
            while part := list(islice(salvaged, _AT_ONCE)):
                kept = []
                for each in part:
                    if each.document_id in known:
                        salvage.lost.append(f"the document {each.docid}: another document has its identifier")
                    else:
                        known.add(each.document_id)
                        kept.append(each)
                documents.restore(kept, salvage.vectors([each.docid for each in kept]))
                written += len(kept)
                progress(written)
        writer.checkpoint()
    return salvage.lost


def _settings(salvage: Salvage) -> dict[str, Any]:
    """Return the stored settings, with only the embedders that have a row.

    If the settings are lost, every embedder becomes `userProvided`, so that its vectors are kept.
    """
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
