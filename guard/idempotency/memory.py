"""The store of one process: bounded, least recently used first out, swept as it is used."""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from ..clock import Clock, SystemClock
from .record import Claim, DedupeRecord, DedupeState

MAX_KEYS = 25_000
"""Records kept (seed 3 §1.3)."""

SWEEP_EVERY = 256
"""Claims between two looks for what has expired."""


class InMemoryDedupeStore:
    """Keys of one process and one event loop.

    A running call is never thrown out to make room: its twin would run beside it.

    Attributes:
        evicted: records thrown out before their time.
    """

    in_process = True

    def __init__(self, max_keys: int = MAX_KEYS, clock: Clock | None = None) -> None:
        """Keep at most `max_keys`."""
        self.evicted = 0
        self._max_keys = max_keys
        self._clock = clock or SystemClock()
        self._records: OrderedDict[str, DedupeRecord] = OrderedDict()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._claims = 0

    async def claim(self, record: DedupeRecord, lease_ms: int) -> Claim:
        """Take a key if it is free or its lease has ended."""
        self._claims += 1
        if self._claims % SWEEP_EVERY == 0:
            self.sweep()
        now = self._clock.now_ms()
        known = self._live(record.key)
        if known is not None and not known.is_free:
            self._records.move_to_end(record.key)
            return Claim(mine=False, record=self._copy(known), age_ms=now - known.created_at_ms)
        taken = msgspec.structs.replace(
            record,
            state=DedupeState.INFLIGHT,
            created_at_ms=now,
            expires_at_ms=now + lease_ms,
            version=known.version + 1 if known is not None else 1,
        )
        self._records[record.key] = taken
        self._make_room()
        return Claim(mine=True, record=taken)

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Push the end of the holder's lease out."""
        return self._change(record, lambda: {"expires_at_ms": self._clock.now_ms() + lease_ms})

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Put the call's end in place of its running record."""
        payload = _copied(record.payload)
        return self._change(
            record,
            lambda: {
                "state": record.state,
                "payload": payload,
                "kept": record.kept,
                "error": record.error,
                "transient": record.transient,
                "attempts": record.attempts,
                "expires_at_ms": self._clock.now_ms() + ttl_ms,
            },
        )

    async def get(self, key: str) -> DedupeRecord | None:
        """The record as it stands now."""
        known = self._live(key)
        return None if known is None else self._copy(known)

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Wait until the record moves on, its holder dies, or so long."""
        known = self._live(key)
        if known is not None and known.version == version and timeout_ms > 0:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(key, [])
            waiting.append(future)
            until_dead = max(0.0, known.expires_at_ms - self._clock.now_ms()) + 1
            try:
                await self._clock.wait(future, min(timeout_ms, until_dead))
            finally:
                if future in waiting:
                    waiting.remove(future)
                if not waiting and self._waiting.get(key) is waiting:
                    del self._waiting[key]
        return await self.get(key)

    async def clear(self, tool: str | None = None) -> int:
        """Forget everything, or everything of one tool."""
        gone = [key for key, record in self._records.items() if tool in {None, record.tool}]
        for key in gone:
            del self._records[key]
            self._wake(key)
        return len(gone)

    async def size(self) -> int:
        """How many records there are."""
        return len(self._records)

    async def close(self) -> None:
        """Nothing is held open."""

    def forget(self, key: str) -> None:
        """Forget one key."""
        if self._records.pop(key, None) is not None:
            self._wake(key)

    def sweep(self) -> int:
        """Forget what has expired; gives back how many records."""
        now = self._clock.now_ms()
        gone = [key for key, record in self._records.items() if record.expires_at_ms <= now]
        for key in gone:
            del self._records[key]
            self._wake(key)
        return len(gone)

    def _live(self, key: str) -> DedupeRecord | None:
        record = self._records.get(key)
        if record is not None and record.expires_at_ms <= self._clock.now_ms():
            del self._records[key]
            self._wake(key)
            return None
        return record

    def _is_held(self, record: DedupeRecord) -> bool:
        known = self._live(record.key)
        return known is not None and known.holder == record.holder and known.state is DedupeState.INFLIGHT

    def _change(self, record: DedupeRecord, changes: Callable[[], dict[str, object]]) -> bool:
        known = self._live(record.key)
        if known is None or not self._is_held(record):
            return False
        changed = msgspec.structs.replace(known, **changes())
        if changed.state is not DedupeState.INFLIGHT:
            changed = msgspec.structs.replace(changed, version=known.version + 1)
            self._wake(record.key)
        self._records[record.key] = changed
        return True

    def _wake(self, key: str) -> None:
        for future in self._waiting.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def _make_room(self) -> None:
        if len(self._records) <= self._max_keys:
            return
        self.sweep()
        while len(self._records) > self._max_keys:
            oldest = next((key for key, one in self._records.items() if one.state is not DedupeState.INFLIGHT), None)
            if oldest is None:
                return
            del self._records[oldest]
            self.evicted += 1

    @staticmethod
    def _copy(record: DedupeRecord) -> DedupeRecord:
        """What a caller does to a result must not reach the next one's."""
        if record.payload is None:
            return record
        return msgspec.structs.replace(record, payload=_copied(record.payload))


def _copied(payload: object) -> object:
    try:
        return copy.deepcopy(payload)
    except Exception:  # noqa: BLE001 - what cannot be copied is shared
        return payload
