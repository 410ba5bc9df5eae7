"""The words tests are written in: an agent's session told as calls, texts and turns, and what trustfold decided.

    story = Story()
    story.fails("http_request", {"url": "https://api.example.com/data"}, http_status=503, times=3)
    assert story.decided("trust.changed", key="http_request")["to"] == "escalated"

Everything goes through the wire format: the story writes JSON lines and reads decisions back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from fixed_rules import Rules
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.rule_source import RuleSource

START = datetime(2026, 1, 5, 10, 0, 0, tzinfo=UTC)


class Story:
    """Writes events of one or several sessions and folds them when asked what was decided.

    Time passes two seconds per event and by `after`; ids are numbered, so a story is the same every time.
    """

    def __init__(
        self,
        *,
        session: str = "s1",
        workspace: str = "w1",
        user: str | None = None,
        model: str | None = None,
        rules: Rules | RuleSource | None = None,
    ) -> None:
        self.rules = rules or Rules()
        self.session = session
        self.workspace = workspace
        self.user = user
        self.model = model
        self.now = START
        self.records: list[tuple[str, bytes]] = []
        self._ids = 0
        self._calls = 0
        self._topology: LocalTopology | None = None
        self._folded = 0
        self._outputs: list[StageOutput] = []
        self._may_be_refused = False

    # --- what happens -----------------------------------------------------------------------------------------

    def after(self, seconds: float = 0, *, minutes: float = 0) -> Story:
        """Let time pass."""
        self.now += timedelta(seconds=seconds, minutes=minutes)
        return self

    def event(self, kind: str, *, topic: str = "events", **fields: Any) -> str:
        """Write one event of any type; returns its id."""
        self._ids += 1
        self.now += timedelta(seconds=2)
        body = {
            "schema_version": "1.0",
            "id": str(UUID(int=self._ids)),
            "type": kind,
            "time": self.now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        if topic == "events":
            body["session_id"] = self.session
            body["user_id"] = self.user
            body["model"] = self.model
        body["workspace_id"] = self.workspace
        body.update(fields)
        self.records.append((topic, orjson.dumps({k: v for k, v in body.items() if v is not None})))
        return str(body["id"])

    def moved(self, *, workspace: str | None = None, session: str | None = None, user: str | None = None) -> Story:
        """What follows happens elsewhere: in another workspace, another session, with another user."""
        self.workspace = workspace or self.workspace
        self.session = session or self.session
        self.user = user or self.user
        return self

    def turn(self, *, stalled: bool | None = None) -> Story:
        """A turn begins and ends, and nothing happens in it."""
        self.event("turn.started")
        self.event("turn.ended", stalled=stalled)
        return self

    def started(self, tool: str, args: dict[str, Any] | None = None, *, call: str | None = None, **fields: Any) -> str:
        """A call starts; returns its call id."""
        if call is None:
            self._calls += 1
            call = f"c{self._calls}"
        self.event("tool_call.started", call_id=call, tool_name=tool, args=args or {}, **fields)
        return call

    def finished(self, call: str, tool: str, *, status: str = "success", result: Any = "ok", **fields: Any) -> str:
        """A call finishes; returns the event's id."""
        return self.event(
            "tool_call.finished", call_id=call, tool_name=tool, status=status, result=result, duration_ms=100, **fields
        )

    def works(
        self,
        tool: str,
        args: dict[str, Any] | None = None,
        *,
        result: Any = "ok",
        scenario: str | None = None,
        times: int = 1,
        **fields: Any,
    ) -> Story:
        """A call that succeeds, as often as told."""
        for _ in range(times):
            self.finished(self.started(tool, args, scenario=scenario), tool, result=result, **fields)
        return self

    def fails(
        self,
        tool: str,
        args: dict[str, Any] | None = None,
        *,
        with_: str = "server_error",
        message: str = "it broke",
        http_status: int | None = None,
        status: str = "error",
        scenario: str | None = None,
        times: int = 1,
        **fields: Any,
    ) -> Story:
        """A call that fails: with a severity word, or judged by HTTP status, type and message (`with_=""`)."""
        for _ in range(times):
            error: dict[str, Any] = {"type": "tool_error", "message": message}
            if http_status is not None:
                error["http_status"] = http_status
            elif with_:
                error["severity"] = with_
            call = self.started(tool, args, scenario=scenario)
            self.finished(call, tool, status=status, result=None, error=error, **fields)
        return self

    def says(self, text: str) -> str:
        """The model writes a message."""
        return self.event("model.text", text=text)

    def thinks(self, text: str) -> str:
        """The model reasons, and says it to nobody."""
        return self.event("model.text", text=text, thought=True)

    def turn_starts(self) -> str:
        """The model gets its turn."""
        return self.event("turn.started")

    def turn_ends(self) -> str:
        """The model's turn is over."""
        return self.event("turn.ended")

    def objects(self, output_id: str) -> str:
        """Somebody says that an output was a false alarm."""
        return self.event("feedback.false_alarm", output_id=output_id)

    def user_says(self, words: int | None = None) -> str:
        """The user writes a message, of so many words."""
        return self.event("user.message", words=words)

    def is_woken(self, source: str = "report") -> str:
        """Somebody else than the user speaks to the model: a report, another agent, a timer, a hook, the client."""
        return self.event("input.received", source=source)

    def forgets(self) -> str:
        """The client shortens the model's context."""
        return self.event("context.compacted")

    def command(self, kind: str, key: str, **fields: Any) -> str:
        """An operator gives an order."""
        return self.event(kind, topic="commands", key=key, **fields)

    def quality_command(self, kind: str, tool: str, **fields: Any) -> str:
        """An operator marks or restores a tool."""
        return self.event(kind, topic="commands", tool=tool, **fields)

    def saves(self, scope: str, /, **overrides: Any) -> str:
        """An operator saves what a scope (`user:ID`, `workspace:ID`) overrides, whole."""
        return self.event("settings.changed", topic="settings", scope=scope, overrides=overrides)

    def session_sets(self, **overrides: Any) -> str:
        """The platform replaces what the session overrides."""
        return self.event("session.settings_changed", settings=overrides)

    # --- what was decided -------------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[StageOutput]:
        """Everything written so far, every topic, in order."""
        if self._topology is None:
            self._topology = LocalTopology(self.rules)
        for topic, value in self.records[self._folded :]:
            self._outputs += self._topology.feed(topic, (value,))
        self._folded = len(self.records)
        refused = [output.value for output in self._outputs if output.topic == "dead-letters"]
        assert not refused or self._may_be_refused, refused
        return self._outputs

    def refusals(self) -> list[dict[str, Any]]:
        """Dead letters so far. A story that asks may have some; in any other they are a mistake in the test."""
        self._may_be_refused = True
        return [orjson.loads(output.value or b"{}") for output in self.outputs if output.topic == "dead-letters"]

    def tick(self) -> Story:
        """Time passes without an event: what is due by now falls due."""
        _ = self.outputs
        assert self._topology is not None
        self._outputs += self._topology.tick(int(self.now.timestamp() * 1000))
        return self

    def all(self, type_: str, /, **fields: Any) -> list[dict[str, Any]]:
        """Decisions of a type whose fields are as given, oldest first."""
        found = [orjson.loads(output.value) for output in self.outputs if output.type == type_ and output.value]
        return [one for one in found if all(one.get(name) == value for name, value in fields.items())]

    def decided(self, type_: str, /, **fields: Any) -> dict[str, Any]:
        """The latest decision of a type whose fields are as given; fails when there is none."""
        found = self.all(type_, **fields)
        assert found, f"no {type_} with {fields}; there were: {[(o.type, o.key) for o in self.outputs]}"
        return found[-1]

    def moves(self, key: str) -> list[tuple[str, str]]:
        """Transitions of trust in one key, as (from, to)."""
        return [(one["from"], one["to"]) for one in self.all("trust.changed", key=key)]

    def circuit(self, key: str) -> list[tuple[str, str]]:
        """Transitions of one circuit, as (from, to)."""
        return [(one["from"], one["to"]) for one in self.all("breaker.changed", breaker_key=key)]

    def state_of(self, kind: str, key: str, **fields: Any) -> dict[str, Any] | None:
        """What a follower of `state` knows of a key now; None when it is at its default."""
        latest: dict[str, bytes | None] = {}
        for output in self.outputs:
            if output.topic == "state":
                latest[output.key] = output.value
        known = [orjson.loads(value) for value in latest.values() if value]
        wanted = {"kind": kind, "key": key, **fields}
        return next((one for one in known if all(one.get(name) == value for name, value in wanted.items())), None)

    def patterns(self) -> list[tuple[str, str, int]]:
        """Patterns detected: name, severity, repetitions."""
        return [(one["pattern"], one["severity"], one["repetitions"]) for one in self.all("pattern.detected")]

    def found(self, pattern: str) -> list[tuple[str, int]]:
        """Severity and repetitions of each report of one pattern."""
        return [(severity, count) for name, severity, count in self.patterns() if name == pattern]

    def cleared(self) -> list[str]:
        """Patterns that the model has broken out of."""
        return [one["pattern"] for one in self.all("pattern.cleared")]

    def state(self) -> Any:
        """What is remembered of the session."""
        _ = self.outputs
        assert self._topology is not None
        return self._topology.processors["session"].state(self.session)

    def counted(self) -> dict[str, int]:
        """What the folds have counted beside their outputs since the last question."""
        _ = self.outputs
        assert self._topology is not None
        return dict(self._topology.counted())

    def nudges(self) -> list[tuple[str, str]]:
        """Nudges issued: pattern and type."""
        return [(one["pattern"], one["nudge_type"]) for one in self.all("nudge.issued")]

    def public(self, key: str) -> dict[str, Any] | None:
        """Latest public state of a key of the `state` topic; None when it is back to its default."""
        latest = {output.key: output.value for output in self.outputs if output.topic == "state"}.get(key)
        return orjson.loads(latest) if latest else None
