"""Operator commands: what may be ordered, on which key (design 2, topic `commands`)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Key = Annotated[str, Meta(min_length=1, max_length=512)]


class CommandBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """The envelope of every command.

    Attributes:
        key: trust or breaker key, as decisions and `status` show it (`bash|command=rm`, `tool:bash`, `service:atlassian`).
        workspace_id: workspace of the key; `default` when absent.
        reason: why, for the record.
        issued_by: who, for the record.
    """

    schema_version: Name
    id: Name
    time: Annotated[datetime, Meta(tz=True)]
    key: Key
    workspace_id: Name | None = None
    reason: str | None = None
    issued_by: Name | None = None


class TrustReset(CommandBase, tag="trust.reset", kw_only=True, frozen=True, omit_defaults=True):
    """Back to clean trust, from any state but removed; older failures never count again."""


class TrustRecover(CommandBase, tag="trust.recover", kw_only=True, frozen=True, omit_defaults=True):
    """Restore trust of an escalated or recovering key; does not unblock."""


class ToolRemove(CommandBase, tag="tool.remove", kw_only=True, frozen=True, omit_defaults=True):
    """Take a tool away until it is restored."""


class ToolRestore(CommandBase, tag="tool.restore", kw_only=True, frozen=True, omit_defaults=True):
    """Give a removed tool back, with clean trust."""


class BreakerForceOpen(CommandBase, tag="breaker.force_open", kw_only=True, frozen=True, omit_defaults=True):
    """Hold a circuit open; for `duration_s` seconds, or until it is closed by command."""

    duration_s: Annotated[float, Meta(gt=0, le=31_536_000)] | None = None


class BreakerClose(CommandBase, tag="breaker.close", kw_only=True, frozen=True, omit_defaults=True):
    """Close a circuit with clean windows and enforce it again."""


class BreakerDisable(CommandBase, tag="breaker.disable", kw_only=True, frozen=True, omit_defaults=True):
    """Stop computing a circuit; every call passes."""


class BreakerObserve(CommandBase, tag="breaker.observe", kw_only=True, frozen=True, omit_defaults=True):
    """Compute and report a circuit, but never block (shadow mode)."""


class QualityMark(CommandBase, tag="quality.mark", kw_only=True, frozen=True, omit_defaults=True):
    """Mark a tool as failed for a scenario (seed 4); `severity` is low, medium or high."""

    scenario: str
    severity: Annotated[str, Meta(pattern="^(low|medium|high)$")]
    error_message: str | None = None


class QualityRestore(CommandBase, tag="quality.restore", kw_only=True, frozen=True, omit_defaults=True):
    """Restore a tool's registered quality and drop its negative tags (seed 4)."""


Command = (
    TrustReset
    | TrustRecover
    | ToolRemove
    | ToolRestore
    | BreakerForceOpen
    | BreakerClose
    | BreakerDisable
    | BreakerObserve
    | QualityMark
    | QualityRestore
)
"""Every operator command."""
