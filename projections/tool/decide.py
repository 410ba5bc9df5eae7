"""Decisions of the tool stage as wire events: transitions, answers to probes, and the public state of a key."""

from __future__ import annotations

from ...schemas import decisions as out
from ...schemas.codec import rfc3339
from ...schemas.outcomes import US, CallOutcome, ProbeRequest
from ...schemas.rules import EscalationRule
from ...schemas.vocabulary import BreakerState, TrustState
from ..emit import Emitter
from . import breaker, texts, trust
from .state import ToolState, TrustRecord


def _when(ms: int) -> str | None:
    return rfc3339(ms) if ms else None


def trust_changed(
    state: ToolState,
    record: TrustRecord,
    change: trust.Change,
    rule: EscalationRule,
    outcome: CallOutcome,
    emit: Emitter,
) -> None:
    """Emit a transition of trust, or that recovery waits for the operator, with evidence and ready-made texts."""
    why = texts.reason(change, rule)
    if change.after in {TrustState.ESCALATED, TrustState.BLOCKED}:
        record.reason = why
    record_key = f"{state.workspace_id}{US}{record.key}"
    emit.decision(
        "escalations",
        record_key,
        out.TrustRecoveryPending if change.pending else out.TrustChanged,
        session_id=outcome.session_id or None,
        workspace_id=state.workspace_id,
        user_id=outcome.user_id or None,
        caused_by=tuple(record.evidence or [outcome.cause])
        if change.after in {TrustState.ESCALATED, TrustState.BLOCKED}
        else (outcome.cause,),
        key=record.key,
        scope=record.scope,
        from_=change.before,
        to=change.after,
        trigger=change.move,
        reason=why,
        count=round(change.amount, 4),
        threshold=change.threshold,
        window_s=rule.window_seconds,
        expires_at=_when(record.escalated_at + record.duration_ms if record.duration_ms else 0),
        successes=record.successes,
        successes_needed=record.successes_needed,
        recovery_hint=texts.recovery_hint(record, rule) or None,
        notification=texts.notification(record, change, why, rule),
        permission_warning=texts.permission_warning(record, change, why, rule),
        silent=not rule.notify_user,
    )
    if change.after is TrustState.TRUSTED:
        record.reason = ""
        record.evidence = []


def trust_state(state: ToolState, record: TrustRecord, rule: EscalationRule, at: int, emit: Emitter) -> None:
    """Publish a key's whole public state; a tombstone once it is back to its default."""
    key = f"trust:{state.workspace_id}{US}{record.key}"
    failures = trust.effective_failures(record, rule, at)
    if record.state is TrustState.TRUSTED and not failures:
        if record.published:
            record.published = False
            emit.tombstone("state", key)
        return
    record.published = True
    escalated = record.state is TrustState.ESCALATED
    emit.decision(
        "state",
        key,
        out.StateUpdated,
        workspace_id=state.workspace_id,
        kind="trust",
        key=record.key,
        scope=record.scope,
        state=str(record.state),
        failures=round(failures, 4),
        threshold=rule.count_threshold,
        consecutive=record.consecutive,
        reason=record.reason or None,
        escalated_at=_when(record.escalated_at),
        expires_at=_when(record.escalated_at + record.duration_ms if record.duration_ms else 0),
        recovery_at=_when(trust.recovery_at(record, rule)) if escalated else None,
        successes=record.successes,
        successes_needed=record.successes_needed,
        recovery_pending=record.pending or None,
        denials=record.denials or None,
    )


def breaker_changed(state: ToolState, change: breaker.Change, evidence: tuple[str, ...], emit: Emitter) -> None:
    """Emit a transition of a circuit."""
    record = state.breaker
    rate, measured = breaker.failure_rate(record)
    emit.decision(
        "breakers",
        f"{state.workspace_id}{US}{state.scope}",
        out.BreakerChanged,
        workspace_id=state.workspace_id,
        caused_by=evidence,
        breaker_key=state.scope,
        from_=change.before,
        to=change.after,
        trigger=change.move,
        consecutive_failures=len(record.consecutive),
        failure_rate=round(rate, 4),
        measured=measured,
        open_until=_when(record.open_until) if change.after in {BreakerState.OPEN, BreakerState.FORCED_OPEN} else None,
        mode=record.mode,
    )


def probe_answered(state: ToolState, request: ProbeRequest, answer: breaker.ProbeAnswer, emit: Emitter) -> None:
    """Tell the fleet who holds the probe, or that this one must fail fast."""
    emit.decision(
        "breakers",
        f"{state.workspace_id}{US}{state.scope}",
        out.BreakerProbeGranted if answer.granted else out.BreakerProbeDenied,
        session_id=request.session_id or None,
        workspace_id=state.workspace_id,
        caused_by=(request.cause,),
        breaker_key=state.scope,
        holder=request.guard_id,
        call_id=request.call_id,
        lease_until=_when(answer.lease_until),
    )


def breaker_state(state: ToolState, emit: Emitter) -> None:
    """Publish a circuit's whole public state; a tombstone once it is closed and enforced again."""
    record = state.breaker
    key = f"breaker:{state.workspace_id}{US}{state.scope}"
    if record.state is BreakerState.CLOSED and record.mode == "enforce":
        if record.published:
            record.published = False
            emit.tombstone("state", key)
        return
    record.published = True
    rate, measured = breaker.failure_rate(record)
    lease = record.lease
    emit.decision(
        "state",
        key,
        out.StateUpdated,
        workspace_id=state.workspace_id,
        kind="breaker",
        key=state.scope,
        scope=state.scope.partition(":")[0],
        state=str(record.state),
        mode=record.mode,
        reason=record.trigger or None,
        failure_rate=round(rate, 4),
        measured=measured,
        opened_at=_when(record.opened_at),
        open_until=_when(record.open_until),
        reopen_count=record.opened_total,
        successes=record.successes,
        lease=out.Lease(holder=lease.holder, call_id=lease.call_id, lease_until=rfc3339(lease.until))
        if lease
        else None,
        time_in_state_ms={str(name): spent for name, spent in zip(breaker.STATES, record.spent_ms, strict=True)},
    )
