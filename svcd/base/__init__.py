"""Parts that every other package may use: bitmaps, doc values, positions, JSON, numbers and times, errors, logs, tracing."""
