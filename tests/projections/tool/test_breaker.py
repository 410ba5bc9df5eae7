"""Circuit breaker: opening, probes, back-off, leases, commands (docs/design/semantics.md#circuit-breaker)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fixed_rules import TO_OPEN, BreakerPolicy, BreakerRules, Rules, TrustRules
from story import Story
from trustfold.projections.tool import breaker
from trustfold.projections.tool.tool_state import BreakerRecord
from trustfold.rules.rules import EscalationPatch
from trustfold.schemas.vocabulary import BreakerState, BreakerTrigger

KEY = "tool:search_api"
TOOL = "search_api"
STATES = (BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.FORCED_OPEN)


def opened(**policy: object) -> Story:
    """A circuit that has just opened."""
    rules = Rules(
        breakers=BreakerRules(tool=BreakerPolicy(**policy)),  # type: ignore[arg-type]
        trust=TrustRules(default_rule=EscalationPatch(count_threshold=None)),
    )
    return Story(rules=rules).fails(TOOL, times=TO_OPEN)


@pytest.mark.parametrize(("before", "trigger"), list(itertools.product(STATES, BreakerTrigger)))
def test_only_the_table_moves_a_circuit(before: BreakerState, trigger: BreakerTrigger) -> None:
    """Every state and every move: the table's transition, or nothing at all."""
    record = BreakerRecord(state=before, since=1)
    changes = breaker.move(record, trigger, BreakerPolicy(), 1000)
    expected = breaker.TRANSITIONS.get((before, trigger))
    assert record.state is (expected or before)
    assert [(change.before, change.after) for change in changes] == ([(before, expected)] if expected else [])


def test_five_failures_in_a_row_open() -> None:
    """Four leave it closed, the fifth opens for thirty seconds."""
    story = Story().fails(TOOL, times=4)
    assert story.circuit(KEY) == []
    assert story.fails(TOOL).circuit(KEY) == [("closed", "open")]
    assert story.decided("breaker.changed")["trigger"] == "consecutive"


def test_half_of_ten_measured_calls_open() -> None:
    """Alternating successes and failures open at the tenth call, never at the ninth."""
    story = Story()
    for _ in range(4):
        story.works(TOOL).fails(TOOL)
    assert story.works(TOOL).circuit(KEY) == []
    assert story.fails(TOOL).circuit(KEY) == [("closed", "open")]
    assert story.decided("breaker.changed")["failure_rate"] == 0.5


SERVER_TOOL = "mcp__files__read"


OF_THE_TOOL = (
    {"result": {"isError": True, "content": [{"type": "text", "text": "503 Service Unavailable"}]}},
    {"result": None, "status": "error", "error": {"type": "ToolError", "message": "503 Service Unavailable"}},
    {"result": None, "status": "error", "error": {"type": "mcp.ToolException", "severity": "server_error"}},
)
"""How it is told that the tool of an MCP server reports a failure."""


@pytest.mark.parametrize("told", OF_THE_TOOL)
def test_what_a_servers_tool_reports_leaves_the_servers_circuit_closed(told: dict[str, Any]) -> None:
    """The server has answered; what its tool says counts for trust."""
    story = Story()
    for _ in range(10):
        story.finished(story.started(SERVER_TOOL), SERVER_TOOL, **told)
    assert story.circuit("service:files") == []
    assert story.decided("trust.changed")["to"] == "escalated"


def test_an_answer_of_a_servers_tool_ends_a_run_of_lost_calls() -> None:
    """A server that does not answer opens its circuit; one that answers now and then is there."""
    rules = Rules(breakers=BreakerRules(tool=BreakerPolicy(rate_threshold=None)))
    story = Story(rules=rules).fails(
        SERVER_TOOL, with_="", message="MCP error -32001: Request timed out", times=TO_OPEN - 1
    )
    story.finished(story.started(SERVER_TOOL), SERVER_TOOL, **OF_THE_TOOL[0])
    assert story.fails(SERVER_TOOL, with_="transient", times=TO_OPEN - 1).circuit("service:files") == []
    assert story.fails(SERVER_TOOL, with_="transient").circuit("service:files") == [("closed", "open")]


def test_old_failures_are_forgotten() -> None:
    """One failure less than opens it, two minutes, one more: closed."""
    assert Story().fails(TOOL, times=TO_OPEN - 1).after(121).fails(TOOL).circuit(KEY) == []


@pytest.mark.parametrize("severity", ["invalid_input", "not_found", "permission", "validation"])
def test_an_answered_error_is_a_healthy_transport(severity: str) -> None:
    """Application errors open nothing and end a row of failures."""
    story = Story().fails(TOOL, with_=severity, times=12)
    assert story.circuit(KEY) == []
    story = Story().fails(TOOL, times=TO_OPEN - 1).fails(TOOL, with_=severity).fails(TOOL)
    assert story.circuit(KEY) == []


def test_two_probes_close_after_the_cooldown() -> None:
    """Half-open follows from time alone and is told at its own time; two successes close."""
    story = opened().after(60).works(TOOL)
    assert story.circuit(KEY) == [("closed", "open"), ("open", "half_open")]
    half_open = story.decided("breaker.changed", to="half_open")
    assert half_open["time"] == story.decided("breaker.changed", to="open")["open_until"]
    assert story.works(TOOL).circuit(KEY)[-1] == ("half_open", "closed")


def test_one_probe_closes_a_recursive_circuit() -> None:
    """Calls of a model tier follow the recursive policy: three failures open, one success closes."""
    story = Story()
    for _ in range(3):
        call = story.started("sub_agent", recursion_depth=1, model_tier="small")
        story.finished(call, "sub_agent", status="error", result=None, error={"type": "RuntimeError"})
    assert story.circuit("tier:small") == [("closed", "open")]
    story.after(61)
    call = story.started("sub_agent", recursion_depth=1, model_tier="small")
    story.finished(call, "sub_agent")
    assert story.circuit("tier:small")[-1] == ("half_open", "closed")


def test_a_failed_probe_opens_for_twice_as_long_up_to_sixteen_times() -> None:
    """The period doubles with each re-opening and is capped."""
    story = opened()
    periods = []
    for _ in range(6):
        story.after(600).fails(TOOL)
        last = story.decided("breaker.changed", to="open")
        periods.append(_seconds(last["time"], last["open_until"]))
    assert periods == [60, 120, 240, 480, 480, 480]


def test_late_finishes_do_not_decide_the_probe() -> None:
    """A call that started before the opening and finishes in half-open moves nothing."""
    story = Story()
    early = story.started(TOOL, {"q": 1})
    story.fails(TOOL, times=TO_OPEN).after(60)
    story.finished(early, TOOL)
    assert story.circuit(KEY)[-1] == ("open", "half_open")
    assert story.works(TOOL).circuit(KEY)[-1] == ("open", "half_open")
    assert story.works(TOOL).circuit(KEY)[-1] == ("half_open", "closed")


def test_one_lease_for_the_fleet() -> None:
    """The first guard gets the probe, the second is denied, and only the leased call decides."""
    story = opened(close_after=1).after(60)
    for guard, call in (("g1", "p1"), ("g2", "p2")):
        story.event("breaker.probe_requested", breaker_key=KEY, guard_id=guard, call_id=call)
    assert story.decided("breaker.probe_granted")["holder"] == "g1"
    assert story.decided("breaker.probe_denied")["holder"] == "g2"
    story.works(TOOL)
    assert story.circuit(KEY)[-1] == ("open", "half_open")
    story.finished(story.started(TOOL, call="p1"), TOOL)
    assert story.circuit(KEY)[-1] == ("half_open", "closed")


@pytest.mark.parametrize("revealed_by", ["tick", "event"])
def test_a_lost_probe_frees_the_slot_and_counts_as_failed(revealed_by: str) -> None:
    """The lease's end is applied at its own time, under the same ids, whether a tick or the next event reveals it."""
    story = opened().after(60)
    story.event("breaker.probe_requested", breaker_key=KEY, guard_id="g1", call_id="p1")
    story.after(61)
    if revealed_by == "tick":
        story.tick()
    story.works(TOOL)
    lost = story.decided("breaker.changed", to="open", trigger="probe_lost")
    granted = story.decided("breaker.probe_granted")
    assert lost["time"] == granted["lease_until"]
    other = opened().after(60)
    other.event("breaker.probe_requested", breaker_key=KEY, guard_id="g1", call_id="p1")
    other.after(61).works(TOOL)
    assert lost == other.decided("breaker.changed", to="open", trigger="probe_lost")


def test_operators_force_open_disable_and_observe() -> None:
    """Forced open holds until reset; observe-only computes on; disabled lets everything pass."""
    story = Story()
    story.command("breaker.force_open", KEY)
    story.after(600).works(TOOL)
    assert story.circuit(KEY) == [("closed", "forced_open")]
    story.command("breaker.close", KEY)
    assert story.circuit(KEY)[-1] == ("forced_open", "closed")
    story.command("breaker.observe", KEY)
    story.fails(TOOL, times=TO_OPEN)
    assert story.decided("state.updated", kind="breaker")["mode"] == "observe"
    assert story.circuit(KEY)[-1] == ("closed", "open")
    story.command("breaker.disable", KEY)
    assert story.decided("breaker.changed", breaker_key=KEY)["trigger"] == "disable"
    story.fails(TOOL, times=9)
    assert story.circuit(KEY)[-1] == ("open", "closed")


def test_a_forced_opening_may_be_limited_in_time() -> None:
    """With a duration, the order ends by itself at its own time."""
    story = Story()
    story.command("breaker.force_open", KEY, duration_s=60)
    story.after(90).works(TOOL)
    assert story.circuit(KEY)[-1] == ("forced_open", "closed")


def test_declared_read_only_tools_are_given_more_patience() -> None:
    """ReadOnlyHint selects the read-only policy: eight failures in a row."""
    story = Story(rules=Rules(trust=TrustRules(default_rule=EscalationPatch(count_threshold=None))))
    for number in range(8):
        assert story.circuit(KEY) == [], number
        call = story.started(TOOL, annotations={"readOnlyHint": True})
        story.finished(call, TOOL, status="error", result=None, error={"type": "RuntimeError", "message": "boom"})
    assert story.circuit(KEY) == [("closed", "open")]


def test_a_slow_dependency_opens_where_that_is_asked_for() -> None:
    """The slow-call rate is off by default and has the same minimum of calls."""
    policy = BreakerPolicy(slow_call_ms=50, slow_rate_threshold=0.5)
    story = Story(rules=Rules(breakers=BreakerRules(tool=policy))).works(TOOL, times=9)
    assert story.circuit(KEY) == []
    assert story.works(TOOL).decided("breaker.changed")["trigger"] == "slow_rate"


def _seconds(earlier: str, later: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def test_another_sessions_call_of_the_same_id_is_not_the_probe() -> None:
    """Call ids are reused across sessions, and a call from before the opening never decides."""
    story = Story(session="other")
    story.started(TOOL, {"q": 0}, call="call_0")
    story.session = "s1"
    story.fails(TOOL, times=TO_OPEN).after(60)
    story.event("breaker.probe_requested", breaker_key=KEY, guard_id="g", call_id="call_0")
    story.session = "other"
    story.finished("call_0", TOOL, status="error", result=None)
    assert story.circuit(KEY)[-1] == ("open", "half_open")


def test_a_later_order_to_force_open_replaces_the_earlier_one() -> None:
    """Open for a minute, then open until told otherwise: it stays open."""
    story = Story()
    story.command("breaker.force_open", KEY, duration_s=60)
    story.command("breaker.force_open", KEY)
    assert story.after(600).works(TOOL).circuit(KEY) == [("closed", "forced_open")]


def test_the_end_of_a_forced_opening_is_told_without_traffic() -> None:
    """A guard that blocks sends no event, so a tick has to reveal it."""
    story = Story()
    story.command("breaker.force_open", KEY, duration_s=60)
    assert story.after(90).tick().circuit(KEY)[-1] == ("forced_open", "closed")


def test_a_tools_circuit_is_closed_by_calls_whose_service_fails() -> None:
    """The tool ran; it was the service that failed, and such failures never open the tool's circuit again."""
    story = Story().fails("http_request", times=TO_OPEN).after(60)
    story.fails("http_request", {"url": "https://api.example.com/v1/x"}, times=2, with_="server_error")
    assert story.circuit("tool:http_request")[-1] == ("half_open", "closed")


def test_an_observed_circuit_lets_probes_pass() -> None:
    """Observe-only never blocks."""
    story = Story()
    story.command("breaker.observe", KEY)
    story.fails(TOOL, times=TO_OPEN)
    story.event("breaker.probe_requested", breaker_key=KEY, guard_id="g", call_id="p")
    assert story.all("breaker.probe_denied") == []


def test_closing_a_closed_circuit_cleans_its_windows() -> None:
    """One failure less than opens it, a close, one failure: closed."""
    story = Story().fails(TOOL, times=TO_OPEN - 1)
    story.command("breaker.close", KEY)
    assert story.fails(TOOL).circuit(KEY) == []


def test_a_bare_name_with_a_colon_is_a_tools() -> None:
    """`srv:read` asks for the circuit of that tool, not for one that nobody knows."""
    story = Story().fails("srv:read", times=TO_OPEN)
    story.event("breaker.probe_requested", breaker_key="srv:read", guard_id="g", call_id="p")
    assert story.decided("breaker.probe_denied")["breaker_key"] == "tool:srv:read"


def test_a_circuit_that_never_closes_keeps_its_longest_opening() -> None:
    """However often it opens again: a tool that is gone for weeks must not take the fold with it."""
    record, longest = BreakerRecord(since=1), int(BreakerPolicy().open_s * BreakerPolicy().backoff_cap) * 1000
    breaker.move(record, BreakerTrigger.CONSECUTIVE, BreakerPolicy(), 1000)
    for _ in range(2000):
        at = record.open_until
        assert breaker.move_by_time(record, BreakerPolicy(), at)
        breaker.move(record, BreakerTrigger.PROBE_FAILED, BreakerPolicy(), at)
    assert record.open_until - record.opened_at == longest


def test_a_circuit_forced_open_without_end_tells_no_time() -> None:
    """Followers take the time away where there is none; one forced open for a while tells when it ends."""
    story = Story()
    story.command("breaker.force_open", KEY)
    assert story.decided("state.updated", kind="breaker").get("open_until") is None
    story.command("breaker.force_open", KEY, duration_s=60)
    assert story.decided("state.updated", kind="breaker")["open_until"] is not None


def test_a_circuit_that_has_closed_opens_for_the_first_period_again() -> None:
    """What it needed last time is forgotten once its probes have succeeded."""
    story = opened().after(600).fails(TOOL)  # the second opening
    story.after(600).works(TOOL, times=2).fails(TOOL, times=TO_OPEN)
    last = story.decided("breaker.changed", to="open")
    assert _seconds(last["time"], last["open_until"]) == 30


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_policy_says_how_many_failures_in_a_row_open(failures: int) -> None:
    """One before is too few, also of two."""
    rules = Rules(breakers=BreakerRules(tool=BreakerPolicy(consecutive_failures=failures)))
    story = Story(rules=rules).fails(TOOL, times=failures - 1)
    assert story.circuit(KEY) == []
    assert story.fails(TOOL).circuit(KEY) == [("closed", "open")]


def raises(story: Story, kind: str, amount: int, *, times: int) -> Story:
    """Calls that a tool ends by an exception of a class."""
    for _ in range(times):
        call = story.started("charge", {"amount": amount})
        story.finished(call, "charge", status="error", result=None, error={"type": kind, "message": "no"})
    return story


def test_an_exception_of_the_tools_own_opens_nothing_until_three_calls_raise_it() -> None:
    """It may be an answer: the same request again proves nothing, and neither do two; a success begins anew."""
    story = Story()
    for amount in (1, 2):
        raises(story, "InsufficientFundsError", amount, times=9)
    assert not story.all("breaker.changed") + story.all("trust.changed")
    story.works("charge", {"amount": 0})
    for amount in (1, 2):
        raises(story, "InsufficientFundsError", amount, times=5)
    assert not story.all("breaker.changed") + story.all("trust.changed")
    raises(story, "InsufficientFundsError", 3, times=5)
    assert [one["to"] for one in story.all("breaker.changed")] == ["open"]
    assert story.decided("trust.changed")["count"] == 14.5  # twenty-nine in the window, each of which counts half


def test_errors_that_a_policy_excludes_never_open_a_circuit() -> None:
    """They are answers, by the name that was reported; others open it as ever."""
    rules = Rules(breakers=BreakerRules(tool=BreakerPolicy(excluded_errors=frozenset({"RuntimeError"}))))
    story = raises(Story(rules=rules), "RuntimeError", 1, times=9)
    assert not story.all("breaker.changed")
    assert [one["to"] for one in raises(story, "MemoryError", 1, times=5).all("breaker.changed")] == ["open"]
