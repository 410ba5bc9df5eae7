"""Hard boundaries of an execution: warnings, violations, plans, overrides (docs/design/semantics.md#guarantees)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import GuaranteeRules, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from trustfold.projections.session.executions import is_beyond, limits_of, spent_by
from trustfold.projections.session.records import MAX_OVERRIDES, GuaranteeRecord
from trustfold.projections.session.session_state import SessionState

TOOL = "llm_query"
WARNED, VIOLATED = "guarantee.warned", "guarantee.violated"


def story_of(**rules: Any) -> Story:
    """A story under limits."""
    return Story(rules=Rules(guarantees=GuaranteeRules(**rules)))


def recurses(story: Story, times: int = 1, *, cost: float | None = None) -> Story:
    """Recursive calls that succeed, each with news."""
    for number in range(times):
        call = story.started(TOOL, {"n": len(story.records)}, recursion_depth=1)
        story.finished(call, TOOL, result=f"r{number}", cost_usd=cost)
    return story


def told(story: Story, type_: str) -> list[str]:
    """Limits warned of or exceeded, in order."""
    return [one["guarantee"] for one in story.all(type_)]


# --- recursion ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("calls", "warned", "violated"), [(15, 0, 0), (16, 1, 0), (20, 1, 0), (21, 1, 1), (30, 1, 1)])
def test_the_twentieth_recursive_call_is_allowed_and_the_next_is_not(calls: int, warned: int, violated: int) -> None:
    """A warning at the sixteenth, a violation at the start of the twenty-first; each once."""
    story = recurses(story_of(max_duration_seconds=9e6), calls)
    assert (len(told(story, WARNED)), len(told(story, VIOLATED))) == (warned, violated)


def test_a_violation_comes_before_the_operation_runs() -> None:
    """The twenty-first call's start is enough; whoever listens need not wait for its end."""
    story = recurses(story_of(), 20)
    story.started(TOOL, {"n": 21}, recursion_depth=2)
    said = story.decided(VIOLATED)
    assert (said["guarantee"], said["used"], said["limit"]) == ("max_recursive_calls", 21, 20)
    assert said["message"] == "The limit of recursive calls is exceeded: 21 of 20"


def test_calls_that_do_not_recurse_are_not_counted() -> None:
    """Within an execution ordinary calls cost money and time, and are no recursion."""
    story = recurses(story_of()).works("read_file", times=40)
    assert told(story, WARNED) == []


def test_a_repeated_start_counts_once() -> None:
    """The same start published again is no second call."""
    story = story_of(max_recursive_calls=1)
    call = story.started(TOOL, {"n": 1}, recursion_depth=1)
    story.started(TOOL, {"n": 1}, call=call, recursion_depth=1)
    assert told(story, VIOLATED) == []


# --- money and time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("costs", "warned", "violated"),
    [([0.3, 0.15], 1, 0), ([0.3, 0.09], 0, 0), ([0.3, 0.15, 0.1], 1, 1), ([0.1] * 5, 1, 0), ([0.6], 0, 1)],
)
def test_money(costs: list[float], warned: int, violated: int) -> None:
    """Half a dollar: 80 % of it warns, more than it violates; what reaches it exactly is allowed."""
    story = story_of(max_cost_usd=0.5)
    for cost in costs:
        recurses(story, cost=cost)
    assert (len(told(story, WARNED)), len(told(story, VIOLATED))) == (warned, violated)


@pytest.mark.parametrize(("seconds", "warned", "violated"), [(230, 0, 0), (250, 1, 0), (310, 0, 1)])
def test_time(seconds: float, warned: int, violated: int) -> None:
    """Five minutes from the first recursive call, judged at the events that come."""
    story = recurses(story_of()).after(seconds)
    story.works("read_file")
    assert (len(told(story, WARNED)), len(told(story, VIOLATED))) == (warned, violated)


def test_the_plan_says_what_there_is_what_to_do_and_what_was_spent() -> None:
    """Partial result with an explanation, recommendations, and the bill (SPEC-10.13)."""
    story = recurses(story_of(max_cost_usd=0.1), 3, cost=0.04)
    plan = story.decided(VIOLATED)["plan"]
    assert "cost" in plan["partial_result"]
    assert "rests on the 3 calls that succeeded" in plan["partial_result"]
    assert len(plan["recommendations"]) >= 2
    assert (plan["cost_usd"], plan["recursive_calls"]) == (0.12, 3)
    assert plan["duration_s"] == 10.0


def test_what_is_decided_can_be_acted_on() -> None:
    """On the suggestions topic, under the session, with workspace and cause."""
    story = recurses(story_of(max_recursive_calls=0))
    [output] = [one for one in story.outputs if one.type == VIOLATED]
    assert (output.topic, output.key) == ("suggestions", "s1")
    said = story.decided(VIOLATED)
    assert said["workspace_id"] == "w1"
    assert len(said["caused_by"]) == 1
    assert "is empty" in said["plan"]["partial_result"]


# --- whose limits are watched ---------------------------------------------------------------------------------------


def hours_of_work(story: Story) -> Story:
    """A plain coding session: hours long, and dear."""
    for number in range(50):
        story.works("edit_file", {"path": f"/a/{number}"}, result=str(number), cost_usd=0.5).after(minutes=10)
    return story


def test_a_plain_session_is_not_flooded() -> None:
    """Without recursion and without limits of its own a session may last and cost what it will."""
    story = hours_of_work(story_of())
    assert [one.type for one in story.outputs if one.topic == "suggestions"] == []


def test_what_was_spent_before_the_execution_does_not_count() -> None:
    """The first recursive call begins the account."""
    story = recurses(hours_of_work(story_of()))
    assert told(story, VIOLATED) == []


@pytest.mark.parametrize(
    ("sessions", "expected"),
    [("all", ["max_cost_usd", "max_duration_seconds"]), ("off", []), ("recursive", [])],
)
def test_rules_say_whose_limits_are_watched(sessions: str, expected: list[str]) -> None:
    """Every session, none, or those that recurse."""
    assert sorted(told(hours_of_work(story_of(sessions=sessions)), VIOLATED)) == expected


def test_finishes_without_starts_are_watched_too() -> None:
    """A publisher that tells only of finished calls has its sessions watched where all are."""
    story = story_of(sessions="all")
    for number in range(3):
        story.finished(f"c{number}", "edit_file", cost_usd=0.5)
    assert told(story, VIOLATED) == ["max_cost_usd"]


def test_off_is_off_for_recursion_and_overrides_too() -> None:
    """Nothing is judged where guarantees are switched off."""
    story = recurses(story_of(sessions="off"), 30)
    story.event("guarantee.overridden", limits={"max_recursive_calls": 1}, confirmed_by="ada")
    assert told(recurses(story, 3), VIOLATED) == []


def test_an_execution_ends_with_its_session() -> None:
    """After the end the account is closed; a session that goes on begins a new one."""
    story = recurses(story_of(), 20)
    story.event("session.ended")
    assert told(recurses(story, 15), VIOLATED) == []


# --- overrides ------------------------------------------------------------------------------------------------------


def test_an_override_raises_the_limits_it_names_and_is_named() -> None:
    """Twenty more calls are allowed, the cost stays limited, and what follows names the override."""
    story = recurses(story_of(max_duration_seconds=9e6), 21, cost=0.01)
    order = story.event("guarantee.overridden", limits={"max_recursive_calls": 40}, confirmed_by="ada")
    recurses(story, 19, cost=0.01)
    assert told(story, VIOLATED) == ["max_recursive_calls"]
    recurses(story, cost=1.0)
    said = story.all(VIOLATED)
    assert [(one["guarantee"], one["limit"]) for one in said[1:]] == [("max_recursive_calls", 40), ("max_cost_usd", 1)]
    assert all(order in one["caused_by"] for one in said[1:])


def test_an_override_is_used_once() -> None:
    """Published again, however much later, it does not lift what has been lowered since."""
    story = recurses(story_of(max_duration_seconds=9e6))
    story.event("guarantee.overridden", limits={"max_recursive_calls": 99}, confirmed_by="ada")
    first = story.records[-1]
    recurses(story, 70)
    story.event("guarantee.overridden", limits={"max_recursive_calls": 50}, confirmed_by="ada")
    story.records.append(first)
    assert [one["limit"] for one in recurses(story).all(VIOLATED)] == [50]


def test_an_override_needs_a_confirmation() -> None:
    """Without `confirmed_by` the event is refused, and the limits stay."""
    story = recurses(story_of(), 20)
    story.event("guarantee.overridden", limits={"max_recursive_calls": 99})
    with pytest.raises(AssertionError, match="confirmed_by"):
        _ = story.outputs


def test_an_override_that_names_no_limit_changes_nothing() -> None:
    """It names what it lifts, or it lifts nothing."""
    story = story_of()
    story.event("guarantee.overridden", limits={}, confirmed_by="ada")
    assert told(hours_of_work(story), VIOLATED) == []


def test_limits_given_to_a_plain_session_hold_from_then_on() -> None:
    """Whoever names limits wants them watched, recursion or not."""
    story = story_of()
    story.event("guarantee.overridden", limits={"max_cost_usd": 2.0}, confirmed_by="ada")
    for number in range(5):
        story.works("edit_file", {"path": f"/a/{number}"}, result=str(number), cost_usd=0.5)
    assert told(story, WARNED) == ["max_cost_usd"]
    assert told(story, VIOLATED) == ["max_cost_usd"]


def test_a_limit_lowered_below_what_is_spent_is_exceeded_at_once() -> None:
    """The override itself is judged."""
    story = recurses(story_of(), 10)
    story.event("guarantee.overridden", limits={"max_recursive_calls": 5}, confirmed_by="ada")
    assert story.decided(VIOLATED)["used"] == 10


def test_memory_is_bounded() -> None:
    """Hundreds of overrides later the latest are remembered."""
    story = recurses(story_of())
    for number in range(200):
        story.event("guarantee.overridden", limits={"max_recursive_calls": number}, confirmed_by="ada")
    _ = story.outputs
    assert story._topology is not None
    state = story._topology.processors["session"].state("s1")
    assert isinstance(state, SessionState)
    assert state.guarantees is not None
    assert len(state.guarantees.overrides) == MAX_OVERRIDES


# --- invariants -----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(0, 0.4), st.integers(0, 90), st.booleans()), max_size=40),
    st.floats(0, 2),
    st.integers(0, 30),
)
def test_a_violation_is_told_exactly_when_a_limit_is_exceeded(
    calls: list[tuple[float, int, bool]], money: float, recursion: int
) -> None:
    """Whatever is spent: each limit is told once if it was ever exceeded, and never otherwise."""
    story = story_of(max_cost_usd=money, max_recursive_calls=recursion)
    start, cost, depth, last = None, 0.0, 0, 0.0
    for number, (price, wait, recursive) in enumerate(calls):
        story.after(wait)
        call = story.started(TOOL, {"n": number}, recursion_depth=1 if recursive else None)
        if start is None and recursive:
            start = story.now
        depth += recursive
        story.finished(call, TOOL, result=str(number), cost_usd=price)
        if start is not None:
            cost += price
            last = (story.now - start).total_seconds()
    expected = {
        name
        for name, used, limit in (
            ("max_cost_usd", cost, money),
            ("max_duration_seconds", last, 300.0),
            ("max_recursive_calls", depth, recursion),
        )
        if used > limit + 1e-9
    }
    assert sorted(told(story, VIOLATED)) == sorted(expected)
    assert len(told(story, WARNED)) <= 3


def test_a_guard_can_ask_before_it_spends() -> None:
    """The pure parts: what is spent, what is allowed, and whether a bit more would be too much."""
    record = GuaranteeRecord(started_at=1000, cost_usd=0.05, recursive_calls=3, limits=[0.1, None, None])
    assert spent_by(record, 4500) == (0.05, 3.5, 3.0)
    cost, duration, calls = limits_of(record, GuaranteeRules())
    assert (cost, duration, calls) == (0.1, 300.0, 20)
    assert is_beyond(0.05 + 0.08, cost)
    assert not is_beyond(0.05 + 0.05, cost)


@pytest.mark.parametrize(
    ("cost", "limit", "figures"),
    [(12.5, 10.0, "$12.50 of $10.00"), (0.004, 0.003, "$0.004 of $0.003"), (0.01, 0.0, "$0.01 of $0.00")],
)
def test_money_is_told_in_cents_unless_it_is_less_than_one(cost: float, limit: float, figures: str) -> None:
    """Amounts below a cent are told by their first two digits."""
    story = recurses(story_of(max_cost_usd=limit), cost=cost)
    assert story.decided(VIOLATED, guarantee="max_cost_usd")["message"].endswith(figures)


@pytest.mark.parametrize(("after_ms", "violated"), [(0, []), (1, ["max_duration_seconds"])])
def test_a_finish_without_a_duration_begins_the_account_at_its_time(after_ms: int, violated: list[str]) -> None:
    """To the millisecond: reaching the limit is allowed."""
    story = story_of(sessions="all", max_duration_seconds=60)
    story.event("tool_call.finished", call_id="a", tool_name="edit_file", status="success")
    story.after(60 + after_ms / 1000 - 2)  # an event takes two seconds
    story.event("tool_call.finished", call_id="b", tool_name="edit_file", status="success")
    assert told(story, VIOLATED) == violated
