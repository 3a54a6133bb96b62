"""HTTP and nothing else: no route, no index, no key."""
