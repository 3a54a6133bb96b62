"""Locations of documents: which of `_geo` and `_geojson` an index keeps, and their validation.

docs/filters-and-facets.md says when they are kept.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svcd.base import json_text
from svcd.base.errors import ApiError
from svcd.geo.geojson import read_geojson
from svcd.index.geo_writer import StoredShape
from svcd.index.writer import NO_LOCATION, DocumentLocation, IndexWriter
from svcd.schema.field_values import validate_geo
from svcd.schema.index_settings import IndexSettings
from svcd.tasks.payloads import IndexingFailure

_GEO, _GEOJSON = "_geo", "_geojson"
_PORTION = 500  # documents read together
_MAX_LOCATIONS = 10_000  # written together: each block of a million points is then rewritten about once


@dataclass(frozen=True, slots=True)
class GeoExtraction:
    """Which locations an index keeps: points of `_geo`, shapes of `_geojson`."""

    has_points: bool
    has_shapes: bool

    @classmethod
    def of(cls, settings: IndexSettings) -> GeoExtraction:
        """Derive it from the settings of an index."""
        names = settings.filterable.names
        return cls(names(_GEO) or _GEO in settings.sortable_attributes, names(_GEOJSON))

    def location(self, document_id: str, document: Mapping[str, Any]) -> DocumentLocation:
        """Return the location of a document. Raises IndexingFailure: invalid_document_geo_field or _geojson_field."""
        if not (self.has_points or self.has_shapes):
            return NO_LOCATION
        try:
            point = validate_geo(document_id, document) if self.has_points else None
            shape = read_geojson(document.get(_GEOJSON)) if self.has_shapes else None
        except ApiError as error:
            raise IndexingFailure(error) from error
        return DocumentLocation(point, None if shape is None else StoredShape(shape.bounds(), shape.packed()))


def extract_all_locations(writer: IndexWriter) -> None:
    """Store the locations of all documents again, according to the settings of the index. Raises IndexingFailure."""
    geo = GeoExtraction.of(IndexSettings.of(writer.settings))
    writer.clear_locations()
    locations: dict[int, DocumentLocation] = {}
    last = -1
    while (geo.has_points or geo.has_shapes) and (part := writer.all_stored(last, _PORTION)):
        locations.update((each.docid, geo.location(each.document_id, json_text.loads(each.json))) for each in part)
        last = part[-1].docid
        if len(locations) > _MAX_LOCATIONS:
            writer.write_locations(locations)
            locations.clear()
    writer.write_locations(locations)
