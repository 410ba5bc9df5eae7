"""Operator commands: what people with the right to do so publish on `commands` (docs/design/contracts.md#topics).

The record key is the key of the outcomes they act on, workspace and scope (`w1␟tool:bash`), so that a command and
the calls around it have one order. Every command is reported by the transition it causes.
"""

from __future__ import annotations

import msgspec

from .fields import LongName, Name, Ratio, SpanSeconds, Time, Version
from .vocabulary import QualitySeverity


class CommandBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """The envelope of every command.

    Attributes:
        schema_version: "1.x"; another major version is refused.
        id: unique per command; a repeated id changes nothing.
        time: when it was given, RFC 3339 with an offset.
        workspace_id: where it holds. Absent: `default`.
        issued_by: who gave it.
        reason: why, in words; kept in history.
    """

    schema_version: Version
    id: Name
    time: Time
    workspace_id: Name | None = None
    issued_by: Name | None = None
    reason: str | None = None


class KeyCommand(CommandBase, kw_only=True, frozen=True, omit_defaults=True):
    """A command about one key.

    Attributes:
        key: a scope (`tool:NAME`, `service:NAME`, `tier:NAME`), a bare tool name, or for trust a failure key such as
            `bash|command=git`.
    """

    key: LongName


class TrustReset(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="trust.reset"):
    """Forget all failures of a key and trust it again; the only way out of blocked."""


class TrustRecover(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="trust.recover"):
    """Trust an escalated or recovering key again, as an operator does in recovery mode `ask`."""


class TrustApprove(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="trust.approve"):
    """Let one call of an escalated or recovering key pass without being asked about; trust stays as it is.

    The id of the command is the id of the approval. A later approval of the same key takes the place of one that was
    not used; a change of the key's state ends it.

    Attributes:
        expires_in_s: seconds until an approval that was not used ends. Absent: one hour.
    """

    expires_in_s: SpanSeconds | None = None


class ToolRemove(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="tool.remove"):
    """Take a tool away: every call is refused until it is restored."""


class ToolRestore(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="tool.restore"):
    """Give a removed tool back, trusted and with a clean record."""


class BreakerForceOpen(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.force_open"):
    """Stop all traffic through a circuit, whatever its state.

    Attributes:
        duration_s: seconds until it closes by itself. Absent or 0: until it is closed by command.
    """

    duration_s: SpanSeconds | None = None


class BreakerClose(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.close"):
    """Reset a circuit: closed, clean windows, enforced again after `breaker.disable` or `breaker.observe`."""


class BreakerDisable(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.disable"):
    """Switch a circuit off: nothing is computed, nothing blocked, until `breaker.close`."""


class BreakerObserve(KeyCommand, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.observe"):
    """Let a circuit compute and report but never block (shadow mode), until `breaker.close`."""


class ToolCommand(CommandBase, kw_only=True, frozen=True, omit_defaults=True):
    """A command about the quality of one tool.

    Attributes:
        tool: name of the tool; the record key is that of its scope, `tool:NAME`.
    """

    tool: Name

    @property
    def key(self) -> str:
        """The tool's scope."""
        return f"tool:{self.tool}"


class QualityMark(ToolCommand, kw_only=True, frozen=True, omit_defaults=True, tag="quality.mark"):
    """Mark a tool as having failed at something (docs/design/semantics.md#tool-quality).

    Attributes:
        severity: how much it costs.
        scenario: what the tool was used for, in words; it becomes `not-for-WORD` tags.
        error_message: what went wrong, in words.
    """

    severity: QualitySeverity = QualitySeverity.MEDIUM
    scenario: str | None = None
    error_message: str | None = None


class QualityRestore(ToolCommand, kw_only=True, frozen=True, omit_defaults=True, tag="quality.restore"):
    """Give a tool its score back and remove its `not-for-WORD` tags (docs/design/semantics.md#tool-quality).

    Attributes:
        score: 0 to 1. Absent: the score it was registered with.
    """

    score: Ratio | None = None


Command = (
    TrustReset
    | TrustRecover
    | TrustApprove
    | ToolRemove
    | ToolRestore
    | BreakerForceOpen
    | BreakerClose
    | BreakerDisable
    | BreakerObserve
    | QualityMark
    | QualityRestore
)
"""Everything that can stand on the `commands` topic."""
