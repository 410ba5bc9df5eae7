"""Other rules over the same events change only what they are about: no machine folds from another.

See docs/design/semantics.md.
"""

from __future__ import annotations

import gzip
import os
from collections import Counter
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest
from busy_agents import busy_users
from msgspec import structs
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import (
    BehaviourRules,
    BreakerPolicy,
    BreakerRules,
    EscalationPatch,
    RuleSet,
    SeverityLadder,
    TrustRules,
)
from trustfold.schemas.vocabulary import PatternType

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces"))
EVENTS = 4_000
LOOPING = "intercode"
"""Recorded runs of a model that goes round in circles in every other session."""

LADDERS = sorted(name for name, field in BehaviourRules.__annotations__.items() if str(field) == "SeverityLadder")
NOT_A_PATTERN = {
    name: pattern for name in LADDERS for pattern in PatternType if name != pattern and name.startswith(f"{pattern}_")
}
"""Ladders that are a second way to see a pattern."""

IDENTITY = frozenset({"id", "caused_by", "pattern_id", "nudge_id"})
"""Fields that hold ids: which of an event's outputs comes first is no matter here."""


@cache
def as_shipped() -> tuple[dict[str, Any], ...]:
    """Decisions under the shipped rules."""
    return decisions_under(RuleSet())


def decisions_under(rules: RuleSet) -> tuple[dict[str, Any], ...]:
    """Every decision and state of a recorded run under some rules, without ids."""
    path = TRACES / f"{LOOPING}.ndjson.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here; set TRUSTFOLD_TRACES to the folder of recorded runs")
    with gzip.open(path) as lines:
        return folded(rules, [line.strip() for line in islice(lines, EVENTS)])


def folded(rules: RuleSet, events: list[bytes]) -> tuple[dict[str, Any], ...]:
    """Every decision and state of some events under some rules, without ids."""
    topology = LocalTopology(rules)
    outputs = topology.feed("events", events)
    outputs += topology.tick(topology.stream_time)
    return tuple(_content(output) for output in outputs)


def _content(output: StageOutput) -> dict[str, Any]:
    said = orjson.loads(output.value) if output.value else {"gone": output.key}
    return {"topic": output.topic} | {name: value for name, value in said.items() if name not in IDENTITY}


def counted(decisions: tuple[dict[str, Any], ...], **wanted: set[str]) -> Counter[bytes]:
    """Decisions whose fields have one of the wanted values, each with how often it came."""
    return Counter(
        orjson.dumps(one, option=orjson.OPT_SORT_KEYS)
        for one in decisions
        if all(one.get(name) in values for name, values in wanted.items())
    )


def patterns_but(decisions: tuple[dict[str, Any], ...], *but: str) -> Counter[bytes]:
    """Reports of all patterns but some."""
    found = {str(one["pattern"]) for one in decisions if one.get("type") == "pattern.detected"}
    return counted(decisions, type={"pattern.detected", "pattern.cleared"}, pattern=found - {*but})


@pytest.mark.slow
@pytest.mark.parametrize("name", LADDERS)
def test_a_detector_turned_off_takes_nothing_else_along(name: str) -> None:
    """Its own reports are gone; those of every other pattern, trust and circuits are what they were."""
    before, pattern = as_shipped(), NOT_A_PATTERN.get(name, name)
    off = structs.replace(getattr(BehaviourRules(), name), enabled=False)
    after = decisions_under(RuleSet(behaviour=structs.replace(BehaviourRules(), **{name: off})))
    if name == pattern and name not in NOT_A_PATTERN.values():  # whose other ladders still stand
        assert not counted(after, type={"pattern.detected"}, pattern={name})
    assert patterns_but(after, pattern) == patterns_but(before, pattern)
    for topic in ("escalations", "breakers"):
        assert counted(after, topic={topic}) == counted(before, topic={topic})


def test_a_later_ladder_takes_only_early_reports_away() -> None:
    """Repetition is minor only right before it is severe: what was severe is as severe as before."""
    off = SeverityLadder(minor=1, moderate=None, severe=None, enabled=False)
    alone = BehaviourRules(repetitive_calls_with_news=off, repetitive_calls_with_effects=off)
    before = decisions_under(RuleSet(behaviour=alone))
    severe_at = alone.repetitive_calls.highest
    later = SeverityLadder(minor=severe_at - 1, moderate=severe_at - 1, severe=severe_at)
    after = decisions_under(RuleSet(behaviour=structs.replace(alone, repetitive_calls=later)))
    severe: dict[str, set[str]] = {
        "type": {"pattern.detected"},
        "pattern": {"repetitive_calls"},
        "severity": {"severe"},
    }
    keep = ("session_id", "time", "repetitions")
    assert [[one[name] for name in keep] for one in after if _is(one, severe)] == [
        [one[name] for name in keep] for one in before if _is(one, severe)
    ]
    assert not counted(after, type={"pattern.detected"}, pattern={"repetitive_calls"}, severity={"minor"})
    assert patterns_but(after, "repetitive_calls") == patterns_but(before, "repetitive_calls")


def _is(one: dict[str, Any], wanted: dict[str, set[str]]) -> bool:
    return all(one.get(name) in values for name, values in wanted.items())


def test_patience_with_tools_changes_trust_alone() -> None:
    """A higher threshold escalates less; circuits and behaviour do not notice."""
    before = as_shipped()
    after = decisions_under(RuleSet(trust=TrustRules(default_rule=EscalationPatch(count_threshold=30))))
    assert counted(after, topic={"breakers"}) == counted(before, topic={"breakers"})
    assert counted(after, topic={"nudges"}) == counted(before, topic={"nudges"})
    assert counted(after, topic={"escalations"}).total() < counted(before, topic={"escalations"}).total()


def test_a_nervous_circuit_changes_circuits_alone() -> None:
    """A circuit that opens at the second failure leaves trust and behaviour as they are."""
    events = [value for _, value in busy_users(sessions=12, turns=10)]
    before = folded(RuleSet(), events)
    after = folded(RuleSet(breakers=BreakerRules(tool=BreakerPolicy(consecutive_failures=2))), events)
    assert counted(before, topic={"escalations"})
    assert counted(before, topic={"nudges"})
    assert counted(after, topic={"escalations"}) == counted(before, topic={"escalations"})
    assert counted(after, topic={"nudges"}) == counted(before, topic={"nudges"})
    assert counted(after, topic={"breakers"}) != counted(before, topic={"breakers"})
