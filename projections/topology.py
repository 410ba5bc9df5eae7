"""List of stages with their sources, for both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..rules.rules import Rules
from .fleet.stage import FleetStage
from .processor import StageProcessor
from .rule_source import RuleSource
from .session.stage import SessionStage
from .stage import Stage
from .tool.stage import ToolStage

STAGES: tuple[Stage[Any], ...] = (SessionStage(), ToolStage(), FleetStage())
"""Stages in the order of the flow: a later stage reads what an earlier one writes."""

DECISION_TOPICS = ("escalations", "breakers", "nudges", "suggestions")
"""Topics whose records are decisions for consumers; `state` repeats them as the latest state per key."""

STAGE_OF_TOPIC: dict[str, Stage[Any]] = {topic: stage for stage in STAGES for topic in stage.sources}


def make_processor(
    stage: Stage[Any],
    partition: int,
    rules: Rules | RuleSource,
    load: Callable[[bytes], bytes | None] = lambda _key: None,
) -> StageProcessor:
    """Create a processor for one stage and partition; `load` returns the stored snapshot of a key.

    Processors that share a source share the scope overrides.
    """
    return StageProcessor(stage, partition=partition, rules=rules, load=load)
