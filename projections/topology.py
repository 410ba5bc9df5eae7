"""List of stages with their sources, for both engines."""

from __future__ import annotations

from typing import Any

from .fleet.fleet_stage import FleetStage
from .session.session_stage import SessionStage
from .stage import TopologyStage
from .tool.tool_stage import ToolStage

# Stages in the order of the flow: a later stage reads what an earlier one writes
STAGES: tuple[TopologyStage[Any], ...] = (SessionStage(), ToolStage(), FleetStage())

# Topics whose records are decisions for consumers; `state` repeats them as the latest state per key
DECISION_TOPICS = ("escalations", "breakers", "nudges", "suggestions")

STAGE_OF_TOPIC: dict[str, TopologyStage[Any]] = {topic: stage for stage in STAGES for topic in stage.sources}
