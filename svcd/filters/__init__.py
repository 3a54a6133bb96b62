"""Filters: from the text of a condition to the documents that meet it."""
