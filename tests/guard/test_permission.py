"""What needs approval is asked for, what is blocked is refused, and nobody but a person says yes."""

from __future__ import annotations

from typing import Any

import pytest
from guard_kit import code_of, works
from trustfold.guard import CallNotPermitted, PermissionWrapper, ToolGuard
from trustfold.guard.permission import CONTEXT_KEY, display_info
from trustfold.guard.testing import MovableClock, guard_for_tests, published, set_state


class Plugin:
    """A platform's own plugin with a whitelist."""

    def __init__(self, *, allows: bool = True, person: bool | None = None) -> None:
        self.allows = allows
        self.person = person
        self.contexts: list[dict[str, Any] | None] = []

    def check_permission(
        self, tool_name: str, args: dict[str, Any], context: dict[str, Any] | None = None, call_id: str | None = None
    ) -> tuple[bool, dict[str, Any]]:
        """Allow by whitelist, or ask the person where that is forced."""
        del tool_name, args, call_id
        self.contexts.append(context)
        if context and context.get("force_ask") and self.person is not None:
            return self.person, {"method": "user", "reason": "not now"}
        return self.allows, {"method": "whitelist"}


async def test_what_is_trusted_is_the_plugins_own_business(guard: ToolGuard) -> None:
    """Its answer holds, unchanged and without a word of ours."""
    guard.permission = Plugin(allows=True)
    assert (await guard.call("a", works, session_id="s1")).ok
    guard.permission = plugin = Plugin(allows=False)
    refused = await guard.call("a", works, session_id="s1")
    assert (code_of(refused), refused.attempts, plugin.contexts) == ("denied", 0, [None])
    assert [event["granted"] for event in published(guard, "permission.resolved")] == [True, False]


@pytest.mark.parametrize("person", [True, False])
async def test_what_is_escalated_must_be_approved(guard: ToolGuard, *, person: bool) -> None:
    """The whitelist does not help; the person's word does, and sees why it is asked for."""
    set_state(
        guard, "trust", "a", state="escalated", reason="3/3 failures in 1h", failures=3.0, threshold=3.0,
        window_s=3600.0, recovery_at="2026-01-05T10:30:00.000Z", successes_needed=3,
        since="2026-01-02T10:00:00.000Z", last_failure_at="2026-01-05T09:00:00.000Z",
    )  # fmt: skip
    assert guard.check("a").message.startswith("tool 'a' is escalated - 3/3 failures in 1h, since 2026-01-02")
    guard.permission = plugin = Plugin(person=person)
    result = await guard.call("a", works, session_id="s1")
    assert result.ok is person
    (context,) = plugin.contexts
    assert context[CONTEXT_KEY]["reason"] == "3/3 failures in 1h"
    assert (context[CONTEXT_KEY]["failure_count"], context[CONTEXT_KEY]["window"]) == ("3", "1 hour")
    shown = display_info("a", context)
    assert shown.summary == "a (escalated - requires approval)"
    assert (
        "3 successful calls after 2026-01-05 10:30:00 UTC (in 30m) restore trust; `trustfold reset 'a'` at once"
        in shown.warnings
    )
    assert "Recent failures: 3 in 1 hour, the last at 2026-01-05 09:00:00 UTC (1h ago)" in shown.details
    assert context[CONTEXT_KEY]["since"] == "2026-01-02 10:00:00 UTC (3d ago)"
    if not person:
        finish = published(guard, "tool_call.finished")[-1]
        assert finish["error"]["type"] == "DeniedByUser"
        with pytest.raises(CallNotPermitted, match="not now"):
            result.unwrap()
    assert display_info("a", {}) is None


async def test_a_plugin_that_knows_no_force_is_asked_again(guard: ToolGuard) -> None:
    """What it waves through goes to a person; what it refuses stays refused."""
    set_state(guard, "trust", "a", state="recovering")
    asked: list[str] = []

    async def ask(tool_name: str, *_: Any) -> bool:
        asked.append(tool_name)
        return False

    guard.permission = PermissionWrapper(Plugin(allows=True), guard, ask=ask)
    assert not (await guard.call("a", works, session_id="s1")).ok
    guard.permission = PermissionWrapper(Plugin(allows=False), guard, ask=ask)
    assert not (await guard.call("a", works, session_id="s1")).ok
    assert asked == ["a"]


async def test_a_blocked_tool_is_refused_whatever_the_plugin_says(guard: ToolGuard) -> None:
    """Until it is reset; the refusal is no failure of the tool."""
    guard.permission = plugin = Plugin(person=True)
    set_state(guard, "trust", "a", state="blocked", reason="security concern")
    result = await guard.call("a", works, session_id="s1")
    assert code_of(result) == "blocked"
    assert "manual reset required: `trustfold reset 'a'`" in result.error.message
    assert plugin.contexts == []
    assert published(guard, "tool_call.finished")[-1]["error"]["type"] == "BlockedByGuard"
    wrapper = PermissionWrapper(plugin, guard)
    allowed, info = await wrapper.check_permission("a", {})
    assert (allowed, info["method"]) == (False, "reliability")


async def test_a_plugin_that_fails_has_not_said_yes(guard: ToolGuard) -> None:
    """Its exception is no permission, and no exception of the call."""

    def broken(*_: Any) -> bool:
        raise RuntimeError("plugin")

    guard.permission = broken
    result = await guard.call("a", works, session_id="s1")
    assert (code_of(result), result.attempts) == ("denied", 0)
    assert result.error is not None
    assert result.error.message.endswith("the permission plugin failed: RuntimeError: plugin")


async def test_nobody_to_ask(clock: MovableClock) -> None:
    """Without a plugin an escalated call is made and marked, or refused where the platform wants that."""
    for unattended, ok in (("allow", True), ("deny", False)):
        guard = guard_for_tests(clock=clock, unattended=unattended)
        set_state(guard, "trust", "a", state="escalated", reason="3/3 failures in 1h")
        result = await guard.call("a", works, session_id="s1")
        assert result.ok is ok
        assert result.metadata["approval"]["needed"] is True


async def test_a_session_may_have_its_own_word(guard: ToolGuard) -> None:
    """Session before workspace: it trusts what is escalated, and blocks what is trusted."""
    set_state(guard, "trust", "a", state="blocked")
    async with guard.session("s1") as session:
        session.trust("a", "trusted")
        session.trust("b", "blocked")
        assert (await session.call("a", works)).ok
        assert not (await session.call("b", works)).ok
        assert not (await guard.call("a", works, session_id="s2")).ok
        session.trust("b", None)
        assert (await session.call("b", works)).ok


async def test_a_check_asks_about_the_sessions_own_workspace(guard: ToolGuard) -> None:
    """What a check says of a call is what becomes of it, wherever the session is at home."""
    set_state(guard, "trust", "a", state="blocked", workspace="elsewhere")
    async with guard.session("s1", workspace_id="elsewhere") as session:
        assert guard.check("a", session_id="s1").code == "blocked"
        assert guard.check("a", session_id="s1", workspace_id=guard.settings.workspace_id).allowed
        assert not (await session.call("a", works)).ok
    assert guard.check("a").allowed


async def test_option_b_publishes_what_a_plugin_decided(guard: ToolGuard) -> None:
    """The hook has the signature that permission plugins call."""
    guard.permission_hooks()["on_resolved"](tool_name="bash", request_id="c1", granted=False, method="user")
    (event,) = published(guard, "permission.resolved")
    assert (event["call_id"], event["granted"], event["method"]) == ("c1", False, "user")


async def test_a_denial_counts_at_the_key_of_the_call() -> None:
    """What the user declines is a target of the tool, not the tool; and it is published although nothing failed."""
    guard = guard_for_tests(permission=PermissionWrapper(lambda *_: (False, {"method": "user"})))
    for number in range(3):
        declined = await guard.call("bash", works, {"command": "curl x"}, session_id=f"s{number}")
        assert code_of(declined) == "denied"
    (record,) = guard.backend.view.records("trust")
    assert (record.key, record.state, record.denials) == ("bash|command=curl", "trusted", 3)
    await guard.close()


async def test_a_person_who_is_asked_is_no_silent_model() -> None:
    """The request is published before the person is asked: the wait is nobody's silence."""
    guard = guard_for_tests(permission=PermissionWrapper(lambda *_: (True, {"method": "user"})))
    set_state(guard, "trust", "fetch", state="escalated")
    before = len(published(guard))
    await guard.call("fetch", works, {}, session_id="s9")
    kinds = [one["type"] for one in published(guard)[before:]]
    assert kinds == ["permission.requested", "permission.resolved", "tool_call.started", "tool_call.finished"]
    await guard.close()


async def test_nobody_is_asked_about_a_call_that_an_open_circuit_refuses(guard: ToolGuard) -> None:
    """The circuit comes first; while it lets a call through again, the person is asked."""
    set_state(guard, "trust", "a", state="escalated")
    set_state(guard, "breaker", "tool:a", state="open", open_until="2026-01-05T10:00:30.000Z")
    guard.permission = plugin = Plugin(person=True)
    result = await guard.call("a", works, session_id="s1")
    assert (result.status, plugin.contexts) == ("circuit_open", [])
    assert result.error is not None
    assert "is open until 2026-01-05 10:00:30 UTC (in 30s)" in result.error.message
    set_state(guard, "breaker", "tool:a", state="closed")
    assert (await guard.call("a", works, session_id="s1")).ok
    assert len(plugin.contexts) == 1
