"""Records of the internal `outcomes` topic, from the session stage to the tool stage.

Keyed by workspace and scope (`w1␟tool:bash`), so that all records of one tool, service or model tier are in one
partition, in order. Internal: written and read only by trustfold; the shape may change with any release that also
drains the topic (docs/design/contracts.md#topics).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .vocabulary import ModelSwitchStrategy, Pattern, RecoveryMode, Severity, ToolClass

US = "\x1f"
"""Separator of workspace and scope in record keys."""

DEFAULT_WORKSPACE = "default"
"""Workspace of events without a `workspace_id`."""

OWN_MAKING = frozenset({Severity.INVALID_INPUT, Severity.VALIDATION})
"""Severities of failures that the model causes itself; the others do not count against the model.

See docs/design/semantics.md#models.
"""


TrustOrderType = Literal["trust.reset", "trust.recover", "trust.approve", "tool.remove", "tool.restore"]
"""Types of the commands about trust."""


class OutcomeBase(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Common fields of every record of the topic.

    Attributes:
        id: digest of the input event's id and the scope.
        time_ms: effective time of the cause, milliseconds since the epoch.
        workspace_id: workspace, `default` if the event named none.
        scope: `tool:NAME`, `service:NAME` or `tier:NAME`.
        session_id: session of the cause; empty for operators.
        cause: id of the input event that caused the record.
        origin_partition: partition of `events` that the record comes from.
        origin: position in that partition (offset and ordinal), increasing. After a crash outcomes are written again at
            new offsets; the tool stage drops those not above the highest origin it has folded of their partition. -1:
            not from `events`.
    """

    id: str
    time_ms: int
    workspace_id: str
    scope: str
    session_id: str = ""
    cause: str = ""
    origin_partition: int = 0
    origin: int = -1

    @property
    def key(self) -> str:
        """Record key: workspace and scope."""
        return f"{self.workspace_id}{US}{self.scope}"


class CallOutcome(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="call.outcome"):
    """One finished, classified call, for one scope.

    Attributes:
        verdict: `success`, `failure`, or `neutral` (cancelled, refused, served from a cache: counted nowhere).
        fine_key: failure key with the normalised key parameters, e.g. `bash|command=git`.
        severity: severity of a failure; absent for other verdicts.
        expected: an informational failure that no rule counts (`expected_failure` on the event).
        started_ms: when the call started; decides whether it may settle a breaker probe.
        duration_ms: milliseconds, measured by the publisher; None if unknown.
        kind: `domain` or `mcp` for service scopes; selects the rule table (docs/design/semantics.md#trust). `program`
            for the service behind a shell call, which is observed: nothing is asked or refused because of it.
        class_declared: the tool class was configured or declared by MCP annotations, not guessed from the name.
        denied: refused by the user; counted separately, never as a failure.
        scenario: purpose of the call in words, cut off at 200 characters; only for the tool's own scope.
        model_switch: the session's strategy for model switches, if it overrides the rules.
        unrecoverable: the reporter says that this failure does not recover automatically.
        models: for a failure, models that its session declared available; None: not declared.
        recovery_mode: recovery mode of the session if it has its own settings; None: that of the key.
        risky: a security failure of the lower level: escalates its key, never blocks it.
        approvals: approvals that let the call pass (`trust.approve`); consumed by it.
        answered: a `validation` failure that names no fault: the tool ran and declined. It counts neither against the
            model nor for the tool's ability.
        reached: the tool of an MCP server reports the failure: the server itself is healthy.
        error_type: exception class or category of a failure, as reported.
        own_class: fingerprint of the call, where it failed by an exception of a class that the tool defines itself; 0
            else. Such an exception may be an answer.
    """

    call_id: str
    tool_name: str
    fine_key: str
    verdict: Literal["success", "failure", "neutral"]
    severity: Severity | None = None
    http_status: int | None = None
    expected: bool = False
    started_ms: int = 0
    duration_ms: float | None = None
    plugin_name: str = ""
    domain: str = ""
    service: str = ""
    kind: Literal["", "domain", "mcp", "program"] = ""
    tool_class: ToolClass = ToolClass.UNKNOWN
    class_declared: bool = False
    user_id: str = ""
    model: str = ""
    denied: bool = False
    scenario: str = ""
    model_switch: ModelSwitchStrategy | None = None
    recovery_mode: RecoveryMode | None = None
    unrecoverable: bool = False
    risky: bool = False
    answered: bool = False
    reached: bool = False
    models: tuple[str, ...] | None = None
    approvals: tuple[str, ...] = ()
    error_type: str = ""
    own_class: int = 0


class PatternSeen(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="pattern.seen"):
    """A model repeated itself with a tool; written once for each severity that a streak reaches.

    Attributes:
        tool_name: tool of the call that completed the pattern.
        fine_key: failure key of that call.
        model: name of the model.
        pattern: kind of pattern.
        model_switch: as in `CallOutcome`.
        user_id: user of the session.
        models: as in `CallOutcome`.
    """

    tool_name: str
    fine_key: str
    model: str
    pattern: Pattern
    model_switch: ModelSwitchStrategy | None = None
    user_id: str = ""
    models: tuple[str, ...] | None = None


class ProbeRequest(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="probe.request"):
    """A guard requests the fleet's one probe of a half-open breaker."""

    guard_id: str
    call_id: str


class TrustOrder(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="trust.order"):
    """Operator's command about the trust of a tool as a whole, forwarded to a service that holds fine keys of it.

    Attributes:
        tool_name: name of the tool.
        order: type of the command.
        until_ms: expiry of an approval, milliseconds.
        approved_session: session whose calls an approval lets pass; empty: one call.
    """

    tool_name: str
    order: TrustOrderType
    until_ms: int = 0
    approved_session: str = ""


class TimePassed(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="time.passed"):
    """Timer record, appended by the engine when a probe's lease or a forced opening has ended.

    See docs/design/contracts.md#time-and-order.
    """


Outcome = CallOutcome | PatternSeen | ProbeRequest | TrustOrder | TimePassed
"""Union of all records on the `outcomes` topic."""
