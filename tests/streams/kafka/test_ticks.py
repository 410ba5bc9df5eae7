"""The tick rule: what is due is appended, by whom, and when not."""

from types import SimpleNamespace
from typing import Any

import pytest
from counting import Output
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.ticks import seen, tick


class Processor:
    """Something falls due at `at`."""

    def __init__(self, at: int | None, stream_time: int = 10_000) -> None:
        self.at, self.stream_time = at, stream_time

    def next_due(self) -> int | None:
        """When."""
        return self.at

    def due(self, now: int) -> list[Output]:
        """One event."""
        self.at = None
        return [Output("events", "s", b"{}", "late", "tool_call.finished", now, own_partition=True)]


def engine_with(*processors: Processor, stage: str = "session", caught_up: bool = True, open_: bool = True) -> Any:
    """An engine that last saw a record at second 100."""
    written: list[tuple[list[Output], int, int]] = []
    return SimpleNamespace(
        gate=SimpleNamespace(tenure=3 if open_ else None),
        tasks={n: SimpleNamespace(stage=stage, processor=one, partition=n) for n, one in enumerate(processors)},
        topology=SimpleNamespace(stages=[SimpleNamespace(name=name) for name in ("session", "tool", "fleet", "more")]),
        last_record_at=100.0,
        caught_up=lambda _task: caught_up,
        reached=7_000,
        writer=SimpleNamespace(put=lambda outputs, partition, at: written.append((outputs, partition, at))),
        metrics=LaneMetrics(),
        written=written,
    )


def test_due_by_event_time_plus_the_time_nothing_came() -> None:
    """Event time 10 s and two quiet seconds: what is due at 12 s is appended to its own partition, once."""
    engine = engine_with(Processor(None, 10_000), Processor(12_000, 9_000))
    assert tick(engine, [seen(engine)], clock=lambda: 101.999) == 0
    assert tick(engine, [seen(engine)], clock=lambda: 102.0) == 1
    assert engine.written[0][1] == 1
    assert engine.metrics.ticks == 1
    assert tick(engine, [seen(engine)], clock=lambda: 110.0) == 0


def test_what_is_appended_follows_in_the_order_of_time_what_was_folded() -> None:
    """In a backlog it is not of the present, or its partition would wait until the backlog is over."""
    engine = engine_with(Processor(12_000, 9_000))
    tick(engine, [10_000], clock=lambda: 103.0)
    assert engine.written[0][2] == engine.reached


def test_not_before_what_is_on_its_way_has_arrived() -> None:
    """What another stage has seen only since the tick before does not count yet."""
    engine = engine_with(Processor(None, 90_000), Processor(12_000, 9_000))
    assert tick(engine, [90_000, 10_000], clock=lambda: 100.5) == 0
    assert tick(engine, [10_000, 90_000], clock=lambda: 100.5) == 1


@pytest.mark.parametrize(("stage", "way"), [("session", 1), ("tool", 2), ("fleet", 4), ("more", 4)])
def test_the_later_a_stage_the_longer_the_way(stage: str, way: int) -> None:
    """A stage behind others is told the time once what they made of it has surely come."""
    for ticks in range(6):
        engine = engine_with(Processor(12_000, 9_000), stage=stage)
        assert tick(engine, [90_000] * ticks, clock=lambda: 100.5) == (ticks >= way)


def test_not_while_the_partition_lags() -> None:
    """A partition that is behind will meet its own future first."""
    engine = engine_with(Processor(5_000), caught_up=False)
    assert tick(engine, [seen(engine)], clock=lambda: 200.0) == 0


def test_not_before_the_first_event() -> None:
    """Without any event time there is no present to compare with."""
    engine = engine_with(Processor(5_000, stream_time=0))
    assert tick(engine, [seen(engine)], clock=lambda: 200.0) == 0


def test_not_between_two_assignments() -> None:
    """While the gate is closed the partitions may be somebody else's already."""
    engine = engine_with(Processor(5_000), open_=False)
    assert tick(engine, [seen(engine)], clock=lambda: 200.0) == 0
