"""A dangerous call is asked about before it runs, whatever the history says (docs/trust.md)."""

from __future__ import annotations

from typing import Any

import pytest
from guard_kit import code_of, set_state, works
from trustfold.guard import ToolGuard
from trustfold.guard.permission import CONTEXT_KEY, PermissionWrapper, display_info
from trustfold.guard.testing import guard_for_tests, published
from trustfold.rules.calls import CallRules, DangerRules

WIPE = {"command": "rm -rf ~/"}
KEY = "bash|danger=root"


async def test_a_dangerous_call_is_refused_where_nobody_can_be_asked() -> None:
    """Also by a guard that lets escalated calls run unattended; what is harmless runs."""
    guard = guard_for_tests(unattended="allow")
    refused = await guard.call("bash", works, WIPE, session_id="s")
    assert code_of(refused) == "approval_required"
    assert refused.error.message.startswith(
        "`rm -rf ~/` would remove a root, system or home directory; a person may let one"
    )
    assert refused.error.message.count(f"`trustfold approve '{KEY}' --once`") == 1
    assert guard.check("bash", WIPE).ask
    assert (await guard.call("bash", works, {"command": "rm -rf build"}, session_id="s")).ok


async def test_its_events_name_the_danger_without_its_arguments() -> None:
    """So that the folds note it, and charge its failure to no other call."""
    guard = guard_for_tests(permission=PermissionWrapper(None, ask=lambda *_: True))
    await guard.call("bash", works, WIPE, session_id="s")
    [start] = published(guard, "tool_call.started")
    assert (start["failure_key"], "args" in start) == (KEY, False)


@pytest.mark.parametrize("granted", [True, False])
async def test_a_person_is_asked_with_what_it_would_do(*, granted: bool) -> None:
    """And decides."""
    asked: list[dict[str, Any]] = []

    def ask(_tool: str, _args: dict[str, Any], context: dict[str, Any], _id: str | None) -> bool:
        asked.append(context)
        return granted

    guard = guard_for_tests(permission=PermissionWrapper(None, ask=ask))
    assert (await guard.call("bash", works, WIPE, session_id="s")).ok is granted
    [context] = asked
    assert context[CONTEXT_KEY]["state"] == "dangerous"
    assert context[CONTEXT_KEY]["reason"] == "`rm -rf ~/` would remove a root, system or home directory"
    shown = display_info("bash", context)
    assert shown is not None
    assert shown.summary == "bash (dangerous - requires approval)"


async def test_an_approval_lets_one_dangerous_call_pass() -> None:
    """Its key is trusted, and the state shows the approval."""
    guard = guard_for_tests(unattended="deny")
    set_state(
        guard,
        "trust",
        KEY,
        state="trusted",
        scope="key",
        approval_id="o",
        approval_expires_at="2099-01-01T00:00:00.000Z",
    )
    assert guard.check("bash", WIPE).code == "approved"
    first, second = [await guard.call("bash", works, WIPE, session_id="s") for _ in range(2)]
    assert first.ok
    assert code_of(second) == "approval_required"


async def test_the_rules_decide_about_levels_and_exceptions() -> None:
    """Refused, asked about, or only noted."""
    calls = CallRules(security_allow=("^rm -rf ~/old$",), danger=DangerRules(root="deny", database="observe"))
    guard = guard_for_tests(calls=calls)
    refused = await guard.call("bash", works, WIPE, session_id="s")
    assert code_of(refused) == "blocked"
    assert "calls.danger.root" in refused.error.message
    assert (await guard.call("bash", works, {"command": "rm -rf ~/old"}, session_id="s")).ok
    assert (await guard.call("query", works, {"sql": "DROP TABLE x"}, session_id="s")).ok


async def test_shadow_mode_only_notes_it() -> None:
    """As every other refusal."""
    guard = guard_for_tests(shadow=True, unattended="deny")
    result = await guard.call("bash", works, WIPE, session_id="s")
    assert result.ok
    assert result.metadata["shadow"] == ["approval_required"]


async def test_a_session_that_trusts_a_tool_is_asked_all_the_same(guard: ToolGuard) -> None:
    """An override is about the history."""
    async with guard.session("s") as session:
        session.trust("bash", "trusted")
        assert guard.check("bash", WIPE, session_id="s").ask
