"""Geometry on the globe and on the plane of degrees, and GeoJSON."""
