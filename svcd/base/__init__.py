"""Parts that every other package may use: sets of documents, doc values, positions, JSON, times, errors, logs, tracing."""
