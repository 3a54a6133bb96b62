"""Where documents are, on their way into the index: which coordinates and geometries it keeps, and the check of each.

Knows when an index keeps them (relevance.md 8.1, 8.5); refuses to know how they are kept.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from svcd.engine.filterable import Filterable
from svcd.engine.geo.geojson import read_geojson
from svcd.engine.geo_fields import validate_geo
from svcd.engine.settings import resolved
from svcd.store.index_writer import NOWHERE, Place
from svcd.store.shapes import Shape

_GEO, _GEOJSON = "_geo", "_geojson"


@dataclass(frozen=True, slots=True)
class Places:
    """What an index keeps of where its documents are."""

    has_points: bool
    has_shapes: bool

    @property
    def are_kept(self) -> bool:
        """Does it keep anything of it?"""
        return self.has_points or self.has_shapes

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Places:
        """What the settings of an index ask for."""
        full = resolved(settings)
        names = Filterable.of(full).names
        return cls(names(_GEO) or _GEO in full["sortableAttributes"], names(_GEOJSON))

    def place(self, document_id: str, document: Mapping[str, Any]) -> Place:
        """Where a document is. Raises invalid_document_geo_field, invalid_document_geojson_field."""
        if not self.are_kept:
            return NOWHERE
        point = validate_geo(document_id, document) if self.has_points else None
        shape = read_geojson(document.get(_GEOJSON)) if self.has_shapes else None
        return Place(point, None if shape is None else Shape(shape.sides(), shape.packed()))
