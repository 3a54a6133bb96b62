"""Work that is done after the answer: kinds, batches, the runner and the indexing process."""
