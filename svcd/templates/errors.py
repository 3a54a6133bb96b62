"""TemplateError: a template that cannot be parsed, or cannot be rendered with the given variables."""
from __future__ import annotations

from collections.abc import Sequence


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
        """Return the sentence for a JSON template with a syntax error. root: prefix of the path, such as
        `.indexingFragments.a`."""
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
