"""All functions of the language, by name and types; and which of them may be read as properties.

Made from the rows of each type's module; knows nothing more.
"""
from __future__ import annotations

from svcd.rhai import arrays, maps, numbers, strings
from svcd.rhai.arrays import ARRAYS
from svcd.rhai.builtins import ANY, Native
from svcd.rhai.maps import MAPS
from svcd.rhai.numbers import NUMBERS
from svcd.rhai.operators import OPERATORS
from svcd.rhai.strings import TEXTS

__all__ = ["ANY", "LIBRARY", "PROPERTIES", "Native"]

LIBRARY: dict[tuple[str, tuple[type, ...]], Native] = {
    (native.name, native.kinds): native for native in (*OPERATORS, *NUMBERS, *TEXTS, *ARRAYS, *MAPS)
}
# `text.len` is `text.len()`; the members of object maps come before any function.
PROPERTIES: frozenset[tuple[type, str]] = frozenset(
    (kind, name) for module in (arrays, maps, numbers, strings)
    for kind, names in module.PROPERTIES.items() for name in names
)
