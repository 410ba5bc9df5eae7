"""When a line of a file arrived: one clock that runs years ahead moves nobody else's, and real gaps stay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.projections.processor import CLOCK_TOLERANCE_MS
from trustfold.schemas.events import epoch_ms
from trustfold.streams.embedded.recorded_lines import LOOKED_AHEAD, UNKNOWN, ArrivalOrder, RecordedLine

START = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
FAR = datetime(2099, 1, 1, tzinfo=UTC)


def line(time: datetime, session: str = "s1", **fields: Any) -> bytes:
    """One recorded event."""
    body = {"type": "user.message", "time": time.isoformat(), "session_id": session, **fields}
    return orjson.dumps(body)


def read(*lines: bytes) -> list[RecordedLine]:
    """Records of lines."""
    arrivals = ArrivalOrder()
    return [*arrivals.of(lines), *arrivals.rest()]


def effective(*times: datetime, sessions: str = "") -> list[datetime]:
    """Effective times of lines with these times, as a fold computes them."""
    names = sessions or "a" * len(times)
    found = read(*(line(time, name) for time, name in zip(times, names, strict=True)))
    return [
        time if one.arrived_ms == UNKNOWN else min(time, _time(one.arrived_ms + CLOCK_TOLERANCE_MS))
        for one, time in zip(found, times, strict=True)
    ]


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


def at(hours: float) -> datetime:
    """So many hours after the start."""
    return START + timedelta(hours=hours)


@pytest.mark.parametrize(
    ("times", "folded"),
    [
        ([at(0), FAR, at(0.1)], [at(0), at(0), at(0.1)]),
        ([at(0), FAR, FAR + timedelta(seconds=5), at(0.1)], [at(0), at(0), at(0), at(0.1)]),
        ([FAR, at(0), at(0.1)], [at(0), at(0), at(0.1)]),
        ([at(0), FAR], [at(0), at(0)]),
        ([at(0), at(5), at(0.1)], [at(0), at(0), at(0.1)]),
    ],
)
def test_a_time_far_ahead_of_the_lines_around_it_is_not_taken_as_it_is(
    times: list[datetime], folded: list[datetime]
) -> None:
    """It is folded at the time of the line before it; the first line has only those that follow."""
    assert effective(*times, sessions="b" + "a" * (len(times) - 1)) == folded


@pytest.mark.parametrize(
    "times",
    [
        [at(0), at(30), at(30.1)],
        [at(0), at(24 * 20), at(24 * 20.1)],
        [at(0), at(24 * 400), at(24 * 400.1)],
        [at(0), at(72)],
        [at(24 * 365), at(24 * 365 + 20), at(0), at(0.1)],
        [at(0), at(0.5), at(0.1), at(0.6)],
        [at(0)],
        [at(0), at(9), at(18), at(27)],
    ],
)
def test_real_gaps_stay(times: list[datetime]) -> None:
    """Nights, weeks and years between events; older sessions behind newer ones; records that are a little late."""
    assert effective(*times) == times


def test_sessions_of_different_years_may_alternate() -> None:
    """Each line is plausible by what comes before and after it in its own session."""
    times = [moment for minute in range(6) for moment in (at(minute / 60), at(minute / 60 + 24 * 700))]
    assert effective(*times, sessions="ab" * 6) == times


def test_one_clock_that_jumps_again_and_again_is_never_believed() -> None:
    """Another line of it that is as far ahead proves nothing."""
    times = [at(0), FAR, at(0.01), at(0.02), at(0.03), at(0.04), at(0.05), FAR, at(0.06), at(0.07), at(0.08), at(0.09)]
    assert max(effective(*times)) == at(0.09)


def test_a_line_waits_only_where_it_is_in_doubt() -> None:
    """Whoever reads from a pipe gets each decision with its line."""
    arrivals = ArrivalOrder()
    given_lines = iter([line(at(0)), line(at(0.1)), line(at(0.2)), line(at(9)), *[line(at(9.1))] * LOOKED_AHEAD])
    taken = []

    def values() -> Any:
        for value in given_lines:
            taken.append(value)
            yield value

    records = arrivals.of(values())
    seen = []
    for _ in range(4):
        next(records)
        seen.append(len(taken))
    assert seen == [2, 2, 3, 3 + 1 + LOOKED_AHEAD]


def test_commands_and_settings_go_to_their_topics() -> None:
    """By their type; what is no event, or no JSON, stays an event and becomes a dead letter there."""
    odd = [b"", b"{", b"[]", b"7", b'{"type": 5}', b'{"time": "soon"}', b'{"type": "trust.unknown"}']
    assert [(one.topic, one.arrived_ms) for one in read(*odd)] == [("events", UNKNOWN)] * len(odd)
    kinds = ["trust.reset", "tool.remove", "quality.mark", "breaker.close", "settings.changed", "user.message"]
    assert [one.topic for one in read(*(line(at(0), type=kind) for kind in kinds))] == [
        "commands", "commands", "commands", "commands", "settings", "events",
    ]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 10**7), st.sampled_from("abc")), max_size=30).map(sorted))
def test_lines_in_order_are_taken_as_they_are(steps: list[tuple[int, str]]) -> None:
    """Whatever lies between them, as long as the last one is confirmed."""
    times = [START + timedelta(seconds=second) for second, _ in steps]
    times += times[-1:] * 2
    names = "".join(name for _, name in steps) + "zz" * bool(steps)
    assert effective(*times, sessions=names) == times


@given(st.lists(st.tuples(st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31)), st.sampled_from("ab"))))  # noqa: DTZ001
def test_nothing_is_lost_and_no_time_is_made_later(lines: list[tuple[datetime, str]]) -> None:
    """Every line comes out once, in its order; an arrival is only ever before the line's own time."""
    values = [line(time.replace(tzinfo=UTC), name) for time, name in lines]
    found = read(*values)
    assert [one.value for one in found] == values
    for one, (time, _) in zip(found, lines, strict=True):
        assert one.arrived_ms < epoch_ms(time.replace(tzinfo=UTC))


@pytest.mark.parametrize("poison", [b'{"a":' * 3_000, b'{"type":"\xff"}', b"["])
def test_a_line_that_nobody_can_read_is_an_event_of_no_time(poison: bytes) -> None:
    """It becomes a dead letter when it is folded, and the next lines are read."""
    assert read(poison, line(at(0))) == [("events", poison, UNKNOWN), ("events", line(at(0)), UNKNOWN)]
