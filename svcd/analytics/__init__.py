"""The anonymous usage report, off by default."""
