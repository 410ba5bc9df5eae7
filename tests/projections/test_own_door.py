"""What trustfold writes itself passes its own door, whatever the door has let in.

See docs/design/contracts.md#bad-input.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
import pytest
from fixed_rules import BehaviourRules, BreakerRules, GuaranteeRules, Rules, TrustRules
from hypothesis import given
from hypothesis import strategies as st
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology, LogRecord
from trustfold.projections.processor import StageProcessor
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import EscalationPatch
from trustfold.schemas.codec import decode_command, decode_decision, decode_event
from trustfold.schemas.event_base import EARLIEST, LATEST
from trustfold.schemas.fields import LARGEST_COUNT, MAX_NAME, MAX_SPAN_MS

FAR_MS = int(datetime(2300, 1, 1, tzinfo=UTC).timestamp() * 1000)
"""When everything that can fall due has fallen due."""

RULES = Rules(
    trust=TrustRules(default_rule=EscalationPatch(count_threshold=1), max_fine_keys=3),
    breakers=BreakerRules(),
    behaviour=BehaviourRules(max_turn_duration_seconds=600),
    guarantees=GuaranteeRules(sessions="all"),
)

_name = st.sampled_from(
    ["bash", "read_file", "n" * MAX_NAME, "ü" * MAX_NAME, "\U0001f600|=\\", 'a"b\n', "service:x", "|"]
)
_times = st.sampled_from([EARLIEST, LATEST - timedelta(days=1), LATEST - timedelta(seconds=10)]) | st.just(
    LATEST - timedelta(milliseconds=1)
)
_kinds = """tool_call.started tool_call.finished turn.started model.text breaker.probe_requested failure.reported
synthesis.completed breaker.force_open tool.remove""".split()
_step = st.fixed_dictionaries(
    {
        "type": st.sampled_from(_kinds),
        "tool_name": _name,
        "call_id": _name,
        "service": st.none() | _name,
        "model": st.none() | _name,
        "workspace_id": st.none() | _name,
        "user_id": st.none() | _name,
        "deadline_ms": st.sampled_from([None, 0, 1, 60_000, MAX_SPAN_MS]),
        "duration_ms": st.sampled_from([None, 0, 0.5, MAX_SPAN_MS]),
        "turn_index": st.sampled_from([None, 0, LARGEST_COUNT]),
        "cost_usd": st.sampled_from([None, 0.3, 1e12]),
        "recursion_depth": st.sampled_from([None, 1_000_000]),
    }
)


def line(number: int, step: dict[str, Any], at: datetime) -> tuple[str, bytes]:
    """Topic and value of one record; what a type does not know is ignored by it."""
    name = step["tool_name"]
    command = step["type"] in {"breaker.force_open", "tool.remove"}
    body = {
        "schema_version": "1.0",
        "id": str(UUID(int=number)),
        "time": at.isoformat().replace("+00:00", "Z"),
        "session_id": step["call_id"],
        "status": "error",
        "args": {"path": f"/{name}/x"},
        "text": "I'll do it now.",
        "key": name,
        "duration_s": MAX_SPAN_MS / 1000,
        "breaker_key": name,
        "guard_id": name,
        "strategy": "weighted",
        "confidence": 0,
        "error": {"severity": "security"},
        **step,
    }
    return "commands" if command else "events", orjson.dumps({k: v for k, v in body.items() if v is not None})


def check(outputs: list[StageOutput]) -> None:
    """Read every output back."""
    for output in outputs:
        if output.value is None or output.topic in {"outcomes", "standings"}:
            continue
        assert output.topic != "dead-letters", output.value
        (decode_event if output.topic == "events" else decode_decision)(output.value)


def accepted(topic: str, value: bytes) -> bool:
    """Whether the door lets a record in."""
    try:
        (decode_command if topic == "commands" else decode_event)(value)
    except Exception:  # noqa: BLE001 - not the door under test
        return False
    return True


@given(st.lists(st.tuples(_step, _times), min_size=1, max_size=12))
def test_what_is_written_passes_our_own_door(steps: list[tuple[dict[str, Any], datetime]]) -> None:
    """However extreme the times, names and amounts that the door accepts: what follows from them can be read."""
    records = [line(number, step, at) for number, (step, at) in enumerate(steps)]
    topology = LocalTopology(RULES)
    for topic, value in records:
        assert accepted(topic, value), value
        check(topology.feed(topic, [value]))
    check(topology.tick(FAR_MS))
    assert topology.tick(FAR_MS) == []
    assert topology.next_due() is None


@pytest.mark.parametrize("arrived_ms", [1, 60_000, 946_684_799_999, 4_102_444_800_000, 1 << 52])
def test_a_wrong_clock_of_a_producer_makes_nothing_unreadable(arrived_ms: int) -> None:
    """A record stamped far from the events' times moves them within the years that an event may have."""
    at = datetime(2026, 1, 5, tzinfo=UTC)
    step = {"type": "tool_call.started", "tool_name": "bash", "call_id": "c1", "deadline_ms": 1}
    processor = StageProcessor(STAGES[0], 0, RULES)
    topic, value = line(1, step, at)
    check(processor.process(topic, [LogRecord(None, value, 0, arrived_ms)]))
    finish = line(2, {**step, "type": "tool_call.finished"}, at)[1]
    open_call = line(3, {**step, "tool_name": "read_file", "deadline_ms": 1}, at)[1]
    told = processor.process(topic, [LogRecord(None, finish, 1, arrived_ms)])
    told += processor.process(topic, [LogRecord(None, open_call, 2, arrived_ms)])
    due = processor.due(FAR_MS)
    assert due
    check(told + due)
    [outcome] = [output.value for output in told if output.topic == "outcomes"]
    decided = StageProcessor(STAGES[1], 0, RULES).process("outcomes", [LogRecord(None, outcome, 0)])
    assert decided
    check(decided)


def test_a_deadline_beyond_the_last_year_is_never_told() -> None:
    """Such a call stays open: no event could carry the time at which it is late."""
    step = {"type": "tool_call.started", "tool_name": "bash", "call_id": "c1", "deadline_ms": 10_000}
    topology = LocalTopology(RULES)
    topology.feed("events", [line(1, step, LATEST - timedelta(seconds=5))[1]])
    assert topology.next_due() is None
    assert topology.tick(FAR_MS) == []
