"""The JSON form of a filter, under the name by which routes ask for it."""
from __future__ import annotations

from svcd.engine.filters.shapes import check_shape, is_empty

__all__ = ["check_shape", "is_empty"]
