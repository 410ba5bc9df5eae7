"""The local view: what the records of the `state` topic say about trust and circuits, ready to be asked.

Everything here is a dictionary lookup: a check must cost microseconds and never wait for the network. Only what is away
from its default is published, so an untroubled fleet has an empty view. What time alone changes (an open circuit is
half-open after `open_until`, a lease is free after `lease_until`) is derived when it is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from ..errors import EventRejected
from ..schemas.codec import decode_decision
from ..schemas.events import epoch_ms
from ..schemas.outcomes import DEFAULT_WORKSPACE, US
from ..schemas.public_state import BreakerUpdated, StateUpdated, TrustUpdated
from ..schemas.vocabulary import BreakerMode, BreakerState, TrustState

STRICTNESS = {
    TrustState.TRUSTED: 0,
    TrustState.RECOVERING: 1,
    TrustState.ESCALATED: 2,
    TrustState.BLOCKED: 3,
    TrustState.REMOVED: 4,
}
"""Of several keys of one call the strictest holds (docs/design/semantics.md#failure-keys)."""

ASKING = frozenset({TrustState.ESCALATED, TrustState.RECOVERING})
"""States in which a person must approve a call."""

SESSION_SCOPE = "session"
"""Scope of what a session itself says about trust; it is on no topic."""

MAX_HISTORY = 500
"""Latest changes remembered, for those who ask what happened."""


class Trust(NamedTuple):
    """A key that is not trusted.

    Attributes:
        resets: keys whose reset makes the call run again, for other keys of the call may not be trusted either; empty
            where it is the record's own.
        others: records of the other keys of the call that are not trusted.
    """

    state: TrustState
    record: TrustUpdated
    resets: tuple[str, ...] = ()
    others: tuple[TrustUpdated, ...] = ()

    @property
    def asking(self) -> tuple[str, ...]:
        """Keys whose approval lets one call pass; empty where an operator cannot give it."""
        records = (self.record, *self.others)
        if any(record.scope in {SESSION_SCOPE, "user"} or record.state not in ASKING for record in records):
            return ()
        return tuple(record.key for record in records)


class Approval(NamedTuple):
    """An operator's approval of one call of a key (`trust.approve`).

    Attributes:
        id: id of the command; also of the approvals that it has given to other keys.
        until_ms: when it ends, milliseconds.
    """

    id: str
    until_ms: int


class Circuit(NamedTuple):
    """A circuit that is not closed, and is enforced; times in milliseconds, 0 for none."""

    state: BreakerState
    open_until: int
    holder: str
    call_id: str
    lease_until: int
    record: BreakerUpdated


class StateView:
    """Latest state of every key that is away from its default, and the last changes.

    Attributes:
        untroubled: nothing is held against anything; the check is over before it began.
        changes: latest changes, oldest first: record key and record, None for back to default.
    """

    def __init__(self) -> None:
        """Start with everything at its default."""
        self.untroubled = True
        self.changes: deque[tuple[str, StateUpdated | None]] = deque(maxlen=MAX_HISTORY)
        self._trust: dict[str, Trust] = {}
        self._circuits: dict[str, Circuit] = {}
        self._records: dict[str, StateUpdated] = {}

    def apply(self, key: str, value: bytes | None) -> StateUpdated | None:
        """Take up one record of the `state` topic; gives it back, None for a tombstone or what cannot be read.

        A record that this version cannot read leaves its key as it was.
        """
        if value is None:
            self._forget(key)
            self.changes.append((key, None))
            return None
        try:
            record = decode_decision(value)
        except EventRejected:
            return None
        if not isinstance(record, StateUpdated):
            return None
        trust, circuit = _read(record)
        place = key.partition(":")[2]
        self._records[key] = record
        self.changes.append((key, record))
        # Others may look while this thread writes: a state is replaced at once, never taken away and put back.
        if trust is not None:
            self._trust[place] = trust
        elif isinstance(record, TrustUpdated):
            self._trust.pop(place, None)
        if circuit is not None:
            self._circuits[place] = circuit
        elif isinstance(record, BreakerUpdated):
            self._circuits.pop(place, None)
        self.untroubled = not self._trust and not self._circuits
        return record

    def trust(self, workspace: str, keys: Iterable[str], user: str | None = None) -> Trust | None:
        """The strictest state of a call's keys, narrowest first; None where all are trusted.

        What holds for a user in all workspaces holds where the workspace itself has no state. A record of scope `key`
        holds for calls of just that key, also where it is the key of their tool.
        """
        found = self._not_trusted(workspace, keys, user)
        if len(found) < 2:
            return found[0] if found else None
        strictest = max(found, key=lambda one: STRICTNESS[one.state])
        # The reset of a tool or a service reaches its fine keys.
        return strictest._replace(
            resets=tuple(one.record.key for one in found if one.record.scope != "key"),
            others=tuple(one.record for one in found if one is not strictest),
        )

    def approvals(self, workspace: str, keys: Iterable[str], user: str | None, now_ms: int) -> tuple[Approval, ...]:
        """The approvals by which a call with these keys may pass; empty unless every key that asks has one."""
        given: set[Approval] = set()
        for state, record, *_ in self._not_trusted(workspace, keys, user):
            until = _ms(record.approval_expires_at)
            if state not in ASKING or not record.approval_id or until <= now_ms:
                return ()
            given.add(Approval(record.approval_id, until))
        return tuple(sorted(given))

    def _not_trusted(self, workspace: str, keys: Iterable[str], user: str | None) -> list[Trust]:
        found: list[Trust] = []
        place = workspace + US
        for wider, key in enumerate(keys):
            here = self._trust.get(place + key)
            if here is not None and wider and here.record.scope == "key":
                here = None
            if here is None and user is not None:
                here = self._trust.get(f"user:{user}{US}{key}")
                if here is not None and here.record.scope != "user":
                    here = None  # of a workspace that is called like a user
            if here is not None:
                found.append(here)
        return found

    def circuit(self, workspace: str, scope: str, now_ms: int) -> Circuit | None:
        """A circuit that is open or half-open at a time; None where traffic flows."""
        return self.circuit_at(f"{workspace}{US}{scope}", now_ms)

    def circuit_at(self, place: str, now_ms: int) -> Circuit | None:
        """The same, by workspace and scope as they stand in a record key."""
        circuit = self._circuits.get(place)
        if circuit is None:
            return None
        if circuit.state is BreakerState.OPEN and circuit.open_until <= now_ms:
            circuit = circuit._replace(state=BreakerState.HALF_OPEN)
        elif circuit.state is BreakerState.FORCED_OPEN and 0 < circuit.open_until <= now_ms:
            return None
        if circuit.holder and circuit.lease_until <= now_ms:
            circuit = circuit._replace(holder="", call_id="", lease_until=0)
        return circuit

    def records(self, kind: str = "", workspace: str | None = None) -> list[StateUpdated]:
        """Every record of a kind (all kinds by default), of one workspace or of all."""
        return [
            record
            for record in self._records.values()
            if (not kind or record.kind == kind)
            and (workspace is None or (record.workspace_id or DEFAULT_WORKSPACE) == workspace)
        ]

    def keys(self) -> set[str]:
        """Record keys of everything that is away from its default."""
        return set(self._records)

    def _forget(self, key: str) -> None:
        place = key.partition(":")[2]
        self._records.pop(key, None)
        if key.startswith("trust:"):
            self._trust.pop(place, None)
        elif key.startswith("breaker:"):
            self._circuits.pop(place, None)
        self.untroubled = not self._trust and not self._circuits


def _read(record: StateUpdated) -> tuple[Trust | None, Circuit | None]:
    """What a record says that a check must know: nothing, where it says that all is well."""
    if isinstance(record, TrustUpdated) and record.state is not TrustState.TRUSTED:
        return Trust(record.state, record), None
    if isinstance(record, BreakerUpdated) and record.mode in {None, BreakerMode.ENFORCE}:
        return None, _circuit(record) if record.state is not BreakerState.CLOSED else None
    return None, None


def _circuit(record: BreakerUpdated) -> Circuit:
    lease = record.lease
    return Circuit(
        record.state,
        _ms(record.open_until),
        lease.holder if lease is not None else "",
        lease.call_id if lease is not None else "",
        _ms(lease.lease_until) if lease is not None else 0,
        record,
    )


def _ms(text: str | None) -> int:
    return epoch_ms(datetime.fromisoformat(text)) if text else 0
