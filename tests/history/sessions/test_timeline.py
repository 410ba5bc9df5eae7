"""A session as a person would tell it: what became of calls, what was folded, what grew, what nudges led to."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fixed_rules import TO_OPEN, Rules
from recorded import lines_of, replayed
from story import Story
from trustfold.cli.demo import events as demo_events
from trustfold.history.sessions.json_view import timeline_document
from trustfold.history.sessions.paging import PAGE_ITEMS, part_of, ways_from
from trustfold.history.sessions.timeline import (
    ItemKind,
    RepeatedCalls,
    TimedDecision,
    TimelineDecision,
    TimelineEntries,
    TimelineEntry,
    TimelineMessage,
    timeline,
)
from trustfold.history.sessions.timeline_calls import CallVerdict, TimelineCall
from trustfold.projections.topology import DECISION_TOPICS

SEARCH = {"query": "flights"}


def told(story: Story, session: str = "s1", *, late_ms: int = 100) -> TimelineEntries:
    """The timeline of a story, with all that is decided in it; decisions arrive `late_ms` after their time."""
    return from_lines([value for topic, value in story.records if topic == "events"], session, late_ms=late_ms)


def from_lines(lines: list[bytes], session: str, *, late_ms: int = 100) -> TimelineEntries:
    """The timeline of a session among some lines."""
    events: list[dict[str, Any]] = [orjson.loads(line) for line in lines]
    decisions = []
    for output in replayed([("events", line) for line in lines]):
        if output.topic == "events" and output.value:
            events.append(orjson.loads(output.value))
        elif output.topic in DECISION_TOPICS and output.value:
            decisions.append(TimedDecision(orjson.loads(output.value), output.time_ms + late_ms))
    return timeline(session, events, decisions, rules=Rules())


def kinds(found: TimelineEntries) -> list[str]:
    """What each entry is about."""
    return [str(item.kind) for item in found.items]


def test_each_call_says_what_became_of_it() -> None:
    """One word for each way in which a call can end, or not end."""
    story = Story()
    story.works("read_file", {"path": "a.py"})
    story.fails("deploy", message="host db-7 is down")
    story.finished(story.started("search"), "search", status="error", expected_failure=True, result="no match")
    story.finished(story.started("bash"), "bash", status="cancelled", result=None)
    story.finished(story.started("fetch"), "fetch", status="circuit_open", result=None)
    story.finished(story.started("drop"), "drop", status="cancelled", result=None, error={"type": "BlockedByGuard"})
    story.finished(story.started("stop"), "stop", status="error", result=None, error={"type": "blocked_by_guard"})
    story.finished(story.started("stat"), "stat", from_cache=True)
    asked = story.started("pay")
    story.event("permission.requested", call_id=asked, tool_name="pay")
    story.event("permission.resolved", call_id=asked, tool_name="pay", granted=False, method="user")
    waits = story.started("wire")
    story.event("permission.requested", call_id=waits, tool_name="wire")
    story.started("build", {"target": "all"})
    found = told(story)
    assert [(call.tool, str(call.verdict)) for call in found.calls] == [
        ("read_file", "succeeded"),
        ("deploy", "failed"),
        ("search", "answered"),
        ("bash", "cancelled"),
        ("fetch", "refused"),
        ("drop", "refused"),
        ("stop", "refused"),
        ("stat", "cached"),
        ("pay", "denied"),
        ("wire", "waiting"),
        ("build", "pending"),
    ]
    deploy = found.calls[1]
    assert (deploy.signature, deploy.error, deploy.failing) == (
        "tool_error: host db-<n> is down",
        "host db-7 is down",
        True,
    )
    assert found.calls[0].summary == "a.py"


def test_an_answer_after_the_deadline_leaves_a_failure() -> None:
    """The engine closed the call at its deadline and the folds have counted that; the answer changes nothing."""
    story = Story()
    call = story.started("deploy", deadline_ms=1000)
    story.after(minutes=1).user_says()
    story.finished(call, "deploy")
    (deploy,) = told(story).calls
    assert (str(deploy.verdict), deploy.severity, deploy.failing) == ("failed", "timeout", True)


def test_a_call_that_never_ends_is_lost_and_one_past_its_deadline_failed() -> None:
    """A stated deadline is a promise; without one nobody knows how the call ended."""
    story = Story()
    story.started("deploy", deadline_ms=1000)
    story.started("build", {"target": "all"})
    story.after(minutes=1).event("session.ended")
    deploy, build = told(story).calls
    assert (str(deploy.verdict), deploy.signature) == ("failed", "no answer by the deadline that was stated")
    assert str(build.verdict) == "lost"


def test_repeats_in_a_row_are_folded_and_counted() -> None:
    """Seven equal calls are one line that says seven; another result, or a message between them, is another line."""
    story = Story()
    story.works("list_tools", result="same", times=2)
    story.works("search", SEARCH, result="one")
    story.works("search", SEARCH, result="two")
    found = told(story, "s1")
    assert not [item for item in found.items if isinstance(item.what, RepeatedCalls)]
    story = Story()
    for _ in range(7):
        story.works("wait", SEARCH, result="same")
    events = [orjson.loads(value) for _, value in story.records]
    (folded,) = timeline("s1", events).items
    assert isinstance(folded.what, RepeatedCalls)
    assert [call.times for call in folded.what.calls] == [1, 2, 3, 4, 5, 6, 7]
    assert folded.what.duration_ms == 700


def test_a_loop_is_called_out_with_its_price() -> None:
    """Calls, time and money of what came after the first; an action that is new ends the count."""
    story = Story()
    for _ in range(4):
        story.works("search", SEARCH, result="nothing", cost_usd=0.25)
        story.says("Let me look again")
    story.works("write_file", {"path": "a"}, result="written")
    story.works("search", SEARCH, result="nothing", cost_usd=0.25)
    (loop,) = told(story).loops
    assert (len(loop.calls), loop.wasted, loop.tool_ms, loop.cost_usd) == (4, 3, 300, 0.75)
    assert loop.share == 3 / 6
    assert loop.lasted_ms == 3 * 6000


def test_a_pattern_grows_against_its_ladder_and_nudges_say_what_they_led_to() -> None:
    """Three, four, six of 3, 4, 6; the first nudges are ignored, and the last is followed when the model breaks out."""
    story = Story()
    story.works("search", SEARCH, result="nothing", times=6)
    story.works("search", SEARCH, result="found")
    found = told(story)
    streak = next(one for one in found.streaks if one.pattern == "repetitive_calls")
    assert [(step.severity, step.times) for step in streak.steps] == [("minor", 3), ("moderate", 4), ("severe", 6)]
    assert (streak.rule, streak.ladder) == ("repetitive_calls", (3, 4, 6))
    assert streak.cleared_ms is not None
    assert [(nudge.kind, nudge.effect, nudge.delivered) for nudge in streak.nudges] == [
        ("gentle", "ignored", True),
        ("direct", "ignored", True),
        ("interrupt", "followed", True),
    ]
    assert found.stuck == ()


def test_a_nudge_over_a_recording_was_told_to_nobody_and_one_may_be_called_wrong() -> None:
    """What arrives long after its events could not be seen; feedback marks the nudge; the user overtakes it."""
    story = Story()
    story.works("search", SEARCH, result="nothing", times=3)
    (nudge,) = told(story).streaks[0].nudges
    story.event("feedback.false_alarm", output_id=nudge.id)
    story.user_says()
    (nudge,) = told(story, late_ms=3_600_000).streaks[0].nudges
    assert (nudge.effect, nudge.delivered, nudge.false_alarm) == ("unknown", False, True)


def test_a_withdrawn_nudge_was_told_to_nobody() -> None:
    """No answer carried it before its streak was over; its end is no item of its own."""
    story = Story()
    story.event("session.started", reports_deliveries=True)
    story.works("search", SEARCH, result="nothing", times=3)
    story.user_says()
    found = told(story)
    (nudge,) = found.streaks[0].nudges
    assert (nudge.effect, nudge.delivered) == ("unknown", False)
    assert "nudge.withdrawn" not in repr(found.items)


def test_decisions_stand_behind_the_event_that_caused_them() -> None:
    """Escalation and circuit come after the failure that tipped them over; circuits name no session themselves."""
    story = Story()
    story.fails("http_request", {"url": "https://api.example.com/data"}, http_status=503, times=TO_OPEN)
    story.says("done")
    order = kinds(told(story))
    assert order.index("escalations") > order.index("calls")
    assert "circuits" in order
    assert order[-1] == "messages"


def test_the_end_of_a_circuits_cooldown_stands_behind_its_opening() -> None:
    """Nothing caused it but time."""
    found = from_lines(demo_events(), "morning-report")
    steps = [one.what.record["to"] for one in found.items if isinstance(one.what, TimelineDecision)
             and one.what.record["type"] == "breaker.changed"]  # fmt: skip
    assert steps == ["open", "half_open", "closed"]


def test_what_other_sessions_caused_is_told_where_it_concerns() -> None:
    """A circuit opened by others is part of the story of a session that calls the tool meanwhile, and of no other."""
    story = Story()
    story.moved(session="mine").works("deploy", {"to": "a"})
    story.moved(session="others").fails("deploy", {"to": "b"}, times=TO_OPEN)
    story.moved(session="elsewhere").says("hello")
    story.moved(session="mine").works("deploy", {"to": "a"})
    story.moved(session="elsewhere").says("bye")
    opened = [item.what for item in told(story, "mine").items if item.kind is ItemKind.CIRCUIT]
    assert [(one.record["to"], one.elsewhere) for one in opened if isinstance(one, TimelineDecision)][:1] == [
        ("open", True)
    ]
    assert not [item for item in told(story, "elsewhere").items if item.kind is ItemKind.CIRCUIT]


def test_subagents_are_named() -> None:
    """What an agent of the session did carries its name."""
    story = Story()
    story.works("search", SEARCH)
    story.event("tool_call.started", call_id="x", tool_name="read", agent_id="reviewer", args={"path": "a"})
    found = told(story)
    assert [call.agent for call in found.calls] == ["", "reviewer"]
    assert found.agents == ("reviewer",)


def test_long_and_private_contents_are_shortened() -> None:
    """A message keeps its size and loses its length; private arguments are named by their digest."""
    story = Story()
    story.says("long " * 200)
    story.event("tool_call.started", call_id="x", tool_name="read", args_digest="d1")
    found = told(story)
    said = found.items[0].what
    assert isinstance(said, TimelineMessage)
    assert len(said.text) <= 200 < (said.size or 0)
    assert said.text.endswith("…")
    assert found.calls[0].summary == "private, digest d1"


def test_a_page_is_filtered_and_turned() -> None:
    """The last entries first of all; older ones page by page, none twice; a link to an entry finds its page."""
    story = Story()
    for number in range(300):
        story.says(f"message {number} of some length")
    story.fails("deploy")
    items = timeline("s1", [orjson.loads(value) for _, value in story.records]).items
    last = part_of(items)
    assert (len(last.items), last.total, last.newer) == (PAGE_ITEMS, 301, None)
    older = part_of(items, upto=last.older)
    assert [*older.items, *last.items] == list(items)
    assert (older.older, older.newer) == (None, 301)
    assert [item.kind for item in part_of(items, only_errors=True).items] == [ItemKind.CALL]
    assert part_of(items, kinds=frozenset({ItemKind.MESSAGE})).total == 300
    wanted = items[20]
    assert wanted in part_of(items, at=wanted.id).items
    assert wanted in part_of(items, only_errors=True, at=wanted.id).items
    assert part_of(items, at="gone").missing
    ways = ways_from(items, older.items)
    assert ways[items[0].id].failure == items[-1].id
    assert ways_from(items, last.items)[items[-1].id] == ("", "")


def test_a_finish_inside_a_fold_is_found() -> None:
    """A link to any event of folded calls leads to the fold."""
    story = Story()
    story.works("search", SEARCH, result="nothing", times=5)
    events = [orjson.loads(value) for _, value in story.records]
    (item,) = timeline("s1", events).items
    assert part_of([item], at=events[7]["id"]) == part_of([item])._replace(missing=False)
    assert item.id == events[0]["id"]


@pytest.mark.parametrize("trace", ["pi_sessions", "openhands_maverick", "tau_airline_gpt4o"])
def test_recorded_sessions_are_told_whole(trace: str) -> None:
    """Every message and every call of real sessions is in its timeline once; each decision has its place."""
    lines = lines_of(trace)[:4000]
    events = [orjson.loads(line) for line in lines]
    decisions = [
        TimedDecision(orjson.loads(one.value))
        for one in replayed([("events", line) for line in lines])
        if one.topic in DECISION_TOPICS and one.value
    ]
    for session in {one["session_id"] for one in events}:
        own = [one for one in events if one["session_id"] == session]
        found = timeline(session, own, decisions)
        assert len([item for item in found.items if isinstance(item.what, TimelineMessage)]) == sum(
            one["type"] in {"user.message", "model.text"} for one in own
        )
        finishes = {one["id"] for one in own if one["type"] == "tool_call.finished"}
        assert finishes == {call.finish_id for call in found.calls if call.finish_id}
        shown = {call.id for item in found.items for call in _of(item)}
        assert shown == {call.id for call in found.calls}
        ids = {item.what.record["id"] for item in found.items if isinstance(item.what, TimelineDecision)}
        assert {
            one.record["id"]
            for one in decisions
            if one.record.get("session_id") == session and one.record["type"] != "nudge.judged"
        } <= ids
        assert orjson.dumps(timeline_document(found))


def _of(item: TimelineEntry) -> tuple[TimelineCall, ...]:
    return (
        item.what.calls
        if isinstance(item.what, RepeatedCalls)
        else (item.what,)
        if isinstance(item.what, TimelineCall)
        else ()
    )


def test_verdicts_are_counted() -> None:
    """The head of the page counts calls by what became of them."""
    story = Story()
    story.works("search", SEARCH, times=2)
    story.fails("deploy")
    found = told(story)
    assert (found.counted(CallVerdict.SUCCEEDED), found.counted(CallVerdict.FAILED, CallVerdict.LOST)) == (2, 1)
