"""Silence, overdue calls and endless turns: what time alone brings about (docs/design/contracts.md#time-and-order)."""

from __future__ import annotations

import orjson
import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story
from trustfold.rules.rules import NudgeRules, SeverityLadder

READ = ("read_file", {"path": "/a"})


def in_a_turn(nudges: NudgeRules = NudgeRules(), **limits: object) -> Story:  # noqa: B008 - frozen
    """A model at work, on a platform that reports the ends of turns."""
    story = Story(rules=Rules(behaviour=BehaviourRules(**limits), nudges=nudges))  # type: ignore[arg-type]
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    return story.works(*READ)


# --- silence ------------------------------------------------------------------------------------------------------


def test_silence_in_an_open_turn() -> None:
    """Longer than two, four and eight minutes, each reported when it is due; a silent model reads no nudge."""
    story = in_a_turn()
    for minutes in (1.9, 0.2, 2, 4, 60):
        story.after(minutes=minutes).tick()
    assert story.found("stalled_turn") == [("minor", 1), ("moderate", 2), ("severe", 4)]
    assert story.nudges() == []
    assert [one["duration_ms"] for one in story.all("pattern.detected")] == [120_000, 240_000, 480_000]
    assert [bool(one.get("notify_user")) for one in story.all("pattern.detected")] == [False, False, True]
    assert "480 seconds" in story.decided("pattern.detected")["message"]


def test_operators_may_have_the_model_told() -> None:
    """By a text of their rules; a platform may wake the model with it."""
    story = in_a_turn(nudges=NudgeRules(texts={"stalled_turn.minor": "Silent for {seconds} seconds: go on."}))
    story.after(minutes=3).tick()
    assert story.decided("nudge.issued")["message"] == "Silent for 120 seconds: go on."


def told(*, ticks: tuple[float, ...]) -> list[bytes | None]:
    """What is told of ten silent minutes, with ticks after some of them."""
    story = in_a_turn(max_turn_duration_seconds=200)
    story.started("deploy", {"n": 1}, deadline_ms=60_000)
    passed = 0.0
    for minutes in ticks:
        story.after(minutes=minutes - passed).tick()
        passed = minutes
    story.after(minutes=30 - passed)
    story.works(*READ)
    return [output.value for output in story.outputs if output.topic == "nudges"]


@pytest.mark.parametrize("ticks", [(1,), (2.5, 9), (0.5, 1, 1.5, 2, 3, 4, 5, 8, 20), (29,)])
def test_ticks_and_the_next_event_tell_the_same(ticks: tuple[float, ...]) -> None:
    """The same bytes, ids included, whoever notices."""
    assert told(ticks=ticks) == told(ticks=()) != []


def test_a_sign_of_life_clears_it() -> None:
    """The clock starts afresh."""
    story = in_a_turn().after(minutes=3)
    story.works("query_db", {"q": 1}, result="1")
    assert story.cleared() == ["stalled_turn"]
    story.after(minutes=1.5).tick()
    assert len(story.found("stalled_turn")) == 1


def test_what_is_no_sign_of_life() -> None:
    """Questions of guards, feedback and settings do not come from the conversation."""
    story = in_a_turn().after(minutes=1)
    story.event("breaker.probe_requested", breaker_key="tool:x", guard_id="g", call_id="c")
    story.objects("some-output")
    story.event("time.passed")
    story.after(minutes=1.1).tick()
    assert story.found("stalled_turn") == [("minor", 1)]


def test_no_silence_while_a_call_is_open() -> None:
    """A call may run for minutes."""
    story = in_a_turn()
    story.started("run_build", {"n": 1})
    story.after(minutes=9).tick()
    assert story.patterns() == []


def test_no_silence_outside_a_turn() -> None:
    """After its end, and where turns are not published at all."""
    story = in_a_turn()
    story.turn_ends()
    story.after(minutes=30).tick()
    assert story.patterns() == []
    assert Story().works(*READ).after(minutes=30).tick().patterns() == []


def test_an_open_turn_means_nothing_where_turn_ends_are_not_known() -> None:
    """The session, or the recording of it, may just be over; whatever came last, and however many turns there were."""
    story = Story()
    story.turn_starts()
    for number in range(2):
        assert story.works("query_db", {"q": number}).after(minutes=30).tick().patterns() == []
        story.says("All is done.")
        assert story.after(minutes=30).tick().patterns() == []
        story.turn_starts()
    story.event("session.started", reports_turn_ends=False)
    assert story.works("query_db", {"q": 2}).after(minutes=30).tick().patterns() == []


def test_whoever_has_ended_a_turn_is_known_to_end_them() -> None:
    """Then an open turn is the model's, after a message too."""
    story = Story()
    story.turn()
    story.turn_starts()
    story.says("Working on it.")
    assert story.after(minutes=3).tick().found("stalled_turn") == [("minor", 1)]


@pytest.mark.parametrize("kind", ["user_rejected", "aborted"])
def test_after_a_refusal_the_word_is_with_the_user(kind: str) -> None:
    """Nobody waits for the model."""
    story = in_a_turn()
    call = story.started("edit_file", {"n": 1})
    story.finished(call, "edit_file", status="error", result=None, error={"type": kind, "message": "no"})
    assert story.after(minutes=30).tick().patterns() == []


def test_the_evidence_is_in_the_log() -> None:
    """The last sign of life, and the event that says that time has passed; it is appended once."""
    story = in_a_turn()
    last = orjson.loads(story.records[-1][1])["id"]
    story.after(minutes=3).tick().tick()
    [passed] = [output for output in story.outputs if output.type == "time.passed"]
    assert story.decided("pattern.detected")["caused_by"] == [last, passed.id]
    assert story.decided("pattern.detected")["time"] == orjson.loads(passed.value or b"")["time"]


def test_one_that_is_read_back_late_changes_nothing() -> None:
    """Behind a backlog, when nothing recent remembers it."""
    story = in_a_turn().after(minutes=3)
    story.works("query_db", {"q": -1}, result="-1")
    [passed] = [output.value for output in story.outputs if output.type == "time.passed"]
    for number in range(200):
        story.works("query_db", {"q": number}, result=str(number))
    before = len(story.all("pattern.detected"))
    story.records.append(("events", passed or b""))
    assert len(story.all("pattern.detected")) == before


# --- turns that take too long -------------------------------------------------------------------------------------


def test_how_long_a_turn_may_take_is_not_limited() -> None:
    """Unless the rules limit it."""
    busy = [in_a_turn(), in_a_turn(max_turn_duration_seconds=60)]
    for story in busy:
        for number in range(60):
            story.after(3).works("consult", {"q": f"q{number}"}, result=str(number))
    assert busy[0].patterns() == []
    assert busy[1].found("stalled_turn") == [("minor", 1), ("moderate", 2), ("severe", 4)]
    said = busy[1].decided("pattern.detected", severity="severe")["message"]
    assert said == "A turn of the agent has taken 240 seconds so far."
    busy[1].turn_ends()
    assert busy[1].cleared() == ["stalled_turn"]


# --- overdue calls ------------------------------------------------------------------------------------------------


def overdue() -> Story:
    """A call that should take a minute at most, and does not come back."""
    story = in_a_turn()
    story.started("deploy", {"n": 1}, call="slow", deadline_ms=60_000)
    return story


def test_a_call_past_its_deadline() -> None:
    """At the deadline, at twice and at four times it; meanwhile the silence is the call's."""
    story = overdue()
    for minutes in (1.1, 1, 2, 60):
        story.after(minutes=minutes).tick()
    assert story.found("stalled_call") == [("minor", 1), ("moderate", 2), ("severe", 4)]
    assert story.found("stalled_turn") == []
    assert story.decided("pattern.detected")["tool_sequence"] == ["deploy"]


def test_the_real_finish_clears_it() -> None:
    """Late as it is; to trust and breakers it stays a duplicate."""
    story = overdue().after(minutes=1.5)
    story.finished("slow", "deploy")
    assert story.found("stalled_call") == [("minor", 1)]
    assert story.cleared() == ["stalled_call"]
    assert [one["verdict"] for one in story.all("call.outcome", scope="tool:deploy")] == ["failure"]


@pytest.mark.parametrize("move", ["call", "text", "user", "turn"])
def test_whoever_moves_on_has_stopped_waiting(move: str) -> None:
    """Another call, a message, the user, the end of the turn."""
    story = overdue().after(minutes=1.2)
    if move == "call":
        story.works("query_db", {"q": 1}, result="1")
    elif move == "text":
        story.says("It takes too long.")
    elif move == "user":
        story.user_says()
    else:
        story.turn_ends()
    assert story.cleared() == ["stalled_call"]
    story.after(minutes=1.5).tick()
    assert story.found("stalled_call") == [("minor", 1)]


def test_a_call_that_was_cut_off_before_its_deadline_is_not_waited_for() -> None:
    """The user spoke, or the model went on, while it ran."""
    story = overdue()
    story.user_says()
    assert story.after(minutes=30).tick().found("stalled_call") == []
    story = overdue()
    story.finished(story.started("query_db", {"q": 1}), "query_db")
    story.works("query_db", {"q": 2}, result="2")
    assert story.after(minutes=30).tick().found("stalled_call") == []


def test_without_a_stated_deadline_a_call_is_overdue_after_ten_minutes() -> None:
    """It counts as nothing, and only the person is told: many a call takes longer."""
    story = in_a_turn()
    story.started("train_model", {"q": 1})
    assert story.after(minutes=9.5).tick().patterns() == []
    assert story.after(minutes=1).tick().found("stalled_call") == [("minor", 1)]
    assert story.decided("pattern.detected")["message"] == "train_model has not answered the agent for 600 seconds."
    assert story.all("nudge.issued") == []
    assert story.all("call.outcome", scope="tool:train_model") == []


def test_a_look_that_blocks_has_half_an_hour() -> None:
    """As a slow poll: a run of CI is watched for as long as it takes."""
    story = in_a_turn()
    story.started("bash", {"command": "gh pr checks 88 --watch"})
    assert story.after(minutes=29).tick().patterns() == []
    assert story.after(minutes=2).tick().found("stalled_call") == [("minor", 1)]


@pytest.mark.parametrize("tool", ["ask_user", "AskUserQuestion", "ExitPlanMode", "mcp__ui__request_user_input"])
def test_a_question_to_a_person_is_never_overdue(tool: str) -> None:
    """A person may be thinking."""
    story = in_a_turn()
    story.started(tool, {"q": 1})
    assert story.after(minutes=50).tick().patterns() == []


@pytest.mark.parametrize("tool", ["Agent", "Task", "spawn_agent", "delegate_task"])
def test_another_agent_takes_its_time(tool: str) -> None:
    """Helpers work for half an hour; only a deadline that somebody stated is a promise."""
    story = in_a_turn()
    story.started(tool, {"prompt": "read everything"})
    assert story.after(minutes=50).tick().patterns() == []
    promised = in_a_turn()
    promised.started(tool, {"prompt": "read everything"}, deadline_ms=600_000)
    assert promised.after(minutes=11).tick().found("stalled_call") == [("minor", 1)]


def test_in_an_open_turn_of_which_nobody_reports_the_end_only_a_stated_deadline_is_a_promise() -> None:
    """Such calls wait for a person, or were left open with their session."""
    for deadline, expected in ((None, []), (600_000, [("minor", 1)])):
        story = Story()
        story.turn_starts()
        story.started("edit_file", {"n": 1}, deadline_ms=deadline)
        assert story.after(minutes=11).tick().found("stalled_call") == expected


def test_detectors_can_be_switched_off() -> None:
    """Each by its ladder."""
    off = SeverityLadder(minor=1, moderate=2, severe=4, enabled=False)
    story = in_a_turn(stalled_turn=off)
    assert story.after(minutes=60).tick().patterns() == []
    assert [output for output in story.outputs if output.type == "time.passed"] == []


def test_a_stall_that_other_rules_see_in_the_past_is_told_now() -> None:
    """Rules set within a turn cannot change what was told before them: no two outputs share an id."""
    story = in_a_turn().after(minutes=3).tick()
    assert story.found("stalled_turn") == [("minor", 1)]
    story.session_sets(rules={"behaviour": {"max_turn_duration_seconds": 120}})
    set_at = story.now
    story.works("query_db", {"q": 1}, result="1")
    story.after(seconds=1).tick()
    first, *later = [output for output in story.outputs if output.type == "pattern.detected"]
    assert later
    assert first.id not in {output.id for output in later}
    assert all(output.time_ms > set_at.timestamp() * 1000 for output in later)


@pytest.mark.parametrize(("after_ms", "expected"), [(0, []), (1, [("minor", 1)])])
def test_the_end_of_a_turn_cuts_off_what_began_before_it_alone(after_ms: int, expected: list[tuple[str, int]]) -> None:
    """A call of the same millisecond belongs to the turn; one of the next is somebody's who waits."""
    story = in_a_turn()
    story.turn_ends()
    story.after(after_ms / 1000 - 2)  # an event takes two seconds
    story.started("deploy", {"n": 1}, deadline_ms=60_000)
    assert story.after(minutes=1.2).tick().found("stalled_call") == expected
