"""The ranking rules and the one loop that runs them."""
