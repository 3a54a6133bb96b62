"""The languages that a caller may name, by their codes of ISO 639-1 or 639-3.

Knows the codes, which of them mean the same, and their two orders in messages; refuses to know what a
language changes. Source: messages.json, shared.locales.
"""
from __future__ import annotations

from svcd.fields.checks import one_of

# In the order of messages about JSON bodies: codes of two letters, those of three letters in the same order,
# and one that has no short form.
LOCALES = tuple("""
    af ak am ar az be bn bg ca cs da de el en eo et fi fr gu he hi hr hu hy id it jv ja kn ka km ko la lv lt
    ml mr mk my ne nl nb or pa fa pl pt ro ru si sk sl sn es sr sv ta te tl th tk tr uk ur uz vi yi zh zu
    afr aka amh ara aze bel ben bul cat ces dan deu ell eng epo est fin fra guj heb hin hrv hun hye ind ita
    jav jpn kan kat khm kor lat lav lit mal mar mkd mya nep nld nob ori pan pes pol por ron rus sin slk slv
    sna spa srp swe tam tel tgl tha tuk tur ukr urd uzb vie yid zho zul cmn
""".split())

_SHORT = [code for code in LOCALES if len(code) == 2]
_LONG_FORMS = dict(zip(_SHORT, LOCALES[len(_SHORT):]))

# Messages about query strings list the two-letter codes first, each group sorted.
_QUERY_ORDER = ", ".join(sorted(LOCALES, key=lambda code: (len(code), code)))

locale = one_of(*LOCALES)


def long_form(code: str) -> str:
    """The code of three letters of a language, whichever of its codes is given."""
    return _LONG_FORMS.get(code, code)


def parse_locale(text: str) -> str:
    """A locale of a query string; raises ValueError(reason) for another text."""
    if text in LOCALES:
        return text
    raise ValueError(f"Unsupported locale `{text}`, expected one of {_QUERY_ORDER}")
