"""Operator commands, published on `commands` by people with that right (docs/design/contracts.md#topics).

The record key is that of the outcomes they affect, workspace and scope (`w1␟tool:bash`), so that a command and the
calls around it are ordered. The transition that a command causes reports it.
"""

from __future__ import annotations

import msgspec

from .fields import Count, LongName, Name, Ratio, SpanSeconds, Time, Version
from .vocabulary import PatternSeverity, QualitySeverity


class CommandBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """Envelope of every command.

    Attributes:
        schema_version: version of the contract, "1.x"; another major version is rejected.
        id: unique id of the command; a repeated id has no effect.
        time: time of the command, RFC 3339 with an offset.
        workspace_id: workspace it applies to. Absent: `default`.
        issued_by: person or program that issued it.
        reason: reason in words; kept in history.
    """

    schema_version: Version
    id: Name
    time: Time
    workspace_id: Name | None = None
    issued_by: Name | None = None
    reason: str | None = None


class KeyCommand(CommandBase, kw_only=True, frozen=True, omit_defaults=True):
    """Command about one key.

    Attributes:
        key: a scope (`tool:NAME`, `service:NAME`, `tier:NAME`), a bare tool name, or for trust a failure key such as
            `bash|command=git`.
    """

    key: LongName


class TrustReset(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="trust.reset"):
    """Forget all failures of a key and trust it again; the only way out of state blocked."""


class TrustRecover(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="trust.recover"):
    """Trust an escalated or recovering key again; used by operators in recovery mode `ask`."""


class TrustApprove(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="trust.approve"):
    """Let one call of an escalated or recovering key pass without asking, or all of a session; its trust is unchanged.

    The id of the command is the id of the approval. A later approval of the same key replaces an unused one; a change
    of the key's state ends it.

    Attributes:
        expires_in_s: seconds until an unused approval expires. Absent: one hour.
        session_id: session all of whose calls pass until then. Absent: one call, of whichever session.
    """

    expires_in_s: SpanSeconds | None = None
    session_id: Name | None = None


class IncidentAcknowledge(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="incident.acknowledge"):
    """Say that somebody deals with an incident: it stands below the others until it is over or gets more severe.

    `key` is the subject of the incident: a key or scope, or for a session `session:ID`.

    Attributes:
        severity: severity that was seen; an incident that is or gets more severe is open again.
        size: number of sessions that it had hit, or of repetitions of a session, when it was seen.
        withdraw: take the acknowledgement back instead.
    """

    severity: PatternSeverity = PatternSeverity.SEVERE
    size: Count | None = None
    withdraw: bool = False


class ToolRemove(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="tool.remove"):
    """Remove a tool: every call is refused until it is restored."""


class ToolRestore(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="tool.restore"):
    """Restore a removed tool, trusted and without failures."""


class BreakerForceOpen(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.force_open"):
    """Open a circuit, whatever its state; it refuses all calls.

    Attributes:
        duration_s: seconds until it closes. Absent or 0: until `breaker.close`.
    """

    duration_s: SpanSeconds | None = None


class BreakerClose(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.close"):
    """Reset a circuit: closed, empty windows, enforced again after `breaker.disable` or `breaker.observe`."""


class BreakerDisable(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.disable"):
    """Disable a circuit: nothing is computed or blocked until `breaker.close`."""


class BreakerObserve(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.observe"):
    """Switch a circuit to shadow mode: computed and reported, never blocking, until `breaker.close`."""


class ToolCommand(CommandBase, kw_only=True, frozen=True, omit_defaults=True):
    """Command about the quality of one tool.

    Attributes:
        tool: name of the tool; the record key is its scope, `tool:NAME`.
    """

    tool: Name

    @property
    def key(self) -> str:
        """Scope of the tool."""
        return f"tool:{self.tool}"


class QualityMark(ToolCommand, kw_only=True, frozen=True, omit_defaults=True, tag="quality.mark"):
    """Mark a tool as having failed at a scenario (docs/design/semantics.md#tool-quality).

    Attributes:
        severity: size of the reduction of its score.
        scenario: task that the tool was used for, in words; it becomes `not-for-WORD` tags.
        error_message: error in words.
    """

    severity: QualitySeverity = QualitySeverity.MEDIUM
    scenario: str | None = None
    error_message: str | None = None


class QualityRestore(ToolCommand, kw_only=True, frozen=True, omit_defaults=True, tag="quality.restore"):
    """Restore a tool's score and remove its `not-for-WORD` tags (docs/design/semantics.md#tool-quality).

    Attributes:
        score: new score, 0 to 1. Absent: the registered score.
    """

    score: Ratio | None = None


Command = (
    TrustReset
    | TrustRecover
    | TrustApprove
    | IncidentAcknowledge
    | ToolRemove
    | ToolRestore
    | BreakerForceOpen
    | BreakerClose
    | BreakerDisable
    | BreakerObserve
    | QualityMark
    | QualityRestore
)
"""Union of all records on the `commands` topic."""
