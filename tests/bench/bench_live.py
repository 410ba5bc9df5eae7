"""Rows: live traffic. How much of it one worker takes, and how long an event's nudge takes at half of that.

Throughput is that of `kafka`, over a log whose records arrived one after another instead of all at once, so the order
of time has its price. For the latency a publisher sends the same events at a steady rate, and a reader takes the time
from an event's sending to the arrival of the nudge that it is the last cause of.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import bench_machine
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from bench_broker import Broker, broker, make_topics, settings_for, topics
from bench_events import Source, Told, interleave, pick, said_of, sources
from bench_log import Log, make_log, partition_of
from bench_options import Options, say
from bench_process import Task, run
from bench_result import CannotMeasure, Row, Series, Target, pairwise
from bench_worker import DeployedWorker, labelled
from trustfold.streams.kafka.kafka_settings import KafkaSettings

ARRIVED = 3_000.0
"""Events a second that arrived, by the timestamps of the log for the throughput."""

LIVE = 300
"""Sessions at a time."""

TICK_S = 0.01
"""How often the publisher sends what is due; what it adds to a latency counts, it is the publisher's linger."""

WARM_UP_S = 5.0
"""Of the time at half load; nudges of events sent in it do not count."""

READ_MS = 10
"""Longest wait of the reader's fetches: partitions whose records it has just taken are not in the one under way."""

LAST_S = 2.0
"""How long the reader goes on after the last event."""

START_S = 60.0

Cause = tuple[str, str]
"""Session and event id."""


def measure(options: Options) -> list[Row]:
    """Throughput, then latency at half of it.

    Raises:
        CannotMeasure: there is no broker, or the worker failed.
    """
    found = sources(options.traces)
    bench_machine.keep_off(bench_machine.contestant_core())
    with broker(options.bootstrap) as opened:
        say(opened.description)
        rates = _rates(opened, found, options)
        half = median(rates["live"]) / 2
        runs = [asyncio.run(_traffic(opened, found, half, options)) for _ in range(options.runs)]
    notes = [f"{said_of(found)}, {LIVE} sessions at a time, {options.partitions} partitions"]
    return [
        Row(
            name="live/throughput",
            title=f"Kafka worker over records that arrived at {ARRIVED:,.0f} a second",
            against="the same records with one timestamp",
            figure=pairwise(rates["live"], rates["at once"]),
            behind={name: Series("events/s", tuple(found)) for name, found in rates.items()},
            notes=notes,
        ),
        *[_row(share, most, half, runs) for share, most in ((0.5, 20.0), (0.99, 100.0))],
    ]


# --- throughput -------------------------------------------------------------------------------------------------------


def _rates(opened: Broker, found: list[Source], options: Options) -> dict[str, list[float]]:
    """Events a second, by kind of log, of runs in turns."""
    events = interleave(pick(found, options.events), LIVE)
    logs = {
        "live": make_log(events, options.partitions, ARRIVED),
        "at once": make_log(events, options.partitions),
    }
    rates: dict[str, list[float]] = {name: [] for name in logs}
    for turn in range(options.runs):
        for name in list(logs)[:: -1 if turn % 2 else 1]:
            rates[name].append(_rate(opened, logs[name], options))
            say(f"{name}: {rates[name][-1]:,.0f} events/s; load {bench_machine.load()}")
    return rates


def _rate(opened: Broker, log: Log, options: Options) -> float:
    with topics(opened, log) as prefix:
        bench_machine.await_quiet(options.patience_s)
        task = Task(
            core=bench_machine.contestant_core(),
            bootstrap=opened.bootstrap,
            prefix=prefix,
            partitions=options.partitions,
            preloaded=log.preloaded,
            events=log.preloaded + log.appended,
            outcomes=log.outcomes,
        )
        return log.preloaded / float(run("contestant_worker.py", task)["seconds"])


# --- latency ----------------------------------------------------------------------------------------------------------


class Traffic:
    """Events at a steady rate, and the nudges that come of them.

    Attributes:
        latencies: seconds from an event's sending to its nudge, of those that count.
        written: the same to the nudge's timestamp, when the worker handed it to its producer.
    """

    def __init__(self, settings: KafkaSettings, events: Iterator[Told], rate: float, seconds: float) -> None:
        self.latencies: list[float] = []
        self.written: list[float] = []
        self._settings, self._events, self._rate, self._seconds = settings, events, rate, seconds
        self._sent: dict[Cause, float] = {}

    async def publish(self) -> None:
        """Send what is due, until the time is over."""
        topic, began, count = self._settings.topic("events"), time.time(), 0
        async with AIOKafkaProducer(bootstrap_servers=self._settings.servers, acks=1) as producer:
            await producer.partitions_for(topic)
            while (now := time.time()) < began + self._seconds:
                due = int((now - began) * self._rate) - count
                batches: dict[int, Any] = {}
                for told in itertools.islice(self._events, due):
                    key = told.session.encode()
                    place = partition_of(key, self._settings.partitions)
                    batch = batches.get(place) or batches.setdefault(place, producer.create_batch())
                    batch.append(key=key, value=told.value, timestamp=int(now * 1000))
                    if now > began + WARM_UP_S:
                        self._sent[told.session, orjson.loads(told.value)["id"]] = now
                    count += 1
                for place, batch in batches.items():
                    await producer.send_batch(batch, topic, partition=place)
                await asyncio.sleep(TICK_S - (time.time() - began) % TICK_S)

    async def read(self) -> None:
        """Take the time of every nudge, until cancelled."""
        name = self._settings.topic("nudges")
        async with AIOKafkaConsumer(
            bootstrap_servers=self._settings.servers, auto_offset_reset="earliest", fetch_max_wait_ms=READ_MS
        ) as reader:
            reader.assign([TopicPartition(name, number) for number in range(self._settings.partitions)])
            while True:
                polled = await reader.getmany(timeout_ms=1000)
                now = time.time()
                for records in polled.values():
                    for record in records:
                        self._take(orjson.loads(record.value), record.timestamp / 1000, now)

    def _take(self, decision: dict[str, Any], written: float, now: float) -> None:
        if decision["type"] == "nudge.issued":
            sent = self._sent.get((decision["session_id"], decision["caused_by"][-1]))
            if sent is not None:
                self.latencies.append(now - sent)
                self.written.append(written - sent)


async def _traffic(opened: Broker, found: list[Source], rate: float, options: Options) -> Traffic:
    """What comes of events at a rate."""
    settings = settings_for(opened.bootstrap, f"bench-{uuid.uuid4().hex[:10]}.", options.partitions)
    await make_topics(settings)
    events = interleave(pick(found, int(rate * (options.live_seconds + 1))), LIVE)
    with tempfile.TemporaryDirectory() as folder:
        worker = DeployedWorker(settings, Path(folder) / "worker.log")
        core = bench_machine.contestant_core()
        if core is not None:
            os.sched_setaffinity(worker.process.pid, {core})
        traffic = Traffic(settings, iter(events), rate, options.live_seconds)
        try:
            async with asyncio.timeout(START_S):
                while not worker.ready():  # noqa: ASYNC110 - a process rings no bell
                    await asyncio.sleep(0.1)
            reading = asyncio.create_task(traffic.read())
            await traffic.publish()
            await asyncio.sleep(LAST_S)
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
            behind = sum(labelled(worker.metrics(), "trustfold_consumer_lag_records").values())
        except TimeoutError:
            raise CannotMeasure(f"the worker does not start: {worker.log.read_text()[-500:]}") from None
        finally:
            worker.kill()
    if not traffic.latencies:
        raise CannotMeasure("no nudge came; give it more time")
    say(
        f"{len(traffic.latencies)} nudges at {rate:,.0f} events/s: p50 {_quantile(traffic.latencies, 0.5):.1f} ms, "
        f"p99 {_quantile(traffic.latencies, 0.99):.1f} ms, most {_quantile(traffic.latencies, 1):.1f} ms; "
        f"{behind:.0f} records behind at the end; load {bench_machine.load()}"
    )
    return traffic


def _quantile(seconds: list[float], share: float) -> float:
    """Milliseconds that so many of them do not pass."""
    ordered = sorted(seconds)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000


def _row(share: float, most: float, rate: float, runs: list[Traffic]) -> Row:
    return Row(
        name=f"live/nudge:p{share * 100:g}",
        title=f"event to nudge at half load, {share:.0%} of them within",
        against="",
        figure=Series("ms", tuple(_quantile(run.latencies, share) for run in runs)),
        target=Target(most, at_least=False),
        behind={
            "until the worker has it written": Series("ms", tuple(_quantile(run.written, share) for run in runs)),
            "load": Series("events/s", (rate,)),
        },
        notes=[f"{sum(len(run.latencies) for run in runs):,} nudges; from the event's sending to a reader of `nudges`"],
    )
