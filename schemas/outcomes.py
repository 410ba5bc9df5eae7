"""Records of the internal `outcomes` topic, from the session stage to the tool stage.

Keyed by workspace and scope (`w1␟tool:bash`), so that all records of one tool, service or model tier are in one
partition, in order. The record of a call is what everybody reads of calls, the history too; the other records are
written and read only by trustfold, and may change with any release that also drains the topic
(docs/design/contracts.md#topics).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .vocabulary import CallEnd, FailureSeverity, ModelSwitchStrategy, PatternType, RecoveryMode, ToolClass

US = "\x1f"
"""Separator of workspace and scope in record keys."""

DEFAULT_WORKSPACE = "default"
"""Workspace of events without a `workspace_id`."""

OWN_MAKING = frozenset({FailureSeverity.INVALID_INPUT, FailureSeverity.VALIDATION})
"""Severities of failures that the model causes itself; the others do not count against the model.

See docs/design/semantics.md#models.
"""


MAX_SUMMARY = 200
"""Maximum number of characters of a call's request in its record."""

MAX_MESSAGE = 300
"""Maximum number of characters of an error's message in the record of its call."""

MAX_ERROR = 160
"""Maximum number of characters of the words of an error in a public state."""

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


class CallOutcome(OutcomeBase, frozen=True, omit_defaults=True, tag="call.outcome"):
    """Record of one finished, classified call, for one scope (docs/design/contracts.md#the-record-of-a-call).

    Each call has one with the scope of its tool, which is the record of the call: only it has `outcome` and the fields
    below. A report of a plugin has one, too, without `call_id`.

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
        outcome: what became of the call; None in records of other scopes.
        status: status that the publisher gave, other than `success`.
        summary: command line up to `MAX_SUMMARY` characters, paths, or the first words of the arguments that tell
            most of the request, without secrets; empty if the arguments are private or there are none.
        call_digest: equal for calls with equal tool and arguments.
        result_digest: equal for equal results, or equal failures; empty if the result is unknown.
        same_result: how often the call has given this result lately since the last progress of its agent, this time
            included; 0 if the result is unknown or the call neutral.
        result_size: length of the result in bytes, where it was published or measured.
        agent_id: agent of the session that made it; empty for the main agent.
        turn_index: turn of the session; None if unknown.
        step: number of the agent's step: the calls of one message of the model.
        ended_ms: when it ended, as its event says, where that is not `time_ms`: it was late, or its clock ahead.
        waited_ms: milliseconds that it waited for a person.
        attempts: attempts with those of the caller; None if unknown.
        cost_usd: US dollars; None if unknown.
        model_tier: tier of the model, as published, or of a recursive call.
        appended: trustfold closed it itself, as no finish came.
        error_code: of what was no success.
        error_message: beginning of its message without secrets, at most `MAX_MESSAGE` characters; of failures in
            records of every scope.
        signature: of a failure: its telling line without what varies; groups failures across agents.
        reclassified: severity that the failure has by itself, where the rules or the publisher judge it otherwise.
        judged_by: who does: `publisher`, or the entry of the tool's failures in the rules.
    """

    call_id: str = ""
    tool_name: str = ""
    fine_key: str = ""
    verdict: Literal["success", "failure", "neutral", ""] = ""
    started_ms: int = 0
    duration_ms: float | None = None
    tool_class: ToolClass = ToolClass.UNKNOWN
    class_declared: bool = False
    user_id: str = ""
    model: str = ""
    scenario: str = ""
    plugin_name: str = ""
    service: str = ""
    domain: str = ""
    kind: Literal["", "domain", "mcp", "program"] = ""
    outcome: CallEnd | None = None
    status: str = ""
    summary: str = ""
    call_digest: str = ""
    result_digest: str = ""
    same_result: int = 0
    result_size: int | None = None
    agent_id: str = ""
    turn_index: int | None = None
    step: int = 0
    ended_ms: int | None = None
    waited_ms: int = 0
    attempts: int | None = None
    cost_usd: float | None = None
    model_tier: str = ""
    severity: FailureSeverity | None = None
    http_status: int | None = None
    expected: bool = False
    denied: bool = False
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
    appended: bool = False
    error_code: str = ""
    error_message: str = ""
    signature: str = ""
    reclassified: FailureSeverity | None = None
    judged_by: str = ""

    @property
    def error(self) -> str:
        """Words of the error: the message with its HTTP status, else the status or the severity alone."""
        text = self.error_message[:MAX_ERROR]
        if self.http_status is not None and str(self.http_status) not in text:
            text = f"HTTP {self.http_status}: {text}" if text else f"HTTP {self.http_status}"
        return text or str(self.severity or "").replace("_", " ")


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
    pattern: PatternType
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


class ToolTimePassed(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="time.passed"):
    """Timer record, appended by the engine when a probe's lease or a forced opening has ended.

    See docs/design/contracts.md#time-and-order.
    """


Outcome = CallOutcome | PatternSeen | ProbeRequest | TrustOrder | ToolTimePassed
"""Union of all records on the `outcomes` topic."""
