"""Record of one idempotency key, its states and their changes, and the interface of dedupe stores.

See docs/design/guard.md#idempotency. Stores keep records; what a claim, an extension and an end make of one is decided
here, and in `redis.py` by the same rules in Redis' own language.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

KEEP_UNKNOWN_MS = 7 * 86_400_000
"""Milliseconds that an unknown outcome is kept if nobody settles it."""


class DedupeState(StrEnum):
    """State of a call with a key."""

    INFLIGHT = "inflight"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Cut off: nobody knows whether the change was made."""


class DedupeRecord(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Record of one key.

    Attributes:
        key: digest of workspace, session, namespace, tool and idempotency key.
        tool: name of the tool.
        state: state of the call.
        holder: id of the run; another run of the same key has another holder.
        params_digest: digest of its parameters.
        request_id: id of the request that claimed it.
        created_at_ms: time of the claim in milliseconds, on the store's clock.
        expires_at_ms: time of expiry in milliseconds; for a running call, when its lease ends.
        attempts: number of times the tool was called.
        payload: return value of the tool as JSON; None if it cannot or must not be stored.
        exception: exception of the tool; only in stores of one process.
        size: bytes of `payload`, for stores that bound them.
        kept: whether `payload` holds the result.
        error: error of a failed call.
        transient: the result is only for calls that waited for this run; for others the key is free.
        change: repeating the call might do harm, so a run that is cut off leaves its key `UNKNOWN` and not free.
        sure: it runs only if it is claimed in the shared store; see `fallback.FallbackDedupeStore`.
        version: number of changes; a change names the version that it replaces.
    """

    key: str
    tool: str
    state: DedupeState
    holder: str
    params_digest: str
    request_id: str = ""
    created_at_ms: int = 0
    expires_at_ms: int = 0
    attempts: int = 0
    payload: Any = None
    kept: bool = False
    error: dict[str, Any] | None = None
    transient: bool = False
    change: bool = False
    sure: bool = False
    version: int = 0
    exception: Any = None
    size: int = 0

    @property
    def is_free(self) -> bool:
        """Whether a new call may take the key: the run was cancelled, or its result is only for calls that waited."""
        return self.state is DedupeState.CANCELLED or (self.transient and self.state is not DedupeState.INFLIGHT)

    @property
    def is_open(self) -> bool:
        """Whether the key must not be forgotten: its run has not ended, or nobody knows how."""
        return self.state is DedupeState.UNKNOWN or (self.change and self.state is DedupeState.INFLIGHT)


class ClaimResult(NamedTuple):
    """Result of a claim.

    Attributes:
        mine: the key was free, or its lease expired: the caller runs the call.
        record: the current record.
        age_ms: milliseconds since the first claim of the record, by the store's clock.
    """

    mine: bool
    record: DedupeRecord
    age_ms: float = 0.0


def seen(record: DedupeRecord, now_ms: int) -> DedupeRecord | None:
    """Return a stored record as it is now: None once it has expired; a change whose lease has ended is unknown."""
    if record.expires_at_ms > now_ms:
        return record
    until = record.expires_at_ms + KEEP_UNKNOWN_MS
    if not (record.change and record.state is DedupeState.INFLIGHT and until > now_ms):
        return None
    return msgspec.structs.replace(record, state=DedupeState.UNKNOWN, version=record.version + 1, expires_at_ms=until)


def claimed(known: DedupeRecord | None, record: DedupeRecord, now_ms: int, lease_ms: int) -> ClaimResult:
    """Claim a key that is free; a holder that claims again, because the answer was lost, still has it."""
    if known is not None:
        if known.holder == record.holder and known.state is DedupeState.INFLIGHT:
            return ClaimResult(mine=True, record=known)
        if not known.is_free:
            return ClaimResult(mine=False, record=known, age_ms=now_ms - known.created_at_ms)
    taken = msgspec.structs.replace(
        record,
        state=DedupeState.INFLIGHT,
        created_at_ms=now_ms,
        expires_at_ms=now_ms + lease_ms,
        version=known.version + 1 if known is not None else 1,
    )
    return ClaimResult(mine=True, record=taken)


def extended(known: DedupeRecord | None, record: DedupeRecord, now_ms: int, lease_ms: int) -> DedupeRecord | None:
    """Extend a holder's lease; None if it does not hold the key."""
    if known is None or known.holder != record.holder or known.state is not DedupeState.INFLIGHT:
        return None
    return msgspec.structs.replace(known, expires_at_ms=now_ms + lease_ms)


def finished(known: DedupeRecord | None, record: DedupeRecord, now_ms: int, ttl_ms: int) -> DedupeRecord | None:
    """End a holder's run, or settle its unknown outcome; None if there is nothing of this holder to end."""
    if known is None or known.holder != record.holder:
        return None
    if known.state is not DedupeState.INFLIGHT and known.state is not DedupeState.UNKNOWN:
        return None
    return msgspec.structs.replace(
        record, created_at_ms=known.created_at_ms, expires_at_ms=now_ms + ttl_ms, version=known.version + 1
    )


class StoreEmptied(Exception):
    """A store has lost the records that it had: it was emptied, or replaced by another one."""


class DedupeStore(Protocol):
    """Store of idempotency keys; atomic across all users.

    Every method may raise if the store cannot be reached; `fallback.FallbackDedupeStore` says what happens then.
    """

    in_process: bool
    """Whether stored results never leave the process."""

    async def claim(self, record: DedupeRecord, lease_ms: int) -> ClaimResult:
        """Claim a key if it is free, else return its holder's record. One caller wins; see `claimed`."""

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease; return False if another holder has the key."""

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the holder's running or unknown record by its end; return False if there is none."""

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record; None if the key is free."""

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Wait until a record has another version, at most `timeout_ms` milliseconds; return the current record."""

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records, or all of one tool, except those that are open; return their number."""

    async def size(self) -> int:
        """Return the number of records."""

    async def close(self) -> None:
        """Close the store's connections."""

    def on_another_loop(self) -> DedupeStore:
        """Return a store with the same keys for another event loop; only for stores outside of the process."""

    def after_fork(self) -> None:
        """Reset in a child process: connections and running calls belong to the parent.

        A store outside of the process is also reset if the event loop of its connections is gone.
        """
