"""Size of a session's state, as a snapshot holds it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from trustfold.projections.local_topology import LogRecord
from trustfold.projections.processor import StageProcessor
from trustfold.projections.session.calls import MAX_REQUESTS_BYTES, MIN_REQUEST_BYTES
from trustfold.projections.session.novelty import CallRequest
from trustfold.projections.session.steps import MAX_WINDOW_CALLS, AgentSteps, FinishedStep, StepWindow
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet

SITUATIONS = Path(__file__).parents[2] / "situations"


def sessions(file: str) -> Iterator[list[bytes]]:
    """Events of the situations of agents at work."""
    for line in (SITUATIONS / file).read_text().splitlines():
        yield [json.dumps(event).encode() for event in json.loads(line)["events"]]


def sizes(events: list[bytes]) -> Iterator[int]:
    """Bytes of the state after each event."""
    processor = StageProcessor(STAGES[0], 0, RuleSet())
    for offset, event in enumerate(events):
        processor.process("events", [LogRecord(None, event, offset)])
        yield from (len(state) for _, state in processor.snapshot() if state is not None)


@pytest.mark.parametrize(("file", "most"), [("silent.ndjson", 6_144), ("speaking.ndjson", 7_168)])
def test_states_of_sessions_at_work_stay_small(file: str, most: int) -> None:
    """At no event of any situation is the state larger; open patterns and their evidence take room in stuck ones."""
    largest = [max(sizes(events)) for events in sessions(file)]
    assert max(largest) <= most
    assert sum(largest) / len(largest) < most / 2


def call(number: int, kind: str, at: int, **fields: object) -> bytes:
    """Start or finish of a numbered call, with ids as most publishers make them."""
    event = {
        "schema_version": "1.0",
        "type": f"tool_call.{kind}",
        "id": str(UUID(int=2 * number + (kind == "finished"))),
        "time": f"2026-01-31T12:{at // 60:02}:{at % 60:02}Z",
        "session_id": "s-1",
        "call_id": f"call-{number}",
        "tool_name": f"tool_{number % 7}",
        **fields,
    }
    return json.dumps(event).encode()


def test_a_long_session_of_parallel_calls_stays_small() -> None:
    """Four calls a step, hundreds of steps, each with another long request and another long result."""
    events = []
    for step in range(150):
        numbers = range(4 * step, 4 * step + 4)
        text = [f"{'word ' * 150}{number}" for number in numbers]
        events += [
            call(number, "started", step, args={"query": one}) for number, one in zip(numbers, text, strict=True)
        ]
        for number in numbers:
            lines = "\n".join(f"line {number} {line}" for line in range(40))
            events.append(call(number, "finished", step, status="success", result=lines))
    assert max(sizes(events)) <= 8_192


def test_requests_of_calls_in_flight_share_their_room() -> None:
    """The first ones are kept whole; of a crowd each keeps its beginning."""
    processor = StageProcessor(STAGES[0], 0, RuleSet())
    started = [call(number, "started", 0, args={"query": f"{number} {'x' * 900}"}) for number in range(20)]
    processor.process("events", [LogRecord(None, event, offset) for offset, event in enumerate(started)])
    state = processor.state("s-1")
    kept = [len(one.request.raw) for one in state.open_calls]  # type: ignore[union-attr]
    assert kept == [600, 600, *[MIN_REQUEST_BYTES] * 18]
    assert sum(kept[:2]) == MAX_REQUESTS_BYTES


def test_a_request_is_cut_without_its_secrets() -> None:
    """Half of a secret would not be recognised."""
    request = CallRequest(b'{"header":"Authorization: Bearer abcdefgh12345678ijklmnop","q":"' + b"x" * 400 + b'"}')
    for size in range(20, 80):
        assert b"abcdefgh" not in request.within(size).raw


@pytest.mark.parametrize("ids", [[str(UUID(int=7 * n)) for n in range(9)], [f"e-{n}" for n in range(9)]])
def test_a_window_is_read_from_its_columns(ids: list[str]) -> None:
    """Whatever the ids, and though steps and times need not rise."""
    numbers = [0, 1, 2**64 - 1, 3, 2**63, 5, 6, 7, 8]
    rows = zip([1, 2, 2, 1, 3, 3, 900, 4, 5], numbers, reversed(numbers), "abcabcabc", ids, strict=True)
    window = StepWindow(FinishedStep(*row, at_ms=1_700_000_000_000 - 5 * row[0], marks=row[0] % 64) for row in rows)
    assert StepWindow.unpack(window.pack()) == window
    assert StepWindow.unpack(StepWindow().pack()) == StepWindow()


def test_the_window_of_many_parallel_calls_is_bounded() -> None:
    """One step of hundreds of calls keeps the latest; a wider window of the rules keeps as many as it has steps."""
    for window_steps, most in ((30, MAX_WINDOW_CALLS), (100, 100)):
        steps = AgentSteps(number=1)
        for number in range(300):
            steps.earlier(number, window_steps)
            steps.window.append(FinishedStep(1, number, number, "search", f"e-{number}"))
        assert [one.call for one in steps.window] == list(range(300 - most, 300))
