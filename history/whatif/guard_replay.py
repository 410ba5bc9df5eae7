"""Protocol of a simulated guard that checks the calls of a recording during a fold.

The caller provides the guard, since histories do not depend on guards. Needs no database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ...projections.emitter import StageOutput
from ...projections.local_topology import LocalTopology
from ...schemas.events import ToolCallStarted


class StoppedCall(NamedTuple):
    """Call that a guard would have asked about or refused."""

    event_id: str  # id of the call's start
    # session, call_id, tool: identity of the call
    session: str
    call_id: str
    tool: str
    workspace: str
    user: str  # user of the call; empty if unknown
    refused: bool  # True if refused without asking: the key is blocked or removed, or the circuit is open
    circuit: bool  # True if `key` is a circuit's
    key: str  # trust key or circuit that decided
    time_ms: int  # start of the call, milliseconds since 1970


class SimulatedGuard(Protocol):
    """Simulated guard: tracks the states that a fold publishes, and checks calls."""

    def follow(self, outputs: list[StageOutput]) -> list[StageOutput]:
        """Apply the states among outputs; returns the outputs unchanged."""

    def held(self, event: ToolCallStarted, at: int) -> StoppedCall | None:
        """Stopped call at a time, before its start is folded; None if it would have been allowed."""


GuardOf = Callable[[LocalTopology], SimulatedGuard]  # Factory for the guard of a fold
