"""What one request was allowed: which indexes, and under which filters.

Knows the answers that handlers ask for; refuses to know tokens, secrets and the order of checks.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from svcd.auth import actions
from svcd.base.errors import ApiError

INVALID_KEY = "The provided API key is invalid."

# Of a tenant token: index uid or pattern -> the filter to join to every search in it, None for none.
SearchRules = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Permission:
    """What a request was allowed.

    indexes: uids and patterns of the key; None is every index. rules: of the tenant token, when it is one; an
    index has to be allowed by both.
    may_create_index: a write may create the index it names.
    """

    may_create_index: bool = True
    indexes: tuple[str, ...] | None = None
    rules: SearchRules | None = None

    def allows(self, index_uid: str | None) -> bool:
        """True when the bearer may see this index; None stands for what belongs to no index."""
        return ((self.indexes is None or actions.covers(self.indexes, index_uid))
                and (self.rules is None or actions.covers(self.rules, index_uid)))

    @property
    def restriction(self) -> Callable[[str], bool] | None:
        """allows(), for lists of what belongs to indexes; None when the bearer may see all of them."""
        return None if self.allows(None) else self.allows

    def require(self, index_uid: str) -> None:
        """Raise invalid_api_key unless the bearer may use the index that a body names."""
        if not self.allows(index_uid):
            raise ApiError("invalid_api_key", INVALID_KEY)

    @property
    def has_filters(self) -> bool:
        """True when searches in some index have to be narrowed: who can't do that must refuse."""
        return self.rules is not None and any(rule is not None for rule in self.rules.values())

    def search_filter(self, index_uid: str) -> Any:
        """The filter to join to every search in an index, in any of the forms of a request; None for none.

        The rule of the index itself decides, else that of the longest pattern. Raises invalid_api_key for an index
        that the bearer may not use.
        """
        self.require(index_uid)
        rule = actions.best(self.rules or (), index_uid)
        return None if rule is None or self.rules is None else self.rules[rule]


ALL_PERMITTED = Permission()
