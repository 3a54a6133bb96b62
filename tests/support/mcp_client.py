"""Run by tests/support/mcp_clients.py in a process of its own: the official client of Python (PyPI `mcp`) lists and calls tools.

Arguments: a JSON object with `target` (an address, or a command as a list), `calls` ([name, arguments]), `key`, `mode`. Prints JSON.
"""
from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client


async def run(asked: dict[str, Any]) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        if isinstance(asked["target"], str):
            headers = {"Authorization": f"Bearer {asked['key']}"} if asked["key"] else {}
            client = await stack.enter_async_context(create_mcp_http_client(headers=headers))
            streams = await stack.enter_async_context(streamable_http_client(asked["target"], http_client=client))
        else:
            command, *arguments = asked["target"]
            streams = await stack.enter_async_context(stdio_client(StdioServerParameters(command=command, args=arguments)))
        session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
        if asked["mode"] == "2026-07-28":
            from mcp.client._probe import negotiate_auto

            await negotiate_auto(session)
        else:
            await session.initialize()
        listed = await session.list_tools()
        results = [await session.call_tool(name, arguments) for name, arguments in asked["calls"]]
        resources = await session.list_resources()
        read = await session.read_resource(resources.resources[0].uri) if resources.resources else None
        prompts = await session.list_prompts()
        prompt = await session.get_prompt(prompts.prompts[0].name, {})
        return {"revision": session.protocol_version, "tools": [tool.name for tool in listed.tools],
                "results": [result.structured_content for result in results], "errors": [bool(result.is_error) for result in results],
                "resource": None if read is None else read.contents[0].text, "prompt": prompt.messages[0].content.text}


print(json.dumps(asyncio.run(run(json.loads(sys.argv[1])))))
