"""Documents and settings of an index in the form that another instance accepts, for dumps and exports."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
    """Yield the JSON texts of documents with their vectors in `_vectors`.

    has_outdated: whether to include vectors of a former length of an embedder. Instances import them from a dump, but refuse them
    in requests.
    """
    # The text does not tell which fragment made which vector, so a later change must not make these vectors again.
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
            if not entries:
                yield text
                continue
            document = loads(text)
            others = document.pop(MEMBER, None) or {}
            entries = [*(f"{dumps(name)}:{dumps(entry)}" for name, entry in others.items()), *entries]
            rest = dumps(document)[:-1]
            yield f'{rest}{"," * (len(document) > 0)}"{MEMBER}":{{{",".join(entries)}}}}}'


def _entry(held: DocumentVectors, is_fixed: bool) -> str:
    """Return an entry of `_vectors`. Nine digits represent every number of single precision exactly."""
    vectors = ",".join([f"[{','.join(map(_NUMBER, vector))}]" for vector in held.vectors])
    return f'{{"embeddings":[{vectors}],"regenerate":{dumps(held.regenerate and not is_fixed)}}}'


def settings_in_effect(stored: Mapping[str, Any], takes: Callable[[Setting], bool]) -> dict[str, Any]:
    """Return all effective settings, with secrets in clear. takes: whether to include a setting that needs a feature."""
    return {setting.name: setting.resolved(stored) for setting in SETTINGS if setting.feature is None or takes(setting)}
