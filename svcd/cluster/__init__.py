"""The replicated log that several svcd share: its interface, and the services that keep it."""
