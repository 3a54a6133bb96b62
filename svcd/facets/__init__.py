"""Facets: count the documents of each value of an attribute, and search among the values."""
