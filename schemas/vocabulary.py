"""Enumerations of the wire contract."""

from __future__ import annotations

from enum import StrEnum


class CallStatus(StrEnum):
    """Status of a finished call, as its publisher saw it."""

    SUCCESS = "success"
    ERROR = "error"
    RETRIABLE_ERROR = "retriable_error"
    RETRY_EXHAUSTED = "retry_exhausted"
    CIRCUIT_OPEN = "circuit_open"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    REJECTED = "rejected"


class CallEnd(StrEnum):
    """Outcome of a call, a field of its record (docs/design/contracts.md#the-record-of-a-call)."""

    SUCCEEDED = "succeeded"
    ANSWERED = "answered"
    """It ran and said no: an expected failure, or one that is not a fault."""
    FAILED = "failed"
    REJECTED = "rejected"
    """Its client rejected it before it ran: an unread file, an unknown tool, bad arguments."""
    REFUSED = "refused"
    """A guard did not let it pass: its circuit was open, or its key may not be called."""
    DENIED = "denied"
    """A person denied it."""
    CANCELLED = "cancelled"
    CACHED = "cached"
    LOST = "lost"
    """Nobody knows: it never ended, and no deadline was stated."""


GUARD_REFUSAL = "BlockedByGuard"
"""Type of the error of a call that a guard refused for another reason than its circuit."""


class InputSource(StrEnum):
    """Who spoke to a model, other than its user."""

    REPORT = "report"
    AGENT = "agent"
    TIMER = "timer"
    HOOK = "hook"
    CLIENT = "client"


class FailureSeverity(StrEnum):
    """Severity of a failure, from an error of the caller to a broken credential.

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
    """Trust state of a key: whether calls may run without asking."""

    TRUSTED = "trusted"
    ESCALATED = "escalated"
    RECOVERING = "recovering"
    BLOCKED = "blocked"
    REMOVED = "removed"


class BreakerState(StrEnum):
    """State of a circuit."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    FORCED_OPEN = "forced_open"


class BreakerMode(StrEnum):
    """Mode of a circuit: enforced, observed (computed and reported only), or disabled (not computed)."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    DISABLED = "disabled"


class PatternType(StrEnum):
    """Pattern of repeated behaviour without progress (docs/design/semantics.md#behaviour)."""

    PREREQUISITE_VIOLATED = "prerequisite_violated"
    UNKNOWN_TOOL = "unknown_tool"
    MISSING_ENVIRONMENT = "missing_environment"
    ERROR_RETRY_LOOP = "error_retry_loop"
    SAME_ERROR_LOOP = "same_error_loop"
    FAILURE_STREAK = "failure_streak"
    ALTERNATING_LOOP = "alternating_loop"
    REPETITIVE_CALLS = "repetitive_calls"
    SELF_APPENDING = "self_appending"
    INTROSPECTION_LOOP = "introspection_loop"
    TOOL_AVOIDANCE = "tool_avoidance"
    REREAD = "reread"
    STAGNATION = "stagnation"
    POLL = "poll"
    PLANNING_LOOP = "planning_loop"
    ANNOUNCE_NO_ACTION = "announce_no_action"
    TEXT_LOOP = "text_loop"
    RESTATED = "restated"
    MONOLOGUE = "monologue"
    UNPROVEN_CLAIM = "unproven_claim"
    STALLED_CALL = "stalled_call"
    STALLED_TURN = "stalled_turn"
    CALL_BUDGET = "call_budget"


class PatternSeverity(StrEnum):
    """Severity of a pattern."""

    MINOR = "minor"
    MODERATE = "moderate"
    SEVERE = "severe"


class NudgeType(StrEnum):
    """Strength of a nudge."""

    GENTLE = "gentle"
    DIRECT = "direct"
    INTERRUPT = "interrupt"


class NudgeLevel(StrEnum):
    """Strongest nudge allowed."""

    OFF = "off"
    GENTLE = "gentle"
    DIRECT = "direct"
    FULL = "full"


class NudgeLane(StrEnum):
    """Lane of a nudge: where a platform should put it."""

    CONTEXT_HINT = "context_hint"
    SYSTEM_GUIDANCE = "system_guidance"
    PAUSE = "pause"


class RecoveryMode(StrEnum):
    """Recovery mode: trust is restored automatically or by the operator."""

    AUTO = "auto"
    ASK = "ask"


class ModelSwitchStrategy(StrEnum):
    """Reaction when another model has a better success rate with a tool."""

    DISABLED = "disabled"
    SUGGEST = "suggest"
    AUTO = "auto"


class SynthesisStrategy(StrEnum):
    """Strategy for combining recursive results (docs/design/semantics.md#confidence)."""

    WEIGHTED = "weighted"
    CONSENSUS = "consensus"
    DIVERSE = "diverse"


class ToolClass(StrEnum):
    """Effect class of a call; unknown never counts as an action."""

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
    AGED = "aged"
    RESET = "reset"
    RECOVER = "recover"
    REMOVE = "remove"
    RESTORE = "restore"
    PROMOTION = "promotion"
    DEMOTION = "demotion"
    EXPIRY = "expiry"


class DangerKind(StrEnum):
    """What a dangerous call would do (docs/trust.md, Before the harm); the name of its rule, and part of its key."""

    ROOT = "root"
    DISK = "disk"
    CREDENTIALS = "credentials"
    FORK_BOMB = "fork_bomb"
    PATTERN = "pattern"
    DOWNLOAD = "download"
    FORCED_PUSH = "forced_push"
    DATABASE = "database"
    RESOURCES = "resources"
    ABOVE = "above"
    PRIVILEGED = "privileged"
    RISKY_PATTERN = "risky_pattern"


class BreakerTrigger(StrEnum):
    """Trigger of a circuit's transition (docs/design/semantics.md#circuit-breaker)."""

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


class QualitySeverity(StrEnum):
    """Severity of an operator's quality mark: it costs 0.01, 0.05 or 0.10 of a tool's score.

    See docs/design/semantics.md#tool-quality.
    """

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
