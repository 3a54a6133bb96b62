"""Parts that every other package may use: sets of documents, doc values, positions, JSON, numbers, times, errors, logs, tracing."""
