"""Ready-to-show texts of a user's trust, in the tone of those of a workspace's."""

from __future__ import annotations

from ...rules.rules import FleetRules
from ...schemas.codec import rfc3339
from .promotion import Change, Move


def reason(change: Change, rules: FleetRules) -> str:
    """Why a tool moved, with its counts: `fails across 3 workspaces: 83% of calls (limit 50%)`."""
    many = "1 workspace" if change.workspaces == 1 else f"{change.workspaces} workspaces"
    match change.move:
        case Move.PROMOTION:
            return f"fails across {many}: {change.rate:.0%} of calls (limit {rules.failure_rate:.0%})"
        case Move.DEMOTION if change.workspaces < rules.workspaces:
            return f"not trusted in {change.workspaces} of {rules.workspaces} workspaces any more"
        case Move.DEMOTION:
            return f"down to {change.rate:.0%} of calls failing across {many} (limit {rules.release_rate:.0%})"
    return "the escalation has lasted long enough"


def recovery_hint(expires_at: int) -> str:
    """What leads back to trust."""
    return f"ends at {_when(expires_at)} UTC, or when it works again in enough workspaces"


def notification(tool: str, change: Change, why: str, expires_at: int) -> str:
    """What the user is shown when a tool moves."""
    if change.move is not Move.PROMOTION:
        return f"✓ Tool '{tool}' no longer requires approval in all your workspaces"
    return (
        f"⚠️ Tool '{tool}' escalated to require approval in all your workspaces\n   Reason: {why}\n"
        f"   Duration: until {_when(expires_at)} UTC"
    )


def permission_warning(change: Change, why: str, expires_at: int) -> str | None:
    """Warning for a permission prompt while the tool is escalated."""
    if change.move is not Move.PROMOTION:
        return None
    return f"This tool has been escalated in all your workspaces due to: {why}\n{recovery_hint(expires_at)}"


def _when(ms: int) -> str:
    """Day and time: an escalation for a user may last into the next day."""
    return rfc3339(ms)[:16].replace("T", " ")
