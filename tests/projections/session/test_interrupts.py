"""What may stop a run: proven waste alone, however long a pattern goes on and however many nudges are ignored.

See docs/design/semantics.md#nudges.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fixed_rules import BehaviourRules, NudgeRules, Policy, Rules
from story import Story
from trustfold.projections.session.detectors.registry import KINDS
from trustfold.rules.rules import SeverityLadder
from trustfold.schemas.vocabulary import PatternType

LONG = 60
"""Repetitions of a story: far beyond every step, and six times the cooldown of a nudge."""

WORDS = [f"{first}{last}" for first in "alpha beta gamma delta kappa".split() for last in "bcdfghjklmnp"]
CLAIM = "All tests pass now, the work is done."


def repetitive_calls() -> Story:
    """The same look."""
    return Story().works("query_db", {"q": 1}, result="the same row", times=LONG)


def error_retry_loop() -> Story:
    """The same failure."""
    return Story().fails("bash", {"command": "broken"}, message="it broke", times=LONG)


def same_error_loop() -> Story:
    """Other arguments, the same error."""
    story = Story()
    for number in range(LONG):
        story.fails("sql_execute", {"q": number}, message="no such table: orders")
    return story


def failure_streak() -> Story:
    """Other arguments, other errors."""
    story = Story()
    for word in WORDS:
        story.fails("sql_execute", {"q": word}, message=f"unknown thing {word[::-1]}")
    return story


def missing_environment() -> Story:
    """One program that is not there."""
    story = Story()
    for number in range(LONG):
        story.fails("bash", {"command": f"terraform plan {number}"}, with_="", message="terraform: command not found")
    return story


def alternating_loop() -> Story:
    """Two looks in turn."""
    story = Story()
    for _ in range(LONG):
        story.works("query_db", {"q": 1}, result="one").works("query_db", {"q": 2}, result="two")
    return story


def stagnation() -> Story:
    """Other words, the same answer."""
    story = Story()
    for number in range(LONG):
        story.works("ask_assistant", {"query": f"wording {number}"}, result="It is open from nine to five on weekdays.")
    return story


def reread() -> Story:
    """Windows of what was read."""
    story, lines = Story(), [f"line {number * number * 7919} of the file" for number in range(90)]
    for first in (0, 30, 60, *range(LONG)):
        story.works("read_file", {"path": "/a", "from": first}, result="\n".join(lines[first : first + 30]))
    return story


def self_appending() -> Story:
    """A command that grows."""
    story = Story()
    for number in range(1, LONG):
        story.works("bash", {"command": "grep -v alpha " + " ".join(WORDS[:number])}, result="nothing of the kind")
    return story


def introspection_loop() -> Story:
    """Looks at the tools, with other arguments."""
    story = Story()
    for number in range(LONG):
        story.works("list_tools", {"n": number}, result="the same old tools as ever")
    return story


def planning_loop() -> Story:
    """The same plan."""
    story = Story()
    for number in range(LONG):
        story.works("TodoWrite", {"todos": ["fix it"]}, result=f"saved {number}")
    return story


def poll() -> Story:
    """Looks at a job, fast and slow."""
    story = Story().works("process", {"action": "poll"}, result="running", times=LONG)
    for _ in range(LONG):
        story.after(120).works("process", {"action": "poll"}, result="running")
    return story


def announce_no_action() -> Story:
    """Turns that end with an announcement."""
    story = Story()
    for _ in range(8):
        story.turn_starts()
        story.says("I'll fix the bug now.")
        story.turn_ends()
    return story


def restated() -> Story:
    """The same plan with other words before it."""
    story = Story()
    for word in WORDS:
        story.says(f"As {word} said: the plan is to read the file and then to run all of the tests again?")
    return story


def tool_avoidance() -> Story:
    """A tool that is named, and not called."""
    story = Story().works("run_tests", {"q": 0})
    for number in range(LONG):
        story.says("I'll use run_tests to check this.")
        story.works("search", {"q": number}, result=f"found {number}")
    return story


def prerequisite_violated() -> Story:
    """A policy that is not followed."""
    story = Story(rules=Rules(policies={"p": Policy(requires="list_templates", before=("write_file",))}))
    for number in range(LONG):
        story.works("write_file", {"n": number}, result=f"written {number}")
    return story


def unknown_tool() -> Story:
    """Tools that do not exist."""
    story = Story()
    for number in range(LONG):
        story.fails("exec", {"c": number}, message="Tool exec not found")
    return story


def monologue() -> Story:
    """Messages without end."""
    story = Story()
    for number in range(LONG):
        story.says(f"Is this observation {number}?")
    return story


def text_loop() -> Story:
    """A chant."""
    story = Story()
    for _ in range(LONG):
        story.thinks("The directory does not exist yet, it seems to me.")
    return story


def unproven_claim() -> Story:
    """A false claim, turn after turn."""
    story = Story()
    for _ in range(LONG // 4):
        story.turn_starts()
        story.fails("bash", {"command": "pytest -q"}, with_="validation", message="1 failed")
        story.says(CLAIM)
        story.turn_ends()
    return story


def stalled_turn() -> Story:
    """A model that says nothing for an hour."""
    story = Story()
    story.event("session.started", reports_turn_ends=True)
    story.turn_starts()
    story.works("query_db", {"q": 1})
    return story.after(minutes=60).tick()


def stalled_call() -> Story:
    """A call that does not come back."""
    story = Story()
    story.started("deploy", {"n": 1}, deadline_ms=60_000)
    return story.after(minutes=60).tick()


def call_budget() -> Story:
    """A turn with very many calls, which the model hears of only because the rules say so."""
    rules = Rules(
        behaviour=BehaviourRules(call_budget=SeverityLadder(minor=4, moderate=6, severe=8)),
        nudges=NudgeRules(texts={"call_budget.minor": "enough"}),
    )
    story = Story(rules=rules)
    for number in range(LONG):
        story.works("compute", {"n": number}, result=f"value {number}")
    return story


STORIES: dict[str, Callable[[], Story]] = {name: globals()[name] for name in KINDS}

PROVEN = {
    PatternType.ERROR_RETRY_LOOP,
    PatternType.REPETITIVE_CALLS,
    PatternType.ALTERNATING_LOOP,
    PatternType.UNKNOWN_TOOL,
    PatternType.TEXT_LOOP,
    PatternType.ANNOUNCE_NO_ACTION,
}
"""Patterns that show waste by themselves; and a policy may name an interrupt."""


@pytest.mark.parametrize("pattern", PatternType)
def test_only_proof_may_stop_a_run(pattern: PatternType) -> None:
    """At its highest step and far beyond it, with every nudge ignored."""
    story = STORIES[pattern]()
    ladder = getattr(BehaviourRules(), pattern)
    highest = "severe" if ladder.severe else "moderate" if ladder.moderate else "minor"
    assert highest in {severity for severity, _ in story.found(pattern)}
    strengths = {kind for name, kind in story.nudges() if name == pattern}
    assert ("interrupt" in strengths) is (pattern in PROVEN)


@pytest.mark.parametrize("pattern", PatternType)
def test_a_nudge_says_no_more_than_its_severity(pattern: PatternType) -> None:
    """Gentle at least minor, direct at least moderate, an interrupt severe; only an interrupt says that it stopped."""
    for nudge in STORIES[pattern]().all("nudge.issued"):
        rank = ("minor", "moderate", "severe").index(nudge["severity"])
        strength = ("gentle", "direct", "interrupt").index(nudge["nudge_type"])
        assert rank >= strength, nudge
        assert nudge["message"].startswith("Stopped after") is (strength == 2), nudge
        assert nudge["lane"] == ("context_hint", "system_guidance", "pause")[strength]


def test_a_policy_may_name_an_interrupt_for_itself() -> None:
    """Its third violation stops the run then."""
    policy = Policy(requires="list_templates", before=("write_file",), interrupts=True)
    story = Story(rules=Rules(policies={"p": policy}))
    for number in range(3):
        story.works("write_file", {"n": number}, result=f"written {number}")
    assert ("prerequisite_violated", "interrupt") in story.nudges()


def test_announcements_within_turns_are_no_proof_for_the_turns() -> None:
    """A turn full of promises, looks at the tools, another turn that ends with one: two turns are not four."""
    story = Story()
    story.turn_starts()
    for number in range(7):
        story.says(f"I'll do step {number} now.")
    for number in range(15):
        story.works("list_tools", {"n": number}, result=f"tools {number}")
    for _ in range(2):
        story.turn_ends()
        story.turn_starts()
        story.says("I'll do it now.")
    story.turn_ends()
    assert "interrupt" not in {kind for _, kind in story.nudges()}


def test_the_third_step_is_for_the_person() -> None:
    """Where a pattern may not stop the run it is told to the user instead, with a text."""
    told = stagnation().decided("pattern.detected", pattern="stagnation", severity="severe")
    assert told["notify_user"]
    assert "ask_assistant" in told["message"] or "wording" in told["message"]
    first = stagnation().decided("pattern.detected", pattern="stagnation", severity="minor")
    assert "message" not in first
    assert not first.get("notify_user")
