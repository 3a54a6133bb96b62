"""HTTP/1.0 and 1.1 on sockets: threads, connections, bodies, TLS. Independent of routes, indexes and keys."""
