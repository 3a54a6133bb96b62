"""API keys and tenant tokens: which actions and indexes a request may use."""
