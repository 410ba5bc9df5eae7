"""Whether a call may pass its circuits, decided from the local view (docs/design/guard.md#breaker-and-trust).

A closed circuit costs a lookup. An open one refuses at once. A half-open one lets one call of the whole fleet through:
the guard asks for the lease and waits for the answer; everybody else is refused at once, and so is every other call of
this guard while one of its own is asking. Where nobody can be asked because the backend is gone, the guard probes by
itself, one call at a time and with a pause after each failure, so that an outage of the messenger never keeps a
recovered tool closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..schemas.events import BreakerProbeRequested
from ..schemas.vocabulary import BreakerState
from .clock import Clock
from .log import say
from .metrics import CIRCUITS, TRANSITIONS, Metrics
from .publisher import Publisher
from .request import Call
from .settings import GuardSettings
from .state_cache import Circuit

if TYPE_CHECKING:
    from .backends.base import Backend

_FORCED = BreakerState.FORCED_OPEN

LOCAL_PAUSE_MS = 30_000.0
"""Pause after a failed probe that nobody could be asked about."""


class Refused(NamedTuple):
    """A circuit that does not let a call through."""

    scope: str
    state: BreakerState
    message: str


def circuits_in(scopes: Iterable[str], circuit_of: Callable[[str], Circuit | None]) -> Iterator[tuple[str, Circuit]]:
    """Circuits of a call that are not closed; of a call to a service its tool's only if an operator opened it."""
    scopes = tuple(scopes)
    bound = any(scope.startswith("service:") for scope in scopes)
    for scope in scopes:
        circuit = circuit_of(scope)
        if circuit is None or (bound and scope.startswith("tool:") and circuit.state is not _FORCED):
            continue
        yield scope, circuit


def standing_in(scopes: Iterable[str], circuit_of: Callable[[str], Circuit | None]) -> Refused | None:
    """The first open circuit of a call; a half-open one lets a probe through and is none."""
    for scope, circuit in circuits_in(scopes, circuit_of):
        if circuit.state is not BreakerState.HALF_OPEN:
            return _refusal(scope, circuit)
    return None


class BreakerGate:
    """Decides for one guard."""

    def __init__(
        self,
        backend: Backend,
        publisher: Publisher,
        settings: GuardSettings,
        clock: Clock,
        metrics: Metrics,
        guard_id: str,
    ) -> None:
        """Ask in the name of `guard_id`."""
        self._backend = backend
        self._publisher = publisher
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._guard_id = guard_id
        self._asking: set[str] = set()
        self._alone: dict[str, float] = {}
        self._seen: dict[str, BreakerState] = {}

    def standing(self, call: Call) -> Refused | None:
        """What stands in a call's way right now, without asking for a probe; None where nothing does."""
        if self._backend.view.untroubled:
            return None
        return self.standing_at(call.workspace_id, call.scopes)

    def standing_at(self, workspace: str, scopes: Iterable[str]) -> Refused | None:
        """The same, for the circuits of a call that there is no need to make up."""
        return standing_in(scopes, lambda scope: self._look(workspace, scope))

    def _circuits(self, workspace: str, scopes: Iterable[str]) -> Iterator[tuple[str, Circuit]]:
        return circuits_in(scopes, lambda scope: self._look(workspace, scope))

    def is_open(self, call: Call) -> bool:
        """Whether a further attempt would meet an open circuit; the probe itself meets its own half-open one."""
        return self.standing(call) is not None

    async def enter(self, call: Call) -> Refused | None:
        """Let a call through, or say what refuses it; the scopes it probes are noted on the call."""
        if self._backend.view.untroubled:
            return None
        half_open = []
        for scope, circuit in self._circuits(call.workspace_id, call.scopes):
            if circuit.state is not BreakerState.HALF_OPEN:
                return _refusal(scope, circuit)
            half_open.append((scope, circuit))
        for scope, circuit in half_open:
            refused = await self._probe(call, scope, circuit)
            if refused is not None:
                return refused
            call.settled_scopes.append(scope)
        return None

    def settle(self, call: Call, *, failed: bool) -> None:
        """A probe that nobody was asked about is over; a leased one settles itself by its events."""
        for scope in call.settled_scopes:
            place = f"{call.workspace_id}\x1f{scope}"
            if place in self._alone:
                self._alone[place] = self._clock.monotonic_ms() + (LOCAL_PAUSE_MS if failed else 0)

    async def _probe(self, call: Call, scope: str, circuit: Circuit) -> Refused | None:
        place = f"{call.workspace_id}\x1f{scope}"
        if circuit.holder:
            return _refusal(scope, circuit, "another call is the probe")
        if place in self._asking:
            return _refusal(scope, circuit, "another call is asking to be the probe")
        if not self._backend.connected:
            return self._probe_alone(place, scope, circuit)
        self._alone.pop(place, None)
        self._asking.add(place)
        try:
            return await self._ask(call, scope, circuit)
        finally:
            self._asking.discard(place)

    async def _ask(self, call: Call, scope: str, circuit: Circuit) -> Refused | None:
        """Ask for the lease and wait for the answer in the view: ours, somebody else's, or another state."""
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

    def _probe_alone(self, place: str, scope: str, circuit: Circuit) -> Refused | None:
        if self._alone.get(place, 0.0) > self._clock.monotonic_ms():
            return _refusal(scope, circuit, "the last probe failed, and nobody can be asked")
        self._alone[place] = float("inf")  # until it is settled
        return None

    def _look(self, workspace: str, scope: str) -> Circuit | None:
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
        """Count and log a move of a circuit, as it was seen here."""
        if after is BreakerState.CLOSED:
            self._seen.pop(place, None)
        else:
            self._seen[place] = after
        tool = self._metrics.tool(scope)
        self._metrics.add(TRANSITIONS, tool, before, after)
        self._metrics.put(CIRCUITS, tool, before, value=0)
        self._metrics.put(CIRCUITS, tool, after, value=1)
        say(logging.WARNING, "tool_call_circuit_state", toolName=scope, fromState=str(before), breakerState=str(after))

    def after_fork(self, guard_id: str) -> None:
        """Ask in another name than the parent process, and forget what that is asking."""
        self._guard_id = guard_id
        self._asking = set()

    def observe(self, key: str) -> None:
        """Note the state of a circuit whose record has changed, so that moves are counted without a call, too."""
        place = key.removeprefix("breaker:")
        workspace, _, scope = place.partition("\x1f")
        self._look(workspace, scope)


def _refusal(scope: str, circuit: Circuit, why: str = "") -> Refused:
    kind, _, name = scope.partition(":")
    record = circuit.record
    rate = f", {record.failure_rate:.0%} of {record.measured} calls failed" if record.measured else ""
    until = f" until {record.open_until[11:19]} UTC" if record.open_until else ""
    if circuit.state is BreakerState.HALF_OPEN:
        message = f"the circuit of {kind} '{name}' is being tested: {why or 'one call at a time'}; try again shortly"
    elif circuit.state is BreakerState.FORCED_OPEN:
        message = f"the circuit of {kind} '{name}' was opened by an operator{until}; use another tool"
    else:
        message = f"the circuit of {kind} '{name}' is open{until}{rate}; use another tool or try again later"
    return Refused(scope, circuit.state, message)
