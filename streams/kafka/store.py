"""Local stores of the encoded states of one stage partition: in memory, or in RocksDB for large states.

The changelog topic is the source of truth; a store is a copy of it up to `next_offset`. It is written only after the
changelog has acknowledged the same states, so it never holds anything the changelog does not.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Protocol

from ...errors import ConfigError, NotInstalled
from ...security.private_files import make_directory

TOMBSTONE_LIFE_S = 12 * 3600
"""Seconds after which a RocksDB copy is discarded and read again.

Kafka removes tombstones after a day (`delete.retention.ms`): an older copy could keep keys that were deleted meanwhile.
"""

OWN = b"\xff\xfe"  # Prefix of the engine's own keys; no UTF-8 key begins with it

_PLACE_KEY = OWN + b"place"
_PLACE = Struct(">QQQ")


class PartitionStore(Protocol):
    """Store of the encoded states of one partition."""

    next_offset: int  # first changelog offset that is not in the store; 0 if it is empty
    epoch: int  # newest ownership epoch seen in the changelog up to there (see `changelog`)

    def get(self, key: bytes) -> bytes | None:
        """Return the stored state of a key."""

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key and state, without the engine's own keys."""

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, next_offset: int, epoch: int) -> None:
        """Apply states (None deletes) and the new end of the copy atomically."""

    def size(self) -> tuple[int, int]:
        """Return the number of states and their bytes, estimated if exact figures are expensive."""

    def close(self) -> None:
        """Release files and memory; the store must not be used afterwards."""


class MemoryStore:
    """Store in a dict; read back from the changelog after each assignment."""

    def __init__(self) -> None:
        """Start empty."""
        self.next_offset = 0
        self.epoch = 0
        self._bytes = 0
        self._states: dict[bytes, bytes] = {}
        self.get = self._states.get

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key and state, without the engine's own keys."""
        return ((key, state) for key, state in self._states.items() if not key.startswith(OWN))

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, next_offset: int, epoch: int) -> None:
        """Apply states and the new end of the copy."""
        states = self._states
        size = self._bytes
        for key, value in items:
            before = states.get(key)
            if before is not None:
                size -= len(key) + len(before)
            if value is None:
                states.pop(key, None)
            else:
                states[key] = value
                size += len(key) + len(value)
        self._bytes = size
        self.next_offset, self.epoch = next_offset, epoch

    def size(self) -> tuple[int, int]:
        """Return the number of states and their bytes."""
        return len(self._states), self._bytes

    def close(self) -> None:
        """Discard everything."""
        self._states.clear()


class RocksStore:
    """Store in RocksDB; survives a restart, so only newer changelog records are read back.

    Its write-ahead log is off: after a crash the database has the states and the offset of its last flush, and the
    changelog has the rest.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the database."""
        try:
            import rocksdict  # noqa: PLC0415 - an extra
        except ImportError as missing:
            raise NotInstalled("the store rocksdb", missing) from missing
        self._rocksdict: Any = rocksdict
        self._path = path
        make_directory(path)
        self._db: Any = self._open()
        place = self._db.get(_PLACE_KEY)
        self.next_offset, self.epoch, written = _PLACE.unpack(place) if place is not None else (0, 0, 0)
        if place is not None and time.time() - written > TOMBSTONE_LIFE_S:
            self._db.close()
            shutil.rmtree(path)
            self._db = self._open()
            self.next_offset = self.epoch = 0

    def _open(self) -> Any:
        rocksdict = self._rocksdict
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)  # noqa: FBT003 - not our signature
        options.set_write_buffer_size(16 * 1024 * 1024)
        options.set_max_write_buffer_number(2)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(16 * 1024 * 1024))
        table.set_bloom_filter(10, block_based=False)
        options.set_block_based_table_factory(table)
        try:
            database = rocksdict.Rdict(str(self._path), options=options)
        except Exception as error:
            raise ConfigError(
                f"RocksDB cannot open {self._path}: {error}; give each worker on this machine a data directory "
                "of its own (TRUSTFOLD_DATA_DIR), or delete this one, it is only a copy"
            ) from error
        write = rocksdict.WriteOptions()
        write.disable_wal = True
        database.set_write_options(write)
        return database

    def get(self, key: bytes) -> bytes | None:
        """Return the stored state of a key."""
        value: bytes | None = self._db.get(key)
        return value

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key and state, without the engine's own keys."""
        for key, value in self._db.items():
            if not key.startswith(OWN):
                yield key, value

    def write(self, items: Iterable[tuple[bytes, bytes | None]], *, next_offset: int, epoch: int) -> None:
        """Apply states and the new end of the copy atomically."""
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for key, value in items:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(_PLACE_KEY, _PLACE.pack(next_offset, epoch, int(time.time())))
        self._db.write(batch)
        self.next_offset, self.epoch = next_offset, epoch

    def size(self) -> tuple[int, int]:
        """States and bytes on disk, as RocksDB estimates them."""
        keys = self._db.property_int_value("rocksdb.estimate-num-keys") or 0
        size = self._db.property_int_value("rocksdb.total-sst-files-size") or 0
        return int(keys), int(size)

    def close(self) -> None:
        """Flush and close the files."""
        self._db.close()
