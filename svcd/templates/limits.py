"""Limits of templates, on their text when they are parsed and on their work when they are rendered; TemplateError.

Anybody who may change settings can set a template, and it runs inside a server that has other work. Work is counted, not timed,
so that the same template with the same document always has the same outcome.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class TemplateError(Exception):
    """message: the fault, in the form that clients expect: `liquid: Unknown index\\n  with:\\n    variable=doc\\n ...`, with a
    newline at its end; callers put their own words in front (docs/templates.md#errors).

    path: the place in a JSON template, as keys of objects and indexes of arrays; empty for the value itself and a plain template.
    """

    def __init__(self, message: str, path: Sequence[str | int] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = tuple(path)

    def at(self, *path: str | int) -> TemplateError:
        """Return the same error for this path of a JSON template."""
        return TemplateError(self.message, (*path, *self.path))

    def while_parsing(self, root: str = "") -> str:
        """Return the sentence for a syntax error of a JSON template. root: prefix of the path, such as `.indexingFragments.a`."""
        return self._sentence("parsing", root)

    def while_rendering(self, root: str = "") -> str:
        """Return the sentence for a JSON template that cannot be rendered."""
        return self._sentence("rendering", root)

    def _sentence(self, doing: str, root: str) -> str:
        sentence = f"error while {doing} template: {self.message}"
        if not self.path:
            return sentence
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path)
        return f"in `{root}{place}`, {sentence}"


# When a template is parsed. The regular expressions of the library cannot be interrupted and take quadratic time within one tag
# or output: hence the limit for each tag and output.
TEXT = 100_000  # characters of a template
PART = 4_000  # characters between `{{` and `}}`, or `{%` and `%}`
NESTING = 50  # nested blocks; also the depth of a value that is written or compared
FRAGMENT_NESTING = 128  # nested arrays and objects of a fragment

# While it is rendered. All steps together take about a second.
STEPS = 500_000  # tags, outputs, variables, rounds of loops, and elements of arrays that are read, written or compared
CHARACTERS = 16 * 2**20  # total of outputs, filters and captures
ELEMENTS = 100_000  # elements of an array that a filter or loop reads


class Charge(Protocol):
    """Counts work. Raises TemplateError beyond the limits."""

    def __call__(self, steps: int, characters: int = 0) -> None: ...


class Budget:
    """The remaining work of one rendering."""

    __slots__ = ("_characters", "_steps")

    def __init__(self) -> None:
        self._steps = STEPS
        self._characters = CHARACTERS

    def charge(self, steps: int, characters: int = 0) -> None:
        """Count work. Raises TemplateError beyond the limits."""
        self._steps -= steps
        self._characters -= characters
        if self._characters < 0:
            raise TemplateError(f"liquid: Template makes more than {CHARACTERS} characters\n")
        if self._steps < 0:
            raise TemplateError(f"liquid: Template takes more than {STEPS} steps\n")


Render = Callable[[Mapping[str, Any], Budget], str]  # renders a template with these variables
