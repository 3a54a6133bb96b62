"""Uploads of snapshots to the object store, and the record of the one that runs, so that none leaves parts at the store.

The store keeps the parts of an upload until it is ended or aborted. A process that is killed can do neither, so the upload is
recorded in the data folder before its first part is sent; the next one, or the runner after a cancelation, has it aborted.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from svcd.remote.client import Client
from svcd.remote.guard import Guard, parse_networks
from svcd.remote.object_store import SILENCE_S, ObjectStore, ObjectWriter, StoreClient, Upload

_RECORD = "snapshot.upload"


@contextmanager
def uploaded(request: Mapping[str, Any]) -> Iterator[ObjectWriter]:
    """A file-like object whose content is an object of the store when the block ends; after an exception, of which nothing stays.

    request: of an archive, see svcd.tasks.global_tasks. Raises ApiError.
    """
    client, record = _client_of(request), Path(request["folder"]) / _RECORD
    _abort_recorded(client, record)
    upload = client.begin(request["name"])
    record.write_text(json.dumps(upload))
    writer = ObjectWriter(client, upload)
    try:
        yield writer
        writer.finish()
    except BaseException:
        writer.close()
        _abort_recorded(client, record)
        raise
    writer.close()
    record.unlink()


def abort_upload(request: Mapping[str, Any]) -> None:
    """After a killed process: have the store delete the parts that it sent, if it can be reached."""
    _abort_recorded(_client_of(request), Path(request["folder"]) / _RECORD)


def _abort_recorded(client: StoreClient, record: Path) -> None:
    try:
        upload = Upload(*json.loads(record.read_text()))
    except FileNotFoundError:
        return
    except (ValueError, TypeError):  # half written at a power cut
        record.unlink()
        return
    if client.abort(upload):
        record.unlink()


def _client_of(request: Mapping[str, Any]) -> StoreClient:
    guard = Guard(parse_networks(",".join(request["networks"])))
    return StoreClient(ObjectStore(**request["store"]), Client(guard, SILENCE_S))
