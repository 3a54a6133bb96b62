"""The command line: launch options, and the start and the stop of the daemon and its processes."""
