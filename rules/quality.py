"""How good models and tools are found to be (docs/design/semantics.md#models)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..schemas.vocabulary import ModelSwitchStrategy, QualitySeverity, Severity
from .fields import Count, Ratio, RulesBase, Score, Seconds, Threshold


class ModelRules(RulesBase, kw_only=True, frozen=True):
    """When another model is suggested for a tool (docs/design/semantics.md#models).

    Attributes:
        strategy: `suggest`, `auto` (the platform should switch by itself) or `disabled`.
        min_failures: failures of the current model's own making on the key before anything is suggested.
        min_difference: least difference of the success rates.
        preferred_models: of models that cannot be told apart, the first named here is suggested.
    """

    strategy: ModelSwitchStrategy = ModelSwitchStrategy.SUGGEST
    min_failures: Count = 3
    min_difference: Ratio = 0.3
    preferred_models: tuple[str, ...] = ()


QUALITY_BY_CAUSE = {
    Severity.SERVER_ERROR: QualitySeverity.LOW,
    Severity.NOT_FOUND: QualitySeverity.LOW,
    Severity.INVALID_INPUT: QualitySeverity.LOW,
    Severity.VALIDATION: QualitySeverity.MEDIUM,
    Severity.CRASH: QualitySeverity.HIGH,
    Severity.CORRUPTION: QualitySeverity.HIGH,
}
"""What a failed call costs; a severity that is missing here costs nothing: the tool was not there, or not to blame."""


class RegisteredTool(RulesBase, kw_only=True, frozen=True):
    """What a tool is expected to be.

    Attributes:
        score: quality it starts with and earns its way back to.
        description: what it is for, in words; scenarios are compared with it.
    """

    score: Score = 0.90
    description: str = ""


class QualityRules(RulesBase, kw_only=True, frozen=True):
    """How well a tool does what it is for (docs/design/semantics.md#tool-quality).

    Attributes:
        registered_score: score of tools that `tools` does not name.
        tools: registered tools by name.
        low: cost of a failure of this severity; 0 to 1, as all scores here.
        medium: the same.
        high: the same.
        fifth: added to the cost from the fifth failure on.
        tenth: added instead from the tenth on.
        earned: what a success gives back, up to the registered score.
        by_cause: severity of a failed call → what it costs; a severity that is not named, or off, costs nothing.
        tag_after: capability failures at scenarios with a word that tag the tool `not-for-WORD`.
        tag_days: days after the last such failure on which the tag expires.
        similar: similarity from which a past failure counts against a scenario.
        demotion: taken off the similarity of a tool that failed at such a scenario just now.
        half_life_days: days after which that is half as much.
        unavailable_after: latest calls in a row that timed out or did not reach the tool, after which it ranks behind
            others.
        unavailable_seconds: seconds after the last of them up to which it does, unless a call succeeds.
    """

    registered_score: Score = 0.90
    tools: dict[str, RegisteredTool] = {}
    low: Score = 0.01
    medium: Score = 0.05
    high: Score = 0.10
    fifth: Score = 0.05
    tenth: Score = 0.10
    earned: Score = 0.01
    by_cause: dict[Severity, QualitySeverity | None] = msgspec.field(default_factory=lambda: {**QUALITY_BY_CAUSE})
    tag_after: Count = 2
    tag_days: Annotated[float, Meta(gt=0, le=3650)] = 30
    similar: Score = 0.75
    demotion: Score = 0.3
    half_life_days: Annotated[float, Meta(gt=0, le=3650)] = 30
    unavailable_after: Threshold = 2
    unavailable_seconds: Seconds = 300
