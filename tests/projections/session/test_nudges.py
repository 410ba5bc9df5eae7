"""Nudges: when a pattern is told to the model, how strongly, and whether it helped.

See docs/design/semantics.md#nudges.
"""

from __future__ import annotations

import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story
from trustfold.rules.rules import Ladder

READ = ("read_file", {"path": "/src/a.py"})


def test_breaking_out_clears_the_pattern() -> None:
    """A different result of the same call ends the streak, and the next one is new."""
    story = Story().works(*READ, result="same", times=3).works(*READ, result="other")
    assert [one["pattern"] for one in story.all("pattern.cleared")] == ["repetitive_calls"]


def test_nudges_follow_severity() -> None:
    """Minor gentle, moderate direct, severe interrupt; each on its lane."""
    story = Story().works(*READ, result="same", times=6)
    assert story.nudges() == [("repetitive_calls", kind) for kind in ("gentle", "direct", "interrupt")]
    assert [one["lane"] for one in story.all("nudge.issued")] == ["context_hint", "system_guidance", "pause"]
    assert "read_file" in story.all("nudge.issued")[0]["message"]


@pytest.mark.parametrize(
    ("level", "types"),
    [
        ("off", []),
        ("gentle", ["gentle"] * 3),
        ("direct", ["gentle", "direct", "direct"]),
        ("full", ["gentle", "direct", "interrupt"]),
    ],
)
def test_levels_clamp_and_never_drop(level: str, types: list[str]) -> None:
    """A session's level is a cap on strength, not a filter."""
    story = Story()
    story.event("session.settings_changed", settings={"nudge_level": level})
    story.works(*READ, result="same", times=6)
    assert [kind for _, kind in story.nudges()] == types


def test_an_explicit_false_switches_nudges_off_and_null_inherits() -> None:
    """nudge_enabled false wins over the default; null goes back to it."""
    story = Story()
    story.event("session.settings_changed", settings={"nudge_enabled": False})
    assert story.works(*READ, result="same", times=3).nudges() == []
    story.event("session.settings_changed", settings={"nudge_enabled": None})
    assert story.works(*READ, result="same").nudges() == [("repetitive_calls", "direct")]


def test_one_nudge_at_a_time() -> None:
    """Where one event raises two patterns, error retry goes before repetition."""
    story = Story().fails("bash", {"command": "broken"}, message="fail", times=3)
    assert {name for name, _, _ in story.patterns()} == {"error_retry_loop", "repetitive_calls"}
    assert story.nudges() == [("error_retry_loop", "gentle")]


def test_a_nudge_that_works_is_judged_effective() -> None:
    """No repeat within five calls."""
    story = Story().works(*READ, result="same", times=3)
    for number in range(5):
        story.works("query_db", {"q": number}, result=str(number))
    assert [one["effective"] for one in story.all("nudge.judged")] == [True]


def test_an_ignored_nudge_raises_the_next() -> None:
    """After the cooldown, at the same severity, the next nudge is a step stronger."""
    rules = Rules(behaviour=BehaviourRules(repetitive_calls=Ladder(minor=3, moderate=30, severe=30)))
    story = Story(rules=rules).works(*READ, result="same", times=13)
    assert story.all("nudge.judged")[0]["effective"] is False
    assert story.nudges() == [("repetitive_calls", "gentle"), ("repetitive_calls", "direct")]


def test_the_cooldown_outlives_the_streak() -> None:
    """A pattern that clears and comes back within ten calls is reported again, but not nudged again."""
    story = Story()
    for lap in range(3):
        for number in range(2):
            story.works("list_tools", {"lap": lap, "n": number}, result=f"{lap} {number}")
        story.works("read_file", {"path": f"/{lap}"}, result=f"{lap}")
    assert story.patterns() == [("introspection_loop", "minor", 2)] * 3
    assert story.nudges() == [("introspection_loop", "gentle")]
