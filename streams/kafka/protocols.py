"""What the Kafka engine needs of the topology it runs.

The engine knows stages and processors only through these shapes, so its own tests run it with stages of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...projections.emitter import Output
from ...projections.stage import SourceRecord


class Processor(Protocol):
    """One stage over one partition; see `projections.processor.StageProcessor`."""

    stream_time: int

    def process(self, topic: str, records: Iterable[SourceRecord]) -> Sequence[Output]:
        """Fold records of one source topic, in order; returns outputs."""

    def adopt(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Learn stream time and due times of stored states."""

    def next_due(self) -> int | None:
        """Earliest time at which something falls due, milliseconds."""

    def due(self, now: int) -> Sequence[Output]:
        """Events to append for all that is due at or before `now`."""

    def counted(self) -> Mapping[str, int]:
        """What the folds have counted since the last call, by name."""

    def snapshot(self, now: int) -> list[tuple[bytes, bytes | None]]:
        """Encoded states touched since the last call; None for those dropped because they are idle at `now` (ms)."""

    def forget_clean(self, keep: int) -> None:
        """Drop decoded states without unsaved change beyond `keep`."""


class StageSpec(Protocol):
    """The part of a stage the engine reads."""

    @property
    def name(self) -> str:
        """Names the state table."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Catalogue names of the topics it reads."""


Load = Callable[[bytes], bytes | None]
"""Gives the stored snapshot of a state key, or None."""


class Topology(NamedTuple):
    """The stages to run and how to make a processor of one of them.

    Attributes:
        stages: in the order of the flow.
        make_processor: called as `make_processor(stage, partition, rules, load)`.
    """

    stages: Sequence[StageSpec]
    make_processor: Callable[[Any, int, Any, Load], Processor]

    @property
    def sources(self) -> dict[str, StageSpec]:
        """Stage of each source topic, by catalogue name.

        Raises:
            ValueError: two stages read the same topic; one consumer group can deliver a record only once.
        """
        found: dict[str, StageSpec] = {}
        for stage in self.stages:
            for topic in stage.sources:
                if topic in found:
                    raise ValueError(f"stages {found[topic].name} and {stage.name} both read {topic}")
                found[topic] = stage
        return found


def default_topology() -> Topology:
    """The topology of trustfold itself, imported when it is first wanted."""
    from ...projections import topology  # noqa: PLC0415 - the engine's own tests run without it

    return Topology(topology.STAGES, topology.make_processor)
