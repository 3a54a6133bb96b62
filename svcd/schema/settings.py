"""The table SETTINGS: one row for each setting of an index; routes, defaults, checks, merging, responses and reindexing follow.

*Stored* settings contain only the settings that were set; *resolved* settings have every default filled in. The order of SETTINGS
is the order of responses and messages. A check also turns a value into its stored form (sorted sets, complete patterns). Search
and indexing use the typed form of resolved settings, `svcd.schema.index_settings`.
"""
from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from svcd.base.errors import ApiError
from svcd.schema import embedder_settings
from svcd.schema.attributes import WILDCARD
from svcd.schema.embedder_settings import fault_of_syntax, sorted_members
from svcd.schema.ranking_rules import DEFAULT_RANKING_RULES, check_ranking_rules, custom_attributes, parse_ranking_rule
from svcd.text import stemming as stemmers
from svcd.text.analyzer import decompose, whole_lemma
from svcd.validation import (Check, Field, array_of, boolean, bounded, map_of, non_zero, nullable, number, object_of, object_or,
                             one_of, parsed, positive_integer, string)
from svcd.validation.names import LOCALES, locale, long_form

Stored = Mapping[str, Any]
Change = Mapping[str, Any]  # {name: value, or None to reset}

PUT, PATCH = "PUT", "PATCH"

# Checks of values

def typo_sizes_refusal(one_typo: int, two_typos: int) -> str:
    """Return why two sizes are inconsistent, or "". The unpaired back-quote is part of the interface."""
    if one_typo <= two_typos:
        return ""
    return ("`minWordSizeForTypos` setting is invalid. `oneTypo` and `twoTypos` fields should be between `0` and `255`, and "
            f"`twoTypos` should be greater or equals to `oneTypo` but found `oneTypo: {one_typo}` and twoTypos: {two_typos}`.")


def _checked_typo_sizes(sizes: Mapping[str, int | None]) -> Mapping[str, int | None]:
    one_typo, two_typos = sizes.get("oneTypo"), sizes.get("twoTypos")
    if one_typo is not None and two_typos is not None and (refusal := typo_sizes_refusal(one_typo, two_typos)):
        raise ValueError(refusal)
    return sizes


def _ratio(name: str) -> Check:
    """Return a check of numbers from 0 to 1. name: of the member, for the message."""

    def parse(value: float) -> float:
        if 0 <= value <= 1:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a float between `0.0` and `1.0`.")

    return parsed(number, parse)


def _patch_of(checks: Mapping[str, Check]) -> Check:
    """Return a check of objects whose members may be absent (keep the stored value) or null (reset it)."""
    return object_of({member: Field(nullable(check)) for member, check in checks.items()})


strings = array_of(string)
string_set = parsed(strings, lambda texts: sorted(set(texts)))
attributes = parsed(strings, lambda names: None if WILDCARD in names else names)  # None resets the setting: `*` means all
ranking_rules = array_of(parsed(string, parse_ranking_rule))
synonyms = parsed(map_of(strings), sorted_members)

_FILTER_FEATURES = {"equality": True, "comparison": False}
_FEATURES = {"facetSearch": False, "filter": _FILTER_FEATURES}
_attribute_patterns = Field(strings, required=True)
_filter_features = object_of({
    "facetSearch": Field(boolean, default=_FEATURES["facetSearch"]),
    "filter": Field(object_of({name: Field(boolean, default=default) for name, default in _FILTER_FEATURES.items()}),
                    default=_FILTER_FEATURES),
})
filterable_attributes = array_of(object_or(
    object_of({"attributePatterns": _attribute_patterns, "features": Field(_filter_features, default=_FEATURES)}), string))
foreign_keys = array_of(object_of({"foreignIndexUid": Field(string, required=True), "fieldName": Field(string, required=True)}))
localized_attributes = array_of(object_of({
    "attributePatterns": _attribute_patterns, "locales": Field(array_of(locale), required=True)}))
typo_tolerance = _patch_of({
    "enabled": boolean,
    "minWordSizeForTypos": parsed(_patch_of(dict.fromkeys(("oneTypo", "twoTypos"), bounded(255))), _checked_typo_sizes),
    "disableOnWords": string_set,
    "disableOnAttributes": string_set,
    "disableOnNumbers": boolean,
})
faceting = _patch_of({
    "maxValuesPerFacet": positive_integer,
    "sortFacetValuesBy": parsed(map_of(one_of("alpha", "count")), sorted_members),
})
pagination = _patch_of({"maxTotalHits": non_zero})
def _in_range(name: str, low: float, high: float) -> Check:
    """Return a check of numbers from low to high. name: of the member, for the message."""

    def parse(value: float) -> float:
        if low <= value <= high:
            return value
        raise ValueError(f"the value of `{name}` is invalid, expected a number from `{low:g}` to `{high:g}`.")

    return parsed(number, parse)


def _stemmed_language(text: str) -> str:
    """Return the long form of a language with stems. Raises ValueError(reason)."""
    language = long_form(text) if text in LOCALES else text
    if language not in stemmers.ALGORITHMS:
        raise ValueError(f"`{text}` is not a language with stems. Supported languages are: "
                         f"{', '.join(f'`{known}`' for known in stemmers.ALGORITHMS)}.")
    return language


_stemmed_languages = array_of(parsed(string, _stemmed_language))
stemming = array_of(object_or(
    object_of({"attributePatterns": _attribute_patterns, "locales": Field(_stemmed_languages, required=True)}),
    parsed(string, _stemmed_language),
))
# A weight above 100 would make the frequencies of other attributes meaningless.
bm25 = _patch_of({
    "weights": map_of(nullable(_in_range("weights", 0, 100))),
    "k1": _in_range("k1", 0, 10),
    "b": _ratio("b"),
})
MATCHING_STRATEGIES = ("last", "all", "frequency")
OWN_STRATEGIES = ("bm25",)  # extensions of the interface, which its messages do not name
matching_strategy = one_of(*MATCHING_STRATEGIES, unlisted=OWN_STRATEGIES)
# Members of `hybrid`: extensions of the interface (docs/search.md#fusion).
FUSION_FIELDS = {
    "fusion": Field(one_of("rrf", "score"), "invalid_search_hybrid_fusion", is_listed=False,
                    about="How the lists by words and by vectors are joined: by reciprocal ranks, or by scores."),
    "k": Field(bounded(10_000, 1), "invalid_search_hybrid_fusion", is_listed=False, about="Rank constant of `rrf`; 60."),
}
SEARCH_PARAMETERS = {
    "hybrid": object_of({"semanticRatio": Field(_ratio("semanticRatio"), default=0.5), "embedder": Field(string, required=True),
                         **FUSION_FIELDS}),
    "limit": positive_integer,
    "sort": strings,
    "distinct": string,
    "matchingStrategy": matching_strategy,
    "attributesToSearchOn": strings,
    "rankingScoreThreshold": _ratio("rankingScoreThreshold"),
}
chat = _patch_of({
    "description": string,
    "documentTemplate": string,
    "documentTemplateMaxBytes": positive_integer,
    "searchParameters": _patch_of(SEARCH_PARAMETERS),
})


# The table

class Redo(enum.Enum):
    """A part of an index that a change makes stale, and that must be computed again."""

    WORDS = "words"  # the terms and positions of all documents
    PAIRS = "pairs"  # distances between terms
    PREFIXES = "prefixes"  # postings of prefixes
    FACETS = "facets"  # stored values, their order, and coordinates
    VECTORS = "vectors"  # embeddings


def _replaced(_stored: Any, given: Any) -> Any:
    return given


def _same(value: Any) -> Any:
    return value


def _merge_members(depth: int, order: Iterable[str] = ()) -> Callable[[Any, Any], Any]:
    """Return a merge function for objects: absent members are kept, null removes a member.

    depth: 1 replaces nested objects, 2 merges them too. order: of the members of the result.
    """
    places = {name: place for place, name in enumerate(order)}

    def merge(stored: Mapping[str, Any] | None, given: Mapping[str, Any], depth: int = depth) -> dict[str, Any]:
        after = dict(stored or {})
        for name, value in given.items():
            if depth > 1 and isinstance(value, dict):
                value = merge(after.get(name), value, depth - 1)
            after[name] = value
        kept = {name: value for name, value in after.items() if value is not None}
        return dict(sorted(kept.items(), key=lambda member: places.get(member[0], 0)))

    return merge


def _filled(default: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that fills defaults into a stored object and the objects inside it."""

    def fill(stored: Mapping[str, Any], default: Mapping[str, Any] = default) -> dict[str, Any]:
        full = {**default, **stored}
        inner = {name: fill(full[name], value) for name, value in default.items() if isinstance(value, dict)}
        return full | inner

    return fill


def _filled_faceting(stored: Mapping[str, Any]) -> dict[str, Any]:
    full = _filled(_FACETING)(stored)
    return full | {"sortFacetValuesBy": sorted_members(full["sortFacetValuesBy"])}


def _merge_chat(stored: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a change. Raises invalid_chat_setting_document_template, invalid_settings_embedders."""
    fault = fault_of_syntax(given.get("documentTemplate") or "")
    if fault is not None:
        raise ApiError("invalid_chat_setting_document_template", f"`.chat.documentTemplate`: Invalid document template: {fault}.")
    if given.get("documentTemplateMaxBytes") == 0:
        # The error code belongs to embedders, as do templates in the interface.
        raise ApiError(embedder_settings.CODE, "`.chat.documentTemplateMaxBytes`: `documentTemplateMaxBytes` cannot be zero")
    after: dict[str, Any] = _merge_members(2, SEARCH_PARAMETERS)(stored, given)
    return after


def _merge_typo_tolerance(stored: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    after: dict[str, Any] = _merge_members(2)(stored, given)
    sizes = _filled(_TYPO_TOLERANCE)(after)["minWordSizeForTypos"]
    refusal = typo_sizes_refusal(sizes["oneTypo"], sizes["twoTypos"])
    if refusal:
        raise ApiError("invalid_settings_typo_tolerance", refusal)
    if "disableOnWords" in after:
        after["disableOnWords"] = sorted(set(map(whole_lemma, after["disableOnWords"])))
    return after


class Setting(NamedTuple):
    """One setting.

    method: HTTP method that changes it on its own route. check: of its value; null always resets it.
    merge: (stored value or None, change) -> stored value; may raise ApiError.
    fill: stored value -> resolved value. validate: raises ApiError for faults that no check of a single member finds.
    redo: the parts that a change makes stale, if it changes `stale_by` of the resolved value.
    feature: (experimental feature, action for the message) that a value needs; if it is off, responses with all settings omit
    the setting. hide: masks secrets in a value. reset_as: the value that details of tasks show for a reset.
    is_extension: clients of the interface do not know it, so responses with all settings omit its default, details of a reset of
    all settings omit it, and messages about other settings omit its name.
    """

    name: str
    method: str
    check: Check
    default: Any
    code: str
    redo: tuple[Redo, ...] = ()
    stale_by: Callable[[Any], Any] = _same
    merge: Callable[[Any, Any], Any] = _replaced
    fill: Callable[[Any], Any] = _same
    validate: Callable[[Any], None] = _same
    feature: tuple[str, str] | None = None
    hide: Callable[[Any], Any] = _same
    reset_as: Any = None
    about: str = ""
    is_extension: bool = False

    @property
    def route(self) -> str:
        """The last segment of the path of its own route: `stop-words` for stopWords."""
        return re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", self.name)

    def resolved(self, stored: Stored) -> Any:
        """Return its value in stored settings, with defaults."""
        return self.fill(stored[self.name]) if stored.get(self.name) is not None else self.default

    def shown(self, stored: Stored) -> Any:
        """Return its value as a response shows it: with defaults, secrets masked."""
        return self.hide(self.resolved(stored))

    def changed_as_shown(self, value: Any) -> Any:
        """Return a new value, or None for a reset, as the details of a task show it."""
        return self.reset_as if value is None else self.hide(value)


_ALL = [WILDCARD]
_TYPO_TOLERANCE = {"enabled": True, "minWordSizeForTypos": {"oneTypo": 5, "twoTypos": 9}, "disableOnWords": [],
                   "disableOnAttributes": [], "disableOnNumbers": False}
_FACETING = {"maxValuesPerFacet": 100, "sortFacetValuesBy": {WILDCARD: "alpha"}}
_PAGINATION = {"maxTotalHits": 1000}
BM25_DEFAULTS = {"weights": {}, "k1": 1.6, "b": 0.75}
_CHAT = {"description": "", "documentTemplate": embedder_settings.DEFAULT_TEMPLATE,
         "documentTemplateMaxBytes": embedder_settings.DEFAULT_TEMPLATE_BYTES, "searchParameters": {}}

SETTINGS: tuple[Setting, ...] = (
    Setting("displayedAttributes", PUT, attributes, _ALL, "invalid_settings_displayed_attributes",
            merge=lambda _, given: list(dict.fromkeys(given)), reset_as=_ALL, about="Attributes that hits show; `*` for all."),
    Setting("searchableAttributes", PUT, attributes, _ALL, "invalid_settings_searchable_attributes",
            redo=(Redo.WORDS, Redo.VECTORS), stale_by=frozenset, merge=lambda _, given: list(dict.fromkeys(given)), reset_as=_ALL,
            about="Attributes to search for words, most important first; `*` for all."),
    Setting("filterableAttributes", PUT, filterable_attributes, [], "invalid_settings_filterable_attributes",
            redo=(Redo.FACETS,), about="Attributes that filters and facets may use, or rules for attribute patterns."),
    Setting("sortableAttributes", PUT, string_set, [], "invalid_settings_sortable_attributes",
            redo=(Redo.FACETS,), about="Attributes that `sort` may use."),
    Setting("foreignKeys", PUT, foreign_keys, [], "invalid_settings_foreign_keys",
            feature=("foreignKeys", "setting `foreignKeys` in the index settings"),
            about="Attributes that hold the identifiers of documents of other indexes."),
    Setting("rankingRules", PUT, ranking_rules, DEFAULT_RANKING_RULES, "invalid_settings_ranking_rules",
            redo=(Redo.FACETS,), stale_by=custom_attributes, validate=check_ranking_rules,
            about="Rules that order the hits, most important first."),
    Setting("stopWords", PUT, string_set, [], "invalid_settings_stop_words",
            redo=(Redo.WORDS,), merge=lambda _, given: sorted(set(map(decompose, given))),
            about="Words that queries and documents ignore."),
    Setting("nonSeparatorTokens", PUT, string_set, [], "invalid_settings_non_separator_tokens",
            redo=(Redo.WORDS,), about="Separators that are parts of words."),
    Setting("separatorTokens", PUT, string_set, [], "invalid_settings_separator_tokens",
            redo=(Redo.WORDS,), about="Additional separators of words."),
    Setting("dictionary", PUT, string_set, [], "invalid_settings_dictionary",
            redo=(Redo.WORDS,), about="Texts that are never split into words."),
    Setting("synonyms", PUT, synonyms, {}, "invalid_settings_synonyms",
            about="Words and phrases, each with alternatives that it also finds."),
    Setting("distinctAttribute", PUT, string, None, "invalid_settings_distinct_attribute",
            redo=(Redo.FACETS,), about="Attribute whose values occur only once among the hits."),
    Setting("proximityPrecision", PUT, one_of("byWord", "byAttribute"), "byWord",
            "invalid_settings_proximity_precision", redo=(Redo.PAIRS,), about="Precision of the distances between words."),
    Setting("typoTolerance", PATCH, typo_tolerance, _TYPO_TOLERANCE, "invalid_settings_typo_tolerance",
            merge=_merge_typo_tolerance, fill=_filled(_TYPO_TOLERANCE), about="Words that may have typos, and how many."),
    Setting("faceting", PATCH, faceting, _FACETING, "invalid_settings_faceting",
            merge=_merge_members(1), fill=_filled_faceting, about="Number and order of the facet values in answers."),
    Setting("pagination", PATCH, pagination, _PAGINATION, "invalid_settings_pagination",
            merge=_merge_members(1), fill=_filled(_PAGINATION), about="Maximum number of hits on all pages."),
    Setting("embedders", PATCH, embedder_settings.embedders, {}, embedder_settings.CODE,
            redo=(Redo.VECTORS,), merge=embedder_settings.merge_embedders, fill=embedder_settings.resolve_embedders,
            validate=embedder_settings.check_embedders, hide=embedder_settings.redact_embedders,
            about="Sources of vectors."),
    Setting("searchCutoffMs", PUT, positive_integer, None, "invalid_settings_search_cutoff_ms",
            about="Milliseconds after which a search returns the hits so far; null for 1500."),
    Setting("localizedAttributes", PUT, localized_attributes, None, "invalid_settings_localized_attributes",
            redo=(Redo.WORDS,),
            merge=lambda _, given: [{**rule, "locales": list(map(long_form, rule["locales"]))} for rule in given],
            about="Languages of attributes; null to detect them."),
    Setting("facetSearch", PUT, boolean, True, "invalid_settings_facet_search",
            redo=(Redo.FACETS,), about="Whether facet values can be searched."),
    Setting("prefixSearch", PUT, one_of("indexingTime", "disabled"), "indexingTime",
            "invalid_settings_prefix_search", redo=(Redo.PREFIXES,), about="Whether prefixes of words find them."),
    Setting("chat", PATCH, chat, _CHAT, "invalid_settings_index_chat",
            merge=_merge_chat, fill=_filled(_CHAT),
            feature=("chatCompletions", "setting `chat` in the index settings"),
            about="Description and search parameters of this index for language models."),
    Setting("defaultMatchingStrategy", PUT, matching_strategy, "last", "invalid_settings_default_matching_strategy",
            is_extension=True, about="Matching strategy of searches that name none."),
    Setting("bm25", PATCH, bm25, None, "invalid_settings_bm25", merge=_merge_members(2), fill=_filled(BM25_DEFAULTS),
            is_extension=True, about="Weights of attributes, `k1` and `b` of BM25; null for the defaults."),
    Setting("stemming", PUT, stemming, [], "invalid_settings_stemming", is_extension=True,
            about="Languages whose inflected words find each other, or rules for attribute patterns."),
    Setting("cjk", PUT, one_of("words", "bigrams"), "words", "invalid_settings_cjk", redo=(Redo.WORDS,), is_extension=True,
            about="How text without spaces is found: by words of lists, or by pairs of characters."),
    Setting("infixSearch", PUT, strings, [], "invalid_settings_infix_search", is_extension=True,
            merge=lambda _, given: list(dict.fromkeys(given)),
            about="Attributes whose words are found by any part of three characters or more."),
    Setting("foldWidth", PUT, boolean, False, "invalid_settings_fold_width", redo=(Redo.WORDS,), is_extension=True,
            about="Whether full-width and half-width forms are one."),
)

BY_NAME: Mapping[str, Setting] = {setting.name: setting for setting in SETTINGS}

# The members of a request body that changes several settings.
FIELDS: Mapping[str, Field] = {
    setting.name: Field(nullable(setting.check), setting.code, about=setting.about, is_listed=not setting.is_extension)
    for setting in SETTINGS}

RESET_ALL: Change = dict.fromkeys(BY_NAME)


def resolved(stored: Stored) -> dict[str, Any]:
    """Return all settings with defaults. Resolved settings stay unchanged."""
    return {setting.name: setting.resolved(stored) for setting in SETTINGS}


def features_used(change: Change) -> Iterator[tuple[str, str]]:
    """Yield (feature, action for the message) for each experimental feature that a change needs, in the order of checks."""
    for setting in SETTINGS:
        if setting.feature and change.get(setting.name) is not None:
            yield setting.feature
    yield from embedder_settings.features_used(change.get("embedders") or {})


def validate(change: Change) -> None:
    """Check the members of a decoded change together. Raises ApiError."""
    for name, value in change.items():
        if value is not None:
            BY_NAME[name].validate(value)


def merged(stored: Stored, change: Change) -> dict[str, Any]:
    """Return the stored settings after a change.

    Raises invalid_settings_typo_tolerance or invalid_settings_embedders when the change contradicts the stored settings, and
    invalid_chat_setting_document_template.
    """
    after = dict(stored)
    for name, value in change.items():
        after.pop(name, None)
        if value is not None:
            after[name] = BY_NAME[name].merge(stored.get(name), value)
    return {name: after[name] for name in BY_NAME if name in after}


def redo_of(old: Stored, new: Stored) -> set[Redo]:
    """Return the parts that become stale when stored settings change from old to new; none if no resolved value changes."""
    stale: set[Redo] = set()
    for setting in SETTINGS:
        if setting.redo and setting.stale_by(setting.resolved(old)) != setting.stale_by(setting.resolved(new)):
            stale.update(setting.redo)
    return stale


def as_shown(stored: Stored, features: Mapping[str, bool | None]) -> dict[str, Any]:
    """Return all settings as a response shows them: secrets masked, without settings whose feature is off, and extensions only
    where they differ from their defaults."""
    return {setting.name: setting.shown(stored) for setting in SETTINGS
            if (setting.feature is None or features.get(setting.feature[0]))
            and not (setting.is_extension and setting.resolved(stored) == setting.default)}


def changed_as_shown(change: Change) -> dict[str, Any]:
    """Return a change as the details of its task show it, secrets masked."""
    is_reset = change.keys() >= BY_NAME.keys()
    return {name: setting.changed_as_shown(change[name]) for name, setting in BY_NAME.items()
            if name in change and not (is_reset and setting.is_extension and change[name] is None)}
