"""Recovery after an assignment; replaces Faust's.

Faust's recovery reads changelogs through the group's consumer, record by record, and lets source records flow before it
clears the queues: records in between are lost if a partition has no committed offset yet. Here a separate reader reads
the changelogs in bulk, the gate stays closed until the end, and the sources are sought to their offsets after the last
poll in flight has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, cast

import faust
from faust.tables.manager import TableManager
from faust.types import TP
from mode import Service

from .faults import is_passing
from .kafka_settings import KafkaSettings
from .lane import is_cancelled
from .store import MemoryStore, PartitionStore, RocksStore

CANCEL_S = 5.0  # Longest wait in seconds for a cancelled recovery

log = logging.getLogger(__name__)


class BulkRecovery(Service):
    """Runs one recovery per assignment; a newer assignment cancels the current one."""

    mundane_level = "debug"

    def __init__(self, app: Any, **kwargs: Any) -> None:
        """Wait for the first assignment."""
        super().__init__(**kwargs)
        self.app = app
        self.completed = asyncio.Event()  # set after the first recovery; the app's own tasks start then
        self._running: asyncio.Task[None] | None = None

    def begin(self, assigned: set[TP], generation: int) -> None:
        """Start recovering an assignment, unless the worker was asked to stop."""
        if self.app.engine.stopping:
            log.info("generation %d is ignored: the worker stops", generation)
            return
        self.app.engine.recovery_step = "ending the recovery before it"
        self._running = asyncio.get_running_loop().create_task(
            self._recover(self._running, set(assigned), generation), name=f"recovery of generation {generation}"
        )

    async def cancel(self) -> None:
        """Cancel the current recovery, if any."""
        running, self._running = self._running, None
        if running is not None and not running.done():
            running.cancel()
            await asyncio.wait([running], timeout=CANCEL_S)
        self.app.engine.recovery_step = ""

    async def on_stop(self) -> None:
        """Cancel the current recovery."""
        await self.cancel()

    async def _recover(self, before: asyncio.Task[None] | None, assigned: set[TP], generation: int) -> None:
        engine = self.app.engine
        try:
            if before is not None and not before.done():
                before.cancel()
                await asyncio.wait([before], timeout=CANCEL_S)
            started = time.monotonic()
            while (offsets := await self._attempt(assigned, generation)) is None:
                if not engine.is_member(generation):
                    log.info("generation %d ended before its recovery", generation)
                    engine.drop()
                    return
            engine.begin(generation, offsets)
            seconds = time.monotonic() - started
            engine.metrics.recovery_seconds += seconds
            engine.metrics.recoveries += 1
            log.info("ready in generation %d with %d stage partitions after %.2f s",
                     generation, len(engine.tasks), seconds)  # fmt: skip
            engine.recovery_step = ""
            self.completed.set()
            self.app.tables.on_actives_ready()
            self.app.tables.on_standbys_ready()
            if self.app.rebalancing:
                self.app.on_rebalance_end()
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            await engine.fail(error)

    async def _attempt(self, assigned: set[TP], generation: int) -> dict[TP, int] | None:
        """Recover once; return the source offsets, or None after a temporary fault."""
        engine, consumer = self.app.engine, self.app.consumer
        engine.drop()
        consumer.lane_thread.set_fetch_wait(True)
        try:
            await engine.recover(assigned)
            await self._resume()
            engine.recovery_step = "waiting for the last poll to end"
            await engine.gate.wait_quiet()
            engine.recovery_step = "reading the consumer group's offsets"
            offsets: dict[TP, int] = await consumer.seek_sources(assigned, engine.progress())
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            engine.drop()
            if engine.is_member(generation):
                if not is_passing(error) and not isinstance(error, asyncio.CancelledError):  # that came out of aiokafka
                    raise
                await engine.back_off(error)
            else:
                log.info("recovery of generation %d was abandoned: %r", generation, error)
            return None
        return offsets if engine.is_member(generation) and not engine.writer.broken else None

    async def _resume(self) -> None:
        """Resume Faust's own flow control; nothing flows yet, as the gate is closed."""
        app = self.app
        await app.on_rebalance_complete.send()
        app.flow_control.resume()
        app.consumer.resume_flow()
        await app._fetcher.maybe_start()


class StateTable(faust.Table):  # type: ignore[type-arg]
    """States of one stage, by key: a Faust table with a changelog, and a store of encoded states per partition.

    Faust's own tables write one changelog record per change and lose time and partition outside an event. This one is
    written only by the checkpoint and filled only by the recovery; Faust uses its name and changelog.
    """

    mundane_level = "debug"

    def __init__(self, app: Any, settings: KafkaSettings, stage: str) -> None:
        """Create the table; `app.tables.add` registers it."""
        super().__init__(
            app,
            name=stage,
            partitions=settings.partitions,
            key_type=bytes,
            value_type=bytes,
            help=f"states of the {stage} stage",
        )
        self._settings = settings
        self._stores: dict[int, PartitionStore] = {}

    async def on_start(self) -> None:
        """Declare no topic, unlike Faust's tables, as topics are created by a deployment step."""

    def open(self, partition: int) -> PartitionStore:
        """Return the store of a partition; opens it if necessary.

        Raises:
            ConfigError: RocksDB is missing, or another process has the files.
        """
        if partition not in self._stores:
            self._stores[partition] = self._new_store_of(partition)
        return self._stores[partition]

    def keep_only(self, partitions: set[int]) -> None:
        """Close the stores of all other partitions, which were reassigned."""
        for partition in set(self._stores) - partitions:
            self._stores.pop(partition).close()

    def _new_store_of(self, partition: int) -> PartitionStore:
        if self._settings.store == "memory":
            return MemoryStore()
        return RocksStore(self._settings.data_dir / f"{self._settings.app_id}-{self.name}-{partition}.db")


class LaneTables(TableManager):
    """Faust's table manager with that recovery, and without changelogs in the group's subscription.

    The group's consumer prefetches everything it is subscribed to; changelogs would fill its buffers with the worker's
    own writes and hold up the fetches of the sources behind them.
    """

    mundane_level = "debug"
    _bulk: BulkRecovery | None = None

    @property
    def recovery(self) -> Any:
        """The recovery service."""
        if self._bulk is None:
            self._bulk = BulkRecovery(self.app, beacon=self.beacon, loop=self.loop)
        return self._bulk

    async def on_start(self) -> None:
        """Start tables and recovery, without Faust's delay of one second."""
        await self._update_channels()
        await self.recovery.start()

    async def _update_channels(self) -> None:
        self._tables_finalized.set()
        for table in self.values():
            await table.maybe_start()
        self._tables_registered.set()

    async def on_stop(self) -> None:
        """Stop fetching and recovering, and close the stores."""
        await cast("Any", self.app)._fetcher.stop()
        await self.recovery.stop()
        for table in self.values():
            cast("StateTable", table).keep_only(set())
            await table.stop()

    def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Do nothing: states are written by checkpoints."""

    async def on_rebalance(
        self,
        assigned: set[TP],
        revoked: set[TP],  # noqa: ARG002 - Faust's signature
        newly_assigned: set[TP],  # noqa: ARG002
        generation_id: int = 0,
    ) -> None:
        """Recover the new assignment in the background; the rebalance must not wait for it."""
        self._recovery_started.set()
        await self._update_channels()
        self.recovery.begin(assigned, generation_id)
