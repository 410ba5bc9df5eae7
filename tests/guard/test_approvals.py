"""One call of an escalated key passes by an operator's approval, and only one."""

from __future__ import annotations

import asyncio

import pytest
from guard_kit import approve, code_of, works
from trustfold.guard import ToolGuard
from trustfold.guard.policy import CheckDecision, check_recorded
from trustfold.guard.request import GuardedCall
from trustfold.guard.testing import MovableClock, guard_for_tests, published, set_state
from trustfold.guard.tools import ToolRegistration


@pytest.fixture
def guard(clock: MovableClock) -> ToolGuard:
    """A guard that nobody attends to."""
    return guard_for_tests(clock=clock, unattended="deny")


async def test_an_approved_call_passes_once(guard: ToolGuard) -> None:
    """The next one is refused, though the state still shows the approval; both events of the call name it."""
    approve(guard)
    first, second = await guard.call("a", works, session_id="s"), await guard.call("a", works, session_id="s")
    assert first.ok
    assert first.metadata["approval"] == {"needed": True, "granted": True, "by": "operator"}
    assert code_of(second) == "approval_required"
    assert "`trustfold approve 'a' --once`" in second.error.message
    (start,) = published(guard, "tool_call.started")
    assert start["approvals"] == ["order-1"]
    assert published(guard, "tool_call.finished")[0]["approvals"] == ["order-1"]


async def test_of_many_parallel_calls_one_passes(guard: ToolGuard) -> None:
    """However they race."""
    approve(guard)
    results = await asyncio.gather(*(guard.call("a", works, {"n": n}, session_id="s") for n in range(50)))
    assert sum(result.ok for result in results) == 1


async def test_every_key_that_asks_needs_an_approval(guard: ToolGuard) -> None:
    """The command is approved, the shell is not."""
    approve(guard, "bash|command=git", scope="key")
    set_state(guard, "trust", "bash", state="escalated", scope="tool")
    refused = await guard.call("bash", works, {"command": "git pull"}, session_id="s")
    assert "trustfold approve 'bash' --once" in refused.error.message
    approve(guard, "bash", "order-2", scope="tool")
    assert (await guard.call("bash", works, {"command": "git pull"}, session_id="s")).ok
    assert published(guard, "tool_call.started")[0]["approvals"] == ["order-1", "order-2"]


def test_a_recorded_call_passed_by_an_approval(guard: ToolGuard, clock: MovableClock) -> None:
    """As long as it held; the key is then the call's own."""
    approve(guard)
    call = GuardedCall(ToolRegistration(name="a"), {}, "s", guard.settings.workspace_id)
    assert check_recorded(guard.view, call, guard.clock.now_ms()) == (CheckDecision(allowed=True, code="approved"), "a")
    clock.move(3600)
    assert check_recorded(guard.view, call, guard.clock.now_ms())[0].ask


async def test_an_approval_ends_by_its_time(guard: ToolGuard, clock: MovableClock) -> None:
    """What was not used within the hour is over."""
    approve(guard)
    assert guard.check("a").code == "approved"
    clock.move(3600)
    assert guard.check("a").ask
    assert not (await guard.call("a", works, session_id="s")).ok


@pytest.mark.parametrize("state", ["blocked", "removed"])
async def test_what_is_refused_cannot_be_approved(guard: ToolGuard, state: str) -> None:
    """Blocked stays blocked."""
    approve(guard, state=state)
    assert not (await guard.call("a", works, session_id="s")).ok


async def test_an_open_circuit_uses_no_approval(guard: ToolGuard, clock: MovableClock) -> None:
    """The call is refused by its circuit; the approval is there when it has closed."""
    approve(guard)
    set_state(guard, "breaker", "tool:a", state="open", open_until=clock.after(60))
    refused = await guard.call("a", works, session_id="s")
    assert refused.error is not None
    set_state(guard, "breaker", "tool:a", state="closed")
    assert (await guard.call("a", works, session_id="s")).ok


async def test_a_sessions_own_word_is_not_an_operators_to_approve(guard: ToolGuard) -> None:
    """What the session itself has escalated is for whoever set it."""
    approve(guard)
    async with guard.session("s") as session:
        session.trust("a", "escalated")
        assert not (await session.call("a", works)).ok


@pytest.mark.parametrize("answer", [True, False])
async def test_an_answer_given_before_the_call_is_used(guard: ToolGuard, answer: bool) -> None:
    """A platform that has asked a person by itself says so with the call."""
    set_state(guard, "trust", "a", state="escalated")
    result = await guard.call("a", works, {}, approved=answer)
    assert result.ok == answer
    assert result.refused != answer
    asked = [(event["type"], event.get("granted")) for event in published(guard) if "permission" in event["type"]]
    assert asked == [("permission.requested", None), ("permission.resolved", answer)]


async def test_what_a_person_has_declined_is_not_made(guard: ToolGuard) -> None:
    """Not even where trust is back, or an operator lets one call pass."""
    assert (await guard.call("b", works, {}, approved=False)).refused
    approve(guard)
    assert (await guard.call("a", works, {}, approved=False)).refused
    assert (await guard.call("a", works, {})).ok


async def test_a_person_s_answer_opens_no_blocked_tool(guard: ToolGuard) -> None:
    """Nobody may approve that."""
    set_state(guard, "trust", "a", state="blocked")
    assert (await guard.call("a", works, {}, approved=True)).refused
