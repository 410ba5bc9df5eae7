"""Calls that wait for a person, take very long, or never finish (docs/events.md, Calls that take long)."""

from __future__ import annotations

import orjson
import pytest
from fixed_rules import CallRules, Policy, Rules
from story import Story

TOOL = "deploy"


def outcomes(story: Story, tool: str = TOOL) -> list[tuple[str, str | None]]:
    """Verdict and severity of every outcome of a tool."""
    return [(one["verdict"], one.get("severity")) for one in story.all("call.outcome", scope=f"tool:{tool}")]


def appended(story: Story) -> list[tuple[str, str]]:
    """Status and time of every finish that was appended to the log."""
    ours = [orjson.loads(o.value or b"") for o in story.outputs if o.type == "tool_call.finished"]
    return [(one["status"], one["time"]) for one in ours]


def asked(story: Story, call: str, tool: str = TOOL) -> str:
    """A person is asked for permission."""
    return story.event("permission.requested", call_id=call, tool_name=tool)


def answered(story: Story, call: str, *, granted: bool, tool: str = TOOL) -> str:
    """The person answers."""
    return story.event("permission.resolved", call_id=call, tool_name=tool, granted=granted, method="user")


# --- waiting for a person -----------------------------------------------------------------------------------------


def test_a_wait_stops_the_deadline() -> None:
    """A minute is stated; an hour goes by with the person, and the rest of the minute counts after the answer."""
    story = Story()
    call = story.started(TOOL, deadline_ms=60_000)
    asked(story, call)
    story.after(minutes=60).tick()
    assert outcomes(story) == []
    answered(story, call, granted=True)
    story.after(40)
    story.finished(call, TOOL)
    assert outcomes(story) == [("success", None)]


def test_after_the_answer_the_rest_of_the_deadline_holds() -> None:
    """Two seconds of the minute had passed when the person was asked, 58 are left after the answer."""
    story = Story()
    call = story.started(TOOL, deadline_ms=60_000)
    asked(story, call)
    story.after(minutes=5)
    answered(story, call, granted=True)
    story.after(57.9).tick()
    assert appended(story) == []
    story.after(0.2).tick()
    [(status, _)] = appended(story)
    assert status == "timeout"
    story.user_says()
    [outcome] = story.all("call.outcome", scope=f"tool:{TOOL}")
    assert outcome["duration_ms"] == 60_000


def test_a_denial_closes_the_call_as_neutral() -> None:
    """It is counted as a denial, once; what the publisher says of the call later is a duplicate."""
    story = Story()
    call = story.started("bash", {"command": "git push"})
    asked(story, call, "bash")
    story.after(minutes=3)
    answered(story, call, granted=False, tool="bash")
    story.finished(call, "bash", status="error", result=None, error={"type": "user_rejected", "message": "no"})
    [outcome] = story.all("call.outcome", scope="tool:bash")
    assert (outcome["verdict"], outcome["denied"], outcome["fine_key"]) == ("neutral", True, "bash|command=git")
    assert story.state().open_calls == []


def test_a_person_may_be_asked_before_the_call_starts() -> None:
    """As guards do: the wait precedes the start, and the deadline counts from there."""
    story = Story()
    asked(story, "c")
    story.after(minutes=30)
    answered(story, "c", granted=True)
    story.started(TOOL, call="c", deadline_ms=60_000)
    story.after(50)
    story.finished("c", TOOL)
    assert outcomes(story) == [("success", None)]


def test_a_call_that_starts_before_the_answer_goes_on_waiting() -> None:
    """The order of request and start does not matter."""
    story = Story()
    asked(story, "c")
    story.started(TOOL, call="c", deadline_ms=60_000)
    story.after(minutes=30).tick()
    answered(story, "c", granted=True)
    story.after(50)
    story.finished("c", TOOL)
    assert outcomes(story) == [("success", None)]


def test_a_call_that_is_denied_before_it_starts() -> None:
    """Also under an id that was in use before; what a guard says of it then is a duplicate."""
    story = Story()
    story.finished(story.started(TOOL, call="same"), TOOL)
    asked(story, "same")
    answered(story, "same", granted=False)
    story.finished("same", TOOL, status="error", result=None, error={"type": "DeniedByUser"})
    assert [one.get("denied", False) for one in story.all("call.outcome", scope=f"tool:{TOOL}")] == [False, True]


def test_the_wait_is_no_time_of_the_tools() -> None:
    """A publisher that measures from start to finish measures the person, too."""
    story = Story()
    call = story.started(TOOL)
    asked(story, call)
    story.after(minutes=10)
    answered(story, call, granted=True)
    story.event("tool_call.finished", call_id=call, tool_name=TOOL, status="success", duration_ms=606_000)
    [outcome] = story.all("call.outcome", scope=f"tool:{TOOL}")
    assert outcome["duration_ms"] == 4000


def test_nobody_is_silent_while_a_person_is_asked() -> None:
    """Neither before the call starts nor while it is open; after the answer the model owes a sign of life again."""
    story = Story()
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    asked(story, "c")
    story.after(minutes=30).tick()
    assert story.patterns() == []
    answered(story, "c", granted=True)
    story.after(minutes=2.1).tick()
    assert story.found("stalled_turn") == [("minor", 1)]


def test_after_a_denial_the_word_is_with_the_user() -> None:
    """Nobody waits for the model."""
    story = Story()
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    answered(story, story.started(TOOL), granted=False)
    assert story.after(minutes=30).tick().patterns() == []


def test_a_wait_that_never_ends_is_lost_after_a_day() -> None:
    """Whatever the deadline was."""
    story = Story()
    asked(story, story.started(TOOL, deadline_ms=60_000))
    story.after(minutes=24 * 60 + 1).tick().user_says()
    assert [status for status, _ in appended(story)] == ["lost"]
    assert outcomes(story) == [("neutral", None)]


def test_a_wait_is_not_overdue() -> None:
    """A call without a stated deadline is overdue ten minutes of its own after its start."""
    story = Story()
    call = story.started(TOOL)
    asked(story, call)
    story.after(minutes=60).tick()
    answered(story, call, granted=True)
    story.after(minutes=9).tick()
    assert story.patterns() == []
    story.after(minutes=1).tick()
    assert story.found("stalled_call") == [("minor", 1)]


# --- calls without a stated deadline --------------------------------------------------------------------------------


def test_without_a_stated_deadline_nothing_times_out() -> None:
    """After ten minutes it is overdue and counts as nothing; the finish then counts as it ended."""
    story = Story()
    call = story.started(TOOL)
    story.after(minutes=11).tick()
    assert (outcomes(story), appended(story)) == ([], [])
    assert story.found("stalled_call") == [("minor", 1)]
    story.after(minutes=23 * 60)
    story.finished(call, TOOL, status="error", result=None, error={"type": "HTTPError", "http_status": 503})
    assert outcomes(story) == [("failure", "server_error")]
    assert story.cleared() == ["stalled_call"]


def test_a_day_after_its_start_a_call_is_lost() -> None:
    """That is neutral, and a finish that comes later is a duplicate."""
    story = Story()
    call = story.started(TOOL)
    start = story.now
    story.after(minutes=25 * 60)
    story.finished(call, TOOL)
    assert outcomes(story) == [("neutral", None)]
    assert appended(story) == [("lost", start.replace(day=start.day + 1).strftime("%Y-%m-%dT%H:%M:%S.000Z"))]


def test_what_is_open_when_the_session_ends_is_lost() -> None:
    """Stated deadline or not, one finish each; a call that comes after it is a new one."""
    story = Story()
    story.started(TOOL, {"n": 1}, deadline_ms=600_000)
    story.started(TOOL, {"n": 2})
    story.event("session.ended")
    story.after(minutes=30).tick()
    assert outcomes(story) == [("neutral", None)] * 2
    assert [status for status, _ in appended(story)] == ["lost"] * 2
    assert story.state().open_calls == []
    assert story.patterns() == []


def test_what_was_lost_touches_no_count() -> None:
    """Neither trust nor circuits nor quality, however often."""
    story = Story()
    for number in range(12):
        story.started("mcp_db_query", {"n": number}, scenario="query the orders")
        story.event("session.ended")
    assert {one["verdict"] for one in story.all("call.outcome")} == {"neutral"}
    assert story.all("trust.changed") == story.all("breaker.changed") == story.patterns() == []


def test_how_long_a_call_may_take_is_a_rule() -> None:
    """For calls that state no deadline."""
    story = Story(rules=Rules(calls=CallRules(overdue_after_ms=30_000)))
    story.started(TOOL)
    for seconds in (31, 30, 60):
        story.after(seconds).tick()
    assert story.found("stalled_call") == [("minor", 1), ("moderate", 2), ("severe", 4)]


def told(*, ticks: tuple[float, ...], rules: Rules | None = None) -> list[bytes | None]:
    """All that is decided of calls that wait, are overdue, time out and get lost, with ticks after some minutes."""
    story = Story(rules=rules)
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    story.started(TOOL, {"n": 1}, call="slow")
    story.started(TOOL, {"n": 2}, call="stated", deadline_ms=60_000)
    asked(story, "stated")
    passed = 0.0
    for minutes in ticks:
        story.after(minutes=minutes - passed).tick()
        passed = minutes
    story.after(minutes=60 * 30 - passed)
    story.user_says()
    story.event("session.ended")
    kept = {"nudges", "escalations", "breakers", "outcomes"}
    return [o.value for o in story.outputs if o.topic in kept and b'"time_ms"' not in (o.value or b"")]


@pytest.mark.parametrize("ticks", [(1,), (9, 11), (10.5, 21, 41, 100), (1441, 1500), (1799,)])
def test_ticks_and_the_next_event_give_the_same(ticks: tuple[float, ...]) -> None:
    """The same bytes, ids included, whoever notices."""
    assert told(ticks=ticks) == told(ticks=()) != []


def test_a_late_finish_after_a_timeout_heals_what_it_can() -> None:
    """Trust and circuits have counted the timeout; but nobody waits any more, and what had to come first has come."""
    rules = Rules(policies={"plan": Policy(requires=TOOL, before=("publish",))})
    story = Story(rules=rules)
    story.started(TOOL, call="slow", deadline_ms=60_000)
    story.after(minutes=1.5)
    story.finished("slow", TOOL)
    assert outcomes(story) == [("failure", "timeout")]
    assert (story.found("stalled_call"), story.cleared()) == ([("minor", 1)], ["stalled_call"])
    story.works("publish")
    assert story.found("prerequisite_violated") == []


def test_a_call_that_starts_together_with_its_turn_can_stall() -> None:
    """In the very millisecond in which the user spoke and the turn began."""
    story = Story()
    at = {"time": "2026-01-05T10:00:10.000Z"}
    story.event("user.message", **at)
    story.event("turn.started", **at)
    story.started(TOOL, deadline_ms=60_000, **at)
    story.after(minutes=2).tick()
    assert story.found("stalled_call") == [("minor", 1)]
