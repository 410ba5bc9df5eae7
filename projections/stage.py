"""Interface of a stage: a key function and a fold over its own state (docs/architecture.md#a-stage).

The engines use stages only through this interface; they provide time, transport and durability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from ..errors import EventRejected, RejectReason
from ..rules.rules import RuleSet
from .emitter import OutputEmitter

IdleRule = Literal["session_idle_hours", "key_idle_hours", "fleet_idle_hours"]
HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS


class StateRetention(Enum):
    """Whether the state of an idle key can be dropped."""

    KEEP = "keep"  # It affects later calls, or has a deadline: the state is kept

    NOTIFY = "notify"  # It affects nothing, but followers know it and are notified of its end: then it is dropped

    DROP = "drop"  # It equals a new state: it is dropped


class KeyState(msgspec.Struct, array_like=True, omit_defaults=False):
    """Base of all keyed states; the position is part of the state.

    Subclasses append fields with defaults, never reorder or remove them: an older, shorter snapshot still loads.

    Attributes:
        positions: last offset folded, per source topic of the stage; -1 before the first.
        clock: the key's stream time, milliseconds: the largest effective time it has seen.
        overrides: settings that the key's own session overrides (`rule_source.session_overrides`).
        arrived: arrival of its latest record, milliseconds; 0 if not stored, then `clock` is used.
    """

    overrides = ""  # not a field: only sessions have their own settings
    arrived = 0  # not a field: only sessions use the arrival of their records

    positions: list[int] = msgspec.field(default_factory=list)
    clock: int = 0


def internal_decoder(union: Any, what: str) -> Callable[[bytes], Any]:
    """Decoder of an internal topic, whose records are of one version; EventRejected names `what` another one wrote."""
    decode = msgspec.json.Decoder(union).decode

    def decode_own(value: bytes) -> Any:
        try:
            return decode(value)
        except msgspec.DecodeError as error:
            message = (
                f"not {what} of this version of trustfold: {error}; only workers write to this topic, and records of "
                "an older version are folded before the upgrade"
            )
            raise EventRejected(RejectReason.WRONG_TYPE, "$", message) from error
        except RecursionError as error:
            raise EventRejected(
                RejectReason.TOO_DEEP, "$", f"nested too deep for {what}; no worker wrote it"
            ) from error

    return decode_own


StateT = TypeVar("StateT", bound=KeyState)


class TopologyStage(Protocol[StateT]):
    """One stage of the topology."""

    @property
    def name(self) -> str:
        """Name of the state table and its changelog."""

    @property
    def sources(self) -> Mapping[str, Callable[[bytes], Any]]:
        """Its source topics, co-partitioned: catalogue name and decoder of a record.

        A decoder raises `EventRejected`, with a reason code, for a record that cannot be processed.
        """

    @property
    def state_type(self) -> type[StateT]:
        """Type of its state; a KeyState."""

    @property
    def state_version(self) -> int:
        """Version of the state, raised when the meaning of stored fields changes; states of another one are refused."""

    @property
    def idle_rule(self) -> IdleRule:
        """Name of the rule in `idle` that says after how many hours without a record a state ends."""

    @property
    def by_arrival(self) -> bool:
        """Whether idleness is measured by the arrival of records; otherwise by the times of events."""

    @property
    def late_ms(self) -> int:
        """Milliseconds after its end when a state is dropped: the largest tolerated disorder of records."""

    def envelope(self, event: Any) -> tuple[str, str, int]:
        """Return state key, id and time (milliseconds) of an event."""

    def scopes(self, state: StateT, event: Any) -> tuple[str, str, str]:
        """Return whose settings apply to an event: workspace, user, and the session's overrides."""

    def fold(self, state: StateT, event: Any, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Fold one event into its key's state at stream time `at`, and emit the decisions."""

    def is_appended(self, event: Any) -> bool:
        """Whether trustfold appended the event to the stage's source, and it is no activity of the key."""

    def retention(self, state: StateT) -> StateRetention:
        """Return whether the state of an idle key can be dropped."""

    def expire(self, state: StateT, key: str, at: int, rules: RuleSet, emit: OutputEmitter) -> bool:
        """Emit the end of an ended state at stream time `at`; return False if it must be kept."""

    def republish(self, state: StateT, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Emit what the state has on `state` once more, for followers that have lost it; the state may be changed."""

    def append_timer(self, state: StateT, key: str, at: int, emit: OutputEmitter) -> None:
        """Append a timer record to the stage's own source topic at which followers are notified of an end."""

    def due_at(self, state: StateT) -> int | None:
        """Return the next deadline of the state, milliseconds; None without one."""

    def due(self, state: StateT, key: str, now: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Emit, to the stage's own source topic, the events for all deadlines at or before `now`."""


class SourceRecord(Protocol):
    """Record with the attributes of aiokafka's; the embedded engine has its own type."""

    @property
    def key(self) -> bytes | None:
        """Record key."""

    @property
    def value(self) -> bytes | None:
        """Record value; None is a tombstone."""

    @property
    def timestamp(self) -> int:
        """Arrival or creation, milliseconds; -1 if unknown."""

    @property
    def offset(self) -> int:
        """Position in its partition."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Kafka headers."""
