"""The tools of a chat: the search tool that the model may call, and those of the client, which stand for events.

A client that declares one of the tools EVENTS is told what the daemon does by calls of that tool (docs/chats.md#events).
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from svcd.base.errors import ApiError
from svcd.base.json_text import dumps
from svcd.chat.workspace import Complete

SEARCH = "_meiliSearchInIndex"
PROGRESS, SOURCES, APPEND = EVENTS = ("_meiliSearchProgress", "_meiliSearchSources", "_meiliAppendConversationMessage")


class SearchableIndex(NamedTuple):
    """An index as the model is told of it. fields: name -> frequent values."""

    uid: str
    description: str
    fields: Mapping[str, Sequence[str]]


class Call(NamedTuple):
    """A call of a tool by the model. id: as the model named it; arguments: JSON text, which need not be any."""

    id: str
    name: str
    arguments: str

    def as_json(self) -> dict[str, Any]:
        """As it stands in a message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def wanted_events(tools: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The events that a client asks for. Raises bad_request, unimplemented_external_function_calling."""
    wanted = set()
    for tool in tools:
        name = tool["function"]["name"]
        if name == SEARCH:
            raise ApiError("bad_request", f"{SEARCH} function is already defined.")
        if name not in EVENTS:
            raise ApiError("unimplemented_external_function_calling", f"{name}: External functions are not supported yet.")
        wanted.add(name)
    return frozenset(wanted)


def search_tool(workspace: Complete, indexes: Sequence[SearchableIndex]) -> dict[str, Any]:
    """The declaration of the search tool, as a request has it."""
    prompts = workspace["prompts"]
    return {"type": "function", "function": {
        "name": SEARCH,
        "description": prompts["searchDescription"] + "".join(f"\n\n - {each.uid}: {each.description}\n\n" for each in indexes),
        "parameters": {
            "type": "object",
            "properties": {
                "index_uid": {"type": "string", "enum": [each.uid for each in indexes],
                              "description": prompts["searchIndexUidParam"]},
                "q": {"type": "string", "description": prompts["searchQParam"]},
                "filter": {"type": "string",
                           "description": prompts["searchFilterParam"] + "".join(map(_frequent_values, indexes))},
            },
            "required": ["index_uid", "q", "filter"],
            "additionalProperties": False,
        },
        "strict": True,
    }}


def _frequent_values(index: SearchableIndex) -> str:
    lines = "".join(f"{name}: {', '.join(values)}.\n" if values else f"{name}: \n" for name, values in index.fields.items())
    return f"\n## Facet distributions of the {index.uid} index\n{lines}\n"


# Messages of a conversation, and what clients are told of them


def calls_message(calls: Iterable[Call]) -> dict[str, Any]:
    """The message of the model that calls tools."""
    return {"role": "assistant", "tool_calls": [call.as_json() for call in calls]}


def told_message(call: Call, content: str) -> dict[str, Any]:
    """The message that answers a call."""
    return {"role": "tool", "content": content, "tool_call_id": call.id}


def progress(call: Call) -> str:
    """The arguments of the event of a call that begins."""
    return dumps({"call_id": call.id, "function_name": call.name, "function_arguments": call.arguments})


def sources(call: Call, hits: Sequence[str]) -> str:
    """The arguments of the event of the documents that were found. hits: JSON texts."""
    return f'{{"call_id":{dumps(call.id)},"sources":[{",".join(hits)}]}}'


def appended(message: Mapping[str, Any]) -> str:
    """The arguments of the event of a new message."""
    return dumps(message)
