"""What a guard would have done with the calls of a recording, as far as a fold must know it.

The guard itself is given by whoever has one: histories and guards do not know each other. Needs no database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...projections.emitter import Output
from ...projections.local_topology import LocalTopology
from ...schemas.events import ToolCallStarted


class Held(NamedTuple):
    """A call that a guard would not have let pass unasked.

    Attributes:
        event_id: id of the call's start.
        session, call_id, tool: of the call.
        workspace: where it was made.
        user: for whom; empty where that is not known.
        refused: nobody would have been asked: the key is blocked or removed, or the circuit is open.
        circuit: `key` is that of a circuit.
        key: trust key or circuit that decided.
        time_ms: when the call started.
    """

    event_id: str
    session: str
    call_id: str
    tool: str
    workspace: str
    user: str
    refused: bool
    circuit: bool
    key: str
    time_ms: int


class Guard(Protocol):
    """What follows the states that a fold tells, and says what a guard would have done with a call."""

    def follow(self, outputs: list[Output]) -> list[Output]:
        """Take up the states among outputs; gives the outputs back."""

    def held(self, event: ToolCallStarted, at: int) -> Held | None:
        """What would have held a call up at a time, before its start is folded; None: it would have passed."""

    @property
    def untroubled(self) -> bool:
        """Whether every call would pass."""


GuardOf = Callable[[LocalTopology], Guard]
"""Makes the guard of a fold."""
