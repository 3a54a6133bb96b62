"""Asynchronous work: kinds of tasks, batching, the runner, the indexing process; dumps and snapshots."""
