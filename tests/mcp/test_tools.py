"""The declarations of tools. What must hold:

1. Each is complete for a model: title, description, schemas of both sides, hints whether it writes.
2. Only tools that name another permission than searching write, and they say so.
3. Arguments that a schema requires are those that the check requires.
"""
from __future__ import annotations

import pytest

from svcd.mcp.tools import TOOLS
from svcd.validation import FieldError


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_is_described(name: str) -> None:
    shown = TOOLS[name].described(name)
    assert shown["name"] == name and shown["title"] and shown["description"].endswith(".")
    assert shown["inputSchema"]["type"] == shown["outputSchema"]["type"] == "object"
    assert set(shown["outputSchema"]["required"]) <= shown["outputSchema"]["properties"].keys()
    assert shown["annotations"]["readOnlyHint"] is (name not in ("add_documents", "delete_documents"))
    assert shown["annotations"]["destructiveHint"] is not shown["annotations"]["readOnlyHint"]


@pytest.mark.parametrize("name", TOOLS)
def test_required_arguments_are_required(name: str) -> None:
    required = TOOLS[name].check.describe().get("required", [])
    if required:
        with pytest.raises(FieldError, match=f"Missing field `{required[0]}`"):
            TOOLS[name].check.decode({}, "")
    else:
        TOOLS[name].check.decode({}, "")
