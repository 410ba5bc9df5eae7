"""Local view of the `state` topic: trust and circuits, indexed for checks.

Each query is a dictionary lookup: a check must take microseconds and never wait for the network. Only states other than
the default are published, so a healthy fleet has an empty view. Changes by time alone (an open circuit is half-open
after `open_until`, a lease is free after `lease_until`) are derived in the query.
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

# Order of trust states: of several keys of a call, the strictest decides (docs/design/semantics.md#failure-keys)
STRICTNESS = {
    TrustState.TRUSTED: 0,
    TrustState.RECOVERING: 1,
    TrustState.ESCALATED: 2,
    TrustState.BLOCKED: 3,
    TrustState.REMOVED: 4,
}

ASKING = frozenset({TrustState.ESCALATED, TrustState.RECOVERING})  # States in which a person must approve a call
DANGER_SCOPE = "danger"  # Scope of the state of a dangerous call before it runs, which is on no topic
SESSION_SCOPE = "session"  # Scope of a session's own trust overrides, which are on no topic
MAX_HISTORY = 500  # Number of latest changes kept for queries of history


class TrustEntry(NamedTuple):
    """State of a key that is not trusted."""

    state: TrustState
    record: TrustUpdated
    # keys whose reset lets the call run again, as other keys of the call may be untrusted, too; empty if it is the
    # record's own key
    resets: tuple[str, ...] = ()
    others: tuple[TrustUpdated, ...] = ()  # records of the other untrusted keys of the call
    now_ms: int = 0  # time at which it was looked up, milliseconds since the epoch; 0: unknown

    @property
    def asking(self) -> tuple[str, ...]:
        """Keys whose approval lets one call pass; empty if no operator can approve it."""
        records = (self.record, *self.others)
        if any(record.scope in {SESSION_SCOPE, "user"} or record.state not in ASKING for record in records):
            return ()
        return tuple(dict.fromkeys(record.key for record in records))


class OnceApproval(NamedTuple):
    """An operator's approval of one call of a key (`trust.approve`)."""

    id: str  # id of the command; also of the approvals it gave to other keys
    until_ms: int  # expiry, milliseconds since the epoch
    once: bool = True  # it lets one call pass, and not all of a session


class CircuitEntry(NamedTuple):
    """An enforced circuit that is not closed; times in milliseconds since the epoch, 0 for none."""

    state: BreakerState
    open_until: int
    holder: str
    call_id: str
    lease_until: int
    record: BreakerUpdated
    now_ms: int = 0


class StateView:
    """Latest state of every key that differs from its default, and the latest changes."""

    def __init__(self) -> None:
        """Start with all states at their defaults."""
        self.only_defaults = True  # every state is the default, so checks return at once
        # latest changes, oldest first: record key and record, None for the default
        self.changes: deque[tuple[str, StateUpdated | None]] = deque(maxlen=MAX_HISTORY)
        self._trust: dict[str, TrustEntry] = {}
        self._circuits: dict[str, CircuitEntry] = {}
        self._records: dict[str, StateUpdated] = {}

    def apply(self, key: str, value: bytes | None) -> None:
        """Apply one record of the `state` topic; None is a tombstone. An unreadable record leaves its key unchanged."""
        if value is None:
            self._forget(key)
            self.changes.append((key, None))
            return
        try:
            record = decode_decision(value)
        except EventRejected:
            return
        if not isinstance(record, StateUpdated):
            return
        place = key.partition(":")[2]
        # Readers may run while this thread writes: a state is replaced in one step, never removed and added again.
        if isinstance(record, TrustUpdated):
            if record.state is TrustState.TRUSTED:
                self._trust.pop(place, None)
            else:
                self._trust[place] = TrustEntry(record.state, record)
        elif isinstance(record, BreakerUpdated):
            if record.state is BreakerState.CLOSED or record.mode not in {None, BreakerMode.ENFORCE}:
                self._circuits.pop(place, None)
            else:
                self._circuits[place] = _circuit(record)
        self._records[key] = record
        self.changes.append((key, record))
        self.only_defaults = not self._trust and not self._circuits

    def trust(
        self,
        workspace: str,
        keys: Iterable[str],
        user: str | None = None,
        held: TrustEntry | None = None,
        now_ms: int = 0,
    ) -> TrustEntry | None:
        """Return the strictest state of a call's keys, narrowest first; None if all are trusted.

        `held` is the state of a dangerous call, whatever its keys' states; `now_ms` dates it.

        A user's state in all workspaces applies where the workspace itself has none. A record of scope `key` applies to
        calls with exactly that key, also if it is the key of their tool.
        """
        found = self._not_trusted(workspace, keys, user)
        if held is not None:
            found.insert(0, held)
        if len(found) < 2:
            return found[0]._replace(now_ms=now_ms) if found else None
        strictest = max(found, key=lambda one: STRICTNESS[one.state])
        # Resetting a tool or a service also resets its fine keys.
        return strictest._replace(
            resets=tuple(one.record.key for one in found if one.record.scope != "key"),
            others=tuple(one.record for one in found if one is not strictest),
            now_ms=now_ms,
        )

    def approvals(
        self,
        workspace: str,
        keys: Iterable[str],
        user: str | None,
        now_ms: int,
        session: str = "",
        held: TrustEntry | None = None,
    ) -> tuple[OnceApproval, ...]:
        """Return the approvals that let a session's call with these keys pass; empty unless each asking key has one."""
        given: set[OnceApproval] = set()
        for state, record, *_ in (*((held,) if held is not None else ()), *self._not_trusted(workspace, keys, user)):
            until = _ms(record.approval_expires_at)
            if state not in ASKING or not record.approval_id or until <= now_ms:
                return ()
            if record.approval_session_id not in {None, session}:
                return ()
            given.add(OnceApproval(record.approval_id, until, record.approval_session_id is None))
        return tuple(sorted(given))

    def record(self, workspace: str, key: str) -> TrustUpdated | None:
        """Return the record of a trust key; None at its default."""
        found = self._records.get(f"trust:{workspace}{US}{key}")
        return found if isinstance(found, TrustUpdated) else None

    def _not_trusted(self, workspace: str, keys: Iterable[str], user: str | None) -> list[TrustEntry]:
        found: list[TrustEntry] = []
        place = workspace + US
        for wider, key in enumerate(keys):
            here = self._trust.get(place + key)
            if here is not None and wider and here.record.scope == "key" and "|" not in key:
                here = None
            if here is None and user is not None:
                here = self._trust.get(f"user:{user}{US}{key}")
                if here is not None and here.record.scope != "user":
                    here = None  # a workspace with the name of a user
            if here is not None:
                found.append(here)
        return found

    def circuit(self, workspace: str, scope: str, now_ms: int) -> CircuitEntry | None:
        """Return the circuit if it is open or half-open at `now_ms`; else None."""
        return self.circuit_at(f"{workspace}{US}{scope}", now_ms)

    def circuit_at(self, place: str, now_ms: int) -> CircuitEntry | None:
        """Same as `circuit`, by workspace and scope in the form of record keys."""
        circuit = self._circuits.get(place)
        if circuit is None:
            return None
        if circuit.state is BreakerState.OPEN and circuit.open_until <= now_ms:
            circuit = circuit._replace(state=BreakerState.HALF_OPEN)
        elif circuit.state is BreakerState.FORCED_OPEN and 0 < circuit.open_until <= now_ms:
            return None
        if circuit.holder and circuit.lease_until <= now_ms:
            circuit = circuit._replace(holder="", call_id="", lease_until=0)
        return circuit._replace(now_ms=now_ms)

    def records(self, kind: str = "", workspace: str | None = None) -> list[StateUpdated]:
        """Return all records of a kind (default: all kinds), of one workspace or of all."""
        return [
            record
            for record in self._records.values()
            if (not kind or record.kind == kind)
            and (workspace is None or (record.workspace_id or DEFAULT_WORKSPACE) == workspace)
        ]

    def keys(self) -> set[str]:
        """Return the record keys of all states that differ from their defaults."""
        return set(self._records)

    def _forget(self, key: str) -> None:
        place = key.partition(":")[2]
        self._records.pop(key, None)
        if key.startswith("trust:"):
            self._trust.pop(place, None)
        elif key.startswith("breaker:"):
            self._circuits.pop(place, None)
        self.only_defaults = not self._trust and not self._circuits


def _circuit(record: BreakerUpdated) -> CircuitEntry:
    lease = record.lease
    return CircuitEntry(
        record.state,
        _ms(record.open_until),
        lease.holder if lease is not None else "",
        lease.call_id if lease is not None else "",
        _ms(lease.lease_until) if lease is not None else 0,
        record,
    )


def _ms(text: str | None) -> int:
    return epoch_ms(datetime.fromisoformat(text)) if text else 0
