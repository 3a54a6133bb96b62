"""1. The task of a change tells what is wrong with the setting `chat`; unknown fields and embedders are accepted.
2. The merge is by member, `hybrid` as a whole; nothing is indexed again.
"""
from __future__ import annotations

from typing import Any

import pytest

from tests.chat.conftest import Chat


def task_of(chat: Chat, **members: Any) -> Any:
    """The finished task of a change of the setting."""
    uid = chat.client.json("PATCH", "/indexes/movies/settings/chat", members).value["taskUid"]
    chat.work()
    return chat.client.get(f"/tasks/{uid}").value


@pytest.mark.parametrize(("members", "code", "message"), [
    ({"documentTemplate": "{{ doc"}, "invalid_chat_setting_document_template",
     "Index `movies`: `.chat.documentTemplate`: Invalid document template: user error: cannot parse template: liquid: "),
    ({"documentTemplateMaxBytes": 0}, "invalid_settings_embedders",
     "Index `movies`: `.chat.documentTemplateMaxBytes`: `documentTemplateMaxBytes` cannot be zero"),
])
def test_the_task_tells_what_is_wrong(chat: Chat, members: Any, code: str, message: str) -> None:
    task = task_of(chat, **members)
    assert (task["status"], task["error"]["code"]) == ("failed", code)
    assert task["error"]["message"].startswith(message)


def test_members_are_merged(chat: Chat) -> None:
    parameters = {"hybrid": {"embedder": "none", "semanticRatio": 0.1}, "limit": 3, "distinct": "nothing"}
    assert task_of(chat, documentTemplate="{{ doc.none }} {{ none }}", searchParameters=parameters)["status"] == "succeeded"
    assert task_of(chat, searchParameters={"hybrid": {"embedder": "e"}, "limit": None})["status"] == "succeeded"
    assert chat.client.get("/indexes/movies/settings/chat").value == {
        "description": "Films", "documentTemplate": "{{ doc.none }} {{ none }}", "documentTemplateMaxBytes": 400,
        "searchParameters": {"hybrid": {"semanticRatio": 0.5, "embedder": "e"}, "distinct": "nothing"}}
