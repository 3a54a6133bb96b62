"""The values of attributes of a document, for filters, facets and sorting (docs/filters-and-facets.md).

Also: the normal form for comparing texts, the attributes whose values an index stores, and the check of `_geo`.
"""
from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.base.quantities import number_of
from svcd.schema.attributes import with_parents
from svcd.schema.index_settings import IndexSettings
from svcd.schema.ranking_rules import custom_attributes

Value = float | str  # a number, or a text in normal form

_STORED_BYTES = 468  # of a text; comparisons of values ignore the rest (quirk)
GEO = "_geo"
COORDINATES = (f"{GEO}.lat", f"{GEO}.lng")  # virtual numeric attributes of documents with `_geo`
_NEVER = ("_vectors", GEO, "_geojson")
# The property White_Space of Unicode; str.strip() would also remove some control characters.
_ASCII_WHITE_SPACE = "\t\n\x0b\x0c\r "
WHITE_SPACE = f"{_ASCII_WHITE_SPACE}\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


def normal_form(text: str) -> str:
    """Return the normal form for comparing texts: trimmed, decomposed by character, in lower case."""
    if text.isascii():
        return text.strip(_ASCII_WHITE_SPACE).lower()
    trimmed = text.strip(WHITE_SPACE)
    # By character, so that marks are not sorted across characters.
    return "".join(unicodedata.normalize("NFKD", character) for character in trimmed).lower()


def stored_form(text: str) -> str:
    """Return the normal form, cut to the length that an index stores."""
    normal = normal_form(text)
    if len(normal) * 4 <= _STORED_BYTES:
        return normal
    return normal.encode()[:_STORED_BYTES].decode(errors="ignore")


@dataclass(slots=True)
class FieldValues:
    """The values of one attribute in one document.

    values: value -> the text as the document spells it (the last spelling of several), None for numbers.
    is_null, is_empty: True when a member with this name is null, or is "" or [] or {}.
    has_both_zeros: True when the zero in `values` represents both 0.0 and -0.0, which are two values.
    """

    values: dict[Value, str | None] = field(default_factory=dict)
    is_null: bool = False
    is_empty: bool = False
    has_both_zeros: bool = False

    def each(self) -> list[Value]:
        """Return all values, with both zeros."""
        if not self.has_both_zeros:
            return list(self.values)
        return [*self.values, *(-value for value in self.values if value == 0.0)]

    def add(self, scalar: str | int | float | bool) -> None:
        """Add a value of the document; an empty text is not a value."""
        if isinstance(scalar, str):
            if scalar:  # a text of white space is a value, which becomes ""
                self.values[stored_form(scalar)] = scalar
        elif isinstance(scalar, bool):
            spelled = "true" if scalar else "false"
            self.values[spelled] = spelled
        else:
            number = float(scalar)
            self.has_both_zeros |= number == 0 and any(repr(value) == repr(-number) for value in self.values)
            self.values[number] = None


def field_values(document: Mapping[str, Any], is_kept: Callable[[str], bool]) -> dict[str, FieldValues]:
    """Return attribute -> its values, for attributes with is_kept(attribute). `_geo` must have been validated."""
    found: dict[str, FieldValues] = {}
    for name, value in document.items():
        if name not in _NEVER:
            _member(name, value, is_kept, found)
    if GEO in document and is_kept(GEO) and (point := validate_geo("", document)):
        for name, angle in zip(COORDINATES, point):  # numbers, even if the document has texts
            found[name] = FieldValues({angle: None})
    return found


def values_of_member(value: Any) -> FieldValues:
    """Return the values of an attribute that is one member of a document, a scalar or an array of scalars."""
    held = FieldValues()
    _collect(value, held)
    if isinstance(value, list):
        for element in value:
            if element is not None:
                held.add(element)
    return held


def kept_fields(settings: IndexSettings) -> Callable[[str], bool]:
    """Return a predicate: attribute -> whether the index stores its values.

    It stores values of filterable, facet-searchable, sortable and distinct attributes, and of attributes in ranking rules.
    """
    filterable, sortable = settings.filterable, set(settings.sortable_attributes)
    exact = {settings.distinct_attribute, *custom_attributes(settings.ranking_rules)}
    # No pattern applies to coordinates: `_geo` must be named.
    known: dict[str, bool] = dict.fromkeys((GEO, *COORDINATES), filterable.names(GEO) or GEO in sortable)
    if not filterable.listed and not sortable and exact == {None}:
        return lambda name: False

    def is_kept(name: str) -> bool:
        if name not in known:
            rule = filterable.rule(name)
            is_ruled = rule is not None and rule.needs_values
            known[name] = name in exact or is_ruled or not sortable.isdisjoint(with_parents(name))
        return known[name]

    return is_kept


def _member(name: str, value: Any, is_kept: Callable[[str], bool], found: dict[str, FieldValues]) -> None:
    """Collect the values of a member of the document or of an object in it."""
    if is_kept(name):
        _collect(value, found.get(name) or found.setdefault(name, FieldValues()))
    if isinstance(value, (dict, list)):
        _beneath(name, value, is_kept, found)


def _collect(value: Any, held: FieldValues) -> None:
    """Record a member itself, without the contents of an object or array."""
    if value is None:
        held.is_null = True
    elif not isinstance(value, (dict, list)):
        held.is_empty |= value == ""
        held.add(value)
    elif not value:
        held.is_empty = True


def _beneath(name: str, value: dict[str, Any] | list[Any], is_kept: Callable[[str], bool], found: dict[str, FieldValues]) -> None:
    if isinstance(value, dict):
        for member, inner in value.items():
            _member(f"{name}.{member}", inner, is_kept, found)
        return
    is_kept_here = is_kept(name)
    for element in value:
        if isinstance(element, (dict, list)):
            _beneath(name, element, is_kept, found)
        elif is_kept_here and element is not None:
            (found.get(name) or found.setdefault(name, FieldValues())).add(element)


# The check of `_geo`

def validate_geo(document_id: str, document: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (latitude, longitude) of a document in degrees, None without `_geo`. Raises invalid_document_geo_field."""
    geo = document.get("_geo")
    if geo is None:
        return None
    where = f"in the document with the id: `{dumps(document_id)}`"
    if not isinstance(geo, dict):
        _fail(f"The `_geo` field {where} is not an object. Was expecting an object with the `_geo.lat` and `_geo.lng` fields but "
              f"instead got `{dumps(geo)}`.")
    if "lat" not in geo and "lng" not in geo:
        _fail(f"Could not find latitude nor longitude {where}. Was expecting `_geo.lat` and `_geo.lng` fields.")
    for name, meaning in (("lat", "latitude"), ("lng", "longitude")):
        if name not in geo:
            _fail(f"Could not find {meaning} {where}. Was expecting a `_geo.{name}` field.")
    names = list(geo)
    for name in ("lat", "lng"):  # quirk: the last member takes the place of each coordinate that is removed
        names[names.index(name)] = names[-1]
        names.pop()
    if names:
        others = {name: geo[name] for name in names}
        _fail(f"The `_geo` field {where} contains the following unexpected fields: `{dumps(others)}`.")
    latitude, longitude = degrees(geo["lat"]), degrees(geo["lng"])
    if latitude is None and longitude is None:
        _fail(f"Could not parse latitude nor longitude {where}. Was expecting finite numbers but instead got "
              f"`{dumps(geo['lat'])}` and `{dumps(geo['lng'])}`.")
    if latitude is None or longitude is None:
        meaning, value = ("latitude", geo["lat"]) if latitude is None else ("longitude", geo["lng"])
        _fail(f"Could not parse {meaning} {where}. Was expecting a finite number but instead got `{dumps(value)}`.")
    return latitude, longitude


def degrees(value: Any) -> float | None:
    """Return the finite number of a JSON value, or of a text that spells one; None for other values."""
    if isinstance(value, str):
        return number_of(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _fail(message: str) -> NoReturn:
    raise ApiError("invalid_document_geo_field", message)
