"""Rules as data: every threshold of the folds, with unit and default.

All rules can be loaded from TOML or JSON; an older `reliability.json` loads unchanged. A layer (tool, domain, service,
plugin, default) sets only some fields; `UNSET` inherits from the next layer, an explicit null disables a threshold
(docs/design/semantics.md#trust).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .behaviour import BehaviourRules, NudgeRules, PrerequisitePolicy, SeverityLadder, ToolPattern
from .calls import CallRules, DangerRules, ToolRules
from .circuits import MUTATING_POLICY, READ_ONLY_POLICY, RECURSIVE_POLICY, TOOL_POLICY, BreakerPolicy, BreakerRules
from .merging import Ratio, RulesBase, Score, Seconds
from .quality import QUALITY_BY_CAUSE, ModelRules, QualityRules, RegisteredTool
from .trust import DEFAULT_FILTER, PROGRAM_RULE, SERVICE_RULE, EscalationPatch, EscalationRule, FleetRules, TrustRules

__all__ = [
    "DEFAULT_FILTER",
    "MUTATING_POLICY",
    "PROGRAM_RULE",
    "QUALITY_BY_CAUSE",
    "READ_ONLY_POLICY",
    "RECURSIVE_POLICY",
    "SERVICE_RULE",
    "TOOL_POLICY",
    "BehaviourRules",
    "BreakerPolicy",
    "BreakerRules",
    "CallRules",
    "ConfidenceRules",
    "DangerRules",
    "EscalationPatch",
    "EscalationRule",
    "FleetRules",
    "GuaranteeRules",
    "IdleRules",
    "ModelRules",
    "NudgeRules",
    "PrerequisitePolicy",
    "QualityRules",
    "RegisteredTool",
    "RuleSet",
    "RulesBase",
    "SeverityLadder",
    "ToolPattern",
    "ToolRules",
    "TrustRules",
]

Hours = Annotated[float, Meta(gt=0, le=87_600)]


class IdleRules(RulesBase, kw_only=True, frozen=True):
    """Hours without a record after which a state ends; the key's next record starts a new one.

    Attributes:
        session_idle_hours: for sessions, by the arrival of their events. Open calls prevent it.
        key_idle_hours: for tools, services and model tiers in a workspace, by the times of their calls and commands.
            States that are not trusted, not closed, ordered by an operator, or reported to the fleet are kept, also
            lowered quality and declined calls. Longer than every window and every outage of a worker.
        fleet_idle_hours: for a user's tool over all workspaces, and for a model's profile. Kept while the tool is
            escalated or some workspace does not trust it.
    """

    session_idle_hours: Hours = 72.0
    key_idle_hours: Hours = 2160.0
    fleet_idle_hours: Hours = 2160.0


class GuaranteeRules(RulesBase, kw_only=True, frozen=True):
    """Hard limits of an execution (docs/design/semantics.md#guarantees).

    Attributes:
        sessions: sessions whose limits are checked: `recursive` (from their first recursive call on, and those with
            given limits), `all` (from the first call on) or `off`.
        max_cost_usd: US dollars.
        max_duration_seconds: seconds.
        max_recursive_calls: number of recursive calls; the last one is still allowed.
        warn_at: share of a limit at which a warning is published.
    """

    sessions: Annotated[str, Meta(pattern="^(recursive|all|off)$")] = "recursive"
    max_cost_usd: Annotated[float, Meta(ge=0, le=1_000_000_000)] = 1.0
    max_duration_seconds: Seconds = 300.0
    max_recursive_calls: Annotated[int, Meta(ge=0, le=1_000_000)] = 20
    warn_at: Ratio = 0.8


class ConfidenceRules(RulesBase, kw_only=True, frozen=True):
    """Rules of flagging recursive results for review (docs/design/semantics.md#confidence).

    Attributes:
        low: results below this confidence are flagged.
        consensus: confidence from which a result takes part in a consensus.
    """

    low: Score = 0.3
    consensus: Score = 0.5


class RuleSet(RulesBase, kw_only=True, frozen=True):
    """All rules of the folds; the same rules and events give the same decisions.

    `policies` are prerequisites by name; reports contain the name. `enabled` is the kill switch: if it is false,
    records are read and not folded (docs/design/guard.md#switches).
    """

    enabled: bool = True
    trust: TrustRules = TrustRules()
    breakers: BreakerRules = BreakerRules()
    behaviour: BehaviourRules = BehaviourRules()
    nudges: NudgeRules = NudgeRules()
    tools: ToolRules = ToolRules()
    calls: CallRules = CallRules()
    models: ModelRules = ModelRules()
    quality: QualityRules = QualityRules()
    guarantees: GuaranteeRules = GuaranteeRules()
    confidence: ConfidenceRules = ConfidenceRules()
    policies: dict[str, PrerequisitePolicy] = {}
    fleet: FleetRules = FleetRules()
    idle: IdleRules = IdleRules()
