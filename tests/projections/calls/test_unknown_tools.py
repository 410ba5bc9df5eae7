"""Which answers mean that a tool does not exist."""

from __future__ import annotations

import pytest
from trustfold.projections.calls.error_words import is_unknown_tool


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("", "-32601", "Method not found"),
        ("AI_NoSuchToolError", "", ""),
        ("no_such_tool", "", ""),
        ("", "tool_not_found", ""),
        ("", "-32602", "Unknown tool: fetch_rows"),
        ("", "", "<tool_use_error>Error: No such tool available: fetch_rows</tool_use_error>"),
        ("", "", "Model tried to call unavailable tool 'fetch_rows'. Available tools: read, write."),
        ("", "", "Error: fetch_rows is not a valid tool, try one of [read]."),
        ("", "", "Unknown tool name: 'fetch_rows'. Available tools: read"),
        ("", "", "Error: unknown tool fetch_rows, should be instead one of ['read']."),
        ("", "", 'Tool "fetch_rows" not found in registry.'),
        ("", "", "Tool fetch_rows not found"),
        ("", "", "Tool with name fetch_rows not found"),
        ("", "", "Error: Function fetch_rows not found."),
        ("", "", "Action 'fetch_rows' don't exist, these are the only available Actions: read"),
        ("", "", "The tool 'fetch_rows' does not exist."),
        ("", "", "tool fetch_rows is not available"),
    ],
)
def test_the_runtimes_ways_to_say_so(kind: str, code: str, message: str) -> None:
    """By type, by code, by message."""
    assert is_unknown_tool("fetch_rows", kind, code, message)


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("", "-32602", "Invalid params: path is missing"),
        ("tool_error", "", "file not found"),
        ("exit_code_127", "127", "bash: fetch_rows: command not found"),
        ("", "", "fetch_rows: table not found"),
        ("", "", "the tool says: row 7 not found by fetch_rows"),
        ("FileNotFoundError", "", "no such file or directory: tool"),
        ("", "", "fetch_rows"),
        ("", "", ""),
    ],
)
def test_other_failures_are_no_missing_tools(kind: str, code: str, message: str) -> None:
    """A tool that finds nothing exists, and so does a shell that knows no such command."""
    assert not is_unknown_tool("fetch_rows", kind, code, message)


def test_long_messages_are_judged_by_their_start() -> None:
    """What follows is a list, or a page."""
    assert not is_unknown_tool("fetch_rows", "", "", "x" * 5000 + "unknown tool fetch_rows")
