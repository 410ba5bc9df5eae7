"""Dedupe store in memory: bounded in records and bytes, least recently used first out, swept during use.

Several event loops in several threads may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import OrderedDict
from threading import RLock

import msgspec

from ..clock import GuardClock, SystemClock, resolve
from .record import ClaimResult, DedupeRecord, DedupeState, claimed, extended, finished, seen

MAX_KEYS = 25_000
"""Number of records kept (docs/design/guard.md#idempotency)."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of all kept results."""

SWEEP_EVERY = 256
"""Smallest number of claims between two sweeps of expired records."""


class InMemoryDedupeStore:
    """Dedupe store of one process.

    Neither a running call nor an unknown outcome is evicted: a duplicate would run beside it.

    Attributes:
        evicted: number of records evicted before their expiry.
        kept_bytes: bytes of the stored results.
    """

    in_process = True

    def __init__(
        self, max_keys: int = MAX_KEYS, clock: GuardClock | None = None, *, max_bytes: int = MAX_BYTES
    ) -> None:
        """Keep at most `max_keys` records, and results of at most `max_bytes` in all."""
        self.evicted = 0
        self.kept_bytes = 0
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._lock = RLock()
        self._clock = clock or SystemClock()
        self._records: OrderedDict[str, DedupeRecord] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._claims = 0

    async def claim(self, record: DedupeRecord, lease_ms: int) -> ClaimResult:
        """Claim a key if it is free or its lease has expired."""
        with self._lock:
            return self._claim(record, lease_ms)

    def _claim(self, record: DedupeRecord, lease_ms: int) -> ClaimResult:
        self._claims += 1
        if self._claims >= max(SWEEP_EVERY, len(self._records)):  # a sweep costs as much as there are records
            self._claims = 0
            self.sweep()
        claim = claimed(self._live(record.key), record, self._now(), lease_ms)
        if not claim.mine:
            self._records.move_to_end(record.key)
            return claim._replace(record=self._copy(claim.record))
        self._put(claim.record)
        self._make_room()
        return claim

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease."""
        with self._lock:
            longer = extended(self._live(record.key), record, self._now(), lease_ms)
            if longer is not None:
                self._put(longer)
        return longer is not None

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the running or unknown record by the call's end."""
        record = self._copy(record)
        with self._lock:
            last = finished(self._live(record.key), record, self._now(), ttl_ms)
            if last is not None:
                self._put(last)
                self._wake(record.key)
                self._make_room()
        return last is not None

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record."""
        with self._lock:
            known = self._live(key)
        return None if known is None else self._copy(known)

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Wait until the record changes or its lease expires, at most `timeout_ms` milliseconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            known = self._live(key)
            waits = known is not None and known.version == version and timeout_ms > 0
            waiting = self._waiting.setdefault(key, []) if waits else []
            waiting.append(future)
        if known is not None and waits:
            until_dead = max(0, known.expires_at_ms - self._now()) + 1
            try:
                await self._clock.wait(future, min(timeout_ms, until_dead))
            finally:
                with self._lock:
                    if future in waiting:
                        waiting.remove(future)
                    if not waiting and self._waiting.get(key) is waiting:
                        del self._waiting[key]
        return await self.get(key)

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records, or all of one tool, except those that are open."""
        with self._lock:
            gone = [key for key, one in self._records.items() if tool in {None, one.tool} and not one.is_open]
            for key in gone:
                self._drop(key)
        return len(gone)

    async def size(self) -> int:
        """Return the number of records."""
        return len(self._records)

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    def on_another_loop(self) -> InMemoryDedupeStore:
        """Return this store, which serves several loops."""
        return self

    def after_fork(self) -> None:
        """End the calls that run in the parent process, which never finish here: the outcome of a change is unknown."""
        self._lock = RLock()
        self._waiting = {}
        now = self._now()
        for key, record in list(self._records.items()):
            if record.state is DedupeState.INFLIGHT:
                self._records[key] = msgspec.structs.replace(record, expires_at_ms=now)
                self._live(key)

    def forget(self, key: str) -> None:
        """Delete one key."""
        with self._lock:
            if key in self._records:
                self._drop(key)

    def sweep(self) -> int:
        """Delete expired records; return their number."""
        with self._lock:
            now = self._now()
            due = [key for key, record in self._records.items() if record.expires_at_ms <= now]
            return sum(self._live(key) is None for key in due)

    def _now(self) -> int:
        """Milliseconds of a clock that nobody sets."""
        return int(self._clock.monotonic_ms())

    def _put(self, record: DedupeRecord) -> None:
        known = self._records.get(record.key)
        self.kept_bytes += record.size - (known.size if known is not None else 0)
        self._records[record.key] = record

    def _drop(self, key: str) -> None:
        self.kept_bytes -= self._records.pop(key).size
        self._wake(key)

    def _live(self, key: str) -> DedupeRecord | None:
        record = self._records.get(key)
        if record is None or (now := seen(record, self._now())) is record:
            return record
        if now is None:
            self._drop(key)
        else:
            self._put(now)
            self._wake(key)
        return now

    def _wake(self, key: str) -> None:
        for future in self._waiting.pop(key, ()):
            with contextlib.suppress(RuntimeError):  # the loop is closed, so it has no waiters
                future.get_loop().call_soon_threadsafe(resolve, future, None)

    def _make_room(self) -> None:
        gone, count, size = [], len(self._records), self.kept_bytes
        for key, record in self._records.items():
            if count <= self._max_keys and size <= self._max_bytes:
                break
            running = record.state is DedupeState.INFLIGHT or record.is_open
            if not running and (count > self._max_keys or record.size):
                gone.append(key)
                count, size = count - 1, size - record.size
        for key in gone:
            self._drop(key)
        self.evicted += len(gone)

    @staticmethod
    def _copy(record: DedupeRecord) -> DedupeRecord:
        """Copy a record, so that callers cannot modify each other's results."""
        if record.payload is None:
            return record
        return msgspec.structs.replace(record, payload=_copied(record.payload))


def _copied(payload: object) -> object:
    if type(payload) is str:
        return payload
    try:
        return copy.deepcopy(payload)
    except Exception:  # noqa: BLE001 - what cannot be copied is shared
        return payload
