"""The tools of a chat: the search tool that the model may call, and the tools of the client, which represent events.

If a client declares one of the tools EVENTS, the daemon reports its progress by calls of that tool (docs/chats.md#events).
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
    """The description of an index for the model. fields: name -> frequent values."""

    uid: str
    description: str
    fields: Mapping[str, Sequence[str]]


class Call(NamedTuple):
    """A tool call by the model. id: chosen by the model; arguments: a text that should be JSON, but may be invalid."""

    id: str
    name: str
    arguments: str

    def as_json(self) -> dict[str, Any]:
        """Return the call as a member of a message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def wanted_events(tools: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the events that a client asks for. Raises bad_request, unimplemented_external_function_calling."""
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
    """Return the declaration of the search tool for a request."""
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


# Messages of a conversation, and events for clients


def calls_message(calls: Iterable[Call]) -> dict[str, Any]:
    """Return the message of the model that calls tools."""
    return {"role": "assistant", "tool_calls": [call.as_json() for call in calls]}


def told_message(call: Call, content: str) -> dict[str, Any]:
    """Return the message that answers a call."""
    return {"role": "tool", "content": content, "tool_call_id": call.id}


def progress(call: Call) -> str:
    """Return the arguments of the event for a call that begins."""
    return dumps({"call_id": call.id, "function_name": call.name, "function_arguments": call.arguments})


def sources(call: Call, hits: Sequence[str]) -> str:
    """Return the arguments of the event for the found documents. hits: JSON texts."""
    return f'{{"call_id":{dumps(call.id)},"sources":[{",".join(hits)}]}}'


def appended(message: Mapping[str, Any]) -> str:
    """Return the arguments of the event for a new message."""
    return dumps(message)
