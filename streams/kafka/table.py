"""State tables: Faust tables with a changelog, backed by a store of encoded states per partition.

Faust's own tables write one changelog record per change and lose time and partition outside an event. A StateTable is
written only by the checkpoint and filled only by the recovery; Faust uses its name, changelog and size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import faust
from faust.stores.base import SerializedStore

from .settings import KafkaSettings
from .store import MemoryStore, PartitionStore, RocksStore


class PartitionedStore(SerializedStore):  # type: ignore[type-arg]
    """Faust's read-only view of the partitions' stores."""

    mundane_level = "debug"

    def __post_init__(self) -> None:
        """Start without partitions."""
        self.partitions: dict[int, PartitionStore] = {}

    def persisted_offset(self, tp: Any) -> int | None:
        """Last changelog offset applied to a partition; None for an unknown or empty one."""
        store = self.partitions.get(tp.partition)
        return store.next_offset - 1 if store is not None and store.next_offset else None

    def reset_state(self) -> None:
        """Do nothing to the changelog; discard the local copy."""
        for store in self.partitions.values():
            store.close()
        self.partitions.clear()

    async def backup_partition(self, *_: Any, **__: Any) -> None:
        """Not offered: the changelog is the backup."""
        raise NotImplementedError("state is kept in the changelog topic; back that up")

    def restore_backup(self, *_: Any, **__: Any) -> None:
        """Not offered: the changelog is the backup."""
        raise NotImplementedError("state is read back from the changelog topic at each start")

    def _get(self, key: bytes) -> bytes | None:
        found = (store.get(key) for store in self.partitions.values())
        return next((value for value in found if value is not None), None)

    def _set(self, key: bytes, value: bytes | None) -> None:  # noqa: ARG002 - Faust's signature
        raise TypeError("state tables are written by the checkpoint only")

    def _del(self, key: bytes) -> None:  # noqa: ARG002 - Faust's signature
        raise TypeError("state tables are written by the checkpoint only")

    def _clear(self) -> None:
        raise TypeError("state tables are written by the checkpoint only")

    def _iteritems(self) -> Iterator[tuple[bytes, bytes]]:
        for store in list(self.partitions.values()):
            yield from store.items()

    def _iterkeys(self) -> Iterator[bytes]:
        return (key for key, _ in self._iteritems())

    def _itervalues(self) -> Iterator[bytes | None]:
        return (value for _, value in self._iteritems())

    def _size(self) -> int:
        return sum(1 for _ in self._iteritems())

    def _contains(self, key: bytes) -> bool:
        return self._get(key) is not None


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

    async def on_start(self) -> None:
        """Start the store; declares no topic, unlike Faust's tables, as topics are created by a deployment step."""
        await self.add_runtime_dependency(self.data)

    def open(self, partition: int) -> PartitionStore:
        """Return the store of a partition; opens it if necessary.

        Raises:
            ConfigError: RocksDB is missing, or another process has the files.
        """
        partitions = self._partitions
        if partition not in partitions:
            partitions[partition] = self._new_partition(partition)
        return partitions[partition]

    def keep_only(self, partitions: set[int]) -> None:
        """Close the stores of all other partitions, which were reassigned."""
        for partition in set(self._partitions) - partitions:
            self._partitions.pop(partition).close()

    @property
    def _partitions(self) -> dict[int, PartitionStore]:
        return cast("PartitionedStore", self.data).partitions

    def _new_partition(self, partition: int) -> PartitionStore:
        if self._settings.store == "memory":
            return MemoryStore()
        directory = Path(self._settings.data_dir)
        return RocksStore(directory / f"{self._settings.app_id}-{self.name}-{partition}.db")

    def _new_store(self) -> Any:
        return PartitionedStore(
            "memory://", self.app, self, table_name=self.name, key_type=bytes, value_type=bytes, loop=self.loop
        )
