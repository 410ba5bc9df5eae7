"""Several agents in one session: each has streaks of its own (docs/detection.md, Several agents)."""

from __future__ import annotations

import orjson
import pytest
from story import Story
from trustfold.projections.session.session_state import MAX_AGENTS


def works_as(story: Story, agent: str | None, tool: str = "query_db", *, n: int = 1, result: str = "same") -> None:
    """A call of one agent, whose finish does not say whose it is."""
    story.finished(story.started(tool, {"n": n}, agent_id=agent), tool, result=result)


def test_agents_that_take_turns_do_not_share_a_streak() -> None:
    """Two agents ask the same twice: nobody has repeated it three times; a third time by one of them is a loop."""
    story = Story()
    for agent in (None, "helper", None, "helper"):
        works_as(story, agent)
    assert story.patterns() == []
    works_as(story, "helper")
    assert story.found("repetitive_calls") == [("minor", 3)]
    assert story.decided("pattern.detected")["agent_id"] == "helper"
    assert story.decided("nudge.issued")["agent_id"] == "helper"
    works_as(story, None)
    assert [one.get("agent_id") for one in story.all("pattern.detected")] == ["helper", None]


def test_the_work_of_one_agent_does_not_hide_the_loop_of_another() -> None:
    """The main agent makes progress between the repetitions of its helper, and clears nothing."""
    story = Story()
    for number in range(4):
        works_as(story, "helper", "compute")
        works_as(story, None, "edit_file", n=number, result=f"edited {number}")
    assert story.found("repetitive_calls") == [("minor", 3), ("moderate", 4)]
    assert story.cleared() == []


def test_a_finish_belongs_to_the_agent_of_its_call() -> None:
    """Whatever agent acted meanwhile, and whatever the finish says."""
    story = Story()
    for _ in range(3):
        call = story.started("compute", {"n": 1}, agent_id="helper")
        story.says("Waiting for the helper.")
        story.finished(call, "compute", agent_id="another")
    assert [one["agent_id"] for one in story.all("pattern.detected", pattern="repetitive_calls")] == ["helper"]


def test_calls_of_two_agents_at_the_same_time_are_no_batch() -> None:
    """A helper works while the call that began it is open; its repetitions are steps of its own."""
    story = Story()
    task = story.started("delegate", {"task": "look"})
    for _ in range(3):
        works_as(story, "helper")
    story.finished(task, "delegate")
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_a_user_message_ends_the_streaks_of_all_agents() -> None:
    """And clears what they had open."""
    story = Story()
    for agent in (None, "a", "b"):
        for _ in range(3):
            works_as(story, agent)
    story.user_says()
    cleared = [one.get("agent_id") for one in story.all("pattern.cleared")]
    assert sorted(cleared, key=str) == [None, "a", "b"]
    for agent in (None, "a", "b"):
        works_as(story, agent)
        works_as(story, agent)
    assert len(story.found("repetitive_calls")) == 3


def test_a_nudge_is_judged_by_the_calls_of_its_own_agent() -> None:
    """Five calls of others say nothing about it."""
    story = Story()
    for _ in range(3):
        works_as(story, "helper")
    for number in range(6):
        works_as(story, None, n=number, result=str(number))
    assert story.all("nudge.judged") == []
    works_as(story, "helper", n=7, result="else")
    assert story.all("nudge.judged") == []
    works_as(story, "helper")
    assert [one["effective"] for one in story.all("nudge.judged")] == [False]


def test_an_overdue_call_is_its_agents() -> None:
    """Another agent that goes on working does not say that nobody waits."""
    story = Story()
    story.started("deploy", {"n": 1}, agent_id="helper", deadline_ms=60_000)
    story.after(50)
    works_as(story, None)
    story.after(30).tick()
    assert [(one["pattern"], one["agent_id"]) for one in story.all("pattern.detected")] == [("stalled_call", "helper")]
    works_as(story, None, n=2)
    assert story.cleared() == []
    works_as(story, "helper")
    assert story.cleared() == ["stalled_call"]


def test_a_false_alarm_of_an_agent_that_waits() -> None:
    """The feedback comes while another agent acts."""
    story = Story()
    for _ in range(3):
        works_as(story, "helper")
    works_as(story, None)
    story.objects(story.decided("nudge.issued")["id"])
    works_as(story, "helper")
    works_as(story, "helper")
    assert len(story.nudges()) == 1


def test_agents_remembered_are_bounded() -> None:
    """The one that has been idle for longest is forgotten."""
    story = Story()
    for number in range(3 * MAX_AGENTS):
        works_as(story, f"agent-{number}", n=number)
    state = story.state()
    assert len(state.agents) == MAX_AGENTS
    assert f"agent-{3 * MAX_AGENTS - 2}" in state.agents
    assert "agent-0" not in state.agents


def test_a_session_with_one_agent_keeps_one_set_of_streaks() -> None:
    """Whether it has a name or not."""
    for agent in (None, "only"):
        story = Story()
        story.event("session.started")
        for number in range(3):
            works_as(story, agent, n=number)
        assert story.state().agents == {}


def test_where_and_who_is_on_every_output() -> None:
    """Agent, turn, model, correlation and how long it has gone on, from the start of the first repetition."""
    story = Story(model="large")
    story.event("turn.started", turn_index=4)
    begun = story.now
    for number in range(3):
        call = story.started("compute", {"n": 1}, agent_id="helper", correlation_id=f"trace-{number}")
        story.finished(call, "compute", correlation_id=f"trace-{number}")
    lasted = int((story.now - begun).total_seconds() * 1000) - 2000
    for kind in ("pattern.detected", "nudge.issued"):
        made = story.decided(kind)
        told = {name: made[name] for name in ("agent_id", "turn_index", "model", "correlation_id", "duration_ms")}
        assert told == {
            "agent_id": "helper", "turn_index": 4, "model": "large", "correlation_id": "trace-2", "duration_ms": lasted,
        }  # fmt: skip
    story.user_says()
    assert story.decided("pattern.cleared")["turn_index"] == 4
    assert "correlation_id" not in story.decided("pattern.cleared")


def test_an_unknown_turn_is_not_made_up() -> None:
    """Where no turn is published, outputs name none."""
    story = Story()
    for _ in range(3):
        works_as(story, None)
    assert "turn_index" not in story.decided("pattern.detected")
    assert orjson.dumps(story.decided("nudge.issued")).count(b"turn_index") == 0


@pytest.mark.parametrize("ends", [False, True])
def test_the_calls_of_others_are_no_cooldown(ends: bool) -> None:
    """An agent is nudged again after ten calls of its own, whether its streak goes on or comes back."""
    story = Story()
    for _ in range(6):
        works_as(story, "helper")
    if ends:
        works_as(story, "helper", "edit_file", result="edited")
        assert story.cleared() == ["repetitive_calls"]
    for number in range(12):
        works_as(story, None, "edit_file", n=number, result=str(number))
    for _ in range(9 - ends):
        works_as(story, "helper")
    assert len(story.nudges()) == 3
    works_as(story, "helper")
    assert len(story.nudges()) == 4
