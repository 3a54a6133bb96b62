"""What must hold of /webhooks:

1. What was created is listed, got, changed and deleted as it was written; Authorization, and user and password of a
   URL, are never shown whole.
2. A PATCH leaves what it does not name; null removes a header, or all. Letter case does not make another header.
3. What cannot be called or sent is refused, in the order and with the messages that clients expect.
4. 20 webhooks, 200 headers each, and not one more.
5. The webhook of the launch options is listed first, and cannot be changed.
6. What could not be delivered is listed, and delivered again when asked for.
"""
from __future__ import annotations

from typing import Any

import pytest

from svcd.base import quantities
from svcd.instance.webhooks import LAUNCH_UUID
from tests.api.conftest import Client

URL = "http://hook.test/tasks"


def create(client: Client, **body: Any) -> dict[str, Any]:
    got = client.json("POST", "/webhooks", {"url": URL, **body})
    assert got.status == 201, got.text
    return got.value


def path(webhook: dict[str, Any]) -> str:
    return f"/webhooks/{webhook['uuid']}"


def test_a_webhook_lives_and_dies(client: Client, check_shape: Any) -> None:
    made = create(client, headers={"X-Name": "1"})
    assert made == {"uuid": made["uuid"], "isEditable": True, "url": URL, "headers": {"X-Name": "1"}}
    assert client.get(path(made)).value == made and client.get("/webhooks").value == {"results": [made]}
    check_shape(made, "Webhook")
    assert client.send("DELETE", path(made)).status == 204
    assert client.get(path(made)).fault == (404, "webhook_not_found", f"Webhook `{made['uuid']}` not found.")
    assert client.send("DELETE", path(made)).fault[1] == "webhook_not_found"
    assert client.json("PATCH", path(made), {"url": URL}).fault[1] == "webhook_not_found"
    assert client.get("/webhooks").value == {"results": []}


@pytest.mark.parametrize(("name", "value", "shown"), [
    ("authorization", "TOKEN", "XXX..."), ("Authorization", "Bearer a-secret-token", "Bearer a-XXXX..."),
    ("AUTHORIZATION", "Bearer x", "Bearer XXX..."), ("Authorization", "Basic " + "x" * 40, "BasicXXXXXX..."),
    ("Authorization", "Bearer " + "y" * 25, "Bearer yyyXXXXX..."), ("Authorization", "", "XXX..."),
])
def test_authorization_is_never_shown_whole(client: Client, name: str, value: str, shown: str) -> None:
    made = create(client, headers={name: value})
    assert made["headers"] == {name: shown}
    assert client.get(path(made)).value["headers"] == {name: shown}
    assert client.get("/webhooks").value["results"][0]["headers"] == {name: shown}
    assert client.json("PATCH", path(made), {}).value["headers"] == {name: shown}
    assert client.instance.webhooks.require(made["uuid"]).headers == {name: value}


def test_a_patch_leaves_what_it_does_not_name(client: Client) -> None:
    made = create(client, headers={"a": "1", "b": "2"})
    assert client.json("PATCH", path(made), {"headers": {"b": None, "c": "3"}}).value["headers"] == {"a": "1", "c": "3"}
    changed = client.json("PATCH", path(made), {"url": "https://other.test"}).value
    assert (changed["url"], changed["headers"]) == ("https://other.test", {"a": "1", "c": "3"})
    assert client.json("PATCH", path(made), {"headers": None}).value["headers"] == {}
    missing = f"The URL for the webhook `{made['uuid']}` is missing."
    assert client.json("PATCH", path(made), {"url": None}).fault == (400, "invalid_webhook_url", missing)


@pytest.mark.parametrize(("before", "patched", "after"), [
    ({"authorization": "1"}, {"Authorization": "2"}, {"Authorization": "2"}),
    ({"Authorization": "1", "x": "0"}, {"AUTHORIZATION": "2", "X": None}, {"AUTHORIZATION": "2"}),
    ({"a": "1"}, {"A": "2", "a": "3"}, {"a": "3"}),
    ({"a": "1"}, {"A": None}, {}),
    ({"a": "1", "A": "2"}, {}, {"A": "2"}),
])
def test_headers_are_merged_in_any_letter_case(
        client: Client, before: dict[str, str], patched: dict[str, str], after: dict[str, str]) -> None:
    made = create(client, headers=before)
    assert client.json("PATCH", path(made), {"headers": patched}).status == 200
    assert client.instance.webhooks.require(made["uuid"]).headers == after


def test_credentials_of_a_url_are_never_shown_whole(client: Client) -> None:
    secret, shown = "https://someone:secret@hook.test/a?b=c", "https://XXX...:XXX...@hook.test/a?b=c"
    made = create(client, url=secret)
    assert made["url"] == shown
    assert client.get(path(made)).value["url"] == client.get("/webhooks").value["results"][0]["url"] == shown
    assert client.json("PATCH", path(made), {"headers": {}}).value["url"] == shown
    assert client.instance.webhooks.require(made["uuid"]).url == secret
    refused = client.json("PATCH", path(made), {"url": "ftp://someone:secret@hook.test"}).fault
    assert refused == (400, "invalid_webhook_url", "Invalid URL `ftp://XXX...:XXX...@hook.test`: scheme `ftp` cannot be "
                                                   "called, expected `http` or `https`")


@pytest.mark.parametrize(("body", "code", "words"), [
    ({}, "invalid_webhook_url", "The URL for the webhook `"),
    ({"url": None}, "invalid_webhook_url", "The URL for the webhook `"),
    ({"url": ""}, "invalid_webhook_url", "The URL for the webhook `"),
    ({"url": 1}, "invalid_webhook_url", "Invalid value type at `.url`: expected a string, but found a positive integer: `1`"),
    ({"url": "not-a-valid-url"}, "invalid_webhook_url", "Invalid URL `not-a-valid-url`: relative URL without a base"),
    ({"url": "http://"}, "invalid_webhook_url", "Invalid URL `http://`: empty host"),
    ({"url": "ftp://h"}, "invalid_webhook_url", "Invalid URL `ftp://h`: scheme `ftp` cannot be called, expected `http` or"),
    ({"url": URL, "headers": []}, "invalid_webhook_headers", "Invalid value type at `.headers`: expected an object, but"),
    ({"url": URL, "headers": {"a": 1}}, "invalid_webhook_headers", "Invalid value type at `.headers.a`: expected a string"),
    ({"url": URL, "headers": {"a b": "1"}}, "invalid_webhook_headers", "Invalid header name `a b`: invalid HTTP header name"),
    ({"url": URL, "headers": {"a": "1\n2"}}, "invalid_webhook_headers", "Invalid header value `a`: failed to parse header value"),
    ({"url": URL, "headers": {f"h{n}": "" for n in range(201)}}, "invalid_webhook_headers", "Too many headers for the webhook `"),
    ({"url": URL, "uuid": LAUNCH_UUID}, "immutable_webhook_uuid", "Immutable field `uuid`: expected one of `url`, `headers`"),
    ({"url": URL, "isEditable": True}, "immutable_webhook_is_editable", "Immutable field `isEditable`: expected one of"),
    ({"url": URL, "urls": 1}, "bad_request", "Unknown field `urls`: did you mean `url`? expected one of `url`, `headers`"),
])
def test_what_cannot_be_called_is_refused(client: Client, body: dict[str, Any], code: str, words: str) -> None:
    status, given_code, message = client.json("POST", "/webhooks", body).fault
    assert (status, given_code) == (400, code) and message.startswith(words)
    assert client.get("/webhooks").value == {"results": []}


def test_a_patch_is_refused_as_a_whole(client: Client) -> None:
    made = create(client, headers={"a": "1"})
    for body in ({"url": "https://other.test", "headers": {"b c": "2"}}, {"url": "nowhere", "headers": {"b": "2"}}):
        assert client.json("PATCH", path(made), body).status == 400
        assert client.get(path(made)).value == made


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
def test_a_path_that_is_no_uuid_is_refused(client: Client, method: str) -> None:
    fault = client.json(method, "/webhooks/uuid-whatever", {}).fault
    assert fault == (400, "invalid_webhook_uuid", "Invalid UUID: invalid character: found `u` at 0")


def test_there_are_20_webhooks_and_200_headers(client: Client) -> None:
    client.instance.webhooks.set_launch_webhook(URL)
    for _ in range(20):
        made = create(client)
    status, code, message = client.json("POST", "/webhooks", {"url": URL}).fault
    assert (status, code) == (400, "invalid_webhooks") and "limit the number of webhooks to 20." in message
    many = {f"h{n}": "" for n in range(200)}
    assert client.json("PATCH", path(made), {"headers": many}).status == 200
    assert client.json("PATCH", path(made), {"headers": {"one": ""}}).fault[1] == "invalid_webhook_headers"
    assert client.json("PATCH", path(made), {"headers": {"one": "", "h0": None}}).status == 200


def test_that_of_the_launch_cannot_be_changed(client: Client) -> None:
    immutable = (400, "immutable_webhook", f"Webhook `{LAUNCH_UUID}` is immutable. The webhook defined from the command "
                                           "line cannot be modified using the API.")
    for _ in range(2):
        assert client.json("PATCH", f"/webhooks/{LAUNCH_UUID}", {"url": URL}).fault == immutable
        assert client.send("DELETE", f"/webhooks/{LAUNCH_UUID}").fault == immutable
        client.instance.webhooks.set_launch_webhook("https://launch.test", "Bearer a-secret-token")
    made = create(client)
    launch = {"uuid": LAUNCH_UUID, "isEditable": False, "url": "https://launch.test",
              "headers": {"Authorization": "Bearer a-XXXX..."}}
    assert client.get("/webhooks").value == {"results": [launch, made]}
    assert client.get(f"/webhooks/{LAUNCH_UUID}").value == launch


def _fail(client: Client, uuid: str, batch_uids: range, ended_at: int) -> None:
    """Batches end that a webhook is not told of."""
    outbox = client.instance.outbox
    with client.instance.queue.finishing() as connection:
        for batch_uid in batch_uids:
            outbox.append(connection, batch_uid, ended_at, ["{}"])
    notice = outbox.head(uuid)
    assert notice
    outbox.mark_failed(uuid, notice, "Connection refused", now=quantities.now(), given_up_after=quantities.DAY)


def test_what_could_not_be_delivered_is_listed_and_replayed(client: Client, check_shape: Any) -> None:
    made = create(client)
    _fail(client, made["uuid"], range(3), quantities.now() - 2 * quantities.DAY)
    page = client.get(f"{path(made)}/failures?limit=2&offset=1").value
    check_shape(page, "WebhookFailurePage")
    assert (page["offset"], page["limit"], page["total"]) == (1, 2, 3)
    first = client.get(f"{path(made)}/failures").value["results"][0]
    assert (first["batchUid"], first["tasks"], first["attempts"], first["reason"]) == (0, 1, 1, "Connection refused")
    assert first["finishedAt"] < first["lastAttemptAt"] == first["givenUpAt"]
    woken: list[str] = []
    client.instance.webhooks.on_change = woken.append
    replayed = client.send("POST", f"{path(made)}/replay?batchUids=1,7")
    assert (replayed.status, replayed.value, woken) == (202, {"replayed": 1}, [made["uuid"]])
    assert client.get(f"{path(made)}/failures").value["total"] == 2
    assert client.send("POST", f"{path(made)}/replay").value == {"replayed": 2}
    assert client.send("POST", f"{path(made)}/replay").value == {"replayed": 0}


def test_what_is_being_tried_again_is_listed_too(client: Client) -> None:
    made = create(client)
    _fail(client, made["uuid"], range(2), quantities.now())
    [only] = client.get(f"{path(made)}/failures").value["results"]
    assert only["givenUpAt"] is None and only["attempts"] == 1


@pytest.mark.parametrize(("method", "tail"), [("GET", "failures"), ("POST", "replay")])
def test_failures_are_those_of_a_webhook_that_is_there(client: Client, method: str, tail: str) -> None:
    assert client.send(method, f"/webhooks/{LAUNCH_UUID}/{tail}").fault[1] == "webhook_not_found"
    client.instance.webhooks.set_launch_webhook(URL)
    assert client.send(method, f"/webhooks/{LAUNCH_UUID}/{tail}").status in (200, 202)
    assert client.send(method, f"/webhooks/7/{tail}").fault[1] == "invalid_webhook_uuid"


@pytest.mark.parametrize(("tail", "words"), [
    ("failures?limit=-1", "Invalid value in parameter `limit`"), ("failures?offset=x", "Invalid value in parameter"),
    ("failures?page=1", "Unknown parameter `page`"),
])
def test_a_wrong_page_is_refused(client: Client, tail: str, words: str) -> None:
    status, code, message = client.get(f"/webhooks/{LAUNCH_UUID}/{tail}").fault
    assert (status, code) == (400, "bad_request") and message.startswith(words)


def test_a_page_of_any_size_can_be_asked_for(client: Client) -> None:
    made = create(client)
    assert client.get(f"{path(made)}/failures?limit={2**64 - 1}&offset={2**64 - 1}").value["results"] == []


@pytest.mark.parametrize(("method", "tail"), [
    ("GET", ""), ("POST", ""), ("GET", "/x"), ("PATCH", "/x"), ("DELETE", "/x"), ("GET", "/x/failures"),
    ("POST", "/x/replay")])
def test_a_key_is_needed(connect: Any, method: str, tail: str) -> None:
    got = connect("a-master-key-of-some-length").send(method, f"/webhooks{tail}")
    assert got.fault[:2] == (401, "missing_authorization_header")
