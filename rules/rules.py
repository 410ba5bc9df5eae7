"""Rules as data: every threshold the folds read, with unit, default and where it comes from.

All of it can be loaded from TOML or JSON; the seed's JSON examples load unchanged. A layer (tool, domain,
service, plugin, default) sets only the fields it names; `UNSET` means "ask the next layer", while an
explicit null switches a threshold off (design 3, Trust).
"""

from __future__ import annotations

from .behaviour import BehaviourRules, Ladder, NudgeRules, Policy, ToolPattern
from .calls import CallRules, ToolRules
from .circuits import MUTATING_POLICY, READ_ONLY_POLICY, RECURSIVE_POLICY, TOOL_POLICY, BreakerPolicy, BreakerRules
from .fields import RulesBase
from .idle import IdleRules
from .limits import ConfidenceRules, GuaranteeRules
from .quality import QUALITY_BY_CAUSE, ModelRules, QualityRules, RegisteredTool
from .trust import DEFAULT_FILTER, SERVICE_RULE, EscalationPatch, EscalationRule, FleetRules, TrustRules

__all__ = [
    "DEFAULT_FILTER",
    "MUTATING_POLICY",
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
    "EscalationPatch",
    "EscalationRule",
    "FleetRules",
    "GuaranteeRules",
    "IdleRules",
    "Ladder",
    "ModelRules",
    "NudgeRules",
    "Policy",
    "QualityRules",
    "RegisteredTool",
    "Rules",
    "RulesBase",
    "ToolPattern",
    "ToolRules",
    "TrustRules",
]


class Rules(RulesBase, kw_only=True, frozen=True):
    """Everything the folds may read besides the events; the same rules and events give the same decisions.

    `policies` are prerequisites by name; the name stands in what is reported. `enabled` is the kill switch: where it is
    false, records are read and nothing is folded (seed 1, JAATO_RELIABILITY_ENABLED).
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
    policies: dict[str, Policy] = {}
    fleet: FleetRules = FleetRules()
    idle: IdleRules = IdleRules()
