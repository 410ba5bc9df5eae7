"""The words of the contract: every enumeration that stands on the wire (designs 2 and 3)."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a call ended, as its publisher saw it."""

    SUCCESS = "success"
    ERROR = "error"
    RETRIABLE_ERROR = "retriable_error"
    RETRY_EXHAUSTED = "retry_exhausted"
    CIRCUIT_OPEN = "circuit_open"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"


class Severity(StrEnum):
    """How bad a failure is; from the caller's slip to a broken credential.

    See docs/design/semantics.md#failure-classification.
    """

    TRANSIENT = "transient"
    NOT_FOUND = "not_found"
    INVALID_INPUT = "invalid_input"
    PERMISSION = "permission"
    VALIDATION = "validation"
    TIMEOUT = "timeout"
    SERVER_ERROR = "server_error"
    CRASH = "crash"
    CORRUPTION = "corruption"
    SECURITY = "security"
    REPEATED_AUTH = "repeated_auth"


class TrustState(StrEnum):
    """Whether a key may run without asking."""

    TRUSTED = "trusted"
    ESCALATED = "escalated"
    RECOVERING = "recovering"
    BLOCKED = "blocked"
    REMOVED = "removed"


class BreakerState(StrEnum):
    """Whether a circuit lets traffic through."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    FORCED_OPEN = "forced_open"


class BreakerMode(StrEnum):
    """Whether a circuit's state is applied: enforced, only computed and reported, or not even computed."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    DISABLED = "disabled"


class Pattern(StrEnum):
    """Behaviour of a model that leads nowhere (docs/design/semantics.md#behaviour)."""

    REPETITIVE_CALLS = "repetitive_calls"
    ERROR_RETRY_LOOP = "error_retry_loop"
    SAME_ERROR_LOOP = "same_error_loop"
    ALTERNATING_LOOP = "alternating_loop"
    INTROSPECTION_LOOP = "introspection_loop"
    READ_ONLY_LOOP = "read_only_loop"
    PAGING_LOOP = "paging_loop"
    PLANNING_LOOP = "planning_loop"
    ANNOUNCE_NO_ACTION = "announce_no_action"
    TOOL_AVOIDANCE = "tool_avoidance"
    PREREQUISITE_VIOLATED = "prerequisite_violated"
    UNKNOWN_TOOL = "unknown_tool"
    MONOLOGUE = "monologue"
    TEXT_LOOP = "text_loop"
    STALLED_TURN = "stalled_turn"
    STALLED_CALL = "stalled_call"
    CALL_BUDGET = "call_budget"


class PatternSeverity(StrEnum):
    """How far a pattern has gone."""

    MINOR = "minor"
    MODERATE = "moderate"
    SEVERE = "severe"


class NudgeType(StrEnum):
    """How strongly the model is spoken to."""

    GENTLE = "gentle"
    DIRECT = "direct"
    INTERRUPT = "interrupt"


class NudgeLevel(StrEnum):
    """Strongest nudge allowed."""

    OFF = "off"
    GENTLE = "gentle"
    DIRECT = "direct"
    FULL = "full"


class Lane(StrEnum):
    """Where a platform should put a nudge."""

    CONTEXT_HINT = "context_hint"
    SYSTEM_GUIDANCE = "system_guidance"
    PAUSE = "pause"


class RecoveryMode(StrEnum):
    """Whether trust comes back by itself or waits for the operator."""

    AUTO = "auto"
    ASK = "ask"


class ModelSwitchStrategy(StrEnum):
    """What is done when another model does better with a tool."""

    DISABLED = "disabled"
    SUGGEST = "suggest"
    AUTO = "auto"


class SynthesisStrategy(StrEnum):
    """How recursive results are combined (docs/design/semantics.md#confidence)."""

    WEIGHTED = "weighted"
    CONSENSUS = "consensus"
    DIVERSE = "diverse"


class ToolClass(StrEnum):
    """What a call does to the world; unknown never counts as an action."""

    READ = "read"
    ACTION = "action"
    INTROSPECTION = "introspection"
    PLANNING = "planning"
    POLL = "poll"
    UNKNOWN = "unknown"


class TrustTrigger(StrEnum):
    """Trigger of a change of trust (docs/trust.md)."""

    COUNT = "count"
    CONSECUTIVE = "consecutive"
    RATE = "rate"
    SECURITY = "security"
    RISKY = "risky"
    REPEATED_AUTH = "repeated_auth"
    EXHAUSTED = "exhausted"
    RECOVERY_STARTED = "recovery_started"
    RECOVERY = "recovery"
    RELAPSE = "relapse"
    RESET = "reset"
    RECOVER = "recover"
    REMOVE = "remove"
    RESTORE = "restore"
    PROMOTION = "promotion"
    DEMOTION = "demotion"
    EXPIRY = "expiry"


class BreakerTrigger(StrEnum):
    """What moved a circuit (docs/design/semantics.md#circuit-breaker)."""

    CONSECUTIVE = "consecutive"
    RATE = "rate"
    SLOW_RATE = "slow_rate"
    COOLDOWN_OVER = "cooldown_over"
    PROBES_SUCCEEDED = "probes_succeeded"
    PROBE_FAILED = "probe_failed"
    PROBE_LOST = "probe_lost"
    FORCE_OPEN = "force_open"
    RESET = "reset"
    DISABLE = "disable"
    OBSERVE = "observe"


class QualitySeverity(StrEnum):
    """How much an operator's mark costs a tool: 0.01, 0.05 or 0.10 of its score.

    See docs/design/semantics.md#tool-quality.
    """

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
