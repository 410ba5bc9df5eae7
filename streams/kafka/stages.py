"""Stages that the Kafka engine runs, and the factory of their processors; its own tests run it with other stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ...projections.processor import StageProcessor
    from ...projections.stage import TopologyStage

Load = Callable[[bytes], bytes | None]  # Returns the stored snapshot of a state key, or None


class KafkaTopology(NamedTuple):
    """Stages to run, and the factory of their processors."""

    stages: Sequence[TopologyStage[Any]]  # in the order of the flow
    # called as `make_processor(stage, partition, rules, load)`
    make_processor: Callable[[Any, int, Any, Load], StageProcessor]

    @property
    def sources(self) -> dict[str, TopologyStage[Any]]:
        """Return the stage of each source topic, by catalogue name."""
        found: dict[str, TopologyStage[Any]] = {}
        for stage in self.stages:
            for topic in stage.sources:
                if topic in found:
                    raise ValueError(f"stages {found[topic].name} and {stage.name} both read {topic}")
                found[topic] = stage
        return found


def default_topology() -> KafkaTopology:
    """Return trustfold's own topology, imported at the first call."""
    from ...projections import processor, topology  # noqa: PLC0415 - the engine's own tests run without it

    return KafkaTopology(topology.STAGES, processor.StageProcessor)
