"""Vectors of documents and queries: values, distances, and the search for nearest vectors. Pure: no files, no clock."""
