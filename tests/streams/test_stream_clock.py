"""The clock of an engine: what sets it, what moves it, what it waits for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from moved_time import Machine
from story import START

NOW = int(START.timestamp() * 1000)


def test_it_shows_nothing_before_the_first_event() -> None:
    """Without any stream time there is no present."""
    machine = Machine(START)
    clock = machine.stream_clock()
    machine.passes(100)
    assert clock.now() == 0


def test_stream_time_and_the_time_since() -> None:
    """Two seconds after an event of five seconds ago it is three seconds ago."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW - 5_000)
    machine.passes(2)
    assert clock.now() == NOW - 3_000


def test_the_time_since_counts_once() -> None:
    """An event appended for a time that has passed, as every tick appends them, neither adds to it nor sets it back."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW)
    machine.passes(120.5)
    clock.reach(NOW + 120_000)
    assert clock.now() == NOW + 120_500
    machine.passes(1)
    assert clock.now() == NOW + 121_500


@pytest.mark.parametrize("late", [0, 1, 60_000, NOW])
def test_late_events_neither_stop_it_nor_set_it_back(late: int) -> None:
    """A publisher whose clock is behind, or an old log that trickles in: time passes for everybody else."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW)
    for _ in range(100):
        machine.passes(1)
        clock.reach(max(NOW - late, 1))
    assert clock.now() == NOW + 100_000


def test_it_waits_for_the_wall_clock() -> None:
    """A publisher a minute ahead: nothing of the next minute has passed yet."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW + 60_000)
    assert clock.now() == NOW
    machine.passes(30)
    assert clock.now() == NOW + 30_000


def test_a_wall_clock_that_is_set_back_takes_it_along() -> None:
    """What begins after that is due by that clock."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW)
    machine.wall -= 3600
    machine.passes(10)
    assert clock.now() == NOW - 3_590_000


def test_the_wall_clock_does_not_drive_it() -> None:
    """Asleep, set forward, or years behind the wall clock: only the stream and the monotonic clock count."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW - 10**10)
    machine.sleeps(8 * 3600)
    machine.passes(1)
    assert clock.now() == NOW - 10**10 + 1_000
    clock.reach(machine.wall_ms)
    assert clock.now() == machine.wall_ms


def test_a_time_that_was_no_silence_is_left_out() -> None:
    """Never more than has passed since the stream moved."""
    machine = Machine(START)
    clock = machine.stream_clock()
    clock.reach(NOW - 60_000)
    machine.passes(10)
    clock.leave_out(4)
    assert clock.now() == NOW - 54_000
    clock.leave_out(100)
    assert clock.now() == NOW - 60_000


@given(st.lists(st.tuples(st.sampled_from(["reach", "pass", "sleep", "wait"]), st.integers(0, 10_000)), max_size=30))
def test_it_never_runs_backwards_nor_ahead(steps: list[tuple[str, int]]) -> None:
    """Whatever comes, it shows at least what it showed, at least the stream time, at most the wall clock."""
    machine = Machine(START)
    clock = machine.stream_clock()
    shown = reached = 0
    for step, number in steps:
        if step == "reach":
            reached = max(reached, NOW - 5_000 + number)
            clock.reach(NOW - 5_000 + number)
        elif step == "pass":
            machine.passes(number / 1000)
        elif step == "sleep":
            machine.sleeps(number)
        assert shown <= clock.now() <= machine.wall_ms
        shown = clock.now()
        assert shown >= min(reached, machine.wall_ms)
