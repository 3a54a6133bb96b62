"""Stored documents and settings of an index in the form in which another instance takes them: for dumps and exports."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from svcd.base.json_text import dumps, loads
from svcd.index.reader import IndexReader
from svcd.schema.document_vectors import MEMBER
from svcd.schema.embedder_settings import indexing_fragments
from svcd.schema.settings import SETTINGS, Setting
from svcd.vectors.vector import DocumentVectors

_WITH_VECTORS = 20  # documents read together with their vectors
_NUMBER = "%.9g".__mod__


def texts_with_vectors(reader: IndexReader, docids: Iterable[int], has_outdated: bool = True) -> Iterator[str]:
    """The JSON texts of documents with their vectors: those that each embedder has of them.

    has_outdated: are vectors of a former length of an embedder among them? Instances do not take them, but import them.
    """
    # What indexing fragments made cannot be told from one another any more, so that a later change must not make them again.
    is_fixed = {name: bool(indexing_fragments(settings)) for name, settings in reader.settings.embedders.items()}
    wanted = iter(docids)
    while part := list(islice(wanted, _WITH_VECTORS)):
        found = {name: dict(reader.vectors.document_vectors(part, name)) for name in is_fixed}
        for name in () if has_outdated else found:
            dimensions = reader.vectors.dimensions(name)
            found[name] |= {docid: DocumentVectors([], False) for docid, held in found[name].items()
                            if held.vectors and len(held.vectors[0]) != dimensions}
        for docid, text in zip(part, reader.documents(part)):
            entries = [f"{dumps(name)}:{_entry(each[docid], is_fixed[name])}" for name, each in found.items() if docid in each]
            yield _with_entries(text, entries) if entries else text


def _with_entries(text: str, entries: Sequence[str]) -> str:
    document = loads(text)
    others = document.pop(MEMBER, None) or {}
    entries = [*(f"{dumps(name)}:{dumps(entry)}" for name, entry in others.items()), *entries]
    rest = dumps(document)[:-1]
    return f'{rest}{"," * (len(document) > 0)}"{MEMBER}":{{{",".join(entries)}}}}}'


def _entry(held: DocumentVectors, is_fixed: bool) -> str:
    """An entry of `_vectors`. Nine digits tell every number of single precision."""
    vectors = ",".join([f"[{','.join(map(_NUMBER, vector))}]" for vector in held.vectors])
    return f'{{"embeddings":[{vectors}],"regenerate":{dumps(held.regenerate and not is_fixed)}}}'


def needing_features() -> list[str]:
    """The names of the settings that instances take only while a feature is on."""
    return [setting.name for setting in SETTINGS if setting.feature is not None]


def settings_in_effect(stored: Mapping[str, Any], takes: Callable[[Setting], bool]) -> dict[str, Any]:
    """Every setting as in effect, secrets in clear. takes: is a setting that needs a feature written?"""
    return {setting.name: setting.resolved(stored) for setting in SETTINGS if setting.feature is None or takes(setting)}
