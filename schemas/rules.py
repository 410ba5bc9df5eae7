"""Rules as data: every threshold the folds read, with unit, default and where it comes from.

All of it can be loaded from TOML or JSON; the seed's JSON examples load unchanged. A layer (tool, domain,
service, plugin, default) sets only the fields it names; `UNSET` means "ask the next layer", while an
explicit null switches a threshold off (design 3, Trust).
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .nudge_templates import check_template, check_texts
from .vocabulary import ModelSwitchStrategy, NudgeLevel, QualitySeverity, RecoveryMode, Severity, ToolClass

Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Threshold = Annotated[int, Meta(ge=1, le=100)]
Seconds = Annotated[float, Meta(gt=0, le=31_536_000)]
Wait = Annotated[float, Meta(ge=0, le=31_536_000)]
Ratio = Annotated[float, Meta(gt=0, le=1)]

DEFAULT_FILTER = frozenset(
    {
        Severity.SERVER_ERROR,
        Severity.CRASH,
        Severity.CORRUPTION,
        Severity.SECURITY,
        Severity.PERMISSION,
        Severity.TIMEOUT,
        Severity.REPEATED_AUTH,
        Severity.INVALID_INPUT,
    }
)
"""Severities that count towards escalation unless a rule says otherwise (design 3, Trust)."""


class RulesBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything here: frozen, keyword-only, unknown names refused."""


class EscalationPatch(RulesBase, kw_only=True, frozen=True):
    """One layer of an escalation rule: only the fields it sets count. Field meanings: `EscalationRule`."""

    count_threshold: Threshold | UnsetType | None = UNSET
    consecutive_threshold: Count | UnsetType | None = UNSET
    rate_threshold: Ratio | UnsetType | None = UNSET
    rate_min_calls: Threshold | UnsetType = UNSET
    window_seconds: Seconds | UnsetType = UNSET
    severity_filter: frozenset[Severity] | UnsetType = UNSET
    escalation_duration_seconds: Seconds | UnsetType = UNSET
    cooldown_seconds: Wait | UnsetType = UNSET
    success_count_to_recover: Count | UnsetType = UNSET
    block_after: Count | UnsetType | None = UNSET
    notify_user: bool | UnsetType = UNSET


class EscalationRule(RulesBase, kw_only=True, frozen=True):
    """A complete rule: when a key loses trust and how it earns it back (seed 1, design 3 Trust).

    Attributes:
        count_threshold: effective failures in the window that escalate; None switches the test off.
        consecutive_threshold: counted failures in a row that escalate; off by default.
        rate_threshold: share of failed calls in the window that escalates (reached, not exceeded); off by default.
        rate_min_calls: calls in the window before the rate means anything.
        window_seconds: how far back failures count.
        severity_filter: which failures count; the others are neutral.
        escalation_duration_seconds: earliest recovery after an escalation; doubled by a relapse, at most 24 h.
        cooldown_seconds: time without a counted failure before recovery may start.
        success_count_to_recover: successes that restore trust once recovery has started.
        block_after: counted failures without a success while escalated that block the key; None: never.
        notify_user: False marks the escalation silent; it is still emitted.
        model_error_weight: what one `invalid_input` failure counts (a model error, not the tool's).
        transient_weight: what one `transient` failure counts, where the filter has it (a rate limit passes).
    """

    count_threshold: Threshold | None = 3
    consecutive_threshold: Count | None = None
    rate_threshold: Ratio | None = None
    rate_min_calls: Threshold = 5
    window_seconds: Seconds = 3600
    severity_filter: frozenset[Severity] = DEFAULT_FILTER
    escalation_duration_seconds: Seconds = 1800
    cooldown_seconds: Wait = 900
    success_count_to_recover: Count = 3
    block_after: Count | None = 10
    notify_user: bool = True
    model_error_weight: Ratio = 0.5
    transient_weight: Ratio = 0.5

    def overlaid(self, patch: EscalationPatch) -> EscalationRule:
        """This rule with every field that the patch sets."""
        changes = {name: value for name in patch.__struct_fields__ if (value := getattr(patch, name)) is not UNSET}
        return msgspec.structs.replace(self, **changes) if changes else self


SERVICE_RULE = EscalationPatch(
    count_threshold=2,
    window_seconds=300,
    severity_filter=frozenset({Severity.TIMEOUT, Severity.SERVER_ERROR, Severity.CRASH}),
)
"""Shipped for MCP servers: two hard failures in five minutes (seed 1, use case 3)."""


class TrustRules(RulesBase, kw_only=True, frozen=True):
    """Escalation rules by layer, most specific first: tool, domain, service, plugin, default.

    `service_default` applies to every MCP server that no `service_rules` entry names.
    """

    default_rule: EscalationPatch = EscalationPatch()
    plugin_rules: dict[str, EscalationPatch] = {}
    service_default: EscalationPatch = SERVICE_RULE
    service_rules: dict[str, EscalationPatch] = {}
    domain_rules: dict[str, EscalationPatch] = {}
    tool_rules: dict[str, EscalationPatch] = {}
    recovery_mode: RecoveryMode = RecoveryMode.AUTO
    max_fine_keys: Count = 64


class BreakerPolicy(RulesBase, kw_only=True, frozen=True):
    """When a circuit opens and how it closes (seed 3 §1.5, design 3 Circuit breaker).

    Attributes:
        consecutive_failures: failed calls in a row, within the window, that open; None: off.
        rate_threshold: failed share of the last `rate_window_calls` that opens; None: off.
        rate_window_calls: how many of the latest calls the rate looks at.
        rate_min_calls: measured calls before the rate means anything.
        window_s: results older than this many seconds are forgotten.
        open_s: seconds a circuit stays open the first time.
        backoff: factor on `open_s` for each re-opening without a close between; 1 keeps it constant.
        backoff_cap: largest multiple of `open_s`.
        close_after: consecutive successful probes that close.
        lease_s: seconds a probe may take before it counts as failed and its slot is free.
        slow_call_ms: a call slower than this is slow; None: no slow-call test.
        slow_rate_threshold: share of slow calls that opens, with the same minimum of calls.
    """

    consecutive_failures: Count | None = 5
    rate_threshold: Ratio | None = 0.5
    rate_window_calls: Annotated[int, Meta(ge=1, le=500)] = 20
    rate_min_calls: Count = 10
    window_s: Seconds = 120
    open_s: Seconds = 30
    backoff: Annotated[float, Meta(ge=1, le=16)] = 2.0
    backoff_cap: Annotated[float, Meta(ge=1, le=1000)] = 16.0
    close_after: Count = 2
    lease_s: Seconds = 60
    slow_call_ms: Seconds | None = None
    slow_rate_threshold: Ratio | None = None


TOOL_POLICY = BreakerPolicy()
RECURSIVE_POLICY = BreakerPolicy(consecutive_failures=3, rate_threshold=None, open_s=60, close_after=1)
READ_ONLY_POLICY = BreakerPolicy(consecutive_failures=8, open_s=20)
MUTATING_POLICY = BreakerPolicy(consecutive_failures=3, rate_threshold=0.4)


class BreakerRules(RulesBase, kw_only=True, frozen=True):
    """Which policy a breaker follows: by name first, then by declared tool class, then by kind of scope.

    `read_only` and `mutating` apply only where configuration or MCP annotations declare the class: a guess
    from the tool's name must not make a circuit more nervous.
    """

    tool: BreakerPolicy = TOOL_POLICY
    recursive: BreakerPolicy = RECURSIVE_POLICY
    read_only: BreakerPolicy = READ_ONLY_POLICY
    mutating: BreakerPolicy = MUTATING_POLICY
    by_scope: dict[str, BreakerPolicy] = {}


class Ladder(RulesBase, kw_only=True, frozen=True):
    """Repetitions at which a pattern is minor, moderate and severe.

    Raises:
        ValueError: when the steps do not rise.
    """

    minor: Annotated[int, Meta(ge=1, le=100_000)]
    moderate: Annotated[int, Meta(ge=1, le=100_000)]
    severe: Annotated[int, Meta(ge=1, le=100_000)]
    enabled: bool = True

    def __post_init__(self) -> None:
        """Refuse ladders that cannot rise."""
        if not self.minor <= self.moderate <= self.severe:
            msg = f"steps must rise: minor {self.minor} <= moderate {self.moderate} <= severe {self.severe}"
            raise ValueError(msg)

    def step(self, count: int) -> int:
        """Severity reached by this many repetitions: 0 none, 1 minor, 2 moderate, 3 severe."""
        if count < self.minor or not self.enabled:
            return 0
        return 3 if count >= self.severe else 2 if count >= self.moderate else 1

    def rung_after(self, count: int) -> int:
        """The next step beyond this many repetitions; 0 when there is none."""
        if not self.enabled or count >= self.severe:
            return 0
        return self.minor if count < self.minor else self.moderate if count < self.moderate else self.severe


class BehaviourRules(RulesBase, kw_only=True, frozen=True):
    """Thresholds of the behaviour detectors (design 3, Behaviour table).

    Attributes:
        enabled: False keeps the outcomes flowing and finds no patterns.
        window_steps: steps a session remembers for repetition; other steps may lie between repeats.
        poll_no_progress: takes the place of `repetitive_calls` for polling tools, whose answer may well stay the same.
        read_only_cap: reads in a row, news or not, that are flagged anyway.
        stalled_turn: multiples of `max_silence_seconds` (and of `max_turn_duration_seconds`).
        stalled_call: multiples of the call's own deadline.
        max_silence_seconds: seconds in which a model whose turn it is must do something.
        max_turn_duration_seconds: seconds that a turn may take as a whole; None: as long as it likes.
        call_budget: calls in one turn, all together and of each tool.
        cold_start_exempt: reads before the first other call since the user spoke are exploration, and not capped.
        error_retry_by_tool: takes the place of `error_retry_loop` for the tools named.

    Raises:
        ValueError: when a single lap would make a cycle.
    """

    enabled: bool = True
    window_steps: Annotated[int, Meta(ge=6, le=100)] = 30
    repetitive_calls: Ladder = Ladder(minor=3, moderate=4, severe=6)
    poll_no_progress: Ladder = Ladder(minor=10, moderate=15, severe=20)
    error_retry_loop: Ladder = Ladder(minor=3, moderate=4, severe=6)
    alternating_loop: Ladder = Ladder(minor=3, moderate=4, severe=6)
    introspection_loop: Ladder = Ladder(minor=2, moderate=4, severe=6)
    read_only_loop: Ladder = Ladder(minor=6, moderate=10, severe=15)
    read_only_cap: Ladder = Ladder(minor=40, moderate=60, severe=90)
    announce_no_action: Ladder = Ladder(minor=2, moderate=3, severe=4)
    announce_phrases: tuple[str, ...] = ()
    same_error_loop: Ladder = Ladder(minor=5, moderate=8, severe=12)
    paging_loop: Ladder = Ladder(minor=12, moderate=20, severe=30)
    planning_loop: Ladder = Ladder(minor=3, moderate=5, severe=8)
    unknown_tool: Ladder = Ladder(minor=3, moderate=5, severe=10)
    monologue: Ladder = Ladder(minor=4, moderate=6, severe=8)
    text_loop: Ladder = Ladder(minor=5, moderate=8, severe=10)
    tool_avoidance: Ladder = Ladder(minor=2, moderate=3, severe=4)
    prerequisite_violated: Ladder = Ladder(minor=1, moderate=2, severe=3)
    call_budget: Ladder = Ladder(minor=200, moderate=400, severe=800)
    stalled_turn: Ladder = Ladder(minor=1, moderate=2, severe=4)
    stalled_call: Ladder = Ladder(minor=1, moderate=2, severe=4)
    max_silence_seconds: Seconds = 120
    max_turn_duration_seconds: Seconds | None = None
    cold_start_exempt: bool = False
    error_retry_by_tool: dict[str, Ladder] = {}

    def __post_init__(self) -> None:
        """Refuse what any two calls would fulfil."""
        if self.alternating_loop.enabled and self.alternating_loop.minor < 2:
            msg = f"alternating_loop needs at least 2 laps to be a cycle, not {self.alternating_loop.minor}"
            raise ValueError(msg)


class NudgeRules(RulesBase, kw_only=True, frozen=True):
    """How detected patterns are told to the model (design 3, Nudges).

    Attributes:
        level: strongest nudge allowed; stronger ones are clamped down to it, never dropped. `off`: none.
        cooldown_calls: calls before the same pattern and fingerprint may be nudged again at the same severity.
        effective_within_calls: calls in which the pattern must not repeat for a nudge to count as effective.
        texts: own texts, `pattern.severity` → template with {tool_name}, {count}, {pattern}, {seconds} (how long it
            has gone on) and {required_tool} (the tool to call, for `prerequisite_violated` and `tool_avoidance`).

    Raises:
        ValueError: when a text is filed under no pattern and severity, or names an unknown placeholder.
    """

    enabled: bool = True
    level: NudgeLevel = NudgeLevel.FULL
    cooldown_calls: Count = 10
    effective_within_calls: Count = 5
    texts: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse texts that could never be shown, or shown only with a hole."""
        check_texts(self.texts.items())


class ToolRules(RulesBase, kw_only=True, frozen=True):
    """What is known about tools: their classes and how their failure keys are made (design 3, Keys).

    Attributes:
        classes: tool name → class; beats annotations and names.
        key_by: `family` (default) or `args` for a key per distinct arguments.
        expected_failures: tools whose failures are informational and never count.
    """

    classes: dict[str, ToolClass] = {}
    key_by: Annotated[str, Meta(pattern="^(family|args)$")] = "family"
    expected_failures: frozenset[str] = frozenset()


class CallRules(RulesBase, kw_only=True, frozen=True):
    """Pairing of started and finished events (design 2, Time and order).

    Attributes:
        deadline_ms: milliseconds after which an unfinished call is closed as a timeout, where the start names none.
        security_on_attempt: judge dangerous commands of successful calls too; default: failed calls only.
        security_patterns: own regular expressions over the command or arguments of a failed call.
    """

    deadline_ms: Annotated[int, Meta(ge=1, le=604_800_000)] = 600_000
    security_on_attempt: bool = False
    security_patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse patterns that are no regular expressions."""
        for pattern in self.security_patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"security pattern {pattern!r} is no regular expression: {error}") from None


class ModelRules(RulesBase, kw_only=True, frozen=True):
    """When another model is suggested for a tool (seed 2, Adaptive Model Selection; design 3, Models).

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


Score = Annotated[float, Meta(ge=0, le=1)]

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
    """How well a tool does what it is for (seed 4; design 3, Tool quality).

    Attributes:
        registered_score: score of tools that `tools` does not name.
        tools: registered tools by name.
        low: cost of a failure of this severity; 0 to 1, as all scores here.
        medium: the same.
        high: the same.
        fifth: added to the cost from the fifth failure on.
        tenth: added instead from the tenth on.
        earned: what a success gives back, up to the registered score.
        by_cause: severity of a failed call → what it costs; a severity that is not named costs nothing.
        tag_after: capability failures at scenarios with a word that tag the tool `not-for-WORD`.
        tag_days: days after the last such failure on which the tag expires.
        similar: similarity from which a past failure counts against a scenario.
        demotion: taken off the similarity of a tool that failed at such a scenario just now.
        half_life_days: days after which that is half as much.
    """

    registered_score: Score = 0.90
    tools: dict[str, RegisteredTool] = {}
    low: Score = 0.01
    medium: Score = 0.05
    high: Score = 0.10
    fifth: Score = 0.05
    tenth: Score = 0.10
    earned: Score = 0.01
    by_cause: dict[Severity, QualitySeverity] = msgspec.field(default_factory=lambda: dict(QUALITY_BY_CAUSE))
    tag_after: Count = 2
    tag_days: Annotated[float, Meta(gt=0, le=3650)] = 30
    similar: Score = 0.75
    demotion: Score = 0.3
    half_life_days: Annotated[float, Meta(gt=0, le=3650)] = 30


class GuaranteeRules(RulesBase, kw_only=True, frozen=True):
    """Hard boundaries of an execution (seed 5 §10.2; design 3, Guarantees and confidence).

    Attributes:
        sessions: whose limits are watched: `recursive` (sessions from their first recursive call on, and those that
            were given limits), `all` (from the first call on) or `off`.
        max_cost_usd: US dollars.
        max_duration_seconds: seconds.
        max_recursive_calls: recursive calls; the last of them is still allowed.
        warn_at: share of a limit that warns.
    """

    sessions: Annotated[str, Meta(pattern="^(recursive|all|off)$")] = "recursive"
    max_cost_usd: Annotated[float, Meta(ge=0)] = 1.0
    max_duration_seconds: Seconds = 300.0
    max_recursive_calls: Annotated[int, Meta(ge=0, le=1_000_000)] = 20
    warn_at: Ratio = 0.8


class ConfidenceRules(RulesBase, kw_only=True, frozen=True):
    """When a recursive result is flagged for review (seed 5 §10.1).

    Attributes:
        low: results below this are flagged; one that reaches it is not.
        consensus: confidence from which a result takes part in a consensus.
    """

    low: Score = 0.3
    consensus: Score = 0.5


ToolPattern = Annotated[str, Meta(min_length=1, max_length=256)]
"""A tool's name, in which `*`, `?` and `[...]` stand for others (case counts)."""


class Policy(RulesBase, kw_only=True, frozen=True):
    """A prerequisite: this tool before those tools (design 3, prerequisite_violated).

    Attributes:
        requires: tool that must have succeeded, or be in flight, when a call of a tool in `before` starts.
        before: tools it must come before, as names or globs; `requires` itself is never meant.
        within_turns: how many turns back it may lie; 0: anywhere in the session.
        enabled: False keeps the policy and does not apply it.
        message: own text for its nudges, with the placeholders of `nudges.texts`; empty: the shipped texts.

    Raises:
        ValueError: when `before` is empty or `message` names an unknown placeholder.
    """

    requires: Annotated[str, Meta(min_length=1, max_length=256)]
    before: tuple[ToolPattern, ...]
    within_turns: Annotated[int, Meta(ge=0, le=10_000)] = 0
    enabled: bool = True
    message: str = ""

    def __post_init__(self) -> None:
        """Refuse a policy about no tool."""
        if not self.before:
            msg = f"a policy that requires {self.requires!r} must name at least one tool in `before`"
            raise ValueError(msg)
        check_template(f"message of the policy that requires {self.requires!r}", self.message)


class FleetRules(RulesBase, kw_only=True, frozen=True):
    """When a tool that fails in several workspaces loses its user's trust in all (seed 2, Promotion; design 3, Trust).

    Attributes:
        enabled: False promotes nothing.
        workspaces: workspaces of one user in which the tool is not trusted, before it is escalated for the user.
        failure_rate: mean share of failed calls over these workspaces that must be exceeded.
        min_calls: calls in the window below which a workspace does not count for a promotion.
        release_rate: mean share below which the escalation ends again.
        window_seconds: how far back calls count for these shares.
        duration_seconds: when an escalation ends by itself; only what is told after that counts for another one.

    Raises:
        ValueError: when an escalation would end at a share at which it begins.
    """

    enabled: bool = True
    workspaces: Annotated[int, Meta(ge=2, le=64)] = 3
    failure_rate: Ratio = 0.5
    min_calls: Count = 5
    release_rate: Ratio = 0.4
    window_seconds: Seconds = 3600
    duration_seconds: Seconds = 86_400

    def __post_init__(self) -> None:
        """Refuse a release above the promotion."""
        if self.release_rate > self.failure_rate:
            msg = f"release_rate {self.release_rate} must not be above failure_rate {self.failure_rate}"
            raise ValueError(msg)


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
