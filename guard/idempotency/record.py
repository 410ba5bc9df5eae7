"""What a dedupe store keeps, and what every store must be able to do (docs/design/guard.md#idempotency)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec


class DedupeState(StrEnum):
    """Where a call with a key stands."""

    INFLIGHT = "inflight"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DedupeRecord(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One key.

    Attributes:
        key: digest of workspace, session, namespace, tool and idempotency key.
        tool: name of the tool.
        state: where the call stands.
        holder: who runs it; another run of the same key has another holder.
        params_digest: of its parameters.
        request_id: of the request that claimed it.
        created_at_ms: when it was claimed, on the store's own clock.
        expires_at_ms: when it is forgotten; of a running call: when its holder counts as dead.
        attempts: how often the tool was called.
        payload: what the tool returned, as JSON; None where it cannot or must not be kept.
        exception: what the tool raised; only in stores of one process.
        size: bytes that `payload` takes, for stores that bound them.
        kept: whether `payload` holds the result.
        error: what a failed call is answered with.
        transient: only those who waited for this very run may have its end; for everybody else the key is free.
        version: counts the changes; a change names the version it was made from.
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
        """Whether a newcomer may take the key: the run was cancelled, or its end is only for those who waited."""
        return self.state is DedupeState.CANCELLED or (self.transient and self.state is not DedupeState.INFLIGHT)


class Claim(NamedTuple):
    """Answer to a claim.

    Attributes:
        mine: the key was free, or its holder is dead: the caller runs the call.
        record: the record as it stands now.
        age_ms: since the record was claimed first, by the store's clock.
    """

    mine: bool
    record: DedupeRecord
    age_ms: float = 0.0


class DedupeStore(Protocol):
    """Keeps keys; atomic across all who share it.

    Every method may raise when the store cannot be reached; the guard then makes the call without it.
    """

    in_process: bool
    """What is kept never leaves the process."""

    async def claim(self, record: DedupeRecord, lease_ms: int) -> Claim:
        """Take a key if it is free or its lease has ended, else say who has it. One of many callers wins."""

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """A sign of life of the holder; False: the key is no longer its own."""

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the holder's running record by its end; False: the key is no longer its own."""

    async def get(self, key: str) -> DedupeRecord | None:
        """The record as it stands now; None where the key is free."""

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Wait until a record has moved on from a version, or so long; gives back the record as it is then."""

    async def clear(self, tool: str | None = None) -> int:
        """Forget everything, or everything of one tool; gives back how many records."""

    async def size(self) -> int:
        """Return the number of records."""

    async def close(self) -> None:
        """Let go of what the store holds open."""

    def on_another_loop(self) -> DedupeStore:
        """The same keys for an event loop that runs beside this store's; only of stores outside of the process."""

    def after_fork(self) -> None:
        """Begin anew in a child process: what is held open is the parent's, and so are the calls that run.

        A store outside of the process is also asked to when the event loop of its connections is gone.
        """
