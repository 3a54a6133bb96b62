"""Settings of an index, its attributes, primary keys, and the values that they select in documents."""
