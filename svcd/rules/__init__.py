"""Search rules: find the rules in force for a query, and the documents that they pin (docs/search-rules.md)."""
