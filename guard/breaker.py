"""Circuit checks of a call in the local view (docs/design/guard.md#breaker-and-trust).

A closed circuit costs one lookup. An open one refuses the call. A half-open one admits one probe in the whole fleet:
the guard requests the lease and waits for the answer; other callers are refused meanwhile, including other calls of the
same guard. While the backend is disconnected, the guard probes without a lease: one call at a time, with a pause after
each failure, so that a lost connection does not keep a recovered tool closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..schemas.codec import dated
from ..schemas.events import BreakerProbeRequested
from ..schemas.vocabulary import BreakerState
from .clock import GuardClock
from .log import log_event
from .metrics import CIRCUITS, TRANSITIONS, GuardMetrics
from .publisher import EventPublisher
from .request import GuardedCall
from .settings import GuardSettings
from .state_cache import CircuitEntry

if TYPE_CHECKING:
    from .backends.base import GuardBackend

_FORCED = BreakerState.FORCED_OPEN

LOCAL_PAUSE_MS = 30_000.0  # Milliseconds between probes without a lease after one failed


class CircuitRefusal(NamedTuple):
    """A circuit that refuses a call."""

    scope: str
    state: BreakerState
    message: str


def circuits_in(
    scopes: Iterable[str], circuit_of: Callable[[str], CircuitEntry | None]
) -> Iterator[tuple[str, CircuitEntry]]:
    """Circuits of a call that are not closed.

    A tool's own circuit applies to service calls only if an operator opened it.
    """
    scopes = tuple(scopes)
    bound = any(scope.startswith("service:") for scope in scopes)
    for scope in scopes:
        circuit = circuit_of(scope)
        if circuit is None or (bound and scope.startswith("tool:") and circuit.state is not _FORCED):
            continue
        yield scope, circuit


def refusing_circuit_in(
    scopes: Iterable[str], circuit_of: Callable[[str], CircuitEntry | None]
) -> CircuitRefusal | None:
    """Return the first open circuit of a call; half-open ones admit a probe and are skipped."""
    for scope, circuit in circuits_in(scopes, circuit_of):
        if circuit.state is not BreakerState.HALF_OPEN:
            return _refusal(scope, circuit)
    return None


class BreakerGate:
    """Circuit gate of one guard."""

    def __init__(
        self,
        backend: GuardBackend,
        publisher: EventPublisher,
        settings: GuardSettings,
        clock: GuardClock,
        metrics: GuardMetrics,
        guard_id: str,
    ) -> None:
        """Request leases under the name `guard_id`."""
        self._backend = backend
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._guard_id = guard_id
        self._asking: set[str] = set()
        self._alone: dict[str, float] = {}
        self._seen: dict[str, BreakerState] = {}

    def refusing_circuit(self, call: GuardedCall) -> CircuitRefusal | None:
        """Return the circuit that refuses this call now, without requesting a lease; None if none does."""
        if self._backend.view.only_defaults:
            return None
        return self.refusing_circuit_at(call.workspace_id, call.scopes)

    def refusing_circuit_at(self, workspace: str, scopes: Iterable[str]) -> CircuitRefusal | None:
        """Same as `refusing_circuit`, given workspace and scopes instead of a call."""
        return refusing_circuit_in(scopes, lambda scope: self._current(workspace, scope))

    async def enter(self, call: GuardedCall) -> CircuitRefusal | None:
        """Admit a call, or return the circuit that refuses it; scopes that the call probes are stored on the call."""
        if self._backend.view.only_defaults:
            return None
        half_open = []
        for scope, circuit in circuits_in(call.scopes, lambda scope: self._current(call.workspace_id, scope)):
            if circuit.state is not BreakerState.HALF_OPEN:
                return _refusal(scope, circuit)
            half_open.append((scope, circuit))
        for scope, circuit in half_open:
            refused = await self._probe(call, scope, circuit)
            if refused is not None:
                return refused
            call.settled_scopes.append(scope)
        return None

    def settle(self, call: GuardedCall, *, failed: bool) -> None:
        """End a probe without a lease; a leased probe is settled by its events."""
        for scope in call.settled_scopes:
            place = f"{call.workspace_id}\x1f{scope}"
            if place in self._alone:
                self._alone[place] = self._clock.monotonic_ms() + (LOCAL_PAUSE_MS if failed else 0)

    async def _probe(self, call: GuardedCall, scope: str, circuit: CircuitEntry) -> CircuitRefusal | None:
        place = f"{call.workspace_id}\x1f{scope}"
        if circuit.holder:
            return _refusal(scope, circuit, "another call is the probe")
        if place in self._asking:
            return _refusal(scope, circuit, "another call is asking to be the probe")
        if not self._backend.connected:
            if self._alone.get(place, 0.0) > self._clock.monotonic_ms():
                return _refusal(scope, circuit, "the last probe failed, and nobody can be asked")
            self._alone[place] = float("inf")  # until `settle` is called
            return None
        self._alone.pop(place, None)
        self._asking.add(place)
        try:
            return await self._ask(call, scope, circuit)
        finally:
            self._asking.discard(place)

    async def _ask(self, call: GuardedCall, scope: str, circuit: CircuitEntry) -> CircuitRefusal | None:
        """Request the lease and wait for the view to show it: granted, granted to another guard, or a new state."""
        self._publisher.event(
            BreakerProbeRequested,
            call.session_id,
            workspace_id=call.workspace_id,
            breaker_key=scope,
            guard_id=self._guard_id,
            call_id=call.call_id,
        )
        clock, view = self._clock, self._backend.view
        until = clock.monotonic_ms() + self._settings.probe_wait_ms
        while True:
            now = view.circuit(call.workspace_id, scope, clock.now_ms())
            if now is None:
                return None
            if now.state is not BreakerState.HALF_OPEN:
                return _refusal(scope, now)
            if now.holder:
                mine = now.holder == self._guard_id and now.call_id == call.call_id
                return None if mine else _refusal(scope, now, "another call is the probe")
            left = until - clock.monotonic_ms()
            if left <= 0:
                return _refusal(scope, circuit, "nobody answered the request to probe")
            await self._backend.changed(left)

    def _current(self, workspace: str, scope: str) -> CircuitEntry | None:
        place = f"{workspace}\x1f{scope}"
        circuit = self._backend.view.circuit_at(place, self._clock.now_ms())
        if circuit is None and place not in self._seen:
            return None
        state = circuit.state if circuit is not None else BreakerState.CLOSED
        before = self._seen.get(place, BreakerState.CLOSED)
        if state is not before:
            self._note(scope, place, before, state)
        return circuit

    def _note(self, scope: str, place: str, before: BreakerState, after: BreakerState) -> None:
        """Count and log a state transition of a circuit as this guard saw it."""
        if after is BreakerState.CLOSED:
            self._seen.pop(place, None)
        else:
            self._seen[place] = after
        tool = self._metrics.tool(scope)
        self._metrics.add(TRANSITIONS, tool, before, after)
        self._metrics.put(CIRCUITS, tool, before, value=0)
        self._metrics.put(CIRCUITS, tool, after, value=1)
        log_event(
            logging.WARNING, "tool_call_circuit_state", toolName=scope, fromState=str(before), breakerState=str(after)
        )

    def after_fork(self, guard_id: str) -> None:
        """Use another guard id than the parent process, and forget its pending requests."""
        self._guard_id = guard_id
        self._asking = set()


def _refusal(scope: str, circuit: CircuitEntry, why: str = "") -> CircuitRefusal:
    kind, _, name = scope.partition(":")
    record = circuit.record
    rate = f", {record.failure_rate:.0%} of {record.measured} calls failed" if record.measured else ""
    until = f" until {dated(circuit.open_until, circuit.now_ms)}" if circuit.open_until else ""
    if circuit.state is BreakerState.HALF_OPEN:
        message = f"the circuit of {kind} '{name}' is being tested: {why or 'one call at a time'}; try again shortly"
    elif circuit.state is BreakerState.FORCED_OPEN:
        message = f"the circuit of {kind} '{name}' was opened by an operator{until}; use another tool"
    else:
        message = f"the circuit of {kind} '{name}' is open{until}{rate}; use another tool or try again later"
    return CircuitRefusal(scope, circuit.state, message)
