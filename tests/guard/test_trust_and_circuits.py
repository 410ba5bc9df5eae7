"""What the view says and what the guard makes of it: strictest key, permission, probes, life without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from trustfold.guard import CallNotPermitted, PermissionWrapper, ToolGuard
from trustfold.guard.backends.http import record_key
from trustfold.guard.permission import CONTEXT_KEY, display_info
from trustfold.guard.testing import MovableClock, clear_state, guard_for_tests, published, set_state
from trustfold.guard.view import StateView
from trustfold.schemas.commands import TrustReset
from trustfold.schemas.tool_envelopes import ResultStatus
from trustfold.schemas.vocabulary import BreakerState


async def works(**_: Any) -> str:
    """A tool in good health."""
    return "ok"


async def fails(**_: Any) -> None:
    """A tool that is down."""
    raise ConnectionResetError


@pytest.fixture
def clock() -> MovableClock:
    """The time of one test."""
    return MovableClock()


@pytest.fixture
def guard(clock: MovableClock) -> ToolGuard:
    """A guard of one test."""
    return guard_for_tests(clock=clock)


# --- the view ---------------------------------------------------------------------------------------------------------


def test_the_strictest_of_a_calls_keys_holds(guard: ToolGuard) -> None:
    """Its target, its tool, its service; other targets and other workspaces are not touched."""
    etc, home = {"path": "/etc/passwd"}, {"path": "/home/x"}
    set_state(guard, "trust", "read_file|path_prefix=/etc", state="escalated")
    assert guard.check("read_file", etc).ask
    assert guard.check("read_file", home) == (True, False, "allowed", "")
    set_state(guard, "trust", "read_file", state="blocked", reason="security concern")
    assert guard.check("read_file", etc).code == "blocked"
    assert guard.check("read_file", etc, workspace_id="w2").code == "allowed"
    clear_state(guard, "trust", "read_file")
    assert guard.check("read_file", etc).code == "approval_required"

    set_state(guard, "trust", "service:api.example.com", state="recovering")
    assert guard.check("http_request", {"url": "https://api.example.com/v1"}).ask
    assert not guard.check("http_request", {"url": "https://other.example.com/v1"}).ask


def test_time_alone_moves_what_time_moves(guard: ToolGuard, clock: MovableClock) -> None:
    """An open circuit is half-open after its time, a lease is free after its end, a forced opening closes."""
    view = guard.view
    set_state(guard, "breaker", "tool:a", state="open", open_until=clock.after(30))
    set_state(guard, "breaker", "tool:b", state="forced_open", open_until=clock.after(10))
    set_state(guard, "breaker", "tool:c", state="forced_open")
    lease = {"holder": "g", "call_id": "c", "lease_until": clock.after(20)}
    set_state(guard, "breaker", "tool:d", state="half_open", lease=lease)

    def states() -> list[BreakerState | None]:
        found = [view.circuit("w1", f"tool:{name}", clock.now_ms()) for name in "abcd"]
        return [one.state if one else None for one in found]

    opened, forced, half = BreakerState.OPEN, BreakerState.FORCED_OPEN, BreakerState.HALF_OPEN
    assert states() == [opened, forced, forced, half]
    clock.move(15)
    assert states() == [opened, None, forced, half]
    clock.move(20)
    assert states() == [half, None, forced, half]
    held = view.circuit("w1", "tool:d", clock.now_ms())
    assert held is not None
    assert held.holder == ""


async def test_what_holds_for_a_user_holds_in_every_workspace() -> None:
    """A tool that fails a user in several workspaces must be approved in the next; a workspace's own word wins."""
    guard = guard_for_tests(user_id="ann")

    async def broken(**_: Any) -> dict[str, Any]:
        return {"error": "down", "status_code": 500}

    for workspace in ("w1", "w2", "w3"):
        for n in range(6):
            await guard.call("a", broken, {}, session_id=f"{workspace}-{n}", workspace_id=workspace, user_id="ann")
    assert guard.check("a", workspace_id="w9").ask
    record = guard.view.trust("w9", ("a",), "ann")
    assert record is not None
    assert record.record.scope == "user"
    assert guard_for_tests(user_id="bob").check("a", workspace_id="w9").code == "allowed"
    set_state(guard, "trust", "a", workspace="w8", state="blocked")
    assert guard.check("a", workspace_id="w8").code == "blocked"


def test_a_states_key_follows_from_the_state() -> None:
    """As the processor writes it: by workspace, by user, by model."""
    assert record_key({"kind": "trust", "key": "a", "workspace_id": "w1"}) == "trust:w1\x1fa"
    assert record_key({"kind": "trust", "key": "a", "scope": "user", "user_id": "ann"}) == "trust:user:ann\x1fa"
    assert record_key({"kind": "breaker", "key": "tool:a"}) == "breaker:default\x1ftool:a"
    assert record_key({"kind": "model", "key": "m1"}) == "model:m1"


def test_circuits_that_are_not_enforced_stop_nothing(guard: ToolGuard) -> None:
    """Observed and disabled circuits are open on paper only."""
    for mode in ("observe", "disabled"):
        set_state(guard, "breaker", "tool:a", state="open", mode=mode)
        assert guard.check("a").allowed


def test_a_view_takes_no_harm_from_what_it_cannot_read() -> None:
    """Records of another kind or from the future leave their keys as they were."""
    view = StateView()
    for value in (b"", b"{", b'{"type":"nudge.issued"}', b'{"type":"state.updated","schema_version":"9.0"}'):
        assert view.apply("trust:w1\x1fx", value) is None
    assert view.untroubled
    assert view.records() == []


# --- permission -------------------------------------------------------------------------------------------------------


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
    assert refused.error is not None
    assert (refused.error.code, refused.attempts, plugin.contexts) == ("denied", 0, [None])
    assert [event["granted"] for event in published(guard, "permission.resolved")] == [True, False]


@pytest.mark.parametrize("person", [True, False])
async def test_what_is_escalated_must_be_approved(guard: ToolGuard, *, person: bool) -> None:
    """The whitelist does not help; the person's word does, and sees why it is asked for."""
    set_state(
        guard, "trust", "a", state="escalated", reason="3/3 failures in 1h", failures=3.0, threshold=3.0,
        recovery_at="2026-01-05T10:30:00.000Z", successes_needed=3,
    )  # fmt: skip
    guard.permission = plugin = Plugin(person=person)
    result = await guard.call("a", works, session_id="s1")
    assert result.ok is person
    (context,) = plugin.contexts
    assert context is not None
    assert context[CONTEXT_KEY]["reason"] == "3/3 failures in 1h"
    assert (context[CONTEXT_KEY]["failure_count"], context[CONTEXT_KEY]["window"]) == ("3", "1h")
    shown = display_info("a", context)
    assert shown is not None
    assert shown.summary == "a (escalated - requires approval)"
    assert "3 successful calls after 10:30:00 UTC restore trust" in shown.warnings
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
    assert result.error is not None
    assert result.error.code == "blocked"
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
    assert result.error is not None
    assert (result.error.code, result.attempts) == ("denied", 0)


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
    """The hook has the seed's signature."""
    guard.permission_hooks()["on_resolved"](tool_name="bash", request_id="c1", granted=False, method="user")
    (event,) = published(guard, "permission.resolved")
    assert (event["call_id"], event["granted"], event["method"]) == ("c1", False, "user")


# --- probes -----------------------------------------------------------------------------------------------------------


async def open_circuit(guard: ToolGuard, tool: str = "a") -> None:
    """Five failures in a row."""
    for n in range(5):
        await guard.call(tool, fails, {}, session_id=f"f{n}")
    assert guard.check(tool).code == "circuit_open"


async def test_one_probe_while_others_fail_fast(guard: ToolGuard, clock: MovableClock) -> None:
    """Of fifty callers of a half-open circuit one gets through."""
    await open_circuit(guard)
    clock.move(31)
    may_go = asyncio.Event()

    async def slow(**_: Any) -> str:
        await may_go.wait()
        return "ok"

    tasks = [asyncio.create_task(guard.call("a", slow, {"n": n}, session_id=f"s{n}")) for n in range(50)]
    done, pending = await asyncio.wait(tasks, timeout=2, return_when=asyncio.ALL_COMPLETED)
    assert (len(done), len(pending)) == (49, 1)
    assert {task.result().status for task in done} == {ResultStatus.CIRCUIT_OPEN}
    may_go.set()
    assert (await pending.pop()).ok


async def test_a_probe_that_is_cancelled_frees_its_slot(guard: ToolGuard, clock: MovableClock) -> None:
    """It is neither good nor bad, and the next call may probe."""
    await open_circuit(guard)
    clock.move(31)
    entered = asyncio.Event()

    async def hangs(**_: Any) -> None:
        entered.set()
        await asyncio.sleep(600)

    task = asyncio.create_task(guard.call("a", hangs, session_id="s1"))
    await entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await guard.call("a", works, session_id="s2")).ok


async def test_a_recursive_call_has_a_circuit_per_model_tier(guard: ToolGuard) -> None:
    """Three failures of calls by a small model stop recursive calls of that tier, and no others."""
    for n in range(3):
        await guard.call(f"ask{n}", fails, {}, session_id="s1", recursion_depth=1, model_tier="small")
    stopped = await guard.call("other", works, {}, session_id="s1", recursion_depth=1, model_tier="small")
    assert stopped.status is ResultStatus.CIRCUIT_OPEN
    assert (await guard.call("other", works, {}, session_id="s1", recursion_depth=1, model_tier="large")).ok
    assert (await guard.call("other", works, {}, session_id="s1")).ok


async def test_a_service_has_a_circuit_of_its_own(guard: ToolGuard) -> None:
    """Five failures over tools of one MCP server stop all of its tools."""
    for n in range(5):
        await guard.call(f"mcp__files__tool{n}", fails, {}, session_id=f"s{n}")
    assert guard.check("mcp__files__another").code == "circuit_open"
    assert guard.check("mcp__mail__send").code == "allowed"


async def test_private_arguments_still_name_the_domain(guard: ToolGuard) -> None:
    """Only the derived key leaves the process, and the domain's circuit opens by it."""
    args = {"url": "https://api.example.com/v1/users?id=7"}
    for tool in ("http_request", "fetch", "curl", "webfetch", "http_get"):
        await guard.call(tool, fails, args, session_id=f"s-{tool}")
    assert guard.check("request", args).code == "circuit_open"
    assert guard.check("request", {"url": "https://other.example.com/v1"}).code == "allowed"


class Deaf:
    """A backend whose broker is gone."""

    connected = False

    def __init__(self, guard: ToolGuard) -> None:
        self.view, self.decisions, self.events = guard.view, guard.backend.decisions, 0

    def publish(self, record: object) -> None:
        """Nobody hears it."""
        del record
        self.events += 1

    async def changed(self, timeout_ms: float) -> None:
        """Nothing changes."""
        del timeout_ms


async def test_without_a_broker_the_guard_probes_by_itself(clock: MovableClock) -> None:
    """One call at a time, with a pause after each failure: no outage of ours keeps a recovered tool closed."""
    inner = guard_for_tests(clock=clock)
    set_state(inner, "breaker", "tool:a", state="open", open_until=clock.after(30))
    guard = ToolGuard(Deaf(inner), inner.settings, clock=clock)  # type: ignore[arg-type]
    assert (await guard.call("a", works, session_id="s1")).status is ResultStatus.CIRCUIT_OPEN
    clock.move(31)
    both = await asyncio.gather(*(guard.call("a", _slow, {"n": n}, session_id="s1") for n in range(2)))
    assert sorted(one.ok for one in both) == [False, True]
    assert (await guard.call("a", fails, session_id="s1")).attempts == 1
    assert (await guard.call("a", works, session_id="s1")).status is ResultStatus.CIRCUIT_OPEN
    clock.move(31)
    assert (await guard.call("a", works, session_id="s1")).ok
    assert (await guard.call("a", works, {"n": 1}, session_id="s1")).ok


async def _slow(**_: Any) -> str:
    await asyncio.sleep(0.01)
    return "ok"


async def test_an_unanswered_request_ends_in_time(clock: MovableClock) -> None:
    """With a backend that is there and a worker that is not, the asking call is refused when its patience ends."""
    inner = guard_for_tests(clock=clock, probe_wait_ms=50)
    set_state(inner, "breaker", "tool:a", state="half_open")
    silent = Deaf(inner)
    silent.connected = True  # type: ignore[misc]

    async def wait(timeout_ms: float) -> None:
        clock.move(ms=timeout_ms)

    silent.changed = wait  # type: ignore[method-assign]
    guard = ToolGuard(silent, inner.settings, clock=clock)  # type: ignore[arg-type]
    result = await guard.call("a", works, session_id="s1")
    assert result.status is ResultStatus.CIRCUIT_OPEN
    assert result.error is not None
    assert "nobody answered" in result.error.message
    assert silent.events == 2  # the request, and that the call was not made, which frees a lease granted too late


async def test_an_operators_word_reaches_the_folds(guard: ToolGuard) -> None:
    """A guard with an operator's rights may give orders."""
    await open_circuit(guard)
    assert guard.check("a").code == "circuit_open"
    guard.order(TrustReset, key="a")
    assert guard.trust_of("a") is None


async def test_a_refused_call_has_a_fallback(guard: ToolGuard) -> None:
    """Why it was not made and what to do in its place (seed 5, SPEC-10.24); a call that was made has none."""
    assert (await guard.call("a", works, session_id="s1")).fallback() is None
    await open_circuit(guard)
    fallback = (await guard.call("a", works, session_id="s1")).fallback("my query")
    assert fallback is not None
    assert "circuit" in fallback.reason
    assert (fallback.suggestion, fallback.original_query, fallback.is_fallback) == (
        "use another tool or try again later", "my query", True,
    )  # fmt: skip
