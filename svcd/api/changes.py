"""Changes of the documents of an index, in their order: `GET /indexes/{index_uid}/changes` (docs/guide/follow.md).

The answer is lines of JSON up to the present, or server-sent events without an end. The log is a table of the index file
(svcd.index.change_log), so a client that comes back with the last `seq` that it has seen misses nothing, also after a restart.
"""
from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from svcd.api import shapes
from svcd.api.context import Context
from svcd.api.document_selection import view
from svcd.api.event_streams import LAST_SEEN_HEADER, events_of, last_seen
from svcd.api.routes import NDJSON, HandlerResult, Route, Text
from svcd.api.streaming import EVENTS, HEADERS, WHOLE, StreamBody
from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.index import change_log
from svcd.index.change_log import Change, Position
from svcd.search.shown_vectors import vectors_of
from svcd.validation import Param, query_strings

if TYPE_CHECKING:
    from svcd.index.reader import IndexReader

_PORTION = 1000  # changes that are read together
_OFF = "Changes of documents are not kept. To follow them from then on, start svcd with `--changes-keep SECONDS`."
_GONE = ("The changes of index `{}` after `{}` are not known: they are older than `--changes-keep`, or the index was swapped, "
         "restored or created again. Read all documents, then follow with `since={}`.")


class _Changes:
    """The events of one index."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def after(self, since: Position) -> tuple[Position, list[tuple[Position | None, str]]]:
        """(position, events) of the next portion after a position; the same position if nothing happened. Raises changes_gone."""
        with self._ctx.instance.read(self._ctx.index_uid) as reader:
            connection, size = reader.transaction.connection, 0
            events: list[tuple[Position | None, str]] = []
            found = change_log.changes_after(connection, since, _PORTION)
            if found is None:
                raise ApiError("changes_gone", _GONE.format(self._ctx.index_uid, since, change_log.newest(connection)))
            for change in found:
                events.append((change.position, self._text(reader, change)))
                since, size = change.position, size + len(events[-1][1])
                if size > WHOLE:
                    break
        return since, events

    def _text(self, reader: IndexReader, change: Change) -> str:
        """A change as clients see it. With documents, it tells the present state of the document, which may be newer."""
        asked, document_id, is_deletion = self._ctx.query, change.document_id, change.is_deletion
        if document_id is None:
            return dumps({"seq": str(change.position), "operation": "clear"})
        docid = reader.docid_of(document_id) if asked["documents"] else None
        if asked["documents"]:
            is_deletion = docid is None
        text = dumps({"seq": str(change.position), "operation": "delete" if is_deletion else "put", "id": document_id})
        if docid is None:
            return text
        vectors = vectors_of(reader, [docid])[0] if asked["retrieveVectors"] else None
        return f'{text[:-1]},"document":{view(reader.document(docid), None, vectors)}}}'

    def progress(self) -> Iterator[tuple[Position | None, str]]:
        """An index reports no progress."""
        return iter(())

    def stream(self, since: Position) -> Generator[bytes]:
        """The changes after a position, and each later one. A client that comes back after an error gets it as a response."""
        try:
            yield from events_of(self._ctx, self, since, has_lines=False)
        except ApiError:
            return


def follow(ctx: Context) -> HandlerResult:
    """Changes of the documents of an index. Without a position: the present one.

    Raises feature_not_enabled, bad_request, index_not_found, changes_gone.
    """
    if not ctx.services.keeps_changes:
        raise ApiError("feature_not_enabled", _OFF)
    source, since = _Changes(ctx), last_seen(ctx, Position.parse) or ctx.query["since"]
    with ctx.instance.read(ctx.index_uid) as reader:
        present = change_log.newest(reader.transaction.connection)
    events = source.after(since)[1] if since else [(present, dumps({"seq": str(present)}))]
    if EVENTS not in (ctx.request.headers.get("accept") or ""):
        return HandlerResult(200, Text("".join(f"{text}\n" for _, text in events), NDJSON))
    streams = ctx.services.streams
    streams.acquire()
    return HandlerResult(200, Text(StreamBody(source.stream(since or present), streams.release), EVENTS), HEADERS)


ROUTES = (
    Route("GET", "/indexes/{index_uid}/changes", follow, "documents.get", {200: shapes.record({
        "seq": {"type": "string"}, "operation": {"type": "string", "enum": ["put", "delete", "clear"]},
        "id": {"type": "string"}, "document": {"type": "object"},
    }, optional=["operation", "id", "document"]), 410: "Error"}, "Follow the changes of documents", "Documents", query={
        "since": Param(Position.parse, about="The `seq` of the last change that the client has seen, or `0` for the beginning of "
                                             "the index. Without it, the answer is the present `seq`."),
        "documents": Param(query_strings.boolean, default=False, about="Add the documents, in their present state."),
        "retrieveVectors": Param(query_strings.boolean, default=False, about="Add their vectors."),
    }, answer_type=NDJSON, headers=LAST_SEEN_HEADER),
)
