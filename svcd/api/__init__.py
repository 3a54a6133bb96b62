"""The routes of the HTTP interface: decoding requests, calling the engine, encoding answers."""
