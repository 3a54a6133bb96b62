"""Index uids and their patterns, UUIDs, locales and experimental features: their syntax, and the messages for invalid ones."""
from __future__ import annotations

import re
from functools import lru_cache
from collections.abc import Mapping
from typing import NamedTuple

from svcd.base.errors import ApiError
from svcd.validation.checks import one_of, parsed, string

# The message says 512 bytes, but the interface accepts 400 (quirk).
_LONGEST_UID = 400
_UID = re.compile(rf"[A-Za-z0-9_-]{{1,{_LONGEST_UID}}}", re.ASCII)


def parse_index_uid(text: str) -> str:
    """Return the text itself if it is a valid index uid. Raises ValueError(reason)."""
    if _UID.fullmatch(text):
        return text
    raise ValueError(
        f"`{text}` is not a valid index uid. Index uid can be an integer or a string containing only "
        "alphanumeric characters, hyphens (-) and underscores (_), and can not be more than 512 bytes."
    )


def parse_index_uid_pattern(text: str) -> str:
    """Return the text if it is an index uid, a prefix of index uids followed by `*`, or `*`. Raises ValueError(reason)."""
    beginning = text.removesuffix("*")
    if text == "*" or _UID.fullmatch(beginning):
        return text
    raise ValueError(
        f"`{text}` is not a valid index uid pattern. Index uid patterns can be an integer or a string containing only "
        "alphanumeric characters, hyphens (-), underscores (_), and optionally end with a star (*)."
    )


@lru_cache(maxsize=256)  # most requests name one of a few indexes
def checked_index_uid(text: str) -> str:
    """Check the index uid in the path of a request. Raises ApiError invalid_index_uid."""
    try:
        return parse_index_uid(text)
    except ValueError as error:
        raise ApiError("invalid_index_uid", str(error)) from None


index_uid = parsed(string, parse_index_uid)
index_uid_pattern = parsed(string, parse_index_uid_pattern)


# UUIDs

_PREFIX = "urn:uuid:"
_GROUPS = (8, 4, 4, 4, 12)
_FOREIGN = re.compile(r"[^0-9a-fA-F-]")
_DIGITS = 32
_MOST_BYTES = len(_PREFIX) + _DIGITS + len(_GROUPS) - 1


def parse_uuid(text: str) -> str:
    """Return the UUID in lower case with hyphens. Raises ValueError(reason).

    Accepts `8-4-4-4-12` digits, 32 digits, and both in braces or after `urn:uuid:`.
    """
    body, begin = text, 0  # the text without braces or prefix, and the bytes before it
    if text.startswith("{") and text.endswith("}"):
        body, begin = text[1:-1], 1
    elif text.startswith(_PREFIX):
        body, begin = text[len(_PREFIX):], len(_PREFIX)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _MOST_BYTES:  # no need to read its characters
        raise ValueError(f"invalid length: found {size}")
    if foreign := _FOREIGN.search(body):
        place = begin + len(body[:foreign.start()].encode("utf-8", "surrogatepass"))
        raise ValueError(f"invalid character: found `{foreign[0]}` at {place}")
    groups = body.split("-")
    if len(groups) == 1:
        if len(body) != _DIGITS:
            raise ValueError(f"invalid length: found {size}")
        ends = [sum(_GROUPS[:count]) for count in range(len(_GROUPS) + 1)]
        groups = [body[start:end] for start, end in zip(ends, ends[1:])]
    if len(groups) != len(_GROUPS):
        raise ValueError(f"invalid group count: expected {len(_GROUPS)}, found {len(groups)}")
    for number, (group, length) in enumerate(zip(groups, _GROUPS)):
        if len(group) != length:
            raise ValueError(f"invalid group length in group {number}: expected {length}, found {len(group)}")
    return "-".join(groups).lower()


uuid = parsed(string, parse_uuid)


# Locales: languages by their codes of ISO 639-1 or 639-3 (docs/text-analysis.md#languages)

# In the order of messages about JSON bodies: codes of two letters, the codes of three letters of the same languages, and one
# language without a short code.
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
    """Return the three-letter code of a language, given either of its codes."""
    return _LONG_FORMS.get(code, code)


def parse_locale(text: str) -> str:
    """Parse a locale in a query string. Raises ValueError(reason)."""
    if text in LOCALES:
        return text
    raise ValueError(f"Unsupported locale `{text}`, expected one of {_QUERY_ORDER}")


# Experimental features


class Feature(NamedTuple):
    """One feature. title: its name in messages. discussion, forum: number and place of its page at github.com.

    A feature without a page is an extension of the interface: messages do not list it, and answers show it once it was switched.
    """

    title: str
    discussion: int | None
    forum: str = "orgs/svc"

    @property
    def is_own(self) -> bool:
        """Return whether the feature is an extension of the interface."""
        return self.discussion is None


FEATURES: dict[str, Feature] = {  # flag: feature, in the order of answers and messages
    "metrics": Feature("metrics", 625, "svc/product"),
    "logsRoute": Feature("logs route", 721),
    "editDocumentsByFunction": Feature("edit documents by function", 762),
    "containsFilter": Feature("contains filter", 763),
    "dynamicSearchRules": Feature("dynamic search rules", 884),
    "network": Feature("network", 805),
    "getTaskDocumentsRoute": Feature("get task documents route", 808),
    "taskQueueCompactionRoute": Feature("task queue compaction route", 883),
    "compositeEmbedders": Feature("composite embedders", 816),
    "chatCompletions": Feature("chat completions", 835),
    "multimodal": Feature("multimodal", 846),
    "foreignKeys": Feature("foreign_keys", 873),
    "disableDocumentsFetchQueue": Feature("disable documents fetch queue", 892),
    "legacySearch": Feature("legacy search", 893),
    "renderRoute": Feature("render_route", 888),
    "tasksStreamingRoute": Feature("tasks_streaming_route", 889),
    "mcp": Feature("mcp", None),
}
# A launch option enables personalization instead of a flag.
PERSONALIZATION = Feature("personalization", 866)


def feature_not_enabled(feature: Feature, action: str) -> ApiError:
    """Return the error feature_not_enabled. action: the start of its message, such as "Using the /network route"."""
    how = f"See https://github.com/{feature.forum}/discussions/{feature.discussion}"
    if feature.is_own:
        how = (f"Start svcd with `--experimental-{feature.title}`, or send `PATCH /experimental-features` with "
               f'`{{"{feature.title}": true}}`.')
    return ApiError("feature_not_enabled", f"{action} requires enabling the `{feature.title}` experimental feature. {how}")


def require_feature(flags: Mapping[str, bool | None], flag: str, action: str) -> None:
    """Raise feature_not_enabled unless the flag is on."""
    if not flags.get(flag):
        raise feature_not_enabled(FEATURES[flag], action)
