"""Stages of the engine's own tests: they count, so that a lost or doubled record shows as a wrong number.

`session` counts events per session key, tells `outcomes` about each, and every tenth time `nudges`. `tool` counts the
outcomes and the commands of each tool key, and every hundredth time tells `breakers`. Outcomes carry where they came
from, and a tool's state keeps the newest origin of each source partition: repeats after a crash are dropped exactly.
An event with a `deadline` (milliseconds) falls due: the processor appends a `late` event that counts once.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
import orjson
from trustfold.projections.emitter import StageOutput
from trustfold.streams.kafka.stages import KafkaTopology


class Event(msgspec.Struct, gc=False):
    """What the session stage reads."""

    id: str
    session: str
    tool: str
    time: int
    deadline: int = 0
    late: bool = False


class Outcome(msgspec.Struct, gc=False):
    """What the tool stage reads from `outcomes`; from `commands` only `tool` counts."""

    tool: str
    origin: tuple[int, int] = (-1, -1)


class State(msgspec.Struct, array_like=True):
    """State of one key: positions by source, the count, and what protects it from repeats."""

    positions: list[int] = msgspec.field(default_factory=lambda: [-1, -1])
    count: int = 0
    clock: int = 0
    due: int = 0
    late: int = 0
    origins: dict[int, int] = {}
    ids: list[str] = []


class Stage(NamedTuple):
    """Name and sources."""

    name: str
    sources: tuple[str, ...]


SPIN = "spin"
"""Tool whose events never end to be folded."""

SLOW_S = int(os.environ.get("COUNTING_SLOW_US", "0")) / 1e6
"""Time each record waits; gives a test a run long enough to strike in its middle."""

STAGES = (Stage("session", ("events",)), Stage("tool", ("outcomes", "commands")))
EVENT, OUTCOME = msgspec.json.Decoder(Event), msgspec.json.Decoder(Outcome)
ENCODE, STATE = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(State)


class CountingProcessor:
    """One stage over one partition."""

    def __init__(self, stage: Stage, partition: int, load: Callable[[bytes], bytes | None]) -> None:
        self.stage, self.partition, self._load = stage, partition, load
        self.stream_time = 0
        self.live: dict[bytes, State] = {}
        self.dirty: dict[bytes, State] = {}
        self.deadlines: dict[bytes, int] = {}

    def process(self, topic: str, records: Iterable[Any]) -> list[StageOutput]:
        """Count records; what cannot be read becomes a dead letter."""
        out: list[StageOutput] = []
        fold = self._session if self.stage.name == "session" else self._tool
        slot = self.stage.sources.index(topic)
        for record in records:
            if SLOW_S:
                time.sleep(SLOW_S)
            try:
                fold(topic, slot, record, out)
            except (msgspec.MsgspecError, TypeError) as error:
                place = f"{topic}/{self.partition}/{record.offset}"
                body = orjson.dumps({"place": place, "message": str(error)})
                key = (record.key or b"").decode(errors="replace")
                out.append(StageOutput("dead-letters", key, body, place, "dead_letter", max(record.timestamp, 0)))
        return out

    def _state(self, key: bytes) -> State:
        state = self.live.get(key)
        if state is None:
            stored = self._load(key)
            state = self.live[key] = STATE.decode(stored) if stored is not None else State()
        return state

    def _session(self, topic: str, slot: int, record: Any, out: list[StageOutput]) -> None:
        event = EVENT.decode(record.value)
        if event.tool == SPIN:
            re.fullmatch(r"(?:a|a)+b", "a" * 60)  # holds the interpreter for years
        key = event.session.encode()
        state = self._state(key)
        if record.offset <= state.positions[slot]:
            return
        state.positions[slot] = record.offset
        self.dirty[key] = state
        state.clock = max(state.clock, event.time)
        self.stream_time = max(self.stream_time, event.time)
        if event.late:
            if event.id not in state.ids:
                state.ids.append(event.id)
                state.late += 1
                out.append(StageOutput("nudges", event.session, b'{"late":true}', event.id, "late", event.time))
            return
        if event.deadline:
            state.due = self.deadlines[key] = event.deadline
        state.count += 1
        value = orjson.dumps({"tool": event.tool, "origin": (self.partition, record.offset)})
        out.append(StageOutput("outcomes", event.tool, value, f"o-{event.id}", "outcome", event.time))
        if not state.count % 10:
            made = f"{event.session}-{state.count}"
            body = orjson.dumps({"id": made, "count": state.count})
            out.append(StageOutput("nudges", event.session, body, made, "nudge", event.time))

    def _tool(self, topic: str, slot: int, record: Any, out: list[StageOutput]) -> None:
        outcome = OUTCOME.decode(record.value)
        key = outcome.tool.encode()
        state = self._state(key)
        if record.offset <= state.positions[slot]:
            return
        state.positions[slot] = record.offset
        self.dirty[key] = state
        source, origin = outcome.origin
        if topic == "outcomes":
            if origin <= state.origins.get(source, -1):
                return
            state.origins[source] = origin
        state.count += 1
        if not state.count % 100:
            made = f"{outcome.tool}-{state.count}"
            body = orjson.dumps({"id": made, "count": state.count})
            out.append(StageOutput("breakers", outcome.tool, body, made, "breaker", 0))

    def adopt(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Learn event time and deadlines of stored states."""
        for key, stored in items:
            state = STATE.decode(stored)
            self.stream_time = max(self.stream_time, state.clock)
            if state.due and not state.late:
                self.deadlines[key] = state.due

    def next_due(self) -> int | None:
        """The earliest deadline."""
        return min(self.deadlines.values(), default=None)

    def due(self, now: int) -> list[StageOutput]:
        """A `late` event for every deadline that has passed, once."""
        found = {key: at for key, at in self.deadlines.items() if at <= now}
        out = []
        for key, at in found.items():
            del self.deadlines[key]
            made, name = f"late-{key.decode()}-{at}", key.decode()
            body = orjson.dumps({"id": made, "session": name, "tool": "", "time": at, "late": True})
            out.append(StageOutput("events", name, body, made, "late", at, own_partition=True))
        return out

    def counted(self) -> dict[str, int]:
        """Nothing is counted apart."""
        return {}

    def snapshot(self, now: int = 0) -> list[tuple[bytes, bytes | None]]:
        """States touched since the last call."""
        taken: list[tuple[bytes, bytes | None]] = [(key, ENCODE(state)) for key, state in self.dirty.items()]
        self.dirty.clear()
        return taken

    def forget_clean(self, keep: int) -> None:
        """Drop decoded states that are stored."""
        excess = len(self.live) - keep
        if excess > 0:
            for key in [key for key in self.live if key not in self.dirty][:excess]:
                del self.live[key]


def make_processor(stage: Stage, partition: int, _rules: object, load: Callable[[bytes], bytes | None]) -> Any:
    """As `projections.processor.StageProcessor`."""
    return CountingProcessor(stage, partition, load)


TOPOLOGY = KafkaTopology(STAGES, make_processor)
