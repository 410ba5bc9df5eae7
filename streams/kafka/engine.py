"""Engine of one worker: its partitions, and the steps between two rebalances.

    revoked: close the gate, checkpoint within a bound, commit, drop the processors
    assigned: claim the changelogs, read them back, create processors, seek the sources, open the gate
    in between: agents pass batches to processors, outputs are sent at once, checkpoints make the rest durable

Everything runs on Faust's main loop; only the consumer's own I/O has a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import orjson
from faust.types import TP

from ...errors import ConfigError, EventRejected, RejectReason
from ...projections.dead_letters import dead_letter
from ...projections.emitter import StageOutput
from ...projections.stage import TopologyStage
from ...schemas.topics import TOPICS, TopicRole
from ..stream_clock import StreamClock
from .backpressure import FoldUnit, LaneGate, PartitionBatch, PartitionTenure
from .broker_watch import INTERVAL_S, READ, WRITE, BrokerWatch
from .changelog import ChangelogPartitions, PartitionFenced
from .checkpoint import CheckpointSuperseded, CheckpointWriter, LostGroup
from .faults import WorkerFault, describe, is_expected, is_passing
from .fold_budget import FoldBudget
from .kafka_settings import KafkaSettings
from .metrics import LaneMetrics
from .order import MergeOrder, commit_note
from .outputs import OutputWriter
from .publisher_faults import KeySamples
from .recovery import StateTable
from .rulebook import RULES_KEY, TaskRules, WorkerRules
from .spans import WorkerSpans
from .stages import KafkaTopology
from .store import PartitionStore
from .task import PartitionTask

log = logging.getLogger(__name__)

# Seconds between comparisons of idle changelogs with this worker's writes; far below their compaction lag
FOREIGN_CHECK_S = 30.0


START_OVERS = 12  # Consecutive restarts from the last checkpoint, with brokers that answer, before the worker gives up
BACK_OFF_S = 8.0  # Longest wait in seconds between two of them; the first waits half a second


EVENTS, DEAD_LETTERS, STATE = "events", "dead-letters", "state"

_ENDED = EventRejected(
    RejectReason.INTERNAL_ERROR,
    "$",
    "its fold took so much processor time that two workers were ended; its content is left out here and stays in the "
    "topic until retention; report it",
)

REASONS = frozenset(RejectReason)  # Labels of dead letters; reason codes of foreign topologies count as `other`


class LostBatch(Exception):
    """A batch did not begin where the previous one ended; continuing would lose records."""


class WorkerEngine:
    """Engine of one worker.

    Attributes:
        rules: rules, passed to every processor.
        topology: the stages it runs.
        tasks: currently owned stage partitions.
        follower: reads the `settings` topic; None if the stages use no settings.
        rulebook: rules of each task; None if the stages use no rules.
        turned_at: monotonic time of the event loop's last turn, within a second.
        durable_at: monotonic time at which all folded records were last durable.
        clock: set whenever a stage's stream time moves; ticks go by it. A tenure begins with a new one.
        budget: budget of processor time of each record.
        samples: samples of how publishers key their events.
        reached: order time of the newest record folded in this tenure, milliseconds; 0 before the first.
        recovery_step: what the recovery under way does or waits for; empty without one.
        stopping: whether the worker was asked to stop.
        publish_states: whether the first assignment publishes all states again.
        failed: whether the worker is stopping because of a fault.
        reason: that fault and its remedy, one line.
        on_failure: requests an orderly stop of the app, so that it leaves the group; without it the app crashes and the
            group waits for the session timeout.
    """

    def __init__(self, settings: KafkaSettings, rules: Any, topology: KafkaTopology, metrics: LaneMetrics) -> None:
        """Create the engine; it starts with `bind` and the first assignment."""
        self.settings = settings
        self.rules = rules
        self.topology = topology
        self.metrics = metrics
        self.gate = LaneGate()
        self.tasks: dict[tuple[str, int], PartitionTask] = {}
        self.sources: dict[str, tuple[str, TopologyStage[Any]]] = {
            settings.topic(name): (name, stage) for name, stage in topology.sources.items()
        }
        places = {real_name: topology.stages.index(stage) for real_name, (_, stage) in self.sources.items()}
        internal = {real: name for real, (name, _) in self.sources.items() if name in TOPICS and TOPICS[name].internal}
        self.order = MergeOrder(settings, places, internal)
        self.budget = FoldBudget(settings.record_timeout)
        self.samples = KeySamples(settings.partitions)
        self.reached = 0
        self.clock = StreamClock()
        self._app: Any = None
        self._tables: dict[str, StateTable] = {}
        self._tenure: PartitionTenure | None = None
        self._tenures = 0
        self.follower: Any = None
        self.rulebook: WorkerRules | None = None
        self._spans = WorkerSpans(settings.trace_ratio, settings.app_id) if settings.trace_ratio else None
        self._steady = asyncio.Event()
        self._steady.set()
        self._checkpoint_due = asyncio.Event()
        self._logged_rules = ""
        self.watch = BrokerWatch(settings, _needs(settings, topology), self.fail)
        self.turned_at = self.durable_at = time.monotonic()
        self.recovery_step = ""
        self.stopping = False
        self.failed = False
        self.reason = ""
        self._renewal_due = False
        self._start_overs = 0
        self.publish_states = False
        self.on_failure: Callable[[], None] | None = None
        self._foreign_checked_at = time.monotonic()
        self.writer = OutputWriter(
            settings,
            producer=self.producer,
            internal=topology.sources,
            metrics=metrics,
            outputs_in_flight=self.order.outputs_in_flight,
            worker=self.order.worker,
        )
        self.changelogs = ChangelogPartitions(settings, self.producer, metrics)
        self.checkpointer = CheckpointWriter(self, self.writer.drain, self.changelogs.inspect)

    def bind(self, app: Any, tables: dict[str, StateTable]) -> None:
        """Connect the engine with its Faust app and the tables, by stage name."""
        self._app = app
        self._tables = tables

    def producer(self) -> Any:
        """The running aiokafka producer."""
        return self._app.producer.client

    # --- processing -------------------------------------------------------------------------------------------------

    async def on_poll(self, poll: FoldUnit) -> None:
        """Fold a poll and send its outputs. Called by the agent, in order.

        Raises:
            LostBatch: a batch does not continue the one before it.
        """
        while not self._steady.is_set():
            await self._steady.wait()
        if poll.tenure != self.gate.tenure:
            return  # delivered before a rebalance; it is read again
        for batch in poll.batches:
            topic, stage = self.sources[batch.tp.topic]
            self._fold(topic, self.tasks[stage.name, batch.tp.partition], batch)
            self.order.outputs_in_flight.folded(batch.tp, batch.next_offset)
            self._note_lag(stage.name, batch)
        self.gate.taken(poll)
        await self.writer.room()

    def _fold(self, topic: str, task: PartitionTask, batch: PartitionBatch) -> None:
        if batch.start != task.next[batch.tp]:
            raise LostBatch(f"{batch.tp} should continue at {task.next[batch.tp]}, got a batch from {batch.start}")
        began = time.perf_counter()
        outputs = self._outputs_of(topic, task, batch)
        took = time.perf_counter() - began
        self.clock.reach(task.processor.stream_time)
        task.next[batch.tp] = batch.next_offset
        task.moved = True
        self.metrics.records[topic] += len(batch.records)
        if topic == EVENTS:
            self.samples.look(batch.tp.topic, batch.tp.partition, batch.records[-1])
        self.metrics.folds.update(task.processor.counted())
        self.metrics.fold_seconds.observe(took / len(batch.records), len(batch.records))
        if self._spans is not None:
            self._spans.folded(task.stage, batch, len(outputs), took)
        if outputs:
            arrived = batch.records[-1].timestamp
            if arrived > 0:
                self.metrics.decision_seconds.observe(max(time.time() - arrived / 1000.0, 0.0), 1)
            for output in outputs:
                if output.topic == DEAD_LETTERS:
                    self.metrics.dead_letter_reasons[_reason(output.value)] += 1
            self.writer.put(outputs, task.partition, batch.reached)

    def _outputs_of(self, topic: str, task: PartitionTask, batch: PartitionBatch) -> list[StageOutput]:
        """Fold a batch."""
        outputs: list[StageOutput] = []
        try:
            for refused, records in self.budget.parts(batch.tp, batch.records):
                if refused:
                    bare = (replace(record, key=None, value=None) for record in records)
                    outputs += [dead_letter(record, topic, task.partition, _ENDED) for record in bare]
                    continue
                with self.budget.watched(batch.tp, records) as taken:
                    outputs += task.processor.process(topic, taken)
        except Exception as error:
            log.exception("%s/%d, offset %d cannot be folded", *batch.tp, self.budget.offset)
            place = f"{batch.tp.topic}/{batch.tp.partition}, offset {self.budget.offset}"
            raise WorkerFault(f"{place}: {describe(error)}") from error
        return outputs

    def offsets_jumped(self, tp: TP, expected: int, found: int) -> None:
        """Record that the log continues after the expected offset: retention or compaction removed records."""
        self.metrics.offset_jumps += 1
        log.warning("%s/%d continues at offset %d, expected %d", tp.topic, tp.partition, found, expected)

    def note_held(self, reason: str, seconds: float) -> None:
        """Record that records were held back; this time does not count as silence for ticks."""
        held = self.metrics.held_seconds
        held[reason] = held.get(reason, 0.0) + seconds
        self.clock.leave_out(seconds)

    def _note_lag(self, stage: str, batch: PartitionBatch) -> None:
        """Record how far a batch was behind the newest folded record."""
        self.reached = max(self.reached, batch.reached)
        most = self.metrics.stream_lag_most
        most[stage] = max(most.get(stage, 0.0), (self.reached - batch.first) / 1000)

    def commit_notes(self, offsets: Iterable[TP]) -> dict[TP, str]:
        """Return the note that a commit carries for each partition (see `order`)."""
        return {tp: commit_note(self.order.behind(tp, self._app.consumer.place), self.order.worker) for tp in offsets}

    async def update_skew(self) -> bool:
        """Tell the other workers how far this one has come, and read how far they have; not if it owns all partitions.

        Returns:
            Whether any of them folds a backlog, so that the next exchange is due soon.
        """
        tenure = self._tenure
        if tenure is None or self.watch.waiting:
            return False
        foreign_partitions = [
            tp
            for topic in self.sources
            for tp in (TP(topic, number) for number in range(self.settings.partitions))
            if tp not in self.gate.expected
        ]
        if not foreign_partitions:
            self.order.skew.update([])
            return False
        consumer, skew = self._app.consumer, self.order.skew
        reached = (self.order.behind(tp, consumer.place) for tp in self.gate.expected)
        oldest = min([skew.slowest, *(at for at in reached if at is not None)])
        backlog = oldest < (time.time() - self.settings.worker_lead) * 1000
        if backlog:
            await consumer.post_notes()
        notes = await consumer.notes(foreign_partitions)
        if self._tenure is tenure:
            first = self.topology.stages[0]
            skew.update(
                [note for tp, note in notes.items() if self.sources[tp.topic][1] is first],
                [note for tp, note in notes.items() if self.sources[tp.topic][1] is not first],
            )
        return backlog

    def caught_up(self, task: PartitionTask) -> bool:
        """Whether a task has processed everything its source partitions hold, as of the last fetch."""
        for tp, processed in task.next.items():
            place = self._app.consumer.place(tp)
            if place is None or place[0] < place[1] or self.gate.expected.get(tp) != processed:
                return False
        return True

    def measure_lag(self) -> None:
        """Update the lag counters."""
        lag = {}
        for task in self.tasks.values():
            for tp, processed in task.next.items():
                place = self._app.consumer.place(tp)
                if place is not None:
                    lag[self.sources[tp.topic][0], tp.partition] = max(place[1] - processed, 0)
        self.metrics.lag = lag
        for stage in {stage for stage, _ in self.tasks}:
            oldest = self.order.oldest([name for name, (_, reader) in self.sources.items() if reader.name == stage])
            self.metrics.stream_lag[stage] = max((self.reached - oldest) / 1000, 0.0)
        states: dict[str, tuple[int, int]] = {}
        for task in self.tasks.values():
            keys, size = states.get(task.stage, (0, 0))
            more_keys, more_size = task.store.size()
            states[task.stage] = keys + more_keys, size + more_size
        self.metrics.states = states

    # --- membership -------------------------------------------------------------------------------------------------

    def tenure(self) -> PartitionTenure | None:
        """Return the current tenure; None while this worker has no partitions."""
        return self._tenure

    @property
    def state(self) -> str:
        """Return the worker's state: starting, recovering, running, rebalancing, stopping or failed.

        Called in other threads, too, so it only reads attributes: Faust would create services for the calling thread.
        """
        if self.failed or self.stopping:
            return "failed" if self.failed else "stopping"
        if self._tenure is not None:
            return "running"
        if self.recovery_step:
            return "recovering"
        return "rebalancing" if self._tenures else "starting"

    def is_member(self, generation: int) -> bool:
        """Whether this worker is a group member in that generation."""
        app = self._app
        return bool(app.consumer_generation_id == generation == app.consumer.member_generation)

    async def on_revoked(self) -> None:
        """Give up all partitions: checkpoint within the time limit; the next owner repeats the rest."""
        self.gate.close()
        await self._app.tables.recovery.cancel()
        await self._save(self.settings.revoke_timeout)
        self.drop()

    async def _save(self, seconds: float) -> None:
        """Take a last checkpoint of the tenure and commit, within a time limit."""
        if self._tenure is None or self.failed:
            return
        if self.watch.lost_since is not None:
            log.warning("no broker answers for a last checkpoint; work since the previous one is repeated")
            return
        try:
            async with asyncio.timeout(seconds):
                await self.checkpointer.checkpoint(self._end_rules)
                await self._app.consumer.commit()
        except (LostGroup, CheckpointSuperseded, PartitionFenced) as loss:
            self.metrics.rebalances_lost += 1
            log.warning("partitions were lost before they could be checkpointed: %s", loss)
        except TimeoutError:
            log.warning("no last checkpoint within %g s; work since the previous one is repeated", seconds)
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            if is_passing(error):
                log.warning("no last checkpoint, work since the previous one is repeated: %r", error)
            else:
                await self.fail(error)

    def drop(self) -> None:
        """Drop the processors; the stores are kept in case their partitions return."""
        self.gate.close()
        self._tenure = None
        self.tasks.clear()
        self._steady.set()
        self.metrics.assigned = 0
        if self._app is not None and self._app._consumer is not None:  # not `consumer`, which would make one
            self._app._consumer.forget_done()

    def start_over(self, error: BaseException) -> None:
        """Return to the last checkpoint in the same generation, with a new producer."""
        self._renewal_due = True
        tenure = self._tenure
        if tenure is None or self.failed or self.stopping:
            return  # a recovery is under way or will come, and renews the producer
        log.warning("the worker starts over from its last checkpoint: %r", error)
        self.drop()
        self._app.tables.recovery.begin(self._app.consumer.assignment(), tenure.generation)

    async def back_off(self, error: BaseException) -> None:
        """Wait before the next attempt at a recovery; repeated faults fail the worker."""
        self._renewal_due = True
        if self.watch.waiting:
            log.debug("the recovery waits for the brokers: %r", error)
            self._start_overs = 0
            await self.watch.answer()
            await asyncio.sleep(1.0)
            return
        self._start_overs += 1
        if self._start_overs > START_OVERS:
            raise WorkerFault(f"{START_OVERS} consecutive attempts to recover the partitions failed: {describe(error)}")
        fault = " ".join(str(error).split()) or type(error).__name__
        log.info("the recovery is tried again; while %s: %s", self.recovery_step, fault)
        await asyncio.sleep(min(2.0 ** (self._start_overs - 2), BACK_OFF_S))

    async def recover(self, assigned: Iterable[TP]) -> None:
        """Read the settings, claim the changelogs of an assignment, read them back and create the processors.

        Raises:
            ConfigError: the topics are not co-partitioned, or a local store does not belong to the changelog.
        """
        if self._renewal_due or self.writer.broken:
            self.recovery_step = "connecting a new producer"
            await self._app.producer.renew()
            self.writer.reset()
            self._renewal_due = False
            self.metrics.producer_restarts += 1
        self.recovery_step = "waiting for a broker"
        await self.watch.answer()
        if self.follower is not None:
            self.recovery_step = "reading the settings"
            await self.follower.catch_up()
        try:
            owned = self._owned(assigned)
        except ConfigError:
            # A topic deleted or created again under the worker has no partitions for a moment; the watch, which names
            # that cause and its remedy, sees it within this time and fails the worker first.
            await asyncio.sleep(2 * INTERVAL_S)
            raise
        for name, table in self._tables.items():
            table.keep_only({partition for stage, partition in owned if stage.name == name})
        stores = {
            self.changelogs.place(stage.name, partition): self._tables[stage.name].open(partition)
            for stage, partition in owned
        }
        self.recovery_step = "claiming the changelogs"
        claims = await self.changelogs.claim(stores)
        self.recovery_step = "reading the changelogs"
        stale = await self.changelogs.read_back(stores, claims)
        rules = await self._recall([stores[self.changelogs.place(stage.name, number)] for stage, number in owned])
        for (stage, partition), own in zip(owned, rules, strict=True):
            place = self.changelogs.place(stage.name, partition)
            store = stores[place]
            source = own.edition.source if own is not None and own.edition is not None else self.rules
            processor = self.topology.make_processor(stage, partition, source, store.get)
            processor.adopt(store.items())
            await asyncio.sleep(0)
            task = self.tasks[stage.name, partition] = PartitionTask(
                stage=stage.name,
                partition=partition,
                processor=processor,
                store=store,
                epoch=claims[place],
                log_next=store.next_offset,
                next={},
                rewrite=stale.get(place, set()),
                rules=own,
            )
            task.check_topics(self.watch.topic_ids(map(self.settings.topic, stage.sources)))
        if self.rulebook is not None:
            await self._publish_again()

    async def _publish_again(self) -> None:
        """Publish the public states of tasks that knew another `state` topic, or of all if the worker was told to."""
        name = self.settings.topic(STATE)
        made = self.watch.topic_ids([name]).values()
        renewed = [task for task in self.tasks.values() if any(task.note_topic(name, one) for one in made)]
        count = 0
        for task in self.tasks.values() if self.publish_states else renewed:
            outputs = task.processor.republish(key for key, _ in task.store.items())
            self.writer.put(outputs, task.partition)
            count += len(outputs)
            await asyncio.sleep(0)
        if renewed:
            log.warning("%s is a new topic; states that are not at their default are published again: %d", name, count)
        elif self.publish_states:
            log.info("states that are not at their default are published again: %d", count)

    async def _recall(self, stores: Sequence[PartitionStore]) -> Sequence[TaskRules | None]:
        """Return the rules that the tasks of some stores were folded by."""
        if self.rulebook is None:
            return [None] * len(stores)
        return await self.rulebook.recall([store.get(RULES_KEY) for store in stores])

    def _change_rules(self) -> None:
        """Change rules in the checkpoint that begins now; nothing is folded until it is durable."""
        if self.rulebook is not None:
            self.rulebook.turn(self.tasks.values())
            if self.rulebook.holds(self.tasks.values()):
                self._steady.clear()

    def _log_rules(self) -> None:
        """Log the rules of files and environment once all tasks use them."""
        if self.rulebook is not None and self.metrics.rules != self._logged_rules and self.tasks:
            newest = self.rulebook.edition()
            if all(task.rules.edition is newest for task in self.tasks.values()):
                self._logged_rules = self.metrics.rules
                log.info("rules %s are in force from here on", self._logged_rules)

    def _end_rules(self) -> None:
        if self.rulebook is not None:
            self.rulebook.end(self.tasks.values())

    def progress(self) -> dict[TP, int]:
        """Return the source offsets of the last checkpoints of the recovered tasks."""
        return {tp: offset for task in self.tasks.values() for tp, offset in task.progress().items()}

    def begin(self, generation: int, offsets: dict[TP, int]) -> None:
        """Open the gate for the recovered tasks."""
        for tp, offset in offsets.items():
            _, stage = self.sources[tp.topic]
            self.tasks[stage.name, tp.partition].next[tp] = offset
        self.publish_states = False
        self._tenures += 1
        self._tenure = PartitionTenure(self._tenures, generation)
        self.clock = StreamClock()
        self.clock.reach(max((task.processor.stream_time for task in self.tasks.values()), default=0))
        self.durable_at = time.monotonic()
        self.metrics.assigned = len(self.tasks)
        self.metrics.rebalances += 1
        if self.rulebook is not None and self.rulebook.begin(self.tasks.values(), self._app.consumer.ends):
            self._steady.clear()
            self._checkpoint_due.set()
        self.reached = 0
        self.order.open(offsets)
        self.order.skew.begin(alone=len(offsets) == len(self.sources) * self.settings.partitions)
        self.gate.open(self._tenure, offsets)

    def _owned(self, assigned: Iterable[TP]) -> list[tuple[TopologyStage[Any], int]]:
        have = {(tp.topic, tp.partition) for tp in assigned}
        owned = []
        for stage in self.topology.stages:
            names = [self.settings.topic(source) for source in stage.sources]
            for partition in sorted({number for topic, number in have if topic in names}):
                missing = [name for name in names if (name, partition) not in have]
                if missing:
                    raise ConfigError(
                        f"partition {partition} of {', '.join(set(names) - set(missing))} was assigned without that of "
                        f"{', '.join(missing)}: the sources of stage {stage.name} need the same number of partitions; "
                        "run `trustfold topics check`"
                    )
                owned.append((stage, partition))
        return owned

    # --- running ----------------------------------------------------------------------------------------------------

    async def run_checkpoints(self) -> None:
        """Take checkpoints until cancelled; a failure fails the worker."""
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._checkpoint_due.wait(), self.settings.checkpoint_interval)
                self._checkpoint_due.clear()
                await self._keep_durable()
                self.measure_lag()
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            await self.fail(error)

    async def _keep_durable(self) -> None:
        try:
            await self.checkpointer.checkpoint(self._change_rules)
            if self.rulebook is None or not self.rulebook.holds(self.tasks.values()):
                self._steady.set()
                self._log_rules()
            self.durable_at = time.monotonic()
            self._start_overs = 0
            if time.monotonic() - self._foreign_checked_at > FOREIGN_CHECK_S:
                self._foreign_checked_at = time.monotonic()
                async with self.checkpointer.lock:
                    if self._tenure is not None:
                        await self.changelogs.check_foreign_writes(list(self.tasks.values()))
        except CheckpointSuperseded as end:
            log.info("checkpoint abandoned: %s", end)
        except LostGroup as loss:
            # The group has noticed, or will report it: a revocation and a new assignment follow.
            self.metrics.rebalances_lost += 1
            log.warning("checkpoint abandoned: %s", loss)
            self._drop_tenure()
        except PartitionFenced as claim:
            self._reclaim(claim)
        except Exception as error:
            if not is_passing(error):
                raise
            self._start_overs += not self.watch.waiting
            if self._start_overs > START_OVERS:
                raise
            self.start_over(error)

    def _reclaim(self, claim: PartitionFenced) -> None:
        """Handle another worker's claim: yield to it, or, if the group confirms this worker, claim again."""
        tenure = self._tenure
        if tenure is None or not self.is_member(tenure.generation):
            log.warning("checkpoint abandoned: %s", claim)
            self._drop_tenure()
            return
        log.warning("%s; the group says that this worker owns it, so it is claimed again", claim)
        self.gate.close()
        self._app.tables.recovery.begin(self._app.consumer.assignment(), tenure.generation)

    def _drop_tenure(self) -> None:
        """Drop the tasks of the tenure; without a tenure they belong to the current recovery, which needs them."""
        if self._tenure is not None:
            self.drop()

    async def run_outputs(self) -> None:
        """Send outputs until cancelled; a failure fails the worker."""
        while True:
            try:
                await self.writer.run()
            except Exception as error:  # noqa: BLE001 - reported by failing the worker
                if not is_passing(error):
                    await self.fail(error)
                    return
                self.start_over(error)
                await self.writer.wait_reset()

    async def run_settings(self) -> None:
        """Read the settings until cancelled; a failure fails the worker."""
        while True:
            try:
                await self.follower.follow()
            except Exception as error:  # noqa: BLE001 - reported by failing the worker
                if not is_passing(error):
                    await self.fail(error)
                    return
                log.debug("the settings are read again: %r", error)
                await asyncio.sleep(1.0)
            else:
                return

    async def stop(self) -> None:
        """Take the last checkpoint and commit; afterwards no records flow and no partition is accepted."""
        self.stopping = True
        self.gate.close()
        await self._app.tables.recovery.cancel()
        await self._save(self.settings.stop_timeout / 2)
        self.drop()

    async def fail(self, error: BaseException) -> None:
        """Stop the worker with an error in the log; everything acknowledged is durable."""
        self.gate.close()
        if self.failed:
            return
        self.failed = True
        self.reason = describe(error)
        log.critical("worker stops: %s", self.reason, exc_info=None if is_expected(error) else error)
        if self.on_failure is not None:
            self.on_failure()
        else:
            await self._app.crash(error)

    def mark_done(self, tp: TP, next_offset: int) -> None:
        """Mark everything of a partition below an offset as durable; the next commit may include it."""
        self._app.consumer.mark_done(tp, next_offset)


def _reason(letter: bytes | None) -> str:
    """Return the reason code of a dead letter."""
    body = orjson.loads(letter) if letter else {}
    reason = body.get("reason") if isinstance(body, dict) else None
    return str(reason) if reason in REASONS else "other"


def _needs(settings: KafkaSettings, topology: KafkaTopology) -> dict[str, tuple[int, ...]]:
    """Return the operations that a worker needs on each topic."""
    needs = {}
    for topic in TOPICS.values():
        reads, writes = TopicRole.WORKER in topic.readers, TopicRole.WORKER in topic.writers
        if reads or writes:
            needs[settings.topic(topic.name)] = (*([READ] if reads else []), *([WRITE] if writes else []))
    return needs | {settings.changelog(stage.name): (READ, WRITE) for stage in topology.stages}
