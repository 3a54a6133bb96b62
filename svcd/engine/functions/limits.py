"""How much a function may take, so that none can take the daemon's time or memory.

The reference allows 1,000,000 operations, 30 functions, arrays and maps of 10,000, and texts of 1 GiB; where
it is not named here as different, its number stands. What is copied or made counts as operations too, by its size.
"""
from __future__ import annotations

TEXT_LENGTH = 1 << 16  # characters of the function's own text; so many take half a second to parse
NESTING = 64  # expressions and blocks in one another; Python's stack has to hold the parser and the run
FUNCTIONS = 30
VARIABLES = 1000  # of one function

OPERATIONS = 1_000_000  # for one document
CALL_DEPTH = 64  # the reference: 1000, on a stack of its own
ARRAY_LENGTH = 10_000
MAP_LENGTH = 10_000
STRING_LENGTH = 1 << 24
TOLD_LENGTH = 4096  # characters of a value in an error
VALUE_DEPTH = 128  # arrays and maps in one another: JSON that is nested deeper can't be read

# What one operation pays for: so much can be made for one document before there were too many operations.
CHARACTERS_SHIFT = 7  # 128 characters
COPIED_SHIFT = 12  # 4096 characters of a text that grows: they are copied, but not kept twice
ELEMENTS_SHIFT = 3  # 8 elements of an array; each member of a map is one
