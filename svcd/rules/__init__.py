"""Search rules: which are in force for a query, and which documents they pin (docs/search-rules.md)."""
