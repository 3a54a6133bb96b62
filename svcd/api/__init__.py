"""The routes: wire shapes in, wire shapes out."""
