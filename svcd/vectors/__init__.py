"""Vectors of documents and queries: values, distances, and the search for the nearest ones. Pure: no files, no clock."""
