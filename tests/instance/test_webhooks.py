"""What must hold of stored webhooks:

1. They are as they were after a restart; that of the launch options is as the launch says.
2. A change is whole or not at all, and is told.
3. There are 20 at most, besides that of the launch options.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.base.errors import ApiError
from svcd.instance.instance import Instance
from svcd.instance.webhooks import LAUNCH_UUID, MAX_WEBHOOKS, Webhook, merged_headers
from tests.instance.helpers import unlock


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    opened = Instance(tmp_path / "data")
    yield opened
    opened.close()


def test_they_outlive_the_daemon(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data")
    first.webhooks.set_launch_webhook("http://launch.test", "Bearer secret")
    rows = [Webhook(uuid, f"http://{uuid}.test", {"X-Name": uuid}) for uuid in ("b", "a")]
    for row in rows:
        first.webhooks.create(row)
    unlock(first)  # as after a kill: nothing else is closed
    second = Instance(tmp_path / "data")
    assert list(second.webhooks.all()) == rows[::-1]
    second.webhooks.set_launch_webhook("http://other.test")
    assert second.webhooks.all()[0] == Webhook(LAUNCH_UUID, "http://other.test")
    second.close()
    first.close()


def test_a_header_that_an_older_version_stored_twice_is_read_once(tmp_path: Path) -> None:
    first = Instance(tmp_path / "data")
    first.webhooks.create(Webhook("a", "http://a.test", {"authorization": "1", "X-Name": "a", "Authorization": "2"}))
    first.close()
    second = Instance(tmp_path / "data")
    assert second.webhooks.require("a").headers == {"X-Name": "a", "Authorization": "2"}
    second.close()


def test_the_last_layer_of_headers_counts() -> None:
    assert merged_headers({"a": "1", "b": "2"}, {"A": "3"}, {"B": None}) == {"A": "3"}


def test_that_of_the_launch_has_its_header_and_is_not_editable(instance: Instance) -> None:
    instance.webhooks.set_launch_webhook("http://launch.test", "Bearer secret")
    launch = instance.webhooks.require(LAUNCH_UUID)
    assert launch.headers == {"Authorization": "Bearer secret"} and not launch.is_editable
    instance.webhooks.create(Webhook("a", "http://a.test"))
    assert instance.webhooks.require("a").is_editable


def test_a_change_is_reported(instance: Instance) -> None:
    told: list[str] = []
    instance.webhooks.on_change = told.append
    instance.webhooks.create(Webhook("a", "http://a.test"))
    instance.webhooks.update("a", lambda row: row._replace(url="http://b.test"))
    assert instance.webhooks.require("a").url == "http://b.test"
    instance.webhooks.delete("a")
    assert told == ["a", "a", "a"] and instance.webhooks.get("a") is None


def test_a_refused_change_changes_nothing(instance: Instance) -> None:
    instance.webhooks.create(Webhook("a", "http://a.test"))

    def refuse(row: Webhook) -> Webhook:
        raise ApiError("invalid_webhook_url", "no")

    with pytest.raises(ApiError):
        instance.webhooks.update("a", refuse)
    assert instance.webhooks.require("a").url == "http://a.test"


def test_there_are_so_many_and_no_more(instance: Instance) -> None:
    instance.webhooks.set_launch_webhook("http://launch.test")
    for number in range(MAX_WEBHOOKS):
        instance.webhooks.create(Webhook(f"w{number}", "http://a.test"))
    with pytest.raises(ApiError, match="limit the number of webhooks to 20"):
        instance.webhooks.create(Webhook("more", "http://a.test"))
    instance.webhooks.delete("w3")
    instance.webhooks.create(Webhook("more", "http://a.test"))
    assert len(instance.webhooks.all()) == MAX_WEBHOOKS + 1


@pytest.mark.parametrize("ask", ["require", "delete"])
def test_an_unknown_one_is_not_found(instance: Instance, ask: str) -> None:
    with pytest.raises(ApiError, match="Webhook `x` not found"):
        getattr(instance.webhooks, ask)("x")
