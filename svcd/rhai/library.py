"""All functions of the language, by name and types; and which of them may be read as properties.

Made from the rows of each type's module; knows nothing more.
"""
from __future__ import annotations

from svcd.rhai import arrays, maps, numbers, strings
from svcd.rhai.arrays import ARRAY_BUILTINS
from svcd.rhai.builtins import ANY, Builtin
from svcd.rhai.maps import MAP_BUILTINS
from svcd.rhai.numbers import NUMBER_BUILTINS
from svcd.rhai.operators import OPERATORS
from svcd.rhai.strings import STRING_BUILTINS

__all__ = ["ANY", "LIBRARY", "PROPERTIES", "Builtin"]

LIBRARY: dict[tuple[str, tuple[type, ...]], Builtin] = {
    (native.name, native.kinds): native
    for native in (*OPERATORS, *NUMBER_BUILTINS, *STRING_BUILTINS, *ARRAY_BUILTINS, *MAP_BUILTINS)
}
# `text.len` is `text.len()`; the members of object maps come before any function.
PROPERTIES: frozenset[tuple[type, str]] = frozenset(
    (kind, name) for module in (arrays, maps, numbers, strings)
    for kind, names in module.PROPERTIES.items() for name in names
)
