"""Queries: parsing, terms with their derivations, the query graph, and the Reader protocol that searches ask."""
