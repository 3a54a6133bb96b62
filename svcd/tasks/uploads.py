"""Uploads of snapshots to the object store, and the record of the upload in progress.

The store keeps the parts of an upload until the upload is completed or aborted. A killed process can do neither, so each upload
is recorded in the data folder before its first part is sent; the next upload, or the runner after a cancelation, aborts it.
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
    """Give a file-like object, whose content becomes an object of the store when the block ends. An exception aborts the upload.

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
    """Have the store delete the parts that a killed process sent, if the store can be reached."""
    _abort_recorded(_client_of(request), Path(request["folder"]) / _RECORD)


def _abort_recorded(client: StoreClient, record: Path) -> None:
    try:
        upload = Upload(*json.loads(record.read_text()))
    except FileNotFoundError:
        return
    except (ValueError, TypeError):  # a power cut left half of the record
        record.unlink()
        return
    if client.abort(upload):
        record.unlink()


def _client_of(request: Mapping[str, Any]) -> StoreClient:
    guard = Guard(parse_networks(",".join(request["networks"])))
    return StoreClient(ObjectStore(**request["store"]), Client(guard, SILENCE_S))
