"""What the view says of a call: the strictest of its keys, and what time alone moves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from fixed_rules import Rules
from trustfold.guard import ToolGuard
from trustfold.guard.backends.http import record_key
from trustfold.guard.policy import check_recorded
from trustfold.guard.request import recorded_call
from trustfold.guard.state_cache import StateView
from trustfold.guard.testing import MovableClock, clear_state, guard_for_tests, set_state
from trustfold.schemas.events import ToolCallStarted
from trustfold.schemas.vocabulary import BreakerState

START = datetime(2026, 1, 5, tzinfo=UTC)


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
    assert held.holder == ""


async def test_what_holds_for_a_user_holds_in_every_workspace() -> None:
    """A tool that fails a user in several workspaces must be approved in the next; a workspace's own word wins."""
    guard = guard_for_tests(user_id="ann", rules=Rules())

    async def broken(**_: Any) -> dict[str, Any]:
        return {"error": "down", "status_code": 500}

    for workspace in ("w1", "w2", "w3"):
        for n in range(6):
            await guard.call("a", broken, {}, session_id=f"{workspace}-{n}", workspace_id=workspace, user_id="ann")
    assert guard.check("a", workspace_id="w9").ask
    record = guard.view.trust("w9", ("a",), "ann")
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
        view.apply("trust:w1\x1fx", value)
    assert view.only_defaults
    assert view.records() == []


def test_a_recorded_call_is_decided_as_the_guard_decides(guard: ToolGuard, clock: MovableClock) -> None:
    """Whatever holds a call, `check` and the check of its recording say the same; the latter names the key, too."""
    set_state(guard, "trust", "read_file|path_prefix=/etc", state="escalated", reason="3/3 failures in 1h")
    set_state(guard, "trust", "bash", state="blocked")
    set_state(guard, "breaker", "service:api.example.com", state="open", open_until=clock.after(30))
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("read_file", {"path": "/etc/passwd"}, "read_file|path_prefix=/etc"),
        ("read_file", {"path": "/home/x"}, "read_file|path_prefix=/home"),
        ("bash", {"command": "ls"}, "bash"),
        ("http_request", {"url": "https://api.example.com/v1"}, "service:api.example.com"),
    ]
    for seconds, codes in (
        (0, ["approval_required", "allowed", "blocked", "circuit_open"]),
        (31, ["approval_required", "allowed", "blocked", "allowed"]),
    ):
        clock.move(seconds)
        now = clock.now_ms()
        for (tool, args, key), code in zip(calls, codes, strict=True):
            started = ToolCallStarted(
                schema_version="1.0", id="1", time=START, session_id="s", call_id="c", tool_name=tool
            )
            decision, held_by = check_recorded(guard.view, recorded_call(started, args, "w1", None), now)
            assert decision == guard.check(tool, args)
            assert decision.code == code
            assert held_by == key or code == "allowed"


def test_a_recorded_recursive_call_meets_the_circuit_of_its_model_tier(guard: ToolGuard, clock: MovableClock) -> None:
    """And no other call does; behind the decision stands that circuit."""
    set_state(guard, "breaker", "tier:small", state="open", open_until=clock.after(30))
    event = ToolCallStarted(
        schema_version="1.0", id="1", time=START, session_id="s1", call_id="c1", tool_name="ask", model_tier="small"
    )
    deep = msgspec.structs.replace(event, recursion_depth=1)
    found = [check_recorded(guard.view, recorded_call(one, {}, "w1", None), clock.now_ms()) for one in (event, deep)]
    assert [(decision.code, key) for decision, key in found] == [("allowed", "ask"), ("circuit_open", "tier:small")]


def test_behind_a_refusal_stands_what_refuses(guard: ToolGuard, clock: MovableClock) -> None:
    """A blocked tool whose circuit is open, too, is refused as blocked, for its trust."""
    set_state(guard, "breaker", "tool:bash", state="open", open_until=clock.after(30))
    set_state(guard, "trust", "bash", state="blocked")
    event = ToolCallStarted(schema_version="1.0", id="1", time=START, session_id="s1", call_id="c1", tool_name="bash")
    decision, key = check_recorded(guard.view, recorded_call(event, {}, "w1", None), clock.now_ms())
    assert (decision.code, key) == ("blocked", "bash")


def test_an_unknown_kind_of_state_is_refused_by_name(guard: ToolGuard) -> None:
    """With the kinds that there are."""
    with pytest.raises(ValueError, match=r"'circuit'; use one of trust, breaker, quality, model"):
        set_state(guard, "circuit", "tool:a", state="open")
