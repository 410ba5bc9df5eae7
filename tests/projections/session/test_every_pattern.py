"""What every pattern must have: a place, an end, texts, a line in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from trustfold.projections.session.endings import ENDED_BY_PROGRESS, ENDS
from trustfold.projections.session.nudge_texts import TEXTS, text_for
from trustfold.projections.session.patterns import OUTGROWN, PRECEDENCE
from trustfold.projections.session.state import ActivePattern
from trustfold.rules.behaviour import PLACEHOLDERS, check_template
from trustfold.rules.rules import BehaviourRules, Ladder, NudgeRules, Rules
from trustfold.schemas.vocabulary import Pattern

DETECTION = Path(__file__).parents[3] / "docs" / "detection.md"
DESIGNED = (
    "error_retry_loop alternating_loop repetitive_calls introspection_loop tool_avoidance read_only_loop planning_loop "
    "announce_no_action monologue"
).split()


def test_every_pattern_has_its_place_once() -> None:
    """The order of nudges is total."""
    assert sorted(PRECEDENCE) == sorted(Pattern)


def test_the_designed_order_is_kept() -> None:
    """The patterns that the design does not place stand between, and change nothing."""
    assert [str(pattern) for pattern in PRECEDENCE if pattern in DESIGNED] == DESIGNED


def test_every_pattern_can_end() -> None:
    """No report stays open for want of a rule."""
    assert set(ENDS) == set(Pattern)
    assert {*ENDED_BY_PROGRESS, *OUTGROWN} <= set(Pattern)


@pytest.mark.parametrize("pattern", Pattern)
def test_every_pattern_has_a_ladder(pattern: Pattern) -> None:
    """Under its own name in the rules."""
    assert isinstance(getattr(BehaviourRules(), pattern), Ladder)


@pytest.mark.parametrize("pattern", Pattern)
def test_every_pattern_has_three_texts(pattern: Pattern) -> None:
    """A hint, a NOTICE and PAUSED; no two the same, none with a hole, and BLOCKED is trust's word."""
    texts = TEXTS[pattern]
    assert len(set(texts)) == 3
    assert texts[1].startswith("NOTICE: ")
    assert texts[2].startswith("PAUSED: ")
    for text in texts:
        check_template(pattern, text)
        assert "BLOCKED" not in text
    active = ActivePattern(pattern, 0, "id", 3, 7, 0, 0, "a_tool", required_tool="b_tool")
    for severity in (1, 2, 3):
        shown = text_for(active, severity, Rules(), seconds=90)
        assert not re.search(r"[{}]", shown)


@pytest.mark.parametrize("pattern", Pattern)
def test_every_pattern_has_a_line_in_the_docs(pattern: Pattern) -> None:
    """With the steps at which it is reported."""
    ladder = getattr(BehaviourRules(), pattern)
    [line] = [line for line in DETECTION.read_text().splitlines() if line.startswith(f"| `{pattern}`")]
    assert f"{ladder.minor}, {ladder.moderate}, {ladder.severe}" in line.replace("×", "")


def test_every_placeholder_is_filled() -> None:
    """Own texts may use all of them."""
    active = ActivePattern(Pattern.MONOLOGUE, 0, "id", 1, 7, 0, 0, "a_tool", required_tool="b_tool")
    template = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    own = Rules(nudges=NudgeRules(texts={"monologue.minor": template}))
    assert text_for(active, 1, own, seconds=90) == "a_tool 7 monologue 90 b_tool"
