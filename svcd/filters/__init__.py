"""Filters: parse the text of a condition, and find the documents that meet it."""
