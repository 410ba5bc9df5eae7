"""The subject: the topology that both engines run, fed with records in wire format, in event time.

Nothing here decides anything. Records go in, outputs come out, and the state of the folds can be looked at.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from trustfold.projections.emitter import Output
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.session.records import ActivePattern
from trustfold.projections.session.state import SessionState
from trustfold.projections.tool.state import ToolState, TrustRecord
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
        session: whose events are written.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        """Start with nothing seen."""
        self.rules = rules or Rules()
        self.topology = LocalTopology(self.rules)
        self.now = START
        self.session = "s1"
        self.workspace = "w1"
        self.user: str | None = None
        self.model: str | None = None
        self.tier: str | None = None
        self.outputs: list[Output] = []
        self._ids = 0

    # --- in ---------------------------------------------------------------------------------------------------------

    def event(self, kind: str, *, topic: str = "events", **fields: Any) -> bytes:
        """Write and fold one record; returns it."""
        self._ids += 1
        body: dict[str, Any] = {
            "schema_version": "1.0",
            "id": str(UUID(int=self._ids)),
            "type": kind,
            "time": self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        if topic == "events":
            body |= {"session_id": self.session, "user_id": self.user, "model": self.model, "model_tier": self.tier}
        if topic != "settings":
            body["workspace_id"] = self.workspace
        body.update(fields)
        record = orjson.dumps({name: value for name, value in body.items() if value is not None})
        self.repeat(record, topic=topic)
        return record

    def repeat(self, record: bytes, *, topic: str = "events", key: bytes | None = None) -> None:
        """Fold a record as it stands."""
        self._take(self.topology.feed(topic, (record,), key=key))

    def command(self, kind: str, **fields: Any) -> None:
        """An operator gives an order."""
        self.event(kind, topic="commands", **fields)

    def pass_time(self, seconds: float) -> None:
        """Let time pass; what falls due meanwhile is told, as the engine's ticks do."""
        self.now += timedelta(seconds=seconds)
        self._take(self.topology.tick(self.now_ms))

    def _take(self, outputs: list[Output]) -> None:
        letters = [output for output in outputs if output.topic == "dead-letters"]
        if letters:
            raise Refused(f"trustfold refused a record: {orjson.loads(letters[0].value or b'{}').get('message')}")
        self.outputs += outputs

    # --- out --------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time, in milliseconds."""
        return round(self.now.timestamp() * 1000)

    def decisions(self, kind: str, **fields: Any) -> list[dict[str, Any]]:
        """Decisions of a type whose fields are as given, oldest first."""
        found = [orjson.loads(output.value) for output in self.outputs if output.type == kind and output.value]
        return [one for one in found if all(one.get(name) == value for name, value in fields.items())]

    def outcomes(self) -> list[dict[str, Any]]:
        """Outcomes of calls as the session stage told them, once per scope."""
        return [
            orjson.loads(output.value)
            for output in self.outputs
            if output.topic == "outcomes" and output.type == "call.outcome" and output.value
        ]

    def outcome(self) -> dict[str, Any]:
        """The last of them; empty where there is none."""
        return next(reversed(self.outcomes()), {})

    def published(self) -> dict[str, dict[str, Any]]:
        """What stands on the compacted `state` topic, by key."""
        standing: dict[str, dict[str, Any]] = {}
        for output in self.outputs:
            if output.topic == "state":
                standing.pop(output.key, None)
                if output.value is not None:
                    standing[output.key] = orjson.loads(output.value)
        return standing

    def told(self, kind: str) -> list[dict[str, Any]]:
        """What stands there of one kind."""
        return [one for one in self.published().values() if one.get("kind") == kind]

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

    def trust_records(self) -> dict[str, TrustRecord]:
        """Trust records of everything heard of, by key; the failure keys, tools and services alike."""
        found: dict[str, TrustRecord] = {}
        for scope in dict.fromkeys(one["scope"] for one in self.outcomes()):
            state = self.tool_state(scope)
            if state is not None:
                found |= state.fine
                if state.trust is not None:
                    found.setdefault(state.trust.key, state.trust)
        return found

    def scope_state(self, scope: str) -> TrustState:
        """Trust in a tool or a service as a whole."""
        state = self.tool_state(scope)
        return TrustState.TRUSTED if state is None or state.trust is None else state.trust.state
