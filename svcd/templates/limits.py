"""Limits of templates: on their text when they are parsed, on their work while they are rendered.

A template may come from anybody who may change settings, and it runs inside of a server that has other things to do. Work is
counted, not timed, so that the same template with the same document always has the same outcome.
"""
from __future__ import annotations

# When a template is parsed. The library reads text with regular expressions that cannot be interrupted and take quadratic time
# within one tag or output: hence the limit for each.
TEXT = 100_000  # characters of a template
PART = 4_000  # characters between `{{` and `}}`, or `{%` and `%}`
NESTING = 50  # blocks in each other; also the depth of a value that is written or compared

# While it is rendered. A million steps take one or two seconds.
STEPS = 1_000_000  # tags, outputs, variables and rounds of loops; a filter also counts the elements that it reads
CHARACTERS = 16 * 2**20  # made in all, by outputs, filters and captures
ELEMENTS = 100_000  # of an array that a filter or loop reads
