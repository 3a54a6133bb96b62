"""1. Without a master key everything but `keys.*` is allowed.
2. With one, only the master key opens anything.
3. A missing header, another scheme and a wrong token are told apart.
"""
from __future__ import annotations

import pytest

from svcd.auth.keys import ALL, Keys
from svcd.errors import ApiError

MASTER_KEY = "0123456789abcdef"


def code_of(keys: Keys, header: str | None, action: str = "indexes.get") -> str:
    with pytest.raises(ApiError) as refusal:
        keys.check(action, None, header)
    return refusal.value.code


@pytest.mark.parametrize("header", [None, "Bearer whatever"])
def test_an_open_instance_allows_everything(header: str | None) -> None:
    assert Keys(None).check("indexes.get", "films", header) is ALL


@pytest.mark.parametrize("header", [None, "Bearer whatever"])
def test_the_keys_routes_need_a_master_key_at_launch(header: str | None) -> None:
    assert code_of(Keys(None), header, "keys.get") == "missing_master_key"


def test_the_master_key_opens_every_action() -> None:
    assert Keys(MASTER_KEY).check("keys.delete", None, f"Bearer {MASTER_KEY}").allows("films")


@pytest.mark.parametrize(("header", "code"), [
    (None, "missing_authorization_header"),
    ("Basic dXNlcg==", "missing_authorization_header"),
    (f"bearer {MASTER_KEY}", "missing_authorization_header"),
    ("Bearer", "invalid_api_key"),
    ("Bearer ", "invalid_api_key"),
    (f"Bearer  {MASTER_KEY}", "invalid_api_key"),
    (f"Bearer {MASTER_KEY} ", "invalid_api_key"),
    ("Bearer é", "invalid_api_key"),
])
def test_anything_else_is_refused_by_its_kind(header: str | None, code: str) -> None:
    assert code_of(Keys(MASTER_KEY), header) == code


def test_another_scheme_is_refused_even_on_an_open_instance() -> None:
    assert code_of(Keys(None), "Basic dXNlcg==") == "missing_authorization_header"
