"""Requests that read indexes of a test instead of files."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from svcd.base.errors import ApiError
from svcd.instance.instance import Instance


def read_from(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    """read: what Instance.read() is now, with the instance before the uid; several indexes are read with it one by one."""

    @contextmanager
    def read_together(instance: Instance, _index_uids: Iterable[str], _linked: Any = None) -> Iterator[Any]:
        yield SimpleNamespace(read=partial(read, instance))

    monkeypatch.setattr(Instance, "read", read)
    monkeypatch.setattr(Instance, "read_together", read_together)


def read_indexes(monkeypatch: pytest.MonkeyPatch, indexes: Mapping[str, Any]) -> None:
    """indexes: uid -> reader of each; there are no others."""

    @contextmanager
    def read(_instance: Instance, index_uid: str) -> Iterator[Any]:
        if index_uid not in indexes:
            raise ApiError("index_not_found", f"Index `{index_uid}` not found.")
        yield indexes[index_uid]

    read_from(monkeypatch, read)
