"""Where documents are: orders by distance, conditions on places, GeoJSON and plane geometry (relevance.md 8)."""
