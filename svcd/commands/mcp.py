"""`svcd mcp`: answers an assistant that starts the command and talks to it over standard input and output.

Each line is a message of the Model Context Protocol. The command sends it to POST /mcp of the instance, with the headers that
HTTP needs, and prints the reply; so both ways have the same tools and rights.
"""
from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from svcd.base.json_text import dumps, loads
from svcd.commands import instance
from svcd.commands.instance import CommandFailed, Instance
from svcd.mcp import protocol


@click.command("mcp", help="Answer an assistant over standard input and output, by the Model Context Protocol. Assistants start "
                           "this command themselves; a running daemon needs --experimental-mcp.")
@instance.options
@click.option("--write", is_flag=True, help="With --folder: offer the tools that add and delete documents.")
@click.pass_context
def command(context: click.Context, url: str | None, key: str | None, folder: Path | None, write: bool) -> int:
    """Answer messages until the assistant closes the input."""
    if write and folder is None:
        raise CommandFailed("--write needs --folder: a running daemon offers the tools that write with --mcp-write",
                            instance.MISUSED)
    for number in (signal.SIGTERM, signal.SIGHUP):  # an own daemon must stop, too
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    arguments = ("--experimental-mcp", *(("--mcp-write",) if write else ()))
    with instance.opened(context, url, key, folder, *arguments) as source:
        relay(source, sys.stdin.buffer, sys.stdout.buffer)
    return 0


def relay(source: Instance, messages: BinaryIO, replies: BinaryIO) -> None:
    """Answer each line of a stream with a line, or with none if it is a notification."""
    for line in messages:
        if line.strip() and (reply := _answered(source, line)):
            replies.write(reply + b"\n")
            replies.flush()


def _answered(source: Instance, line: bytes) -> bytes:
    """The reply to a message; empty for none. A failure of the instance is an error of the protocol."""
    try:
        message: Any = loads(line)
    except ValueError:
        message = None
    try:
        _, text = source.exchange("POST", "/mcp", line, {"Content-Type": "application/json", **protocol.headers_of(message)})
        value: Any = loads(text) if text else {"jsonrpc": "2.0"}
        if isinstance(value, dict) and "jsonrpc" in value:
            return text.strip()
        reason = value["message"]
    except CommandFailed as failed:
        reason = failed.message
    except (ValueError, KeyError, TypeError):
        reason = f"{source.url} answers, but not like svcd; check the address"
    if isinstance(message, dict) and "id" not in message:
        return b""
    error = protocol.failed(protocol.ProtocolError(protocol.INTERNAL_ERROR, reason),
                            message.get("id") if isinstance(message, dict) else None)
    return dumps(error.value).encode()
