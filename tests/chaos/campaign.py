"""A campaign: seeded blows against workers, brokers and the recorder under load, then proof that nothing is wrong.

Workers run the engine's counting stages, so that a lost or doubled record shows as a wrong number. When the blows are
over, everything is healed and drained, and the states, the outputs, the dead letters and the files are compared
with the log.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
from aiokafka.admin import NewPartitions
from chaos_load import Load
from chaos_processes import STOP_S, Kept, KeptWorker, Recorder
from chaos_report import Report
from lane_harness import LaneHarness, events
from local_kafka_cluster import LocalCluster
from local_kafka_jars import KafkaUnavailable
from local_kafka_node import SHORT_LIVED, LocalKafka
from outage_kit import administer, last_line
from trustfold.history.files import data_files
from trustfold.history.parquet import RECORDED_TOPICS
from undisturbed import Undisturbed, assert_as_undisturbed
from waiting import wait_until

WORKERS = 4
PARTITIONS = 4
SESSION_S = 4.0
"""Session timeout of workers and recorder."""

RATE = 400
"""Events a second."""

PAUSES_S = (0.3, 2.0)
"""Seconds between two blows."""

WARM_UP_S = 60.0
"""Longest wait for every worker to have partitions, so that there is something to strike."""

STARTS = 3
"""Times that a broker's start is tried."""

HEALING_S = 180.0
"""Longest time from the end of the blows to everything folded and committed."""

SETTINGS = {"group.min.session.timeout.ms": "1000"}


@dataclass(frozen=True)
class Options:
    """What a campaign is to be.

    Attributes:
        seed: decides the order of the blows, and the load.
        kills: workers to kill with -9; reaching it ends the campaign.
        minutes: time that ends it in any case.
        brokers: nodes of the cluster.
        outage: seconds of a last outage of every broker; 0: none.
    """

    seed: int
    kills: int
    minutes: float
    brokers: int
    outage: float = 0.0


class Campaign:
    """One campaign with its processes; used in a `with` block, which ends all of them."""

    def __init__(self, options: Options, folder: Path, report: Report) -> None:
        """Prepare.

        Args:
            options: see Options.
            folder: where logs and recorded files go.
            report: is filled in.
        """
        self.options, self.folder, self.report = options, folder, report
        self._chance = random.Random(options.seed)
        self._open = contextlib.ExitStack()
        self._timed: list[tuple[float, Callable[[], object]]] = []
        self._workers: list[Kept] = []
        self._starting: set[LocalKafka] = set()
        self._logs = 0

    def __enter__(self) -> Self:
        """Start brokers, topics, workers, the recorder and the load."""
        single = LocalKafka(settings=SETTINGS, java_options=SHORT_LIVED)  # each start after a kill is a new one
        cluster = LocalCluster(settings=SETTINGS) if self.options.brokers > 1 else single
        self._open.enter_context(cluster)
        self._nodes: list[LocalKafka] = cluster.nodes if isinstance(cluster, LocalCluster) else [cluster]
        self._harness = self._open.enter_context(
            LaneHarness(
                cluster.bootstrap,
                "chaos.",
                self.folder,
                partitions=PARTITIONS,
                TRUSTFOLD_SESSION_TIMEOUT=f"{SESSION_S:g}",
                COUNTING_SLOW_US="50",
            )
        )
        self._workers = [
            Kept("worker", lambda slot=slot: self._start_worker(slot), self.report) for slot in range(WORKERS)
        ]
        self._recorder = Kept("recorder", self._start_recorder, self.report)
        self._load = Load(
            self._harness.settings.servers, self._harness.settings.topic("events"), self.options.seed, RATE
        )
        self._load.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process."""
        self._load.stop()
        for kept in (*self._workers, self._recorder):
            if kept.lives:
                kept.process.process.kill()
                kept.process.process.wait(10)
        self._open.close()

    def _start_worker(self, slot: int) -> KeptWorker:
        """Start a worker in a slot, which has a directory and a store of its own."""
        self._logs += 1
        store = "rocksdb" if slot else "memory"
        own = {"TRUSTFOLD_DATA_DIR": str(self.folder / f"data-{slot}"), "TRUSTFOLD_STORE": store}
        return KeptWorker(self._harness.environ | own, self.folder / f"worker-{slot}-{self._logs}.log")

    def _start_recorder(self) -> Recorder:
        self._logs += 1
        return Recorder(self._harness, self.folder / "history", self.folder / f"recorder-{self._logs}.log")

    # --- blows ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Deal blows, heal, compare; what is wrong is in the report."""
        self._warm_up()
        began = time.monotonic()
        blows: list[tuple[int, str, Callable[[], int]]] = [
            (40, "workers killed with -9", self._kill_worker),
            (3, "all workers killed with -9 at once", self._kill_workers),
            (8, "workers paused for longer than the session", self._pause_worker),
            (14, "workers stopped and started again", self._restart_worker),
            (6, "recorders killed with -9", self._kill_recorder),
            (10, "brokers killed with -9", self._kill_broker),
            (4, "brokers restarted in order", self._restart_broker),
            (6, "brokers paused", self._pause_broker),
            (2, "all brokers killed with -9 at once", self._kill_brokers),
        ]
        weights = [weight for weight, _, _ in blows]
        while time.monotonic() - began < self.options.minutes * 60:
            if self.report.blows["workers killed with -9"] >= self.options.kills:
                break
            _, name, blow = self._chance.choices(blows, weights)[0]
            if name.startswith(("brokers", "all brokers")) and not self._brokers_well():
                name, blow = blows[0][1:]
            self.report.blows[name] += blow()
            self._live_on(self._chance.uniform(*PAUSES_S))
        self.report.figures["seconds of blows"] = round(time.monotonic() - began)
        if self.options.outage:
            self._long_outage()
        self._heal()
        if not self.report.problems:
            self._compare()
        if not self.report.problems:
            self._add_partitions()

    def _live_on(self, seconds: float) -> None:
        """Let time pass: what was put off happens, what has ended is started again."""
        ends = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            due = [act for at, act in self._timed if at <= now]
            self._timed = [(at, act) for at, act in self._timed if at > now]
            for act in due:
                act()
            for kept in (*self._workers, self._recorder):
                kept.tend()
            if now >= ends:
                return
            time.sleep(0.05)

    def _warm_up(self) -> None:
        ends = time.monotonic() + WARM_UP_S
        while not all(worker.works for worker in self._workers) and time.monotonic() < ends:
            self._live_on(0.5)

    def _later(self, seconds: float, act: Callable[[], object]) -> None:
        self._timed.append((time.monotonic() + seconds, act))

    def _struck(self) -> list[Kept]:
        """One of the workers that hold partitions; none while none does."""
        working = [worker for worker in self._workers if worker.works]
        return [self._chance.choice(working)] if working else []

    def _kill_worker(self) -> int:
        struck = self._struck()
        for worker in struck:
            worker.kill()
        return len(struck)

    def _kill_workers(self) -> int:
        for worker in self._workers:
            self.report.blows["workers killed with -9"] += worker.works
            worker.kill()
        return 1

    def _kill_recorder(self) -> int:
        self._recorder.kill()
        return 1

    def _pause_worker(self) -> int:
        struck = self._struck()
        if not struck:
            return 0
        worker = struck[0]
        paused = worker.process.process
        paused.send_signal(signal.SIGSTOP)
        worker.paused = True

        def resume() -> None:
            paused.send_signal(signal.SIGCONT)  # without effect on a process that was killed and waited for
            worker.paused = False

        self._later(SESSION_S * self._chance.uniform(1.2, 2.0), resume)
        return 1

    def _restart_worker(self) -> int:
        """A member leaves in order and comes back: two rebalances."""
        struck = self._struck()
        for worker in struck:
            worker.stop()
            self._later(self._chance.uniform(0.2, 4.0), worker.come_back)
        return len(struck)

    def _brokers_well(self) -> bool:
        """Whether every broker runs and nothing is planned for one: a second loss would only be an outage of all."""
        return all(node.running for node in self._nodes) and not self._starting

    def _bring_back(self, nodes: list[LocalKafka], seconds: float) -> None:
        """Start brokers again after a time, each in a thread: one answers only when most of them are there."""
        for node in nodes:
            self._starting.add(node)
            self._later(seconds, threading.Thread(target=self._start_node, args=(node,), daemon=True).start)

    def _start_node(self, node: LocalKafka) -> None:
        trouble = ""
        for _ in range(STARTS):  # a busy machine may need longer than the start of a node waits
            try:
                node.start()
                break
            except KafkaUnavailable as error:
                trouble = str(error)
        else:
            self.report.problems.append(f"a broker did not come back: {trouble}")
        self._starting.discard(node)

    def _kill_broker(self) -> int:
        node = self._chance.choice(self._nodes)
        node.kill()
        self._bring_back([node], self._chance.choice([0.1, 2.0, 8.0, 14.0]))
        return 1

    def _kill_brokers(self) -> int:
        for node in self._nodes:
            node.kill()
            self.report.blows["brokers killed with -9"] += 1
        self._bring_back(self._nodes, self._chance.uniform(1.0, 8.0))
        return 1

    def _restart_broker(self) -> int:
        node = self._chance.choice(self._nodes)
        node.stop()
        self._bring_back([node], 0.1)
        return 1

    def _pause_broker(self) -> int:
        """A broker that keeps its connections and says nothing: a stuck disk, a long collection of garbage."""
        node = self._chance.choice(self._nodes)
        number = node.process_id
        os.kill(number, signal.SIGSTOP)
        self._starting.add(node)

        def resume() -> None:
            os.kill(number, signal.SIGCONT)
            self._starting.discard(node)

        self._later(self._chance.choice([0.3, 1.0, 3.0, 9.0]), resume)
        return 1

    def _long_outage(self) -> None:
        """Every broker away for minutes: workers wait and say so, none ends."""
        self._calm()
        self._warm_up()
        before = [worker.process for worker in self._workers]
        for node in self._nodes:
            node.kill()
        self._bring_back(self._nodes, self.options.outage)
        self._live_on(self.options.outage)
        for worker, process in zip(self._workers, before, strict=True):
            told = process.text().count("the worker waits and goes on by itself")
            if worker.process is not process:
                self.report.problems.append(f"{process.log} ended in the outage of {self.options.outage:g} s")
            elif not 1 <= told <= 2 + self.options.outage / 60:
                self.report.problems.append(f"{process.log} told the outage {told} times")
        self.report.figures["seconds of the last outage"] = self.options.outage

    # --- afterwards -------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Let everything that was put off happen, and every broker run."""
        while self._timed or self._starting:
            self._live_on(0.2)

    def _heal(self) -> None:
        """Stop the load, bring everything back, and wait until all is folded and committed."""
        self._load.stop()
        self._calm()
        began = time.monotonic()
        try:
            wait_until(self._settled, timeout=HEALING_S, what="everything folded and committed", every=0.5)
        except AssertionError as error:
            self.report.problems.append(f"{error}; workers: {[worker.process.log.name for worker in self._workers]}")
        self.report.figures["seconds to fold the rest"] = round(time.monotonic() - began, 1)
        for kept in (*self._workers, self._recorder):
            kept.stop()
        logs = [path.read_text(errors="replace") for path in self.folder.glob("worker-*.log")]
        generations = [int(found) for text in logs for found in re.findall(r"ready in generation (\d+)", text)]
        self.report.figures |= {
            "rebalances": max(generations, default=0),
            "assignments taken": len(generations),
            "starts over from a checkpoint": sum(text.count("starts over") for text in logs),
            "events sent": self._load.sent,
            "batches that the load had to give up": self._load.failed,
        }

    def _settled(self) -> bool:
        for kept in (*self._workers, self._recorder):
            kept.tend()
        try:
            self._harness.settled(2)
        except Exception:  # noqa: BLE001 - brokers that have just come back refuse this and that
            return False
        return True

    def _compare(self) -> None:
        """States, outputs and dead letters with an undisturbed run; recorded files with the log."""
        try:
            assert_as_undisturbed(self._harness)
        except AssertionError as error:
            self.report.problems.append(str(error))
        truth = Undisturbed(self._harness)
        made = sum(state.count for state in truth.states["session"].values())
        self.report.figures |= {
            "events in the log": self._harness.count("events"),
            "keys compared": sum(map(len, truth.states.values())),
            "output ids compared": sum(map(len, truth.ids.values())),
            "poison, and as many dead letters": len(truth.ids["dead-letters"]),
            "outcomes written again after a fault": self._harness.count("outcomes") - made,
        }
        last = Recorder(self._harness, self.folder / "history", self.folder / "recorder-last.log", "--once")
        code = last.process.wait(120)
        if code:
            self.report.problems.append(f"{last.log} ended with {code}: {last.text()[-400:]}")
        self._compare_files()

    def _compare_files(self) -> None:
        recorded = 0
        for topic in RECORDED_TOPICS:
            log = Counter(
                (partition, record.offset)
                for partition, records in self._harness.read(self._harness.settings.topic(topic)).items()
                for record in records
            )
            files = [str(file.path) for file in data_files(self.folder / "history", topic)]
            rows = duckdb.read_parquet(files).project('"partition", "offset"').fetchall() if files else []
            found = Counter((int(partition), int(offset)) for partition, offset in rows)
            recorded += found.total()
            if found != log:
                missing, extra = (log - found).total(), (found - log).total()
                self.report.problems.append(f"recorded {topic}: {missing} records are missing, {extra} too many")
        self.report.figures["records in Parquet files, each once"] = recorded

    def _add_partitions(self) -> None:
        """Partitions added under running workers: each ends in time, with the topic and the remedy."""
        workers = [self._start_worker(slot) for slot in range(2)]
        for worker in workers:
            worker.ready(60)
        self._harness.publish(events(500))
        topic = self._harness.settings.topic("events")
        administer(
            self._harness.settings.bootstrap,
            lambda admin: admin.create_partitions({topic: NewPartitions(PARTITIONS + 2)}),
        )
        began = time.monotonic()
        for worker in workers:
            try:
                code = worker.process.wait(max(STOP_S - (time.monotonic() - began), 0.1))
            except Exception:  # noqa: BLE001 - reported below
                code = None
            line = last_line(worker)
            if code != 1 or f"{topic} has {PARTITIONS + 2} partitions now" not in line:
                self.report.problems.append(f"{worker.log}: {code} after partitions were added: {line}")
                worker.process.kill()
        self.report.blows["partitions added under workers, which ended with the remedy"] += len(workers)
