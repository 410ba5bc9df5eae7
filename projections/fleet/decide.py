"""Decisions of the fleet stage as wire events: a user's trust in a tool, and the profile of a model."""

from __future__ import annotations

from ...rules.rules import FleetRules
from ...schemas import decisions as out
from ...schemas.codec import rfc3339
from ...schemas.outcomes import US
from ...schemas.vocabulary import StateKind, TrustState
from ..calls.keys import tool_key
from ..emit import MAX_CAUSES, Emitter
from . import texts
from .profile import most_common_pattern, nudge_effectiveness, stall_rate
from .promotion import Change
from .state import ModelProfile, UserTrust


def user_trust_changed(
    record: UserTrust, change: Change, rules: FleetRules, emit: Emitter, *, session_id: str = "", cause: str = ""
) -> None:
    """Emit a transition of a user's trust, and its public state; a tombstone once the tool is trusted again.

    `session_id` and `cause` are those of the standing that moved it, if one did.
    """
    why = texts.reason(change, rules)
    key = tool_key(record.tool_name)
    record_key = f"user:{record.user_id}{US}{key}"
    emit.decision(
        "escalations",
        record_key,
        out.TrustChanged,
        session_id=session_id or None,
        user_id=record.user_id,
        caused_by=tuple(one for one in dict.fromkeys((*change.causes, cause)) if one)[-MAX_CAUSES:],
        key=key,
        scope="user",
        from_=change.before,
        to=change.after,
        trigger=change.move,
        reason=why,
        count=round(change.rate, 4),
        threshold=rules.failure_rate if change.after is TrustState.ESCALATED else rules.release_rate,
        window_s=rules.window_seconds,
        expires_at=_when(record.expires_at),
        recovery_hint=texts.recovery_hint(record.expires_at) if record.expires_at else None,
        notification=texts.notification(key, change, why, record.expires_at),
        permission_warning=texts.permission_warning(change, why, record.expires_at),
        silent=False,
    )
    if change.after is TrustState.TRUSTED:
        emit.tombstone("state", f"trust:{record_key}")
        return
    emit.decision(
        "state",
        f"trust:{record_key}",
        out.StateUpdated,
        user_id=record.user_id,
        kind=StateKind.TRUST,
        key=key,
        scope="user",
        state=str(record.state),
        reason=why,
        failure_rate=round(change.rate, 4),
        measured=change.calls,
        escalated_at=_when(record.escalated_at),
        expires_at=_when(record.expires_at),
    )


def model_state(profile: ModelProfile, emit: Emitter) -> None:
    """Publish a model's whole profile."""
    rate, effectiveness = stall_rate(profile), nudge_effectiveness(profile)
    emit.decision(
        "state",
        f"model:{profile.model}",
        out.StateUpdated,
        kind=StateKind.MODEL,
        key=profile.model,
        scope="model",
        turns=profile.turns,
        stalled_turns=profile.stalled_turns,
        stall_rate=None if rate is None else round(rate, 4),
        pattern_counts=dict(sorted(profile.pattern_counts.items())),
        most_common_pattern=most_common_pattern(profile),
        nudges_sent=profile.nudges_sent,
        nudges_judged=max(0, profile.nudges_judged),
        nudges_effective=profile.nudges_effective,
        nudge_effectiveness=None if effectiveness is None else round(effectiveness, 4),
        false_alarms=dict(sorted(profile.false_alarms.items())),
    )


def withdraw_model(profile: ModelProfile, emit: Emitter) -> None:
    """Take a model's profile back."""
    emit.tombstone("state", f"model:{profile.model}")


def _when(ms: int) -> str | None:
    return rfc3339(ms) if ms else None
