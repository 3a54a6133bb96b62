"""The command line: launch options, and the start and the stop of the daemon and its processes."""
import gc

# New objects, less freed objects, before Python looks for cycles among the youngest objects. Imports make objects that stay, so
# they get by without; a daemon lowers the number when all is loaded (svcd.cli.serving.settle).
gc.set_threshold(100_000)
