"""Faust app: one worker's engine as agents, tables and tasks."""

from __future__ import annotations

import asyncio
import gc
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import faust

from .backpressure import POLLS
from .engine import WorkerEngine
from .kafka_settings import KafkaSettings
from .lane import BatchConsumer, BatchTransport, PollSchema
from .logs import quieten
from .metrics import LaneMetrics
from .monitor import EngineMonitor
from .records import LEAVE_S, bounded
from .recovery import LaneTables, StateTable
from .stages import KafkaTopology, default_topology
from .ticks import run_ticks

if TYPE_CHECKING:
    from ...config import RuleFiles
    from ...projections.rule_source import RuleSource
    from ...rules.rules import RuleSet


# Milliseconds after which clients refresh partition metadata; this also finds new addresses of brokers
METADATA_AGE_MS = 30_000


class TrustfoldApp(faust.App):
    """Faust app with an engine."""

    engine: WorkerEngine  # owner of the partitions
    mundane_level = "debug"

    def _create_directories(self) -> None:
        """Create no directory: only RocksDB needs one, and creates it itself."""

    async def _producer_flush(self, logger: Any) -> None:
        """Do nothing: checkpoints wait for all acknowledgements."""

    async def on_start(self) -> None:
        """Start monitoring brokers and worker at once; Faust starts its tasks after the first recovery."""
        self.add_future(self.engine.watch.run())
        self.add_future(EngineMonitor(self.engine, self).run())
        await super().on_start()

    async def on_stop(self) -> None:
        """Take the last checkpoint while everything runs, leave the group, then stop as Faust does."""
        await self.engine.stop()
        if self._consumer is not None:  # `consumer` would create one
            await bounded(cast("BatchConsumer", self._consumer).leave(), 2 * LEAVE_S, "leaving the group")
        if self.engine.follower is not None:
            await cast("Any", self.tables).recovery.cancel()  # it may be reading the settings
            await bounded(self.engine.follower.stop(), LEAVE_S, "closing the reader of the settings")
        await super().on_stop()


def make_app(
    settings: KafkaSettings,
    rules: RuleSet | RuleSource | None = None,
    topology: KafkaTopology | None = None,
    *,
    files: RuleFiles | None = None,
) -> TrustfoldApp:
    """Build the app; connects only when it is started.

    Args:
        settings: see KafkaSettings.
        rules: rules of the folds, or a source of them; the defaults when None.
        topology: stages to run; trustfold's own if None. Foreign stages get `rules` unchanged.
        files: files of the rules, reloaded when they change.

    Raises:
        ConfigError: TLS files do not load.
    """
    app = TrustfoldApp(settings.app_id, **_faust_settings(settings))
    if topology is None:
        from ...projections.rule_source import RuleSource, source_of  # noqa: PLC0415 - a test topology may need none

        source = RuleSource() if rules is None else source_of(rules)
        engine = app.engine = WorkerEngine(settings, source, default_topology(), LaneMetrics())
        _follow_settings(app, source, files)
    else:
        engine = app.engine = WorkerEngine(settings, rules, topology, LaneMetrics())
    app.transport = BatchTransport(app.conf.broker_consumer, app)
    app.producer_transport = app.transport
    tables = {stage.name: StateTable(app, settings, stage.name) for stage in engine.topology.stages}
    for table in tables.values():
        app.tables.add(table)
    engine.bind(app, tables)
    _add_agent(app, engine)

    async def outputs() -> None:
        quieten(settings.log_level)
        _tune_collector()
        await engine.run_outputs()

    app.task(engine.run_checkpoints)
    app.task(outputs)
    app.task(partial(run_ticks, engine))
    app.task(partial(run_exchange, engine))
    return app


def _follow_settings(app: TrustfoldApp, source: RuleSource, files: RuleFiles | None) -> None:
    """Update the source from the `settings` topic and the files of its rules."""
    from ..reload import LOOK_S, RulesReloader  # noqa: PLC0415
    from .followed_settings import SettingsFollower  # noqa: PLC0415
    from .rulebook import WorkerRules  # noqa: PLC0415

    engine = app.engine
    follower = engine.follower = SettingsFollower(engine.settings, source, engine.writer.put)
    engine.rulebook = WorkerRules(
        source,
        settings=lambda: dict(follower.positions),
        read_settings=follower.read,
        put=engine.writer.put,
        names={real: name for real, (name, _) in engine.sources.items()},
        metrics=engine.metrics,
    )
    app.task(engine.run_settings)
    if files is None:
        return
    reloader = RulesReloader(files, source.rebase)

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            reloader.look()

    app.task(look)


def _faust_settings(settings: KafkaSettings) -> dict[str, Any]:
    return {
        "broker": ";".join(f"kafka://{server}" for server in settings.servers),
        "broker_credentials": settings.security.faust_credentials(),
        "autodiscover": False,
        "datadir": settings.data_dir,
        "store": "memory://",
        "TableManager": LaneTables,
        # topics are made by a deployment step with the right partitions and clean-up, or not at all
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "topic_partitions": settings.partitions,
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": settings.fetch_bytes,
        "broker_max_poll_records": settings.poll_records,
        "broker_max_poll_interval": 24 * 3600.0,  # a long recovery does not poll
        "broker_session_timeout": settings.session_timeout,
        "broker_heartbeat_interval": settings.session_timeout / 10,
        "broker_rebalance_timeout": settings.rebalance_timeout,
        # a member waits for the answer to JoinGroup as long as the slowest member may take
        "broker_request_timeout": max(settings.rebalance_timeout + 15.0, settings.session_timeout),
        "consumer_group_instance_id": settings.instance_id or None,
        "consumer_metadata_max_age_ms": METADATA_AGE_MS,
        "producer_metadata_max_age_ms": METADATA_AGE_MS,
        "broker_commit_interval": settings.commit_interval,
        "broker_commit_every": None,
        "producer_acks": -1,
        "producer_linger": 0.0,  # outputs are batched before they reach the producer
        "producer_max_batch_size": 900_000,
        "producer_request_timeout": 30.0,
        "stream_wait_empty": False,
        "stream_recovery_delay": 0.0,
        "stream_buffer_maxsize": 4096,
        "web_enabled": False,  # `health` serves the web port, from a thread independent of this loop
        "worker_redirect_stdouts": False,
    }


EXCHANGE_S = 1.0  # Seconds between two exchanges of the workers' progress

# The same while one of them folds a backlog: the time that the others are held back for nothing
BACKLOG_EXCHANGE_S = 0.03


async def run_exchange(engine: WorkerEngine) -> None:
    """Exchange progress with the other workers until cancelled; a fault fails the worker."""
    backlog = False
    try:
        while True:
            await asyncio.sleep(BACKLOG_EXCHANGE_S if backlog else EXCHANGE_S)
            backlog = await engine.update_skew()
    except Exception as error:  # noqa: BLE001 - reported by failing the worker
        await engine.fail(error)


def _add_agent(app: Any, engine: WorkerEngine) -> None:
    """Add the agent that passes polls of the lane to the engine.

    One agent for all source topics, as they are folded in one order. It moves no offsets: Faust acks an event whose
    agent raised, which would lose it. Here a fault fails the worker instead and the records are read again.
    """
    topic = app.topic(*engine.sources, schema=PollSchema(), partitions=engine.settings.partitions, maxsize=2 * POLLS)

    async def consume(stream: Any) -> None:
        async for event in stream.noack().events():
            try:
                await engine.on_poll(event.value)
                event.ack()
            except Exception as error:  # noqa: BLE001 - reported by failing the worker
                await engine.fail(error)
                return

    app.agent(topic, name="fold")(consume)


def _tune_collector() -> None:
    """Run the garbage collector rarely: states are long-lived without cycles, and a full pass over a million stalls.

    Measured with 100,000 keys: 64,000 events/s instead of 50,000.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)
