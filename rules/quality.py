"""Rules of models and tool quality (docs/design/semantics.md#models)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..schemas.vocabulary import FailureSeverity, ModelSwitchStrategy, QualitySeverity
from .merging import Count, Ratio, RulesBase, Score, Seconds, Threshold


class ModelRules(RulesBase, kw_only=True, frozen=True):
    """Rules of model suggestions (docs/design/semantics.md#models).

    Attributes:
        strategy: `suggest`, `auto` (the platform should switch automatically) or `disabled`.
        min_failures: failures on the key that the current model caused itself, before another one is suggested.
        min_difference: smallest difference of the success rates.
        preferred_models: order of preference among models with equal results.
    """

    strategy: ModelSwitchStrategy = ModelSwitchStrategy.SUGGEST
    min_failures: Count = 3
    min_difference: Ratio = 0.3
    preferred_models: tuple[str, ...] = ()


QUALITY_BY_CAUSE = {
    FailureSeverity.SERVER_ERROR: QualitySeverity.LOW,
    FailureSeverity.NOT_FOUND: QualitySeverity.LOW,
    FailureSeverity.INVALID_INPUT: QualitySeverity.LOW,
    FailureSeverity.VALIDATION: QualitySeverity.MEDIUM,
    FailureSeverity.CRASH: QualitySeverity.HIGH,
    FailureSeverity.CORRUPTION: QualitySeverity.HIGH,
}
"""Cost of a failed call by severity; missing severities cost nothing: the tool was unavailable or not at fault."""


class RegisteredTool(RulesBase, kw_only=True, frozen=True):
    """Expected quality and purpose of a tool.

    Attributes:
        score: initial quality, which it recovers to, 0 to 1.
        description: purpose in words; compared with scenarios.
    """

    score: Score = 0.90
    description: str = ""


class QualityRules(RulesBase, kw_only=True, frozen=True):
    """Rules of tool quality (docs/design/semantics.md#tool-quality).

    Attributes:
        registered_score: initial score of tools that are not in `tools`.
        tools: registered tools by name.
        low: cost of a failure marked `low`, 0 to 1.
        medium: cost of a failure marked `medium`, 0 to 1.
        high: cost of a failure marked `high`, 0 to 1.
        fifth: additional cost from the fifth failure on.
        tenth: additional cost from the tenth failure on, replacing `fifth`.
        earned: gain of a success, up to the registered score.
        by_cause: severity of a failed call → its cost; missing or disabled severities cost nothing.
        tag_after: number of capability failures in scenarios with a word that tag the tool `not-for-WORD`.
        tag_days: days after the last such failure until the tag expires.
        similar: similarity from which a past failure affects a scenario.
        demotion: reduction of the similarity of a tool right after its failure in such a scenario.
        half_life_days: half-life of that reduction in days.
        unavailable_after: number of latest consecutive calls that timed out or did not reach the tool, after which it
            ranks behind others.
        unavailable_seconds: seconds after the last of them until it ranks normally again, or until a call succeeds.
    """

    registered_score: Score = 0.90
    tools: dict[str, RegisteredTool] = {}
    low: Score = 0.01
    medium: Score = 0.05
    high: Score = 0.10
    fifth: Score = 0.05
    tenth: Score = 0.10
    earned: Score = 0.01
    by_cause: dict[FailureSeverity, QualitySeverity | None] = msgspec.field(
        default_factory=lambda: {**QUALITY_BY_CAUSE}
    )
    tag_after: Count = 2
    tag_days: Annotated[float, Meta(gt=0, le=3650)] = 30
    similar: Score = 0.75
    demotion: Score = 0.3
    half_life_days: Annotated[float, Meta(gt=0, le=3650)] = 30
    unavailable_after: Threshold = 2
    unavailable_seconds: Seconds = 300

    def registered(self, tool: str) -> float:
        """Return the score that a tool is registered with."""
        found = self.tools.get(tool)
        return found.score if found is not None else self.registered_score
