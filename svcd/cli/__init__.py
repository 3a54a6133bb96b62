"""The command line: options in, a running daemon out."""
