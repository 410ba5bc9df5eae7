"""Decisions of the tool stage as wire events: transitions, answers to probes, and the public state of a key."""

from __future__ import annotations

from typing import NamedTuple

from ...rules.rules import EscalationRule
from ...schemas import decisions as out
from ...schemas.codec import rfc3339
from ...schemas.outcomes import US, CallOutcome, ProbeRequest
from ...schemas.vocabulary import BreakerState, TrustState
from ..emit import Emitter
from . import breaker, texts, trust
from .state import ToolState, TrustRecord

MAX_FAILURE_TIMES = 20
"""Latest failures whose times a public state lists."""


class Wider(NamedTuple):
    """The record of the tool or service that a fine key belongs to.

    Attributes:
        record: that record.
        told: users are told of its changes.
    """

    record: TrustRecord
    told: bool


def _when(ms: int) -> str | None:
    return rfc3339(ms) if ms else None


def trust_changed(
    state: ToolState,
    record: TrustRecord,
    change: trust.Change,
    rule: EscalationRule,
    outcome: CallOutcome,
    emit: Emitter,
    wider: Wider | None = None,
) -> None:
    """Emit a transition of trust, or that recovery waits for the operator, with evidence and ready-made texts.

    `wider`: the record of the tool or service that a fine key belongs to. While that one is not trusted, users know of
    the outage, and changes of the key are silent until it is trusted again; that a key is blocked is news all the same,
    and so is that it is escalated again, or waits for an operator, when the wider one has recovered.
    """
    why = texts.reason(change, rule)
    if change.after in {TrustState.ESCALATED, TrustState.BLOCKED}:
        record.reason = why
    order_key, covered = record.key, False
    if wider is not None and wider.record.state is not TrustState.TRUSTED:
        order_key, covered = wider.record.key, wider.told
    if TrustState.BLOCKED in {change.before, change.after}:
        record.part_of = ""
    elif covered:
        record.part_of = order_key
    elif change.after is TrustState.ESCALATED or change.pending:
        record.part_of = ""
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
        recovery_hint=texts.recovery_hint(record, rule, order_key) or None,
        notification=texts.notification(record, change, why, rule, order_key),
        permission_warning=texts.permission_warning(record, change, why, rule, order_key),
        silent=not rule.notify_user or bool(record.part_of),
        part_of=record.part_of or None,
    )
    if change.after is TrustState.TRUSTED:
        record.reason = record.part_of = ""
        record.evidence = []


def trust_state(state: ToolState, record: TrustRecord, rule: EscalationRule, at: int, emit: Emitter) -> None:
    """Publish a key's whole public state; a tombstone once it is back to its default.

    Calls without a fine key, of a tool that has fine keys, have a record of their own under the tool's key: the tool
    as a whole is published there while it is not trusted, else that record is.
    """
    whole = state.trust
    own = state.fine.get(whole.key) if whole is not None else None
    if whole is None or own is None or record.key != own.key:
        _publish_trust(state, record, rule, at, emit)
        return
    trusted = whole.state is TrustState.TRUSTED
    if record is own and whole.published and not trusted:
        return  # the tool as a whole stands there
    shown = own if trusted and _is_away(own) else whole
    shown.published = whole.published or own.published
    _publish_trust(state, shown, rule, at, emit)
    whole.published = own.published = shown.published


def _is_away(record: TrustRecord) -> bool:
    return record.state is not TrustState.TRUSTED or bool(record.failures or record.denials)


def _publish_trust(state: ToolState, record: TrustRecord, rule: EscalationRule, at: int, emit: Emitter) -> None:
    key = f"trust:{state.workspace_id}{US}{record.key}"
    failures = trust.effective_failures(record, rule, at)
    if record.state is TrustState.TRUSTED and not failures and not record.denials:
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
        # A tool as a whole is judged by how many of its keys fail, not by the number of their failures.
        threshold=None if record is state.trust and state.keyed else rule.count_threshold,
        window_s=rule.window_seconds,
        consecutive=record.consecutive,
        reason=record.reason or None,
        since=_when(record.since),
        escalated_at=_when(record.escalated_at),
        expires_at=_when(record.escalated_at + record.duration_ms if record.duration_ms else 0),
        cooldown_until=_when(trust.cooldown_until(record, rule)) if escalated else None,
        recovery_at=_when(trust.recovery_at(record, rule)) if escalated else None,
        successes=record.successes,
        successes_needed=record.successes_needed,
        recovery_pending=record.pending or None,
        denials=record.denials or None,
        last_failure_at=_when(record.last_counted),
        last_success_at=_when(record.last_success),
        failure_history=tuple(rfc3339(failure.at) for failure in record.failures[-MAX_FAILURE_TIMES:]),
        part_of=record.part_of or None,
        approval_id=record.approval or None,
        approval_expires_at=_when(record.approval_until),
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
        since=_when(record.since),
        consecutive=len(record.consecutive),
        last_failure_at=_when(next((one >> 2 for one in reversed(record.results) if one & 1), 0)),
        last_success_at=_when(next((one >> 2 for one in reversed(record.results) if not one & 1), 0)),
        successes=record.successes,
        lease=out.Lease(holder=lease.holder, call_id=lease.call_id, lease_until=rfc3339(lease.until))
        if lease
        else None,
        time_in_state_ms={str(name): spent for name, spent in zip(breaker.STATES, record.spent_ms, strict=True)},
    )
