"""Behavioural profiles of models, as sessions tell them (docs/design/semantics.md#models)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story
from trustfold.projections.fleet.fleet_state import (
    BehaviourCounts,
    count_behaviour,
    is_publication_due,
    most_common_pattern,
    note_published,
)
from trustfold.schemas.standings import ModelBehaved

READ = ("read_file", {"path": "/src/a.py"})
MODEL = "large-1"


def profile(story: Story, model: str = MODEL) -> dict[str, Any]:
    """The public profile of a model."""
    state = story.public(f"model:{model}")
    assert state is not None, "no profile"
    assert (state["kind"], state["key"], state["scope"]) == ("model", model, "model")
    return state


def told(story: Story) -> list[bytes | None]:
    """What was told to the fleet."""
    return [output.value for output in story.outputs if output.topic == "standings"]


def test_a_turn_is_stalled_once_however_many_patterns_it_has() -> None:
    """Several streaks in one turn, in several severities: one stalled turn of two; each streak counts once."""
    story = Story(model=MODEL)
    story.event("turn.started")
    story.works(*READ, result="same", times=6)
    story.works("list_tools", times=4)
    story.event("turn.ended")
    story.turn()
    found = profile(story)
    assert (found["turns"], found["stalled_turns"], found["stall_rate"]) == (2, 1, 0.5)
    assert len(story.patterns()) > 2, "severities are reported one by one"
    assert found["pattern_counts"] == {"introspection_loop": 1, "repetitive_calls": 2}, "two streaks of the latter"


def test_a_streak_that_goes_on_stalls_the_next_turn_too() -> None:
    """It is one streak in the counts, and two stalled turns."""
    story = Story(model=MODEL)
    for _ in range(2):
        story.event("turn.started")
        story.works(*READ, result="same", times=3)
        story.event("turn.ended")
    assert (profile(story)["stalled_turns"], profile(story)["pattern_counts"]["repetitive_calls"]) == (2, 1)


def test_the_platforms_word_on_a_stalled_turn_counts() -> None:
    """A turn that the platform cut off is stalled, although no detector saw anything."""
    story = Story(model=MODEL).turn(stalled=True).turn(stalled=False).turn()
    assert (profile(story)["turns"], profile(story)["stalled_turns"]) == (3, 1)


def test_a_turn_that_nobody_ends_ends_with_the_next_or_with_the_session() -> None:
    """Neither is lost, and none counts twice."""
    story = Story(model=MODEL)
    story.event("turn.started")
    story.event("turn.started")
    story.event("session.ended")
    story.event("turn.ended")
    assert profile(story)["turns"] == 2


def test_nudges_and_their_effect_are_counted() -> None:
    """Two sent, one of them ignored and one effective: a half; before the first nudge there is no share."""
    story = Story(model=MODEL).turn()
    assert "nudge_effectiveness" not in profile(story)
    assert profile(story)["nudges_sent"] == 0
    story.works(*READ, result="same", times=4)
    story.works(*READ, result="other")
    found = profile(story)
    judged = [one["effective"] for one in story.all("nudge.judged")]
    assert (found["nudges_sent"], found["nudges_effective"]) == (len(story.nudges()), judged.count(True)) == (2, 1)
    assert found["nudge_effectiveness"] == 0.5


def test_a_false_alarm_counts_once_for_the_pattern_of_its_nudge() -> None:
    """Called wrong twice it is one; an id that is none of this session's nudges is none."""
    story = Story(model=MODEL).works(*READ, result="same", times=3)
    nudge = story.decided("nudge.issued")["id"]
    for _ in range(2):
        story.event("feedback.false_alarm", output_id=nudge, reason="polling")
    story.event("feedback.false_alarm", output_id="something else")
    assert profile(story)["false_alarms"] == {"repetitive_calls": 1}


def test_sessions_of_a_model_add_up_and_models_are_told_apart() -> None:
    """The profile is over all sessions and workspaces; a model that changes in a session gets only its own turns."""
    story = Story(model=MODEL).turn()
    story.moved(session="s2", workspace="w2").turn(stalled=True)
    story.model = "small-1"
    story.turn()
    assert (profile(story)["turns"], profile(story)["stalled_turns"]) == (2, 1)
    assert (profile(story, "small-1")["turns"], profile(story, "small-1")["stalled_turns"]) == (1, 0)


def test_without_a_model_and_without_detection_nothing_is_told() -> None:
    """Nobody to tell it of; and a turn that nobody watches is not a turn without trouble."""
    assert told(Story().turn().works(*READ, result="same", times=6)) == []
    off = Story(model=MODEL, rules=Rules(behaviour=BehaviourRules(enabled=False)))
    assert told(off.turn().works(*READ, result="same", times=6)) == []


def test_a_healthy_call_tells_nothing() -> None:
    """However many calls a turn has, its end is one record."""
    story = Story(model=MODEL)
    story.event("turn.started")
    for number in range(30):
        story.works("edit_file", {"path": f"/{number}"}, result=str(number))
    story.event("turn.ended")
    assert len(told(story)) == 1


@pytest.mark.parametrize(("turns", "records"), [(40, 40), (80, 56), (1_000, 110), (10_000, 158)])
def test_publications_grow_with_the_logarithm(turns: int, records: int) -> None:
    """Each of the first forty is published, then every twentieth part more; the published count is never far behind."""
    found = BehaviourCounts(MODEL)
    published = 0
    for _ in range(turns):
        count_behaviour(found, ModelBehaved(id="x", time_ms=0, model=MODEL, turns=1))
        if is_publication_due(found):
            note_published(found)
            published += 1
        assert found.turns - found.published_turns <= found.turns * 0.05
    assert published == records


def test_the_most_common_pattern_does_not_depend_on_the_order() -> None:
    """Of two that are equally common it is the first by name, whichever was seen first."""
    for names in (("text_loop", "monologue"), ("monologue", "text_loop")):
        assert most_common_pattern(BehaviourCounts(MODEL, pattern_counts=dict.fromkeys(names, 2))) == "monologue"
    assert most_common_pattern(BehaviourCounts(MODEL)) is None


def test_nudges_that_nobody_could_heed_are_not_held_against_a_model() -> None:
    """The user, or the end of the session, came before it could show: effectiveness is of those that were judged."""
    story = Story(model=MODEL)
    for end in ("user.message", "session.ended"):
        story.works(*READ, result="same", times=3)
        story.event(end)
    assert profile(story)["nudges_sent"] == 2
    assert profile(story)["nudges_judged"] == 0
    assert "nudge_effectiveness" not in profile(story)
    story.works(*READ, result="same", times=4)
    assert (profile(story)["nudges_judged"], profile(story)["nudge_effectiveness"]) == (1, 0.0)
    story.works(*READ, result="else")
    assert (profile(story)["nudges_judged"], profile(story)["nudge_effectiveness"]) == (2, 0.5)
