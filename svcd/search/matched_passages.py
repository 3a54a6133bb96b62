"""The member `_matchedPassage` of hits: the passage of a document that is nearest to the query (docs/embedders.md#passages)."""
from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from svcd.base.json_text import dumps, loads
from svcd.query.reader import Reader
from svcd.schema.documents import Selection, shown_parts
from svcd.schema.embedder_settings import indexing_part
from svcd.search.formatting import named_fields
from svcd.templates import DEFAULT_TEMPLATE, Template, TemplateError, document_variables
from svcd.templates.passages import passages
from svcd.vectors.nearest import Nearest
from svcd.vectors.vector import quantized_bytes, to_bytes


def matched_passages(reader: Reader, embedder: str, vector: array[float], docids: Sequence[int]) -> list[str]:
    """Return the member of each document as text, "" for a document without passages.

    vector: of the query. The text of a passage is rendered from the document again; it is left out if it may have values that are
    not displayed.
    """
    settings = reader.settings
    own = settings.embedders[embedder]
    part, is_quantized = indexing_part(own), bool(own.get("binaryQuantized"))
    template = Template.parse(part.get("documentTemplate") or DEFAULT_TEMPLATE)
    displayed = Selection(named_fields(reader.fields(), settings.displayed_attributes))

    def rendered(document: Mapping[str, Any]) -> str | None:
        try:
            return template.render(document_variables(document, settings.searchable.__contains__))
        except TemplateError:
            return None

    given = reader.vectors.user_provided_docids(embedder)
    vectors = {docid: found.vectors for docid, found in reader.vectors.document_vectors(docids, embedder)
               if found.vectors and docid not in given and len(found.vectors[0]) == len(vector)}
    members = []
    for docid, text in zip(docids, reader.documents(docids)):
        if docid not in vectors:
            members.append("")
            continue
        nearest = Nearest(vector, is_quantized, 1)
        nearest.add(enumerate(quantized_bytes(each) if is_quantized else to_bytes((each,)) for each in vectors[docid]))
        place, count = nearest.result()[0][1], len(vectors[docid])
        document = loads(text)
        whole = rendered(document)
        is_shown = settings.is_everything_displayed or whole == rendered(shown_parts(document, displayed))
        found = passages(whole, **part["chunk"]) if whole is not None and is_shown else ()
        member = {"number": place + 1, "count": count} | ({"text": found[place]} if len(found) == count else {})
        members.append(dumps({"_matchedPassage": member})[1:-1])
    return members
