"""Filters: from the JSON of a request to the documents that meet it (relevance.md 5)."""
