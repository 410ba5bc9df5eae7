"""Reliability as MCP tools, asked by a real MCP client."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import TO_OPEN
from guard_kit import fails
from mcp import Client, MCPError
from mcp.types import ElicitResult
from trustfold.guard import ToolGuard
from trustfold.guard.mcp_server import make_server
from trustfold.guard.testing import decided, guard_for_tests, set_state


@pytest.fixture
def guard() -> ToolGuard:
    """A guard that holds some things against some tools."""
    made = guard_for_tests()
    set_state(
        made, "breaker", "tool:fetch", state="open", open_until=made.clock.after(30), failure_rate=1.0, measured=5
    )  # type: ignore[attr-defined]
    set_state(made, "trust", "bash|command=rm", state="escalated", reason="3/3 failures in 1h", successes_needed=3)
    set_state(made, "trust", "elsewhere", workspace="w2", state="blocked")
    return made


async def test_a_client_sees_what_is_held_against_tools(guard: ToolGuard) -> None:
    """All of it in its workspace, or what is about one tool; targets belong to their tool."""
    async with Client(make_server(guard, token="t")) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"reliability_status", "reliability_history", "reliability_reset"}
        everything = (await client.call_tool("reliability_status", {})).structured_content
        assert {(row["key"], row["state"]) for row in everything["tools"]} == {
            ("tool:fetch", "open"), ("bash|command=rm", "escalated"),
        }  # fmt: skip
        about = await client.call_tool("reliability_status", {"tool_name": "bash", "include_history": True})
        (row,) = about.structured_content["tools"]
        assert (row["reason"], row["recovery_hint"]) == (
            "3/3 failures in 1h",
            "3 successful calls after the cooldown restore trust; `trustfold reset 'bash|command=rm'` at once",
        )  # fmt: skip
        assert len(about.structured_content["history"]) == 1
        nothing = (await client.call_tool("reliability_status", {"tool_name": "write"})).structured_content
        assert nothing["tools"] == []
        assert "nothing is held against write" in nothing["note"]
        history = (await client.call_tool("reliability_history", {"limit": 1})).structured_content
        assert [row["key"] for row in history["result"]] == ["bash|command=rm"]


async def test_only_an_operator_may_reset() -> None:
    """A model cannot acquit a tool: that takes the server's token and the user; then trust and circuit are clean."""
    guard = guard_for_tests()
    for n in range(TO_OPEN):
        await guard.call("fetch", fails, {}, session_id=f"s{n}")
    assert guard.check("fetch").code == "circuit_open"
    async with Client(make_server(guard, token="t")) as client:  # nobody there to ask
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "reliability_reset"]
        assert set(tool.input_schema["properties"]) == {"tool_name"}  # no secret passes through a model
        with pytest.raises(MCPError, match="elicitation"):
            await client.call_tool("reliability_reset", {"tool_name": "fetch"})
    for approve in (False, True):

        async def user(_context: Any, _asked: Any, approve: bool = approve) -> ElicitResult:
            return ElicitResult(action="accept", content={"approve": approve})

        assert guard.check("fetch").code == "circuit_open"
        async with Client(make_server(guard, token="t"), elicitation_callback=user) as client:
            done = await client.call_tool("reliability_reset", {"tool_name": "fetch"})
            assert done.is_error is not approve, done
    assert guard.check("fetch").code == "allowed"
    assert decided(guard, "breaker.changed")[-1]["trigger"] == "reset"
    async with Client(make_server(guard, token="")) as client:
        refused = await client.call_tool("reliability_reset", {"tool_name": "fetch"})
        assert "has no operator token" in refused.content[0].text  # type: ignore[union-attr]
