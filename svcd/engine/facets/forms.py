"""The forms of texts in which facet search compares them (relevance.md 6.4).

Knows how a text becomes its search form, and keeps the forms of a field's values; refuses to know how they are
searched and counted.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from svcd.engine import attributes, languages
from svcd.engine.facets.sorted_texts import Packed, SortedTexts, pack
from svcd.engine.normalisation import lemma_of
from svcd.engine.reader import Reader
from svcd.engine.scripts import script_of_whole
from svcd.fields.locales import long_form


def search_form(text: str, locales: Sequence[str] | None) -> str:
    """The lemma of a text taken as one token. locales: the languages it may be in; None for a text without any."""
    if text.isascii() and text.isprintable():
        return text.lower()
    script = script_of_whole(text)
    return lemma_of(text, script, languages.detect(text, script, locales) if locales else None)


def field_locales(settings: Mapping[str, Any], field: str) -> Sequence[str] | None:
    """The languages in which the texts of a field may be; None where the settings do not say."""
    return attributes.locales_test(settings.get("localizedAttributes"))(field)


def query_locales(settings: Mapping[str, Any], field: str, asked: Sequence[str] | None) -> Sequence[str] | None:
    """The languages of a facet query: those of its field that were asked for; none where the field has none."""
    of_field = field_locales(settings, field)
    if of_field is None or asked is None:
        return of_field
    codes = set(map(long_form, asked))
    return [locale for locale in of_field if long_form(locale) in codes]


class Forms(NamedTuple):
    """forms: of all texts of a field, each once. others: form -> the values that have it, if it is not its only one."""

    forms: SortedTexts
    others: Mapping[str, Sequence[str]]

    def has(self, form: str) -> bool:
        """Does any value have this form?"""
        rank = self.forms.rank(form)
        return rank < len(self.forms) and self.forms[rank] == form

    def values(self, form: str) -> Sequence[str]:
        """The values of a form, in byte order."""
        return self.others.get(form) or (form,)


def forms_of(reader: Reader, field: str) -> Forms:
    """The search forms of a field's texts."""
    locales = field_locales(reader.settings, field)
    packed, others = reader.remembered(
        ("facet forms", field, *(locales or ())), lambda: _forms_of(_texts(reader, field), locales))
    return Forms(SortedTexts(packed), others)


def _texts(reader: Reader, field: str) -> Sequence[Any]:
    return reader.values(field, str)


def _forms_of(values: Sequence[str], locales: Sequence[str] | None) -> tuple[Packed, dict[str, list[str]]]:
    values_of: dict[str, list[str]] = {}
    for value in values:
        values_of.setdefault(search_form(value, locales), []).append(value)
    others = {form: values for form, values in values_of.items() if values != [form]}
    return pack(sorted(values_of)), others
