"""A checkpoint that is refused late, after a rebalance has ended its tenure and a recovery has begun."""

import asyncio
from typing import Any

import pytest
from trustfold.streams.kafka.backpressure import PartitionTenure
from trustfold.streams.kafka.changelog import PartitionFenced
from trustfold.streams.kafka.checkpoint import LostGroup
from trustfold.streams.kafka.engine import WorkerEngine
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.stages import KafkaTopology

REFUSALS = [PartitionFenced("claimed by another worker"), LostGroup("no member any more")]


class Refused:
    """A checkpoint that took its time and ends with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def checkpoint(self, _prepare: object) -> None:
        """As the checkpointer."""
        raise self.error


def engine(error: Exception, tenure: PartitionTenure | None) -> Any:
    """An engine with the task of one partition, whose checkpoint is refused."""
    made: Any = WorkerEngine(KafkaSettings(), None, KafkaTopology((), lambda *_: None), LaneMetrics())
    made.tasks, made._tenure, made.checkpointer = {("session", 2): object()}, tenure, Refused(error)
    made.is_member = lambda _generation: False
    return made


@pytest.mark.parametrize("error", REFUSALS, ids=["fenced", "lost group"])
def test_the_tasks_of_the_next_recovery_stay(error: Exception) -> None:
    """Between two tenures the tasks are those that a recovery has made; the end of the former one is not theirs."""
    between = engine(error, None)
    asyncio.run(between._keep_durable())
    assert list(between.tasks) == [("session", 2)]


@pytest.mark.parametrize("error", REFUSALS, ids=["fenced", "lost group"])
def test_the_tasks_of_the_lost_tenure_go(error: Exception) -> None:
    """Nothing more is folded for partitions that are being taken away."""
    lost = engine(error, PartitionTenure(1, 1))
    asyncio.run(lost._keep_durable())
    assert lost.tasks == {}
