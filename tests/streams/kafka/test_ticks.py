"""The tick rule: what is due is appended, by whom, and when not."""

from __future__ import annotations

from collections import deque
from copy import copy
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from counting import StageOutput
from moved_time import Machine
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.ticks import WAY, tick


class Processor:
    """Something falls due at each of some times."""

    def __init__(self, *at: int) -> None:
        self.at = list(at)

    def next_due(self) -> int | None:
        """When."""
        return min(self.at, default=None)

    def due(self, now: int) -> list[StageOutput]:
        """One event for each."""
        due = [at for at in self.at if at <= now]
        self.at = [at for at in self.at if at > now]
        return [StageOutput("events", "s", b"{}", "late", "tool_call.finished", at, own_partition=True) for at in due]


class Worker:
    """An engine on a machine, which ticks each second; what it appends is read back at once, if `reads_back`."""

    def __init__(self, *processors: Processor, stage: str = "session", reads_back: bool = True) -> None:
        self.machine = Machine(datetime(2026, 1, 5, tzinfo=UTC))
        self.reads_back = reads_back
        self.written: list[tuple[list[StageOutput], int, int]] = []
        self.caught_up = True
        self.engine: Any = SimpleNamespace(
            gate=SimpleNamespace(tenure=3),
            tasks={n: SimpleNamespace(stage=stage, processor=one, partition=n) for n, one in enumerate(processors)},
            topology=SimpleNamespace(
                stages=[SimpleNamespace(name=name) for name in ("session", "tool", "fleet", "more")]
            ),
            clock=self.machine.stream_clock(),
            caught_up=lambda _task: self.caught_up,
            reached=7_000,
            writer=SimpleNamespace(put=self._put),
            metrics=LaneMetrics(),
        )
        self.past: deque[Any] = deque(maxlen=WAY[-1])

    def _put(self, outputs: list[StageOutput], partition: int, at: int) -> None:
        self.written.append((outputs, partition, at))
        if self.reads_back:
            for output in outputs:
                self.engine.clock.reach(output.time_ms)

    def folds(self, stream_time: int) -> None:
        """Fold a record, after which a stage has seen this time."""
        self.engine.clock.reach(stream_time)

    def waits(self, seconds: int) -> int:
        """Tick for so many seconds; returns the number of appended events."""
        appended = 0
        for _ in range(seconds):
            self.machine.passes(1)
            appended += tick(self.engine, self.past)
            self.past.append(copy(self.engine.clock))
        return appended


def test_due_by_event_time_plus_the_time_nothing_came() -> None:
    """Event time 10 s and two quiet seconds: what is due at 12 s is appended to its own partition, once."""
    worker = Worker(Processor(), Processor(12_000))
    worker.waits(4)
    worker.folds(10_000)
    assert worker.waits(1) == 0
    assert worker.waits(1) == 1
    assert worker.written[0][1] == 1
    assert worker.engine.metrics.ticks == 1
    assert worker.waits(10) == 0


@pytest.mark.parametrize("stage", ["session", "tool", "fleet"])
@pytest.mark.parametrize("reads_back", [False, True])
def test_each_of_many_falls_due_in_its_second(stage: str, *, reads_back: bool) -> None:
    """What is appended, and read back, neither sets the clock back nor makes it run ahead."""
    worker = Worker(Processor(*range(20_000, 50_000, 1_000)), stage=stage, reads_back=reads_back)
    worker.folds(10_000)
    assert worker.waits(9) == 0
    assert [worker.waits(1) for _ in range(31)] == [1] * 30 + [0]


def test_late_records_do_not_stop_time() -> None:
    """A publisher whose clock is behind sends a record each second: what another has left open falls due."""
    worker = Worker(Processor(20_000))
    worker.folds(10_000)
    appended = 0
    for second in range(10):
        worker.folds(second)
        appended += worker.waits(1)
    assert appended == 1


def test_a_publisher_ahead_makes_nothing_fall_due() -> None:
    """Its time has not come by the worker's clock."""
    worker = Worker()
    now = worker.machine.wall_ms
    worker.engine.tasks[0] = SimpleNamespace(stage="session", processor=Processor(now + 30_000), partition=0)
    worker.folds(now + 3_600_000)
    assert worker.waits(29) == 0
    assert worker.waits(1) == 1


def test_records_that_are_held_back_are_no_silence() -> None:
    """They had come; only others were to be folded first."""
    worker = Worker(Processor(15_000))
    worker.folds(10_000)
    assert worker.waits(4) == 0
    worker.engine.clock.leave_out(3)
    assert worker.waits(3) == 0
    assert worker.waits(1) == 1


def test_what_is_appended_follows_in_the_order_of_time_what_was_folded() -> None:
    """In a backlog it is not of the present, or its partition would wait until the backlog is over."""
    worker = Worker(Processor(12_000))
    worker.folds(10_000)
    worker.waits(3)
    assert worker.written[0][2] == worker.engine.reached


@pytest.mark.parametrize(("stage", "way"), [("session", 1), ("tool", 2), ("fleet", 4), ("more", 4)])
def test_not_before_what_is_on_its_way_has_arrived(stage: str, way: int) -> None:
    """A stage behind others is told a time once what they made of it has surely come: after some ticks."""
    worker = Worker(Processor(60_000), stage=stage)
    worker.folds(10_000)
    worker.waits(5)
    worker.folds(90_000)
    assert worker.waits(way) == 0
    assert worker.waits(1) == 1


def test_not_while_the_partition_lags() -> None:
    """A partition that is behind will meet its own future first."""
    worker = Worker(Processor(5_000))
    worker.folds(10_000)
    worker.caught_up = False
    assert worker.waits(200) == 0


def test_not_before_the_first_event() -> None:
    """Without any event time there is no present to compare with."""
    assert Worker(Processor(5_000)).waits(200) == 0


def test_not_between_two_assignments() -> None:
    """While the gate is closed the partitions may be somebody else's already."""
    worker = Worker(Processor(5_000))
    worker.folds(10_000)
    worker.engine.gate.tenure = None
    assert worker.waits(200) == 0
