"""Emits decisions of the fleet stage: a user's trust in a tool, and the profile of a model.

The texts for users match those of a workspace.
"""

from __future__ import annotations

from ...rules.rules import FleetRules
from ...schemas import decisions as out
from ...schemas.codec import rfc3339
from ...schemas.outcomes import US
from ...schemas.vocabulary import PatternType, TrustState, TrustTrigger
from ..calls.keys import tool_key
from ..emitter import MAX_CAUSES, OutputEmitter, time_or_none
from .fleet_state import BehaviourCounts, UserTrust, most_common_pattern, nudge_effectiveness, stall_rate
from .promotion import UserTrustChange


def user_trust_changed(
    record: UserTrust,
    change: UserTrustChange,
    rules: FleetRules,
    emit: OutputEmitter,
    *,
    session_id: str = "",
    cause: str = "",
) -> None:
    """Emit a transition of a user's trust, and its public state; a tombstone if the tool is trusted again.

    `session_id` and `cause` are those of the causing standing, if there is one.
    """
    why = reason(change, rules)
    key = record.subject or tool_key(record.tool_name)
    record_key = f"user:{record.user_id}{US}{key}"
    emit.write(
        "escalations",
        record_key,
        out.TrustChanged(
            **emit.envelope(out.TrustChanged),
            session_id=session_id or None,
            user_id=record.user_id,
            caused_by=tuple(one for one in dict.fromkeys((*change.causes, cause)) if one)[-MAX_CAUSES:],
            key=key,
            scope="user",
            from_=change.before,
            to=change.after,
            trigger=change.trigger,
            reason=why,
            count=round(change.rate, 4),
            threshold=rules.failure_rate if change.after is TrustState.ESCALATED else rules.release_rate,
            window_s=rules.window_seconds,
            expires_at=time_or_none(record.expires_at),
            recovery_hint=recovery_hint(record.expires_at) if record.expires_at else None,
            notification=notification(_named(record, key), change, why, record.expires_at),
            permission_warning=permission_warning(change, why, record.expires_at),
            silent=False,
        ),
    )
    if change.after is TrustState.TRUSTED:
        emit.tombstone("state", f"trust:{record_key}")
        return
    user_trust_state(record, change, rules, emit)


def user_trust_state(record: UserTrust, change: UserTrustChange, rules: FleetRules, emit: OutputEmitter) -> None:
    """Emit the public state of a tool that a change has escalated for a user."""
    key = record.subject or tool_key(record.tool_name)
    record_key = f"user:{record.user_id}{US}{key}"
    emit.write(
        "state",
        f"trust:{record_key}",
        out.TrustUpdated(
            **emit.envelope(out.TrustUpdated),
            user_id=record.user_id,
            kind="trust",
            key=key,
            scope="user",
            state=record.state,
            reason=reason(change, rules),
            failure_rate=round(change.rate, 4),
            measured=change.calls,
            escalated_at=time_or_none(record.escalated_at),
            expires_at=time_or_none(record.expires_at),
        ),
    )


def model_state(profile: BehaviourCounts, emit: OutputEmitter) -> None:
    """Emit a model's complete profile."""
    rate, effectiveness = stall_rate(profile), nudge_effectiveness(profile)
    common = most_common_pattern(profile)
    emit.write(
        "state",
        f"model:{profile.model}",
        out.ModelUpdated(
            **emit.envelope(out.ModelUpdated),
            kind="model",
            key=profile.model,
            scope="model",
            turns=profile.turns,
            stalled_turns=profile.stalled_turns,
            stall_rate=None if rate is None else round(rate, 4),
            pattern_counts=dict(sorted(profile.pattern_counts.items())),
            most_common_pattern=PatternType(common) if common else None,
            nudges_sent=profile.nudges_sent,
            nudges_judged=profile.nudges_judged,
            nudges_effective=profile.nudges_effective,
            nudge_effectiveness=None if effectiveness is None else round(effectiveness, 4),
            false_alarms=dict(sorted(profile.false_alarms.items())),
        ),
    )


# --- ready-to-show texts ---


def reason(change: UserTrustChange, rules: FleetRules) -> str:
    """Return why a tool's trust changed, with its counts: `fails across 3 workspaces: 83% of calls (limit 50%)`."""
    many = "1 workspace" if change.workspaces == 1 else f"{change.workspaces} workspaces"
    match change.trigger:
        case TrustTrigger.PROMOTION:
            return f"fails across {many}: {change.rate:.0%} of calls (limit {rules.failure_rate:.0%})"
        case TrustTrigger.DEMOTION if change.workspaces < rules.workspaces:
            return f"not trusted in {change.workspaces} of {rules.workspaces} workspaces any more"
        case TrustTrigger.DEMOTION:
            return f"down to {change.rate:.0%} of calls failing across {many} (limit {rules.release_rate:.0%})"
    return "the escalation has lasted long enough"


def recovery_hint(expires_at: int) -> str:
    """Return how trust can be restored, in words."""
    return f"ends at {_minute(expires_at)} UTC, or when it works again in enough workspaces"


def _named(record: UserTrust, key: str) -> str:
    """Return what a text calls a user's record: `Tool 'deploy'`, `Service 'api.shop.example'`."""
    if not record.subject:
        return f"Tool '{key}'"
    service = key.removeprefix("service:")
    return f"Service '{service}'" if service != key else f"'{key}'"


def notification(name: str, change: UserTrustChange, why: str, expires_at: int) -> str:
    """Return the message for the user about a change."""
    if change.trigger is not TrustTrigger.PROMOTION:
        return f"✓ {name} no longer requires approval in all your workspaces"
    return (
        f"⚠️ {name} escalated to require approval in all your workspaces\n   Reason: {why}\n"
        f"   Duration: until {_minute(expires_at)} UTC"
    )


def permission_warning(change: UserTrustChange, why: str, expires_at: int) -> str | None:
    """Return the warning for a permission prompt while the tool is escalated."""
    if change.trigger is not TrustTrigger.PROMOTION:
        return None
    return f"This tool has been escalated in all your workspaces due to: {why}\n{recovery_hint(expires_at)}"


def _minute(ms: int) -> str:
    """Format day and time: an escalation for a user may last into the next day."""
    return rfc3339(ms)[:16].replace("T", " ")
