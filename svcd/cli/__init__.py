"""The command line: launch options, and the start and the stop of the daemon and its processes."""
import gc

# New objects, less freed objects, before Python looks for cycles among the youngest objects. Imports make objects that stay, and
# a search makes some ten thousand, few of them in cycles: with Python's limit of 700 collecting took a twentieth of a start, and
# up to a tenth of a search.
gc.set_threshold(10_000)
