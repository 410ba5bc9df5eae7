"""Output records of a fold, and their ids.

Ids are a digest of (cause, output type, ordinal): folding the same input again gives byte-identical outputs, so
consumers can drop repeated ones (docs/design/contracts.md#output-events).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypedDict

import msgspec

from ..schemas.codec import encode, rfc3339
from ..schemas.envelope import output_id
from ..schemas.outcomes import US
from ..schemas.public_state import DecisionBase
from .output_redaction import holds_secret, key_without_secrets, without_secrets

SCHEMA_VERSION = "1.0"
EVENTS = "events"  # Topic of the publishers' events; records appended to it name calls and sessions as their events do
MAX_CAUSES = 20  # Largest number of cause ids on one output, newest last (docs/design/contracts.md#output-events)


class StageOutput(NamedTuple):
    """Record that a stage writes."""

    topic: str  # catalogue name, e.g. `nudges`; may be a source topic (an appended event).
    key: str
    value: bytes | None  # JSON bytes; None is a tombstone
    id: str  # deterministic output id; empty for tombstones
    type: str  # wire type, e.g. `nudge.issued`.
    time_ms: int  # time of the output, milliseconds
    traceparent: str | None = None  # W3C trace context of the causing input event
    own_partition: bool = False  # write to the processor's partition, regardless of the key's hash


def is_record_of_call(output: StageOutput) -> bool:
    """Whether an output is the record of a call, or of a report; those of its other scopes are not."""
    return output.type == "call.outcome" and output.key.partition(US)[2].startswith("tool:")


class DecisionEnvelope(TypedDict):
    """Fields common to all decisions."""

    schema_version: str
    id: str
    time: str


def time_or_none(ms: int) -> str | None:
    """Time of a decision on the wire; 0 is none."""
    return rfc3339(ms) if ms else None


@cache
def _type_of(record: type[msgspec.Struct]) -> str:
    """Return the wire type of a record."""
    return str(record.__struct_config__.tag)


class OutputEmitter:
    """Collects the outputs of consecutive input events; ordinals restart with each cause."""

    __slots__ = (
        "_ordinals",
        "at",
        "cause",
        "correlation_id",
        "counts",
        "late",
        "origin",
        "origin_partition",
        "origin_topic",
        "outputs",
        "traceparent",
    )

    def __init__(self) -> None:
        """Create an emitter without outputs."""
        self.outputs: list[StageOutput] = []
        self.counts: dict[str, int] = {}
        # whether the event comes long after a younger one of its key; a fold that knows it for new counts it
        self.late = False
        self.origin_topic = ""
        self.origin_partition = 0
        self.origin = 0
        self._ordinals: dict[str, int] = {}
        self.begin("", 0)

    def begin(self, cause: str, at: int, traceparent: str | None = None) -> None:
        """Set the cause and the time (milliseconds) of all following outputs."""
        self.cause = cause
        self.at = at
        self.traceparent = traceparent
        self.correlation_id: str | None = None
        if self._ordinals:
            self._ordinals = {}

    def count(self, what: str) -> None:
        """Increase a counter for monitoring; affects neither outputs nor states."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def next_origin(self) -> int:
        """Return the origin of the next record to another stage: current offset and an increasing ordinal."""
        self.origin += 1
        return self.origin

    def next_id(self, output_type: str) -> str:
        """Return the id of the next output of this type of the current cause."""
        ordinal = self._ordinals.get(output_type, 0)
        self._ordinals[output_type] = ordinal + 1
        return output_id(self.cause, output_type, ordinal)

    def decision(self, topic: str, record_key: str, decision_type: type[DecisionBase], /, **fields: Any) -> str:
        """Emit a decision; the envelope's id, time and version are filled in. Return its id."""
        return self.write(topic, record_key, decision_type(**self.envelope(decision_type), **fields))

    def envelope(self, decision_type: type[DecisionBase]) -> DecisionEnvelope:
        """Return id, time and version of the next decision of a type."""
        made = self.next_id(_type_of(decision_type))
        return {"schema_version": SCHEMA_VERSION, "id": made, "time": rfc3339(self.at)}

    def write(self, topic: str, record_key: str, decision: DecisionBase) -> str:
        """Emit a decision created with its `envelope`. Return its id."""
        self.record(topic, record_key, decision, decision.id)
        return decision.id

    def record(
        self, topic: str, key: str, value: msgspec.Struct, record_id: str, *, own_partition: bool = False
    ) -> None:
        """Emit a ready-made record (an outcome, an appended event)."""
        if topic != EVENTS and holds_secret(value):
            key = key_without_secrets(key)
            raw, record_id = without_secrets(value)
        else:
            raw = encode(value)
        self.outputs.append(
            StageOutput(topic, key, raw, record_id, _type_of(type(value)), self.at, self.traceparent, own_partition)
        )

    def tombstone(self, topic: str, key: str) -> None:
        """Emit a record without a value: the key has its default state again."""
        self.outputs.append(StageOutput(topic, key_without_secrets(key), None, "", "", self.at))
