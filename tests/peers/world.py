"""The subject: the topology that both engines run, fed with records in wire format, in event time; a guard over it.

Nothing here decides anything. Records go in, outputs come out, and the state of the folds can be looked at. A guard
publishes into the same folds, follows what they publish, and lives in their time: what it says about a call is what a
case is compared with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import orjson
from trustfold.guard import ToolGuard
from trustfold.guard.backends.base import DecisionDispatcher
from trustfold.guard.backends.memory import MemoryBackend
from trustfold.guard.publisher import is_event
from trustfold.guard.settings import GuardSettings
from trustfold.guard.state_cache import StateView
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.session.records import ActivePattern
from trustfold.projections.session.session_state import SessionState
from trustfold.projections.tool.tool_state import ToolState, TrustRecord
from trustfold.schemas.codec import encode
from trustfold.schemas.outcomes import US
from trustfold.schemas.vocabulary import TrustState

from ..support.fixed_rules import Rules

START = datetime(2026, 1, 5, 10, 0, 0, tzinfo=UTC)
SEVERITIES = (None, "minor", "moderate", "severe")


class Refused(Exception):
    """trustfold did not take a record of the case."""


class World:
    """One deployment, seen from outside.

    Time stands still but for `pass_time`: cases are exact about it.

    Attributes:
        outputs: everything decided so far, in order.
        refused: the first record of a guard that was not taken; a guard's calls never raise.
        session: whose events are written.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.topology = LocalTopology(rules)
        self.now = START
        self.session = "s1"
        self.workspace = "w1"
        self.user: str | None = None
        self.model: str | None = None
        self.tier: str | None = None
        self.outputs: list[StageOutput] = []
        self.refused: Refused | None = None
        self._ids = 0

    # --- in -----------------------------------------------------------------------------------------------------------

    def event(self, kind: str, *, topic: str = "events", **fields: Any) -> bytes:
        """Write and fold one record; returns it."""
        self._ids += 1
        body: dict[str, Any] = {
            "schema_version": "1.0",
            "id": str(UUID(int=self._ids)),
            "type": kind,
            "time": self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "workspace_id": self.workspace,
        }
        if topic == "events":
            body |= {"session_id": self.session, "user_id": self.user, "model": self.model, "model_tier": self.tier}
        body.update(fields)
        record = orjson.dumps({name: value for name, value in body.items() if value is not None})
        self.repeat(record, topic=topic)
        return record

    def repeat(self, record: bytes, *, topic: str = "events", key: bytes | None = None) -> None:
        self._take(self.topology.feed(topic, (record,), key=key))

    def command(self, kind: str, **fields: Any) -> None:
        self.event(kind, topic="commands", **fields)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; what falls due meanwhile is told, as the engine's ticks do."""
        self.now += timedelta(seconds=seconds)
        self._take(self.topology.tick(self.now_ms))

    def _take(self, outputs: list[StageOutput]) -> None:
        for output in outputs:
            if output.topic == "dead-letters":
                raise Refused(f"trustfold refused a record: {orjson.loads(output.value or b'{}').get('message')}")
        self.outputs += outputs

    # --- out ----------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return round(self.now.timestamp() * 1000)

    def decisions(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Decisions of a type whose fields are as given, oldest first."""
        found = [orjson.loads(output.value) for output in self.outputs if output.type == kind and output.value]
        return [one for one in found if all(one.get(name) == value for name, value in fields.items())]

    def outcomes(self) -> list[dict[str, Any]]:
        """Outcomes of calls as the session stage told them, once per scope."""
        return self.decisions("call.outcome")

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What stands of one kind on the compacted `state` topic."""
        standing: dict[str, dict[str, Any]] = {}
        for output in self.outputs:
            if output.topic == "state":
                standing.pop(output.key, None)
                if output.value is not None:
                    standing[output.key] = orjson.loads(output.value)
        return [one for one in standing.values() if one.get("kind") == kind]

    def session_state(self) -> SessionState:
        """State of the session, empty if it was never heard of."""
        found = self.topology.processors["session"].state(self.session)
        return found if isinstance(found, SessionState) else SessionState()

    def active(self) -> list[ActivePattern]:
        """Patterns the session has not broken out of."""
        return self.session_state().active

    def tool_state(self, scope: str) -> ToolState | None:
        """State of a scope (`tool:NAME`, `service:NAME`, `tier:NAME`), None if it was never heard of."""
        found = self.topology.processors["tool"].state(f"{self.workspace}{US}{scope}")
        return found if isinstance(found, ToolState) else None

    def tool_states(self) -> dict[str, ToolState]:
        """States of the scopes of all calls, by scope."""
        scopes = dict.fromkeys(one["scope"] for one in self.outcomes())
        return {scope: state for scope in scopes if (state := self.tool_state(scope)) is not None}

    def trust_records(self) -> dict[str, TrustRecord]:
        """Trust records of everything heard of, by key; the failure keys, tools and services alike."""
        found: dict[str, TrustRecord] = {}
        for state in self.tool_states().values():
            found |= state.fine
            if state.trust is not None:
                found.setdefault(state.trust.key, state.trust)
        return found

    def scope_trust(self, scope: str) -> TrustState:
        """Trust in a tool or a service as a whole."""
        state = self.tool_state(scope)
        return TrustState.TRUSTED if state is None or state.trust is None else state.trust.state

    # --- a guard ------------------------------------------------------------------------------------------------------

    def guard(self, *, store: Any = None, jitter: float = 1.0, **settings: Any) -> ToolGuard:
        """A guard in this world; a delay before a retry is `jitter` times its bound."""
        shared = {"workspace_id": self.workspace, "user_id": self.user, "send_args": True, "send_errors": True}
        return ToolGuard(
            _WorldBackend(self),
            GuardSettings(**shared, **settings),
            store=store,
            clock=WorldClock(self),
            draw=lambda low, high: low + jitter * (high - low),
        )


class WorldClock:
    """The time of a world; who waits lets it pass."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms

    def monotonic_ms(self) -> float:
        return self._world.now.timestamp() * 1000

    async def sleep(self, ms: float) -> None:
        self._world.pass_time(ms / 1000)
        await asyncio.sleep(0)

    async def wait(self, future: asyncio.Future[Any], ms: float) -> bool:
        """Wait for a future; the world's time is let pass by the case alone."""
        await asyncio.wait({future}, timeout=ms / 1000)
        return future.done()

    def later(self, ms: float, callback: Callable[[], object]) -> None:
        """Set a timer, in real time as well."""
        asyncio.get_running_loop().call_later(ms / 1000, callback)


class _WorldBackend(MemoryBackend):
    """Feeds a world with what a guard publishes, and shows the guard what stands on the `state` topic."""

    def __init__(self, world: World) -> None:
        self.decisions = DecisionDispatcher()
        self._world = world
        self._view = StateView()
        self._read = 0

    @property
    def view(self) -> StateView:
        """The state as of now, whoever has caused it."""
        outputs = self._world.outputs
        for output in outputs[self._read :]:
            if output.topic == "state":
                self._view.apply(output.key, output.value)
        self._read = len(outputs)
        return self._view

    def publish(self, record: msgspec.Struct) -> None:
        try:
            self._world.repeat(encode(record), topic="events" if is_event(record) else "commands")
        except Refused as refused:
            self._world.refused = refused
