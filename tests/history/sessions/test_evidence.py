"""What stands behind a decision: the events that counted, the threshold, and what is said where they are not found."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from fixed_rules import TO_OPEN, Rules
from recorded import replayed
from story import Story
from trustfold.history.sessions.evidence import DecisionEvidence, behind
from trustfold.projections.session.detectors.registry import KINDS
from trustfold.projections.topology import DECISION_TOPICS
from trustfold.schemas.vocabulary import PatternType

URL = {"url": "https://api.example.com/data"}


def decided(story: Story, kind: str, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first decision of a type with these fields, and all decisions."""
    every = [orjson.loads(one.value) for one in replayed(story.records) if one.topic in DECISION_TOPICS and one.value]
    wanted = {"type": kind} | fields
    return next(one for one in every if wanted.items() <= one.items()), every


def stands_behind(story: Story, kind: str, *, events: slice = slice(None), **fields: Any) -> DecisionEvidence:
    """What stands behind a decision of a story, of which only some events are kept."""
    decision, every = decided(story, kind, **fields)
    kept = [orjson.loads(value) for topic, value in story.records if topic == "events"][events]
    return behind(decision, kept, every, rules=Rules())


def test_an_escalation_names_its_failures() -> None:
    """Three failures of two sessions, with their arguments, and the threshold they reached."""
    story = Story()
    for number in range(3):
        story.moved(session=f"s{number % 2}").fails("deploy", {"to": number})
    found = stands_behind(story, "trust.changed", to="escalated")
    assert [(call.session_id, call.summary) for call in found.calls] == [
        ("s0", "to=0"),
        ("s1", "to=1"),
        ("s0", "to=2"),
    ]
    (measure,) = found.measures
    assert (measure.value, measure.threshold, measure.met) == ("3", "3", True)
    assert (found.missing, found.how) == ((), "")
    assert "trustfold reset" in found.ways_out[0]


def test_what_is_not_kept_is_said() -> None:
    """Of the failures that retention has deleted the number is told."""
    story = Story()
    story.fails("deploy", times=3)
    found = stands_behind(story, "trust.changed", events=slice(2, None), to="escalated")
    assert (len(found.calls), len(found.missing), found.named) == (2, 1, 3)


def test_the_failures_behind_a_circuit_are_counted_again() -> None:
    """The decision names the last one; the five in a row are found among the calls of all sessions."""
    story = Story()
    story.works("http_request", URL)
    for number in range(TO_OPEN):
        story.moved(session=f"s{number}").works("read_file", {"path": "a"})
        story.fails("http_request", URL, http_status=503)
    found = stands_behind(story, "breaker.changed", to="open")
    assert [call.session_id for call in found.calls] == [f"s{number}" for number in range(TO_OPEN)]
    assert found.named == 1
    assert found.how.endswith("the failures in a row were counted again from the log.")
    assert found.measures[0].met is True


def test_a_rate_is_taken_only_when_it_is_the_one_that_was_measured() -> None:
    """Ten measured calls of which half failed; with one of them gone the page does not pretend."""
    story = Story()
    for number in range(10):
        if number % 2:
            story.fails("deploy", http_status=503)
        else:
            story.works("deploy", {"to": number})
    found = stands_behind(story, "breaker.changed", trigger="rate")
    assert len(found.calls) == 10
    found = stands_behind(story, "breaker.changed", events=slice(2, None), trigger="rate")
    assert found.how.endswith("are not in what is kept of the log.")
    assert len(found.calls) == 1


def test_a_nudge_stands_on_its_pattern() -> None:
    """The calls of the pattern, the ladder, the decisions before and after."""
    story = Story()
    story.works("search", {"q": "a"}, result="nothing", times=4)
    nudge, every = decided(story, "nudge.issued")
    pattern = next(one for one in every if one["id"] == nudge["pattern_id"])
    events = [orjson.loads(value) for _, value in story.records]
    found = behind(nudge, events, every, basis=pattern, rules=Rules())
    assert len(found.calls) == 3
    assert found.measures[0].threshold == "minor 3, moderate 4, severe 6"
    assert [one["type"] for one in found.earlier] == ["pattern.detected"]
    assert [one["type"] for one in found.later] == ["nudge.judged"]


def test_recovery_rests_on_successes() -> None:
    """The successes since recovery began, counted again."""
    story = Story()
    story.fails("deploy", times=3)
    story.after(minutes=60).works("deploy", times=3)
    found = stands_behind(story, "trust.changed", to="trusted")
    assert [str(call.verdict) for call in found.calls] == ["succeeded"] * 3


def test_time_alone_has_no_events() -> None:
    """A circuit that is half-open because its time is over names none, and none is invented."""
    story = Story()
    story.fails("deploy", http_status=503, times=TO_OPEN)
    story.after(minutes=5).works("deploy")
    found = stands_behind(story, "breaker.changed", to="half_open")
    assert (found.calls, found.events, found.named, found.how) == ((), (), 0, "")


@pytest.mark.parametrize("pattern", list(PatternType))
def test_every_pattern_says_what_ends_it(pattern: PatternType) -> None:
    """No pattern without a way out."""
    assert KINDS[pattern].ends_with
