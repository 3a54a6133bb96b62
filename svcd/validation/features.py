"""The experimental features: flags, titles in messages, and the error for a disabled feature."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from svcd.base.errors import ApiError

_DISCUSSIONS = "https://github.com/orgs/svc/discussions"


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature. title: its name in messages; link: the page of its discussion."""

    title: str
    link: str


def _feature(title: str, discussion: int) -> Feature:
    return Feature(title, f"{_DISCUSSIONS}/{discussion}")


FEATURES: dict[str, Feature] = {  # flag: feature, in the order of answers and messages
    "metrics": Feature("metrics", "https://github.com/svc/product/discussions/625"),
    "logsRoute": _feature("logs route", 721),
    "editDocumentsByFunction": _feature("edit documents by function", 762),
    "containsFilter": _feature("contains filter", 763),
    "dynamicSearchRules": _feature("dynamic search rules", 884),
    "network": _feature("network", 805),
    "getTaskDocumentsRoute": _feature("get task documents route", 808),
    "taskQueueCompactionRoute": _feature("task queue compaction route", 883),
    "compositeEmbedders": _feature("composite embedders", 816),
    "chatCompletions": _feature("chat completions", 835),
    "multimodal": _feature("multimodal", 846),
    "foreignKeys": _feature("foreign_keys", 873),
    "disableDocumentsFetchQueue": _feature("disable documents fetch queue", 892),
    "legacySearch": _feature("legacy search", 893),
    "renderRoute": _feature("render_route", 888),
    "tasksStreamingRoute": _feature("tasks_streaming_route", 889),
}
# A launch option enables personalization instead of a flag.
PERSONALIZATION = _feature("personalization", 866)


def not_enabled(feature: Feature, action: str) -> ApiError:
    """Return the error feature_not_enabled. action: the start of its message, such as "Using the /network route"."""
    return ApiError(
        "feature_not_enabled",
        f"{action} requires enabling the `{feature.title}` experimental feature. See {feature.link}",
    )


def require(flags: Mapping[str, bool | None], flag: str, action: str) -> None:
    """Raise feature_not_enabled unless the flag is on."""
    if not flags.get(flag):
        raise not_enabled(FEATURES[flag], action)
