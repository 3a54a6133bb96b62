"""The Model Context Protocol, by which assistants search: messages, tools and passages, without I/O (docs/mcp.md).

`protocol` checks messages of all revisions and shapes the replies, `tools` declares the tools, `passages` cuts documents to a
budget of characters, `limits` counts calls. svcd.api.mcp_server answers messages, svcd.api.mcp_tools runs the tools.
"""
