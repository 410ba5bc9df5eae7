"""Rules whose numbers stay when shipped defaults change: for tests that state numbers (`times=3`), but no default.

Each name constructs the struct of the same name in `trustfold.rules.rules`. Numbers that a test does not give are those
below: the shipped ones when these tests were written. `tests/docs/test_defaults.py` states what is shipped.
Times are floats, as rules that were written down and read again have them.
"""

from __future__ import annotations

from functools import partial

from trustfold.rules import rules as shipped
from trustfold.rules.rules import EscalationPatch, SeverityLadder

BreakerPolicy = partial(
    shipped.BreakerPolicy,
    consecutive_failures=5,
    rate_threshold=0.5,
    rate_window_calls=20,
    rate_min_calls=10,
    window_s=120.0,
    open_s=30.0,
    backoff=2.0,
    backoff_cap=16.0,
    close_after=2,
    lease_s=60.0,
)
TO_OPEN = BreakerPolicy().consecutive_failures or 0
"""Failures in a row that open a circuit under these rules."""

SHIPPED_TO_OPEN = shipped.TOOL_POLICY.consecutive_failures or 0
"""The same under the shipped rules: for commands and servers, which run under those."""

BreakerRules = partial(
    shipped.BreakerRules,
    tool=BreakerPolicy(),
    recursive=BreakerPolicy(consecutive_failures=3, rate_threshold=None, open_s=60.0, close_after=1),
    read_only=BreakerPolicy(consecutive_failures=8, open_s=20.0),
    mutating=BreakerPolicy(consecutive_failures=3, rate_threshold=0.4),
)

DefaultRule = partial(
    EscalationPatch,
    count_threshold=3,
    rate_min_calls=5,
    window_seconds=3600.0,
    escalation_duration_seconds=1800.0,
    cooldown_seconds=900.0,
    success_count_to_recover=3,
    block_after=10,
)
"""Patch for `TrustRules.default_rule`."""
TrustRules = partial(
    shipped.TrustRules,
    default_rule=DefaultRule(),
    program_default=EscalationPatch(
        count_threshold=3, window_seconds=300.0, severity_filter=shipped.PROGRAM_RULE.severity_filter, block_after=None
    ),
    service_default=EscalationPatch(
        count_threshold=2,
        window_seconds=300.0,
        severity_filter=shipped.SERVICE_RULE.severity_filter,
        unbroken=True,
        transient_weight=1.0,
    ),
    domain_default=EscalationPatch(
        unbroken=True, severity_filter=shipped.SERVICE_RULE.severity_filter, transient_weight=1.0
    ),
    max_fine_keys=64,
)
FleetRules = partial(
    shipped.FleetRules,
    workspaces=3,
    failure_rate=0.5,
    min_calls=5,
    release_rate=0.4,
    window_seconds=3600.0,
    duration_seconds=86_400.0,
)

BehaviourRules = partial(
    shipped.BehaviourRules,
    window_steps=30,
    repetitive_calls=SeverityLadder(minor=3, moderate=4, severe=6),
    repetitive_calls_with_news=SeverityLadder(minor=4, moderate=5, severe=7),
    repetitive_calls_with_effects=SeverityLadder(minor=6, moderate=None, severe=None),
    error_retry_loop=SeverityLadder(minor=3, moderate=4, severe=6),
    same_error_loop=SeverityLadder(minor=5, moderate=8, severe=12),
    failure_streak=SeverityLadder(minor=6, moderate=9, severe=None),
    missing_environment=SeverityLadder(minor=3, moderate=5, severe=None),
    alternating_loop=SeverityLadder(minor=3, moderate=4, severe=6),
    stagnation=SeverityLadder(minor=6, moderate=10, severe=15),
    reread=SeverityLadder(minor=6, moderate=10, severe=None),
    self_appending=SeverityLadder(minor=5, moderate=8, severe=None),
    introspection_loop=SeverityLadder(minor=3, moderate=5, severe=8),
    planning_loop=SeverityLadder(minor=3, moderate=5, severe=8),
    poll=SeverityLadder(minor=10, moderate=20, severe=None),
    announce_no_action=SeverityLadder(minor=2, moderate=3, severe=4),
    announce_no_action_in_turn=SeverityLadder(minor=3, moderate=4, severe=6),
    announce_no_action_by_structure=SeverityLadder(minor=4, moderate=6, severe=8),
    restated=SeverityLadder(minor=4, moderate=6, severe=10),
    tool_avoidance=SeverityLadder(minor=2, moderate=3, severe=4),
    prerequisite_violated=SeverityLadder(minor=1, moderate=2, severe=3),
    unknown_tool=SeverityLadder(minor=3, moderate=5, severe=10),
    monologue=SeverityLadder(minor=6, moderate=8, severe=10),
    text_loop=SeverityLadder(minor=5, moderate=8, severe=10),
    unproven_claim=SeverityLadder(minor=1, moderate=None, severe=None),
    call_budget=SeverityLadder(minor=400, moderate=800, severe=1600),
    stalled_turn=SeverityLadder(minor=1, moderate=2, severe=4),
    stalled_call=SeverityLadder(minor=1, moderate=2, severe=4),
    fast_poll_seconds=10.0,
    slow_poll_seconds=1800.0,
    restated_share=0.3,
    max_silence_seconds=120.0,
)
NudgeRules = partial(shipped.NudgeRules, cooldown_calls=10, effective_within_calls=5)
Policy = partial(shipped.PrerequisitePolicy, within_turns=0)
CallRules = partial(shipped.CallRules, overdue_after_ms=600_000)

ModelRules = partial(shipped.ModelRules, min_failures=3, min_difference=0.3)
RegisteredTool = partial(shipped.RegisteredTool, score=0.90)
QualityRules = partial(
    shipped.QualityRules,
    registered_score=0.90,
    low=0.01,
    medium=0.05,
    high=0.10,
    fifth=0.05,
    tenth=0.10,
    earned=0.01,
    tag_after=2,
    tag_days=30.0,
    similar=0.75,
    demotion=0.3,
    half_life_days=30.0,
    unavailable_after=2,
    unavailable_seconds=300.0,
)
GuaranteeRules = partial(
    shipped.GuaranteeRules, max_cost_usd=1.0, max_duration_seconds=300.0, max_recursive_calls=20, warn_at=0.8
)
ConfidenceRules = partial(shipped.ConfidenceRules, low=0.3, consensus=0.5)
IdleRules = partial(shipped.IdleRules, session_idle_hours=72.0, key_idle_hours=2160.0, fleet_idle_hours=2160.0)

Rules = partial(
    shipped.RuleSet,
    trust=TrustRules(),
    breakers=BreakerRules(),
    behaviour=BehaviourRules(),
    nudges=NudgeRules(),
    calls=CallRules(),
    models=ModelRules(),
    quality=QualityRules(),
    guarantees=GuaranteeRules(),
    confidence=ConfidenceRules(),
    fleet=FleetRules(),
    idle=IdleRules(),
)
