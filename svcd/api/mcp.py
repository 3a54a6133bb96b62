"""The route of the Model Context Protocol (docs/mcp.md). All that it needs is imported with the first request: svcd.mcp, and
svcd.api.mcp_server."""
from __future__ import annotations

from svcd.api.context import Context
from svcd.api.routes import HandlerResult, Route, Stream


def answer(ctx: Context) -> HandlerResult:
    """Answer one message of an assistant. Faults of the message are errors of the protocol."""
    from svcd.api.mcp_server import respond

    return respond(ctx)


ROUTES = (
    # Tools apply the filters of tenant tokens, and check the permission for each index.
    Route("POST", "/mcp", answer, "search", {200: {"type": "object"}}, "Answer an assistant by the Model Context Protocol", "MCP",
          feature=("mcp", "Using the /mcp route"), body=Stream(), joins_rules=True, headers={
              "MCP-Protocol-Version": "The revision of the protocol.", "Mcp-Method": "The method of the message.",
              "Mcp-Name": "The tool, prompt or resource that the message names."}),
)
