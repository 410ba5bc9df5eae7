"""Records of the internal `outcomes` topic: what the session stage tells the tool stage.

Keyed by workspace and scope (`w1␟tool:bash`), so everything about one tool, one service or one model tier
arrives in one partition, in order. Internal: only trustfold writes and reads them; the shape may change
with any release that also drains the topic (docs/design/contracts.md#topics).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .vocabulary import ModelSwitchStrategy, Pattern, RecoveryMode, Severity, ToolClass

US = "\x1f"
"""Joins workspace and scope in record keys."""

DEFAULT_WORKSPACE = "default"
"""Workspace of events that name none."""

OWN_MAKING = frozenset({Severity.INVALID_INPUT, Severity.VALIDATION})
"""Severities of failures that a model brings about itself; every other one blames no model.

See docs/design/semantics.md#models.
"""


TrustOrderType = Literal["trust.reset", "trust.recover", "trust.approve", "tool.remove", "tool.restore"]
"""Types of the commands that are orders about trust."""


class OutcomeBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """What every record of the topic carries.

    Attributes:
        id: derived from the input event's id and the scope.
        time_ms: effective time of the cause, milliseconds since the epoch.
        workspace_id: the workspace, `default` when the event named none.
        scope: `tool:NAME`, `service:NAME` or `tier:NAME`.
        session_id: session of the cause; empty for operators.
        cause: id of the input event behind the record.
        origin_partition: partition of `events` that the record comes from.
        origin: place in that partition (offset and ordinal), ever rising. After a crash outcomes are written again at
            new offsets; the tool stage drops what is not beyond the highest origin it has folded of its partition.
            -1: not from `events`.
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
    """One finished call, classified, for one scope.

    Attributes:
        verdict: `success`, `failure`, or `neutral` (cancelled, refused, served from a cache: counted nowhere).
        fine_key: failure key with the normalised key parameters, e.g. `bash|command=git`.
        severity: set when the verdict is a failure.
        expected: an informational failure that no rule counts (`expected_failure` on the event).
        started_ms: when the call started; decides whether it may settle a breaker probe.
        duration_ms: milliseconds, as measured by the publisher; None when unknown.
        kind: `domain` or `mcp` for service scopes; which rule table applies (docs/design/semantics.md#trust).
        class_declared: the tool class came from configuration or MCP annotations, not from the name.
        denied: a user's refusal; counted apart, never as a failure.
        scenario: what the call was for, in words, cut off at 200 characters; only for the scope of the tool itself.
        model_switch: what the session wants done about a better model, where it overrides the rules.
        unrecoverable: the reporter says that this failure does not mend itself.
        models: of a failure, models that its session has declared available; None: it has declared none.
        recovery_mode: what holds for the session behind it, where the session has settings of its own; None: what
            holds for the key.
        risky: a security failure of the lesser level: escalates its key, never blocks it.
        approvals: approvals that let the call pass (`trust.approve`): used up.
        answered: a `validation` failure that names no fault: the tool ran and said no. It blames no model, and shows
            nothing of what the tool can do.
        reached: the tool of an MCP server reports the failure: the server itself is well.
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
    kind: Literal["", "domain", "mcp"] = ""
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


class PatternSeen(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="pattern.seen"):
    """A model went round in circles with a tool: told once for each severity that a streak reaches.

    Attributes:
        tool_name: tool of the call that completed the pattern.
        fine_key: failure key of that call.
        model: the model that is stuck.
        pattern: what it did.
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
    """A guard asks for the fleet's one probe of a half-open breaker."""

    guard_id: str
    call_id: str


class TrustOrder(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="trust.order"):
    """An operator's order about trust, passed on to the state that may hold records it is about.

    An order for a tool as a whole goes to the services that hold fine keys of it. An order for a fine key that its
    service does not know goes to the tool: older versions kept such keys there.

    Attributes:
        tool_name: the tool.
        order: type of the command.
        key: the fine key; empty: every fine key of the tool at the service.
        until_ms: of an approval: when it ends, milliseconds.
    """

    tool_name: str
    order: TrustOrderType
    key: str = ""
    until_ms: int = 0


class TimePassed(OutcomeBase, kw_only=True, frozen=True, omit_defaults=True, tag="time.passed"):
    """Appended by the engine when a probe's lease or a forced opening has ended.

    See docs/design/contracts.md#time-and-order.
    """


Outcome = CallOutcome | PatternSeen | ProbeRequest | TrustOrder | TimePassed
"""Everything that can stand on the `outcomes` topic."""

_decoder: msgspec.json.Decoder[Outcome] = msgspec.json.Decoder(Outcome)


def decode_outcome(value: bytes) -> Outcome:
    """Read one record of the `outcomes` topic.

    Raises:
        msgspec.DecodeError: when the record was not written by this version of trustfold.
    """
    return _decoder.decode(value)
