"""The file of one index: tables, encodings, the writer, and the readers of a read transaction. See docs/storage.md."""
