"""A recorded event folds as the original did, although its result is gone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import TRACE_NAMES, lines_of, replayed, stored
from scenarios import ALL
from story import Story

MOST = 4_000
"""Events of a recorded run that are folded here, twice."""

NOT_DECIDED = frozenset({"events"})
"""What the engine appends to the log is an input."""


def decided(values: list[bytes]) -> list[tuple[str, str, bytes | None]]:
    """Everything that is decided over events, to the byte."""
    outputs = replayed(("events", value) for value in values)
    return [(one.topic, one.key, one.value) for one in outputs if one.topic not in NOT_DECIDED]


@pytest.mark.parametrize("name", sorted(ALL))
def test_the_scenarios_fold_the_same(name: str) -> None:
    """The use cases, from their stored form."""
    values = [value for _, value in ALL[name]().records]
    assert decided(values)
    assert decided(stored(values)) == decided(values)


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACE_NAMES)
def test_a_recorded_run_folds_the_same(trace: str) -> None:
    """Every decision comes out of a recorded run's stored form, as far as it is folded."""
    values = lines_of(trace)[:MOST]
    assert decided(stored(values)) == decided(values)


RESULTS = st.one_of(
    st.none(),
    st.sampled_from(["ok", "no such file", "", "took 12 ms", "pid 4711 at 10:31:02", "sh: 1: gcc: not found"]),
    st.builds(
        lambda first, more: "\n".join(f"line {first + n}" for n in range(more)), st.integers(0, 9), st.integers(1, 99)
    ),
    st.builds(lambda n: f"found {n}", st.integers(0, 2)),
    st.builds(
        lambda error, status, text, code: {"error": error, "status_code": status, "text": text, "exit_code": code},
        st.sampled_from([None, "permission denied", {"type": "TimeoutError", "message": "timed out after 30 s"}, ""]),
        st.sampled_from([None, 200, 404, 503]),
        st.sampled_from(["a", "b", "took 3 s", "took 4 s"]),
        st.sampled_from([None, 0, 1, 137]),
    ),
    st.builds(lambda text: {"isError": True, "content": [{"type": "text", "text": text}]}, st.sampled_from(["x", "y"])),
)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["bash", "read_file", "mcp_tracker_search"]),
        st.sampled_from(["success", "success", "error", "timeout", "cancelled"]),
        RESULTS,
        st.booleans(),
    ),
    min_size=3,
    max_size=30,
)


@given(CALLS)
def test_any_result_folds_the_same(calls: list[tuple[str, str, Any, bool]]) -> None:
    """Results of every kind, good, bad and in between, with an error beside them or not."""
    story = Story()
    for tool, status, result, told in calls:
        error = {"type": "tool_error", "message": "it broke"} if told and status == "error" else None
        story.finished(story.started(tool, {"q": 1}), tool, status=status, result=result, error=error)
    values = [value for _, value in story.records]
    assert decided(stored(values)) == decided(values)
