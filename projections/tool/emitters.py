"""Emitters of the tool stage's wire events: transitions, probe answers, and the public state of a key.

Emitters only read states; the caller records what was published.
"""

from __future__ import annotations

from typing import NamedTuple

from ...rules.rules import EscalationRule
from ...schemas import decisions as out
from ...schemas.codec import dated, rfc3339
from ...schemas.outcomes import US, CallOutcome, ProbeRequest
from ...schemas.vocabulary import BreakerMode, BreakerState, DangerKind, TrustState, TrustTrigger
from ..calls.attempt import HARMS, level_of
from ..calls.keys import order
from ..emitter import time_or_none
from . import breaker, trust
from .failure_counts import FAILED, effective_failures
from .tool_state import ToolFold, ToolState, TrustRecord

MAX_FAILURE_TIMES = 20  # Maximum number of latest failures whose times a public state lists


class TrustCause(NamedTuple):
    """Input event that moved a trust record: a call, or an operator's command."""

    id: str  # id of the input event
    session_id: str = ""  # session of the call; empty for a command
    user_id: str = ""  # user of the call; empty for a command


def trust_changed(
    fold: ToolFold, record: TrustRecord, change: trust.TrustChange, rule: EscalationRule, cause: TrustCause
) -> None:
    """Emit a trust transition, or a recovery that waits for the operator, with its evidence and display texts."""
    workspace = fold.state.workspace_id
    evidence = change.evidence if change.after in {TrustState.ESCALATED, TrustState.BLOCKED} else ()
    observed = fold.state.observed
    kind: type[out.TrustFields] = out.TrustRecoveryPending if change.pending else out.TrustChanged
    fold.emit.write(
        "escalations",
        f"{workspace}{US}{record.key}",
        kind(
            **fold.emit.envelope(kind),
            session_id=cause.session_id or None,
            workspace_id=workspace,
            user_id=cause.user_id or None,
            caused_by=evidence or (cause.id,),
            key=record.key,
            scope=record.scope,
            from_=change.before,
            to=change.after,
            trigger=change.trigger,
            reason=change.reason,
            count=round(change.amount, 4),
            threshold=change.threshold,
            window_s=rule.window_seconds,
            expires_at=time_or_none(record.escalated_at + record.duration_ms if record.duration_ms else 0),
            successes=record.successes,
            successes_needed=record.successes_needed,
            recovery_hint=recovery_hint(record, rule, change.order_key, fold.at, workspace) or None,
            notification=observation(record, change)
            if observed
            else notification(record, change, rule, fold.at, workspace),
            permission_warning=None if observed else permission_warning(record, change, rule, fold.at, workspace),
            silent=not rule.notify_user or bool(change.part_of) or change.trigger is TrustTrigger.AGED,
            part_of=change.part_of or None,
        ),
    )


def danger_noted(fold: ToolFold, record: TrustRecord, kind: DangerKind, outcome: CallOutcome) -> None:
    """Emit that a dangerous call was made or held back."""
    made = outcome.verdict != "neutral"
    what = f"a call that would {HARMS[kind]} was {'made' if made else 'held back'}"
    fold.emit.write(
        "escalations",
        f"{fold.state.workspace_id}{US}{record.key}",
        out.TrustDangerNoted(
            **fold.emit.envelope(out.TrustDangerNoted),
            session_id=outcome.session_id or None,
            workspace_id=fold.state.workspace_id,
            user_id=outcome.user_id or None,
            caused_by=(outcome.cause,),
            key=record.key,
            danger=kind,
            made=made,
            reason=what,
            count=record.dangers,
            notification=f"{outcome.tool_name}: {what}",
            silent=not made or level_of(kind, fold.rules.calls) == "observe",
        ),
    )


def trust_state(fold: ToolFold, record: TrustRecord, rule: EscalationRule) -> bool:
    """Publish the whole public state of a key, or a tombstone once it is back to its default.

    Returns whether the `state` topic holds the key afterwards.
    """
    state, emit = fold.state, fold.emit
    key = trust_key(state, record)
    failures = effective_failures(record, rule, fold.at)
    if record.state is TrustState.TRUSTED and not (failures or record.denials or record.dangers or record.approval):
        if record.published:
            emit.tombstone("state", key)
        return False
    escalated = record.state is TrustState.ESCALATED
    emit.write(
        "state",
        key,
        out.TrustUpdated(
            **emit.envelope(out.TrustUpdated),
            workspace_id=state.workspace_id,
            kind="trust",
            key=record.key,
            scope=record.scope,
            state=record.state,
            failures=round(failures, 4),
            # A tool as a whole is judged by the number of its failing keys, not by the number of failures.
            threshold=None if record is state.trust and state.keyed else rule.count_threshold,
            window_s=rule.window_seconds,
            consecutive=record.consecutive,
            reason=record.reason or None,
            since=time_or_none(record.since),
            escalated_at=time_or_none(record.escalated_at),
            expires_at=time_or_none(record.escalated_at + record.duration_ms if record.duration_ms else 0),
            cooldown_until=time_or_none(trust.cooldown_until(record, rule)) if escalated else None,
            recovery_at=time_or_none(trust.recovery_at(record, rule)) if escalated else None,
            successes=record.successes,
            successes_needed=record.successes_needed,
            recovery_pending=record.pending or None,
            denials=record.denials or None,
            dangerous_calls=record.dangers or None,
            last_failure_at=time_or_none(record.last_counted),
            last_success_at=time_or_none(record.last_success),
            failure_history=tuple(rfc3339(failure.at) for failure in record.failures[-MAX_FAILURE_TIMES:]),
            part_of=record.part_of or None,
            approval_id=record.approval or None,
            approval_expires_at=time_or_none(record.approval_until),
            approval_session_id=record.approval_session or None,
            last_error=record.error or None,
            last_failed_session=record.failed_session or None,
            failed_sessions=sum(flags & FAILED != 0 for flags in record.session_flags) or None,
            trigger=TrustTrigger(record.trigger) if record.state is not TrustState.TRUSTED else None,
        ),
    )
    return True


def trust_key(state: ToolState, record: TrustRecord) -> str:
    """Key of a trust record on the `state` topic."""
    return f"trust:{state.workspace_id}{US}{record.key}"


def breaker_changed(fold: ToolFold, change: breaker.CircuitChange, evidence: tuple[str, ...]) -> None:
    """Emit a transition of a circuit."""
    state, record = fold.state, fold.state.breaker
    rate, measured = breaker.failure_rate(record)
    stopped = change.after in {BreakerState.OPEN, BreakerState.FORCED_OPEN}
    fold.emit.write(
        "breakers",
        f"{state.workspace_id}{US}{state.scope}",
        out.BreakerChanged(
            **fold.emit.envelope(out.BreakerChanged),
            workspace_id=state.workspace_id,
            caused_by=evidence,
            breaker_key=state.scope,
            from_=change.before,
            to=change.after,
            trigger=change.trigger,
            consecutive_failures=len(record.consecutive),
            failure_rate=round(rate, 4),
            measured=measured,
            open_until=time_or_none(record.open_until if stopped else 0),
            mode=state.circuit_mode,
        ),
    )


def probe_answered(fold: ToolFold, request: ProbeRequest, answer: breaker.ProbeGrant) -> None:
    """Emit that the fleet's single probe was granted, or that the call must fail fast."""
    state = fold.state
    kind: type[out.ProbeAnswerBase] = out.BreakerProbeGranted if answer.granted else out.BreakerProbeDenied
    fold.emit.write(
        "breakers",
        f"{state.workspace_id}{US}{state.scope}",
        kind(
            **fold.emit.envelope(kind),
            session_id=request.session_id or None,
            workspace_id=state.workspace_id,
            caused_by=(request.cause,),
            breaker_key=state.scope,
            holder=request.guard_id,
            call_id=request.call_id,
            lease_until=time_or_none(answer.lease_until),
        ),
    )


def breaker_state(fold: ToolFold) -> bool:
    """Publish the whole public state of a circuit, or a tombstone once it is closed and enforced again.

    Returns whether the `state` topic holds the circuit afterwards.
    """
    state, record, emit = fold.state, fold.state.breaker, fold.emit
    key = f"breaker:{state.workspace_id}{US}{state.scope}"
    if record.state is BreakerState.CLOSED and record.mode is BreakerMode.ENFORCE:
        if record.published:
            emit.tombstone("state", key)
        return False
    rate, measured = breaker.failure_rate(record)
    lease = record.lease
    emit.write(
        "state",
        key,
        out.BreakerUpdated(
            **emit.envelope(out.BreakerUpdated),
            workspace_id=state.workspace_id,
            kind="breaker",
            key=state.scope,
            scope=state.kind_of_scope,
            state=record.state,
            mode=state.circuit_mode,
            reason=record.trigger or None,
            failure_rate=round(rate, 4),
            measured=measured,
            opened_at=time_or_none(record.opened_at),
            first_opened_at=time_or_none(record.first_opened),
            open_until=time_or_none(record.open_until),
            reopen_count=record.opened_total,
            since=time_or_none(record.since),
            consecutive=len(record.consecutive),
            last_failure_at=time_or_none(next((one >> 2 for one in reversed(record.results) if one & 1), 0)),
            last_success_at=time_or_none(next((one >> 2 for one in reversed(record.results) if not one & 1), 0)),
            successes=record.successes,
            lease=out.ProbeLease(holder=lease.holder, call_id=lease.call_id, lease_until=rfc3339(lease.until))
            if lease
            else None,
            last_error=record.error or None,
            last_failed_session=record.failed_session or None,
            time_in_state_ms={str(name): spent for name, spent in zip(breaker.STATES, record.spent_ms, strict=True)},
        ),
    )
    return True


def acknowledged_state(fold: ToolFold, key: str) -> None:
    """Publish the acknowledgement of an incident."""
    state, noted = fold.state, fold.state.acknowledged[key]
    fold.emit.write(
        "state",
        acknowledged_key(state, key),
        out.IncidentUpdated(
            **fold.emit.envelope(out.IncidentUpdated),
            workspace_id=state.workspace_id,
            kind="incident",
            key=key,
            scope=state.kind_of_scope if key == state.scope else "key",
            severity=noted.severity,
            acknowledged_at=rfc3339(noted.at),
            acknowledged_by=noted.by or None,
            size=noted.size,
        ),
    )


def acknowledged_key(state: ToolState, key: str) -> str:
    """Key of an acknowledgement on the `state` topic."""
    return f"incident:{state.workspace_id}{US}{key}"


# --- ready-to-show texts (docs/trust.md) ---


def recovery_hint(record: TrustRecord, rule: EscalationRule, order_key: str, at: int, place: str) -> str:
    """Text on how trust is restored; `order_key` is that of the record whose reset lets calls of the key run."""
    match record.state:
        case TrustState.ESCALATED:
            when = dated(trust.recovery_at(record, rule), at)
            return (
                f"{rule.success_count_to_recover} successful calls after {when} restore trust; "
                f"{order('reset', order_key, place)} at once"
            )
        case TrustState.RECOVERING if record.pending:
            return f"ready: {order('recover', order_key, place)} restores trust"
        case TrustState.RECOVERING:
            return f"{record.successes_needed - record.successes} more successful calls restore trust"
        case TrustState.BLOCKED:
            return f"manual reset required: {order('reset', order_key, place)}"
        case TrustState.REMOVED:
            return f"an operator took the tool away; {order('restore', order_key, place)} brings it back"
    return ""


def subject(record: TrustRecord) -> str:
    """Subject of a notification: `Tool 'bash|command=git'`, `Service 'api.example.com'`."""
    name = record.key.removeprefix("service:")
    return f"Service '{name}'" if record.scope == "service" else f"Tool '{record.key}'"


def notification(record: TrustRecord, change: trust.TrustChange, rule: EscalationRule, at: int, place: str) -> str:
    """Text shown to the user when the state of a key changes."""
    name, why, order_key = subject(record), change.reason, change.order_key
    if change.pending:
        return f"{name} ready for recovery. Use {order('recover', order_key, place)} to restore trust."
    match change.after:
        case TrustState.ESCALATED:
            until = dated(record.escalated_at + record.duration_ms, at)
            return (
                f"⚠️ {name} escalated to require approval\n   Reason: {why}\n   Duration: until {until}\n"
                f"   Recovery: {rule.success_count_to_recover} successful calls after cooldown"
            )
        case TrustState.BLOCKED:
            return f"🛑 {name} blocked - {why}\n   {recovery_hint(record, rule, order_key, at, place)}"
        case TrustState.RECOVERING:
            return f"{name} is recovering ({record.successes}/{record.successes_needed} successes)"
        case TrustState.REMOVED:
            return f"{name} removed by an operator"
    return f"✓ {name} recovered" if change.trigger is not TrustTrigger.RESTORE else f"✓ {name} restored"


def observation(record: TrustRecord, change: trust.TrustChange) -> str:
    """Text shown to the user when the service behind a program goes away or comes back; nothing is asked by it."""
    name = subject(record)
    if change.after is TrustState.TRUSTED:
        return f"✓ {name} works again"
    if change.after is TrustState.RECOVERING:
        return f"{name} has worked again"
    return f"⚠️ {name} does not work\n   Reason: {change.reason}\n   No call is refused or asked about because of it."


def permission_warning(
    record: TrustRecord, change: trust.TrustChange, rule: EscalationRule, at: int, place: str
) -> str | None:
    """Warning for a permission prompt while the key is not trusted."""
    if change.after is TrustState.TRUSTED:
        return None
    recovers = change.after is TrustState.RECOVERING
    what = "is recovering:" if recovers else f"has been {change.after} due to:"
    return f"This tool {what} {change.reason}\n{recovery_hint(record, rule, change.order_key, at, place)}"
