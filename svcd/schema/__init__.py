"""What an index is told about its documents: settings, attributes, primary key, and the values they select."""
