"""Variables of the reference engine, MEILI_*: each counts where the variable SVC_* of the same name is not given.

svcd.cli.config reads those of options from here. The other variables are read in many places, so a start adds them to its
environment under the name of svcd, and all processes that it starts inherit them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

from svcd.base.errors import quoted
from svcd.cli.options import BY_VARIABLE, OF_A_SERVICE, OTHER_VARIABLES

PREFIX = "MEILI_"
_OWN = "SVC_"


def name_of(variable: str) -> str:
    """Return the name that a variable of svcd has in the reference engine."""
    return PREFIX + variable.removeprefix(_OWN)


def adopt(environ: MutableMapping[str, str]) -> None:
    """Add the variables that are not options under the name of svcd, where svcd's own is not given."""
    for variable in OTHER_VARIABLES:
        text = environ.get(name_of(variable))
        if text and not environ.get(variable):
            environ[variable] = text


def report(where: Callable[[str], str], environ: Mapping[str, str]) -> str | None:
    """Return the line of the log that names the variables of the reference engine, or None without any. No values: secrets.

    where: name of an option -> the flag, variable or key that gave its value.
    """
    names: dict[bool, list[str]] = {True: [], False: []}
    for variable in sorted(_given(environ)):
        own = _OWN + variable.removeprefix(PREFIX)
        if own in BY_VARIABLE:
            is_read = where(BY_VARIABLE[own].name) == variable and BY_VARIABLE[own].has_effect
        else:
            is_read = own in OTHER_VARIABLES and environ.get(own) == environ[variable]
        names[is_read].append(quoted(variable)[1:-1])
    parts = [f"{title}: {', '.join(names[is_read])}" for title, is_read in (("read", True), ("without effect", False))
             if names[is_read]]
    return f"variables of the reference engine {'; '.join(parts)}" if parts else None


def _given(environ: Mapping[str, str]) -> Iterator[str]:
    return (name for name, text in environ.items() if text and name.startswith(PREFIX) and not OF_A_SERVICE.fullmatch(name))
