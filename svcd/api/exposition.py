"""The text in which Prometheus reads figures: families of samples with labels (format version 0.0.4).

Knows the format; refuses to know any figure.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

CONTENT_TYPE = "text/plain; version=0.0.4"
GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"

Labels = tuple[tuple[str, str], ...]
_Values = TypeVar("_Values", bound=tuple[str, ...])
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """One figure. suffix: what follows the name of the family, for the parts of a histogram."""

    value: float
    labels: Labels = ()
    suffix: str = ""


class Family(NamedTuple):
    """Figures of one name. kind: GAUGE, COUNTER or HISTOGRAM. Without samples it is left out."""

    name: str
    kind: str
    about: str
    samples: Iterable[Sample]


def labelled(names: Sequence[str], figures: Mapping[_Values, float]) -> list[Sample]:
    """One sample for each figure, its key giving the values of the labels; in the order of the keys."""
    return [Sample(figure, tuple(zip(names, values))) for values, figure in sorted(figures.items())]


def render(families: Iterable[Family]) -> str:
    """The whole text."""
    return "".join(f"{line}\n" for family in families for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    samples = list(family.samples)
    if not samples:
        return
    yield f"# HELP {family.name} {family.about}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in samples:
        yield f"{family.name}{sample.suffix}{_label_text(sample.labels)} {number(sample.value)}"


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


def number(value: float) -> str:
    """`1`, `0.005`, `+Inf`: whole numbers without a point."""
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(value)
