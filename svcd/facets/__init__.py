"""Facets: how many documents have which values, and search among the values."""
