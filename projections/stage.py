"""What a stage is: a key function and a fold over its own state (docs/architecture.md#a-stage).

The engines know stages only through this face; they own time, transport and durability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ..rules.rules import Rules
from .emitter import Emitter
from .idle import Rest


class KeyState(msgspec.Struct, array_like=True, omit_defaults=False):
    """What every keyed state carries; the position is part of the state.

    Subclasses append fields with defaults, never reorder or remove them: an older, shorter snapshot still loads.

    Attributes:
        positions: last offset folded, per source topic of the stage; -1 before the first.
        clock: the key's stream time, milliseconds: the largest effective time it has seen.
        overrides: settings that the key's own session overrides (`rule_source.session_overrides`).
        arrived: when its latest record arrived, milliseconds; 0 where that is not kept: `clock` says it then.
    """

    overrides = ""  # not a field: only what belongs to a session has settings of its own
    arrived = 0  # not a field: only sessions go by the arrival of their records

    positions: list[int] = msgspec.field(default_factory=list)
    clock: int = 0


StateT = TypeVar("StateT", bound=KeyState)


class Stage(Protocol[StateT]):
    """One step of the topology."""

    @property
    def name(self) -> str:
        """Names the state table and its changelog."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Catalogue names of the topics it reads, co-partitioned."""

    @property
    def state_type(self) -> type[StateT]:
        """Its state; a KeyState."""

    @property
    def state_version(self) -> int:
        """Raised when the meaning of stored fields changes; states of a version that nothing reads are refused."""

    @property
    def older_states(self) -> Mapping[int, Callable[[memoryview], StateT]]:
        """Older versions whose states are still read, and what reads a state, without its header, of each."""

    @property
    def by_arrival(self) -> bool:
        """Whether its keys are idle by the arrival of their records; otherwise by the times of their events."""

    @property
    def late_ms(self) -> int:
        """How much later than it is over a state is dropped, at most: no record may be so much out of order."""

    def idle_ms(self, rules: Rules) -> int:
        """Milliseconds without a record after which a state is over."""

    def decode(self, topic: str, value: bytes) -> Any:
        """Read one record of a source topic.

        Raises:
            EventRejected: with a reason code, when the record cannot be processed.
        """

    def envelope(self, event: Any) -> tuple[str, str, int]:
        """State key, id and time (milliseconds) of an event."""

    def scopes(self, state: StateT, event: Any) -> tuple[str, str, str]:
        """Whose settings an event is folded under: workspace, user, and what its session overrides."""

    def fold(self, state: StateT, event: Any, at: int, rules: Rules, emit: Emitter) -> None:
        """Fold one event into its key's state at stream time `at`, emitting what it decides."""

    def renews(self, event: Any) -> bool:
        """Whether an event is heard of the key itself; not, where trustfold says that a session's time has passed."""

    def rest(self, state: StateT) -> Rest:
        """What is left of a state, now that its key is idle."""

    def part_with(self, state: StateT, key: str, at: int, rules: Rules, emit: Emitter) -> bool:
        """Tell what has to be told of a state that is over, at stream time `at`; False: something of it stands."""

    def pass_time(self, state: StateT, key: str, at: int, emit: Emitter) -> None:
        """Append, onto the stage's own source topic, that a time has come at which followers are told of an end."""

    def due_at(self, state: StateT) -> int | None:
        """When the state would change by itself, milliseconds; None if never."""

    def due(self, state: StateT, key: str, now: int, rules: Rules, emit: Emitter) -> None:
        """Emit, onto the stage's own source topic, the events for everything due at or before `now`."""


class SourceRecord(Protocol):
    """A record as aiokafka gives it; the embedded engine makes its own of the same shape."""

    @property
    def key(self) -> bytes | None:
        """Record key."""

    @property
    def value(self) -> bytes | None:
        """Record value; None is a tombstone."""

    @property
    def timestamp(self) -> int:
        """Arrival or creation, milliseconds; -1 when unknown."""

    @property
    def offset(self) -> int:
        """Position in its partition."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Kafka headers."""
