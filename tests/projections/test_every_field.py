"""Every field of every output is filled by some scenario: a contract names nothing that never comes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec
import orjson
import pytest
from fixed_rules import TO_OPEN, Rules, TrustRules
from scenarios import ALL
from story import Story
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.schemas.decisions import DeadLetterRepublished, Decision, DegradationPlan, ProbeLease, StateUpdated
from trustfold.schemas.public_state import STATE_KINDS, DecisionBase
from trustfold.schemas.vocabulary import RecoveryMode

ENVELOPE = frozenset(DecisionBase.__struct_fields__)
"""Ids of sessions, workspaces and users stand only where they apply; required ones are always there."""

UNFILLED: dict[str, set[str]] = {
    "pattern.cleared": {"tool_sequence", "expected_action"},
    "trust.recovery_pending": {"part_of"},
}
"""Fields of a shape shared with `pattern.detected` or `trust.changed`, where they say something."""


def pending() -> Story:
    """A key that has earned its trust back waits for the operator."""
    rules = Rules(trust=TrustRules(recovery_mode=RecoveryMode.ASK))
    story = Story(rules=rules).fails("deploy", times=3).after(minutes=31)
    return story.works("deploy", times=4)


def probes() -> Story:
    """An open circuit may be probed; two guards ask."""
    story = Story().works("search").fails("search", http_status=503, times=TO_OPEN + 1).after(61)
    for guard in ("g1", "g2"):
        story.event("breaker.probe_requested", breaker_key="tool:search", guard_id=guard, call_id=guard)
    return story


def approved() -> Story:
    """An operator lets one call of an escalated key pass."""
    story = Story().fails("deploy", times=3)
    story.command("trust.approve", "deploy", session_id="s1")
    return story


def acknowledged() -> Story:
    """An operator deals with an incident."""
    story = Story().fails("deploy", times=3)
    story.command("incident.acknowledge", "deploy", severity="moderate", size=1, issued_by="ada")
    return story


def dangerous() -> Story:
    """A call that no one should make was made."""
    return Story().works("bash", {"command": "rm -rf ~/"})


def better_model() -> Story:
    """One model copes with what another does not."""
    story = Story()
    for number in range(6):
        story.works("http_request", {"n": 1}, result=f"page {number}", model="good")
    return story.fails("http_request", {"n": 1}, with_="invalid_input", model="bad", times=4)


def doubtful() -> Story:
    """An answer that nobody trusts."""
    story = Story().works("search")
    story.event("synthesis.completed", strategy="weighted", confidence=0.1, signals={"self_consistency": 0.1})
    return story


def overspent() -> Story:
    """A recursive execution goes beyond its limits."""
    story = Story()
    for number in range(4):
        call = story.started("ask", {"n": number}, recursion_depth=1)
        story.finished(call, "ask", cost_usd=0.45)
    return story


def unsuited() -> Story:
    """A tool that is marked for what it cannot do, and does not answer any more."""
    story = Story()
    for _ in range(2):
        story.quality_command("quality.mark", "parser", scenario="parse json", error_message="only CSV")
    return story.fails("parser", with_="timeout", times=2)


def declined() -> Story:
    """A user says no."""
    story = Story().fails("deploy")
    for number in range(5):
        story.event("permission.resolved", call_id=f"x{number}", tool_name="deploy", granted=False)
    return story.fails("deploy", times=3)


def called_wrong() -> Story:
    """A nudge was a false alarm."""
    story = Story(model="m1")
    story.event("session.started", reports_deliveries=True)
    story.works("read_file", {"path": "a"}, result="same", times=4)
    story.event("feedback.false_alarm", output_id=story.decided("nudge.issued")["id"], reason="polling")
    return story


def of_an_agent() -> Story:
    """One agent of several goes round in circles, and out of it."""
    story = Story(model="m1")
    own = {"agent_id": "a1", "correlation_id": "run-1", "turn_index": 3}
    for result in ("same", "same", "same", "news"):
        call = story.started("read_file", {"path": "a"}, **own)
        story.finished(call, "read_file", result=result, **own)
    return story


def taken_up_again() -> Story:
    """A session whose process ended before it showed a nudge, and whose settings hold."""
    story = Story(model="m1")
    story.event("session.started", reports_deliveries=True, turn_index=3, settings={"nudge_level": "gentle"})
    story.works("read_file", {"path": "a"}, result="same", times=4)
    story.event("session.started", reports_deliveries=True)
    return story


STORIES = (
    taken_up_again,
    of_an_agent,
    pending,
    probes,
    approved,
    acknowledged,
    dangerous,
    better_model,
    doubtful,
    overspent,
    unsuited,
    declined,
    called_wrong,
    *ALL.values(),
)


def rejected() -> Iterable[StageOutput]:
    """Records that are no events, with keys and values that are text and that are not."""
    topology = LocalTopology(Rules())
    for key, value in ((b"k", b"{}"), (b"\xff", b"\xff")):
        yield from topology.feed("events", (value,), timestamp=1_800_000_000_000, key=key)


@pytest.fixture(scope="module")
def filled() -> dict[str, set[str]]:
    """Fields that came, by type of output, and of states by kind."""
    outputs = [output for make in STORIES for output in make().outputs]
    found: dict[str, set[str]] = {}
    for output in (*outputs, *rejected()):
        if output.value is None:
            continue
        body = orjson.loads(output.value)
        kind = body.get("kind") or body.get("type") or output.type
        found.setdefault(kind, set()).update(name for name, value in body.items() if value not in (None, [], {}))
        for name in ("plan", "lease"):
            found.setdefault(name, set()).update(body.get(name) or ())
    return found


def fields_of(kind: type[msgspec.Struct]) -> set[str]:
    """Fields by their names on the wire."""
    return set(kind.__struct_encode_fields__)


NOT_OF_FOLDS = {StateUpdated, DeadLetterRepublished}
"""States are tested by kind; the mark of an operator's run has required fields only."""


@pytest.mark.parametrize("kind", [kind for kind in get_args(Decision) if kind not in NOT_OF_FOLDS])
def test_every_field_of_a_decision_is_filled(kind: type[msgspec.Struct], filled: dict[str, set[str]]) -> None:
    """By a scenario of the use cases, or by one of those above."""
    tag = str(kind.__struct_config__.tag)
    wanted = fields_of(kind) - (ENVELOPE if issubclass(kind, DecisionBase) else set())
    missing = wanted - filled[tag]
    assert missing == UNFILLED.get(tag, set()), f"no story here or in tests/support/scenarios.py fills {tag}: {missing}"


@pytest.mark.parametrize("kind", STATE_KINDS)
def test_every_field_of_a_state_is_filled(kind: str, filled: dict[str, set[str]]) -> None:
    """Of each kind all of its own, and no others."""
    assert filled[kind] - ENVELOPE == fields_of(STATE_KINDS[kind]) - ENVELOPE | {"type"}


def test_every_field_of_parts_is_filled(filled: dict[str, set[str]]) -> None:
    """Of what stands inside of decisions and states."""
    assert fields_of(DegradationPlan) == filled["plan"]
    assert fields_of(ProbeLease) == filled["lease"]
