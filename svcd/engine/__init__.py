"""Words, queries, ranking and formatting: pure, without SQL, HTTP, clock or threads."""
