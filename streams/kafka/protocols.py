"""Interfaces of the topology that the Kafka engine runs.

The engine uses stages and processors only through these interfaces, so its own tests run it with other stages.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ...projections.emitter import Output
from ...projections.stage import SourceRecord


class Processor(Protocol):
    """Processor of one stage over one partition; see `projections.processor.StageProcessor`."""

    stream_time: int

    def process(self, topic: str, records: Iterable[SourceRecord]) -> Sequence[Output]:
        """Fold records of one source topic, in order; returns outputs."""

    def adopt(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore stream time and deadlines of stored states."""

    def next_due(self) -> int | None:
        """Return the earliest deadline, milliseconds."""

    def due(self, now: int) -> Sequence[Output]:
        """Return the events to append for all deadlines at or before `now`."""

    def counted(self) -> Mapping[str, int]:
        """Return the counters of the folds since the last call, by name."""

    def snapshot(self, now: int) -> list[tuple[bytes, bytes | None]]:
        """Encoded states touched since the last call; None for those dropped because they are idle at `now` (ms)."""

    def forget_clean(self, keep: int) -> None:
        """Drop decoded states without unsaved change beyond `keep`."""


class StageSpec(Protocol):
    """Attributes of a stage that the engine uses."""

    @property
    def name(self) -> str:
        """Name of the stage and its state table."""

    @property
    def sources(self) -> Collection[str]:
        """Catalogue names of the topics it reads."""


Load = Callable[[bytes], bytes | None]
"""Returns the stored snapshot of a state key, or None."""


class Topology(NamedTuple):
    """Stages to run, and the factory of their processors.

    Attributes:
        stages: in the order of the flow.
        make_processor: called as `make_processor(stage, partition, rules, load)`.
    """

    stages: Sequence[StageSpec]
    make_processor: Callable[[Any, int, Any, Load], Processor]

    @property
    def sources(self) -> dict[str, StageSpec]:
        """Return the stage of each source topic, by catalogue name.

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
    """Return trustfold's own topology, imported at the first call."""
    from ...projections import processor, topology  # noqa: PLC0415 - the engine's own tests run without it

    return Topology(topology.STAGES, processor.StageProcessor)
