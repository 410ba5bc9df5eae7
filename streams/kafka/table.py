"""State tables: Faust tables with a changelog, backed by a store of encoded states per partition.

Faust's own tables write one changelog record per change and lose time and partition outside an event. A StateTable is
written only by the checkpoint and filled only by the recovery; Faust uses its name and changelog.
"""

from __future__ import annotations

from typing import Any

import faust

from .settings import KafkaSettings
from .store import MemoryStore, PartitionStore, RocksStore


class StateTable(faust.Table):  # type: ignore[type-arg]
    """States of one stage, by key, as encoded bytes."""

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
