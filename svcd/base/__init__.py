"""Parts that know nothing of search: bitmaps, doc values, JSON, times, sizes, errors, logs, tracing."""
