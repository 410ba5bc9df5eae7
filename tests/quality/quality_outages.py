"""Outages planted in recorded sessions: calls until one is caught, others that are hit, and the way back.

A window of the trace around the outage is folded twice, with the outage and without it, each time as if a guard stood
before the calls: a person approves what it asks about, so the call runs and fails; what it refuses is not made.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import quality_plants as plants
from quality_plants import KINDS, Plant, Scope, Start, Trace
from quality_sessions import Source
from trustfold.cli.checks import CallCheck, CallChecker, GuardVerdict
from trustfold.guard.breaker import refusing_circuit_in
from trustfold.guard.permission import is_refused
from trustfold.guard.state_cache import TrustEntry
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.schemas.codec import decode_event
from trustfold.schemas.events import ToolCallStarted, epoch_ms
from trustfold.schemas.vocabulary import TrustState

BEFORE_MS, BEFORE_EVENTS = 3_600_000, 1500
"""What is folded before the outage: the window of the default rule, and no more events than this."""

AFTER_MS, AFTER_EVENTS = 3_600_000, 3000
"""What is folded after it: at least so long, on until the scope is back, and no more events than this."""

TRUST_CALLS, CIRCUIT_CALLS = 3, 5
"""Failing calls of one key after which trust should have caught an outage, and those after which a circuit should."""


class Back(StrEnum):
    """What became of the scope after the outage.

    A key that was held is back when a call of it is simply made again, and stuck when it is still held after more than
    one success too many; where it was not called often enough for either, nothing was seen.
    """

    BACK = "back"
    STUCK = "stuck"
    BLOCKED = "blocked"
    UNSEEN = "unseen"


@dataclass(slots=True)
class Outage:
    """What was measured of one planted outage.

    Attributes:
        failing: calls that ran and failed, as far as they finished in it.
        refused: calls of the scope that were not made.
        held_before: a call of the scope would have been asked about or refused before anything failed.
        trust_calls: failing calls of the scope when trust began to hold one of its keys; None: never.
        circuit_calls: failing calls of the scope when one of its circuits opened; None: never.
        worst_key: of the keys that fail in it, the most failing calls before a key was held, or in all if it never was.
        others: calls of other keys from its begin to an hour after its end.
        hit: those among them that would be asked about or refused, and would not be without the outage.
        hit_keys: what decided about them.
        back: what became of the scope afterwards.
        extra_successes: successes after the configured times beyond those needed, of the key that had most.
        back_after_s: seconds from the configured times to the first call that is simply made; depends on traffic.
    """

    source: str
    kind: str
    scope: Scope
    target: str
    failing: int = 0
    refused: int = 0
    held_before: bool = False
    trust_calls: int | None = None
    circuit_calls: int | None = None
    worst_key: int = 0
    others: int = 0
    hit: int = 0
    hit_keys: dict[str, int] = field(default_factory=dict)
    back: Back = Back.UNSEEN
    extra_successes: int | None = None
    back_after_s: float | None = None

    @property
    def calls(self) -> int | None:
        """Failing calls until trust or a circuit caught it; None: never."""
        return min((count for count in (self.trust_calls, self.circuit_calls) if count is not None), default=None)

    @property
    def in_time(self) -> bool:
        """Whether it was caught, and each of its keys before it had failed too often."""
        limit = TRUST_CALLS if self.trust_calls is not None else CIRCUIT_CALLS
        return self.calls is not None and self.worst_key <= limit

    def as_json(self) -> dict[str, Any]:
        """The figures, for programs."""
        return asdict(self) | {"calls": self.calls, "in_time": self.in_time}


@dataclass(slots=True)
class _Key:
    """How a held key of the scope finds back.

    Attributes:
        failing: its failing calls so far, or until it was held.
        ready: when its successes count, milliseconds; 0 while it is unknown.
    """

    failing: int = 0
    held: bool = False
    blocked: bool = False
    ready: int = 0
    needed: int = 1
    successes: list[int] = field(default_factory=list)
    back_at: int | None = None

    @property
    def extra(self) -> int:
        """Successes since the configured times beyond those needed."""
        return sum(at >= self.ready for at in self.successes) - self.needed


@lru_cache(maxsize=1)
def trace_of(source: Source) -> Trace:
    """A source ready for planting; the latest one is kept."""
    return plants.load(source)


def measure(source: Source, kind: str, scope: Scope, seed: str, rules: RuleSet) -> Outage | None:
    """Plant one outage in a source and measure it; None where there is no room for one."""
    trace = trace_of(source)
    plant = plants.plant(trace, kind, scope, seed)
    return None if plant is None else measure_plant(trace, plant, rules)


def measure_plant(trace: Trace, plant: Plant, rules: RuleSet) -> Outage:
    """Fold a window of a trace with an outage and without it."""
    planted = _Run(trace, plant, rules, broken=True)
    planted.run()
    without = _Run(trace, plant, rules, broken=False, stop=planted.stop)
    without.run()
    outage = planted.outage
    hit = planted.held.keys() - without.held.keys()
    outage.hit = len(hit)
    for line in hit:
        key = planted.held[line]
        outage.hit_keys[key] = outage.hit_keys.get(key, 0) + 1
    _conclude(outage, planted.keys)
    return outage


def _conclude(outage: Outage, keys: dict[str, _Key]) -> None:
    """Sum up how the keys of the scope were held and came back."""
    outage.worst_key = max((key.failing for key in keys.values()), default=0)
    held = [key for key in keys.values() if key.held]
    back = [key for key in held if key.back_at is not None]
    if any(key.back_at is None and key.ready and not key.blocked and key.extra > 1 for key in held):
        outage.back = Back.STUCK
    elif back:
        outage.back = Back.BACK
    elif any(key.blocked for key in held):
        outage.back = Back.BLOCKED
    known = [key for key in back if key.ready]
    if known:
        outage.extra_successes = max(key.extra for key in known)
        outage.back_after_s = max((key.back_at or 0) - key.ready for key in known) / 1000


class _Run:
    """One fold of the window."""

    def __init__(self, trace: Trace, plant: Plant, rules: RuleSet, *, broken: bool, stop: int | None = None) -> None:
        self.outage = Outage(plant.source, plant.kind, plant.scope, plant.target)
        self.keys: dict[str, _Key] = {}
        self.held: dict[int, str] = {}
        self._trace = trace
        self._plant = plant
        self._failing = frozenset(plant.calls if broken else ())
        self._refused: dict[int, bool] = {}
        self._topology = LocalTopology(rules)
        self._checker = CallChecker(self._topology)
        self._begin, self._end = plant.calls[0], plant.calls[-1]
        self._over = max(trace.times[trace.starts[line].finish or line] for line in plant.calls)
        earliest = bisect_left(trace.times, trace.times[self._begin] - BEFORE_MS)
        self._first = max(earliest, self._begin - BEFORE_EVENTS)
        self.stop = min(stop or len(trace.lines), self._end + AFTER_EVENTS)
        self._whole = stop is not None  # the window is given

    def run(self) -> None:
        """Fold the window; `stop` is where it ended."""
        for number in range(self._first, self.stop):
            if not self._whole and self._is_over(number):
                self.stop = number
                return
            start = self._trace.starts.get(number)
            if start is not None:
                self._start(start)
            elif number in self._trace.start_of:
                self._finish(number, self._trace.starts[self._trace.start_of[number]])
            else:
                self._fold(self._trace.lines[number])

    def _is_over(self, number: int) -> bool:
        if self._trace.times[number] < self._over + AFTER_MS:
            return False
        return all(key.back_at is not None or key.blocked for key in self.keys.values() if key.held)

    def _fold(self, line: bytes) -> None:
        self._checker.follow(self._topology.feed("events", (line,)))

    def _start(self, start: Start) -> None:
        event = self._event_of(start)
        self._checker.catch_up(start.at, event.session_id)
        check = self._checker.check(event)
        if start.line >= self._begin:
            self._note_check(start, event, check)
        if check.decision in {GuardVerdict.DENY, GuardVerdict.CIRCUIT_OPEN}:
            self._refused[start.line] = check.decision is GuardVerdict.CIRCUIT_OPEN
            self.outage.refused += start.line in self._failing
        else:
            self._fold(self._line_of(start.line, start))

    def _note_check(self, start: Start, event: ToolCallStarted, check: CallCheck) -> None:
        allowed = check.decision is GuardVerdict.ALLOW
        if not self._plant.covers(start):
            if start.at <= self._over + AFTER_MS:
                self.outage.others += 1
                if not allowed:
                    self.held[start.line] = check.key
        elif not allowed:
            if start.line == self._begin:
                self.outage.held_before = True
            self._hold(start, event)
        elif start.at > self._over and (key := self._key(start)).held and key.back_at is None:
            key.back_at = start.at

    def _finish(self, number: int, start: Start) -> None:
        line = self._line_of(number, start)
        if start.line in self._refused:
            self._fold(plants.not_made(line, circuit=self._refused[start.line]))
            return
        if start.line in self._failing:
            self._fold(plants.failed(line, self._plant.kind))
            self._failed(start)
            return
        self._fold(line)
        if self._plant.covers(start) and self._trace.times[number] > self._over and b'"status":"success"' in line:
            key = self._key(start)
            if key.back_at is None:
                key.successes.append(self._trace.times[number])

    def _failed(self, start: Start) -> None:
        """Count a call that has met the outage, and note whether the next one like it would be held."""
        outage, key = self.outage, self._key(start)
        outage.failing += 1
        key.failing += not key.held
        self._hold(start, self._event_of(start))

    def _hold(self, start: Start, event: ToolCallStarted) -> None:
        """Note what holds a call of the scope now, and from when on its successes count."""
        outage, key = self.outage, self._key(start)
        if key.back_at is not None or (start.at > self._over and not key.held):
            return  # what a key is held for later is no part of this outage
        trust, circuit_until = self._standing(event)
        if trust is not None:
            if outage.trust_calls is None:
                outage.trust_calls = outage.failing
            key.blocked = is_refused(trust)
            key.needed = trust.record.successes_needed or 1
            if trust.state is TrustState.ESCALATED and trust.record.recovery_at:
                key.ready = max(key.ready, _ms(trust.record.recovery_at))
        if circuit_until is not None:
            if outage.circuit_calls is None:
                outage.circuit_calls = outage.failing
            key.ready = max(key.ready, circuit_until)
            if trust is None:
                key.needed = 1  # what is half-open lets the first call through
        key.held = key.held or trust is not None or circuit_until is not None

    def _standing(self, event: ToolCallStarted) -> tuple[TrustEntry | None, int | None]:
        """The trust of a call that is not trusted, and until when a circuit of it is open."""
        call, view, at = self._checker.call_of(event), self._checker.view, epoch_ms(event.time)
        trust = view.trust(call.workspace_id, call.trust_keys, call.user_id)
        refusal = refusing_circuit_in(call.scopes, lambda scope: view.circuit(call.workspace_id, scope, at))
        if refusal is None:
            return trust, None
        circuit = view.circuit(call.workspace_id, refusal.scope, at)
        return trust, circuit.open_until if circuit is not None else None

    def _key(self, start: Start) -> _Key:
        """The call's key; under a service a tool is one key."""
        return self.keys.setdefault(start.tool if self._plant.scope is Scope.SERVICE else start.key, _Key())

    def _event_of(self, start: Start) -> ToolCallStarted:
        event = decode_event(self._line_of(start.line, start))
        assert isinstance(event, ToolCallStarted)
        return event

    def _line_of(self, number: int, start: Start) -> bytes:
        line = self._trace.lines[number]
        return plants.served(line) if self._plant.scope is Scope.SERVICE and self._plant.covers(start) else line


def _ms(text: str) -> int:
    return epoch_ms(datetime.fromisoformat(text))


def tasks(found: list[Source], each: int) -> list[tuple[Source, str, Scope, str]]:
    """What to plant: so many of each kind and scope in each source."""
    return [
        (source, kind, scope, str(number))
        for source in found
        for kind in KINDS
        for scope in Scope
        for number in range(each)
    ]
