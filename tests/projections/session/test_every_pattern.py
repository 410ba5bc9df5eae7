"""What every pattern must have: a place, an end, texts, a line in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fixed_rules import NudgeRules, Rules
from story import Story
from trustfold.projections.session.detectors import registry
from trustfold.projections.session.detectors.detector import PatternDetector
from trustfold.projections.session.detectors.registry import KINDS
from trustfold.projections.session.session_state import SessionState
from trustfold.rules.behaviour import PLACEHOLDERS, check_template, filled
from trustfold.rules.rules import BehaviourRules, SeverityLadder
from trustfold.schemas.vocabulary import PatternType

DETECTION = Path(__file__).parents[3] / "docs" / "detection.md"
MAY_STOP = (
    "prerequisite_violated unknown_tool error_retry_loop alternating_loop repetitive_calls announce_no_action text_loop"
).split()
"""Patterns that have a third text: they show waste by themselves, or a policy may name an interrupt."""


def test_every_pattern_has_one_detector() -> None:
    """Under its own name, which is how its ladder and its counts are found."""
    assert sorted(KINDS) == sorted(PatternType)
    assert {name: kind.pattern for name, kind in KINDS.items()} == {name: name for name in KINDS}


def test_the_docs_tell_the_order_of_precedence() -> None:
    """The table of patterns stands in it."""
    lines = DETECTION.read_text().splitlines()
    assert [line.split("`")[1] for line in lines if re.match(r"\| `\w+` \|", line)] == list(KINDS)


@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_every_pattern_can_end(kind: type[PatternDetector]) -> None:
    """No report stays open for want of a rule."""
    assert kind.is_over is not PatternDetector.is_over or kind.ended_by_call


def test_a_state_stays_small_to_read() -> None:
    """What a detector counts is its own."""
    assert len(SessionState.__struct_fields__) <= 30


@pytest.mark.parametrize("pattern", PatternType)
def test_every_pattern_has_a_ladder(pattern: PatternType) -> None:
    """Under its own name in the rules."""
    assert isinstance(getattr(BehaviourRules(), pattern), SeverityLadder)


@pytest.mark.parametrize("pattern", PatternType)
def test_every_pattern_has_its_texts(pattern: PatternType) -> None:
    """A hint and guidance; a third text, `Stopped after …`, only where the pattern may stop a run. None has a hole."""
    kind = KINDS[pattern]
    assert len(kind.texts) == (3 if pattern in MAY_STOP else 2)
    for texts in (kind.texts, *kind.variants.values(), (kind.notice,)):
        for strength, text in enumerate(texts):
            check_template(pattern, text)
            assert text.startswith("Stopped after ") is (strength == 2), text
            assert not re.search(r"[{}]", filled(text, **dict.fromkeys(PLACEHOLDERS, "x")))
            assert not re.search(r"[A-Z]{4,}|!|sufficient information|NOTICE|in a row (?!without|ended)", text), text


def test_every_placeholder_is_filled() -> None:
    """Own texts may use all of them."""
    template = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    own = Rules(nudges=NudgeRules(texts={"tool_avoidance.minor": template}))
    story = Story(rules=own).works("run_tests", {"q": 0})
    for _ in range(2):
        story.says("I'll use run_tests to check this.")
        story.works("search", {"q": 1})
    assert story.decided("nudge.issued")["message"] == "run_tests 2 tool avoidance 6 run_tests run_tests"


@pytest.mark.parametrize("hook", [name for name in vars(registry) if name.startswith("ON_")])
def test_every_hook_serves_any_number_of_detectors(hook: str) -> None:
    """A further detector may override any hook: callers iterate, also where one detector is alone with it today."""
    found = getattr(registry, hook)(registry.AgentDetectors())
    assert isinstance(found, tuple)
    assert found


def test_every_detector_of_finishes_is_called_for_the_calls_it_names() -> None:
    """Most finish hooks concern every call; the others skip those that are nothing to them."""
    named = [kind for kind in registry.KINDS.values() if kind.on_finish is not PatternDetector.on_finish]
    for (repeated, program), detectors in registry.FINISH_HOOKS.items():
        concerned = {"all": True, "repeated": repeated, "programs": program}
        called = {type(one) for one in detectors(registry.AgentDetectors())}
        assert called == {kind for kind in named if concerned[kind.finishes]}
