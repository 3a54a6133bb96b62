"""Parts that know nothing of search: sets of documents, doc values, JSON, times, sizes, errors, logs, tracing."""
