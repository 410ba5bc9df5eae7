"""Record and interface of dedupe stores, and copies of results for them (docs/design/guard.md#idempotency).

A copy is kept whole or not at all, and its size is bounded.
"""

from __future__ import annotations

import copy
import sys
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from ..streams import is_stream

MAX_RESULT_BYTES = 4 * 1024 * 1024
"""Larger results are not kept."""

MAX_ERROR_BYTES = 65_536
"""Exceptions that hold more are answered by their code and message."""

MAX_NODES = 20_000
"""Results of more parts are not kept."""

_IMMUTABLE = frozenset({str, bytes, int, float, bool, type(None)})

_PART_BYTES = 64
"""Least that a part takes, its place in a container included."""


class DedupeState(StrEnum):
    """State of a call with a key."""

    INFLIGHT = "inflight"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


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
    version: int = 0
    exception: Any = None
    size: int = 0

    @property
    def is_free(self) -> bool:
        """Whether a new call may take the key: the run was cancelled, or its result is only for calls that waited."""
        return self.state is DedupeState.CANCELLED or (self.transient and self.state is not DedupeState.INFLIGHT)


class Claim(NamedTuple):
    """Result of a claim.

    Attributes:
        mine: the key was free, or its lease expired: the caller runs the call.
        record: the current record.
        age_ms: milliseconds since the first claim of the record, by the store's clock.
    """

    mine: bool
    record: DedupeRecord
    age_ms: float = 0.0


class DedupeStore(Protocol):
    """Store of idempotency keys; atomic across all users.

    Every method may raise if the store cannot be reached; the guard then makes the call without it.
    """

    in_process: bool
    """Whether stored results never leave the process."""

    async def claim(self, record: DedupeRecord, lease_ms: int) -> Claim:
        """Claim a key if it is free or its lease has expired, else return its holder's record. One caller wins."""

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease; return False if another holder has the key."""

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the holder's running record by its result; return False if another holder has the key."""

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record; None if the key is free."""

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Wait until a record has another version, at most `timeout_ms` milliseconds; return the current record."""

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records, or all records of one tool; return their number."""

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


class Kept(NamedTuple):
    """Stored form of a result.

    Attributes:
        payload: a copy that nobody else holds.
        size: bytes it takes, roughly.
        whole: False where nothing is kept.
    """

    payload: Any = None
    size: int = 0
    whole: bool = False


def kept_copy(output: Any) -> Kept:
    """A copy of a result, if it can be copied and is not too large; never raises."""
    if type(output) in _IMMUTABLE:
        size = sys.getsizeof(output)
        return Kept(output, size, whole=True) if size <= MAX_RESULT_BYTES else Kept()
    try:
        size = size_of(output)
        if size > MAX_RESULT_BYTES or is_stream(output):
            return Kept()
        made = copy.deepcopy(output)
        if type(made) is not type(output):
            return Kept()
    except Exception:  # noqa: BLE001 - a socket, a lock, 5,000 levels, an object that refuses
        return Kept()
    return Kept(made, size, whole=True)


def size_of(value: Any) -> int:
    """Bytes that a value takes with all it holds, roughly; above `MAX_RESULT_BYTES` where it has many parts."""
    total, seen, waiting = 0, set(), [value]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        total += max(_PART_BYTES, sys.getsizeof(value, _PART_BYTES))
        if total > MAX_RESULT_BYTES or len(seen) > MAX_NODES:
            return MAX_RESULT_BYTES + 1
        kind = type(value)
        if issubclass(kind, dict):
            waiting.extend(dict.keys(value))
            waiting.extend(dict.values(value))
        elif issubclass(kind, list | tuple | set | frozenset):
            waiting.extend(value)
        elif isinstance(inner := getattr(value, "__dict__", None), dict):
            waiting.extend(inner.values())
    return total


def copied_exception(error: BaseException | None) -> BaseException | None:
    """A copy of an exception without its traceback, which would keep every frame of the tool; None: no copy."""
    if error is None:
        return None
    try:
        made = copy.copy(error)
        same = type(made) is type(error) and made.args == error.args and size_of(made) <= MAX_ERROR_BYTES
    except Exception:  # noqa: BLE001 - exceptions whose constructor takes other arguments
        return None
    if not same:
        return None
    made.__cause__ = made.__context__ = None
    return made.with_traceback(None)
