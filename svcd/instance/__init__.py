"""The data folder of one instance: task queue, list of indexes, keys, webhooks and the outbox of notices."""
