"""Contestants: the same folds in the barest loop over aiokafka. State in dicts, nothing durable, nothing committed.

    contestant_bare.py TASK            through the broker: what stages tell each other is produced and consumed
    contestant_direct.py TASK          (see there) it is handed on in memory; only decisions are produced

No consumer group, no headers on outputs, no waiting for acknowledgements before the end.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from typing import Any

import bench_process
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from bench_log import LogRecord, partition_of
from bench_timed import make_processor
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet

POLL = 2_000
FETCH = 4 * 1024 * 1024
"""The worker's own sizes."""

QUEUED = 50_000
"""Outputs not yet handed to the producer above which the loop waits."""


class Sender:
    """Sends outputs as batches beside the loop; while one round is on its way the next one gathers."""

    def __init__(self, producer: Any, task: bench_process.Task) -> None:
        self._producer = producer
        self._task = task
        self._places: dict[str, int] = {}
        self._groups: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self._queued = 0
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self.sent: dict[str, int] = defaultdict(int)

    def place(self, key: str) -> int:
        """Partition of a key, worked out once."""
        number = self._places.get(key)
        if number is None:
            number = self._places[key] = partition_of(key.encode(), self._task.partitions)
        return number

    def put(self, outputs: list[Any], partition: int) -> None:
        """Queue what a processor of `partition` returned."""
        for output in outputs:
            place = partition if output.own_partition else self.place(output.key)
            self._groups[output.topic, place].append(output)
        self._queued += len(outputs)
        self._work.set()
        if self._queued > QUEUED:
            self._room.clear()

    async def room(self) -> None:
        """Wait while too much is queued."""
        await self._room.wait()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self.flush()

    async def flush(self) -> None:
        """Hand everything queued to the producer."""
        while self._groups:
            groups, self._groups = self._groups, defaultdict(list)
            self._queued = 0
            self._room.set()
            await asyncio.gather(*[self._send(*place, outputs) for place, outputs in groups.items()])

    async def _send(self, topic: str, partition: int, outputs: list[Any]) -> None:
        name = self._task.prefix + topic
        batch = self._producer.create_batch()
        for output in outputs:
            key = output.key.encode()
            if batch.append(key=key, value=output.value, timestamp=None) is None:
                await self._producer.send_batch(batch, name, partition=partition)
                batch = self._producer.create_batch()
                batch.append(key=key, value=output.value, timestamp=None)
        await self._producer.send_batch(batch, name, partition=partition)
        self.sent[topic] += len(outputs)


class Bare:
    """All stages over all partitions, and the loop that feeds them."""

    topics: tuple[str, ...] = tuple(next(iter(stage.sources)) for stage in STAGES)

    def __init__(self, task: bench_process.Task) -> None:
        self.task = task
        rules, numbers = RuleSet(), range(task.partitions)
        self.stages = {
            next(iter(stage.sources)): [make_processor(stage, number, rules) for number in numbers] for stage in STAGES
        }
        self.read = dict.fromkeys(self.topics, 0)

    def done(self) -> bool:
        """Whether everything has been folded; the few standings are folded as they come."""
        return self.read["events"] >= self.task.events and self.read["outcomes"] >= self.task.outcomes

    def fold(self, topic: str, partition: int, records: list[Any], sender: Sender) -> None:
        """Fold the records of one poll."""
        sender.put(self.stages[topic][partition].process(topic, records), partition)

    async def run(self) -> dict[str, Any]:
        """Read everything from the beginning to the end."""
        task = self.task
        consumer = AIOKafkaConsumer(
            bootstrap_servers=task.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH,
        )
        producer = AIOKafkaProducer(bootstrap_servers=task.bootstrap, acks=1, max_batch_size=900_000)
        async with consumer, producer, asyncio.timeout(task.limit_s):
            sender = Sender(producer, task)
            sending = asyncio.get_running_loop().create_task(sender.run())
            names = {task.prefix + name: name for name in self.topics}
            watch = bench_process.Stopwatch()
            consumer.assign([TopicPartition(name, at) for name in names for at in range(task.partitions)])
            while not self.done():
                polled = await consumer.getmany(timeout_ms=200, max_records=POLL)
                for place, records in polled.items():
                    topic = names[place.topic]
                    self.fold(topic, place.partition, records, sender)
                    self.read[topic] += len(records)
                await sender.room()
                await asyncio.sleep(0)
            sending.cancel()
            await sender.flush()
            await producer.flush()
            return {**watch.read(), "read": self.read, "outputs": dict(sender.sent)}


class Direct(Bare):
    """The same without topics between the stages: what one tells another is handed on as it is made."""

    topics = ("events",)

    def __init__(self, task: bench_process.Task) -> None:
        super().__init__(task)
        self._next: dict[tuple[str, int], int] = defaultdict(int)

    def done(self) -> bool:
        """Whether everything published has been folded."""
        return self.read["events"] >= self.task.preloaded

    def fold(self, topic: str, partition: int, records: list[Any], sender: Sender) -> None:
        """Fold the records of one poll and all they cause."""
        decisions = []
        handed: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
        for output in self.stages[topic][partition].process(topic, records):
            if output.topic == "events":  # an appended finish is folded already
                continue
            if output.topic in self.stages:
                place = output.topic, sender.place(output.key)
                handed[place].append(LogRecord(None, output.value, self._next[place]))
                self._next[place] += 1
            else:
                decisions.append(output)
        sender.put(decisions, partition)
        for (told, at), more in handed.items():
            self.fold(told, at, more, sender)


def main(kind: type[Bare] = Bare) -> None:
    """Run the loop and say how long it took."""
    task = bench_process.begin()
    bench_process.tune_collector()
    try:
        bench_process.finish(asyncio.run(kind(task).run()))
    except TimeoutError:
        sys.exit(f"not done within {task.limit_s} s")


if __name__ == "__main__":
    main()
