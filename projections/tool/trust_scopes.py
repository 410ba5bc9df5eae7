"""Trust records of one scope: the record of the tool or service as a whole, and those of its fine keys.

Each call is folded into up to two records, each with its own rule. A fine key that names a service is kept in the
state of the service, any other in the state of its tool, so that one state holds all records that an outage of the
service or tool affects (docs/trust.md, Scopes).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from msgspec import structs

from ...rules.rules import EscalationRule, TrustRules
from ...schemas.outcomes import US, CallOutcome
from ...schemas.vocabulary import FailureSeverity, TrustState, TrustTrigger
from ..calls.attempt import danger_of_key
from ..calls.fingerprints import digest
from ..calls.keys import family_of_key, service_of_key, tool_key, tool_of_key
from . import emitters, trust
from .emitters import TrustCause
from .tool_state import MAX_SERVICES, ToolFold, ToolState, TrustRecord

# Name of the counter of failures without a fine key's record, because their scope had reached `max_fine_keys`
UNTRACKED = "untracked"


class FineKey(NamedTuple):
    """A call's fine key and its record in one state."""

    record: TrustRecord | None  # record of the key; None if this state has none
    family: int = 0  # digest of the key's family; 0 if the call has no key other than its tool's
    elsewhere: bool = False  # whether another state keeps the record


def own_record(state: ToolState) -> TrustRecord:
    """New trust record for the scope as a whole."""
    kind = state.kind_of_scope
    return TrustRecord(key=tool_key(state.name) if kind == "tool" else state.scope, scope=kind)


def fold_call(fold: ToolFold, outcome: CallOutcome) -> None:
    """Fold a call into the record of the scope, then into that of its fine key."""
    state, rules, at = fold.state, fold.rules, fold.at
    whole = state.trust
    if whole is None:
        whole = state.trust = own_record(state)
    kind = whole.scope
    of_scopes = trust.rules_for(rules.trust, outcome)
    rule, key_rule = of_scopes.of(kind), of_scopes.key
    fine = _open_fine_key(fold, whole, outcome, at - key_rule.window_seconds * 1000)
    record = fine.record
    mode = outcome.recovery_mode or rules.trust.recovery_mode
    worked = outcome.verdict == "success"
    expected = 0.0 if worked else rules.tools.expected_failure_rates.get(outcome.tool_name, 0.0)
    # The key of an MCP server's tool is kept in the server's state; the tool's own record is for the fleet alone.
    hidden = kind == "tool" and fine.elsewhere and outcome.kind == "mcp" and not whole.published
    if worked and trust.has_clean_record(whole, rule):
        trust.count_success(whole, at)
    else:
        judgement = trust.TrustJudgement(
            rule,
            mode,
            narrowest=record is None and not (fine.elsewhere or fine.family),
            family=fine.family if kind == "tool" and state.keyed else 0,
            expected_rate=expected if kind == "tool" else 0.0,
            hidden=hidden,
        )
        _fold_into(fold, whole, outcome, judgement)
    if record is None:
        return
    danger = danger_of_key(record.key)
    if danger is None and worked and trust.has_clean_record(record, key_rule):
        trust.count_success(record, at)
    else:
        wider = None if hidden else trust.ParentRecord(whole, notifies=rule.notify_user)
        _fold_into(fold, record, outcome, trust.TrustJudgement(key_rule, mode, expected_rate=expected, wider=wider))
    if danger is not None:
        record.dangers += 1
        emitters.danger_noted(fold, record, danger, outcome)
        publish(fold, record, key_rule)


def use_up_approvals(fold: ToolFold, outcome: CallOutcome) -> None:
    """End the approvals that a call has used, in every record that holds one of them."""
    for record in records(fold.state):
        if record.approval and not record.approval_session and record.approval in outcome.approvals:
            record.approval, record.approval_until = "", 0
            publish(fold, record, trust.rules_for(fold.rules.trust, outcome).of(record.scope))


def records(state: ToolState) -> list[TrustRecord]:
    """All trust records of a state, the record of the scope as a whole first."""
    return [*([state.trust] if state.trust is not None else []), *state.fine.values()]


def publish(fold: ToolFold, record: TrustRecord, rule: EscalationRule) -> None:
    """Publish the public state at the key of a record, and record whether it is published.

    In a tool that has fine keys, calls without one have their own record under the tool's key. While the tool as a
    whole is not trusted, its record is published under that key; otherwise the other one, if it is not at its default.
    """
    whole = fold.state.trust
    own = fold.state.fine.get(whole.key) if whole is not None else None
    if whole is None or own is None or record.key != own.key:
        record.published = emitters.trust_state(fold, record, rule)
        return
    trusted = whole.state is TrustState.TRUSTED
    if record is own and whole.published and not trusted:
        return  # the record of the tool as a whole is published under this key
    is_default = own.state is TrustState.TRUSTED and not (own.failures or own.denials or own.dangers)
    shown = own if trusted and not is_default else whole
    shown.published = whole.published or own.published
    whole.published = own.published = emitters.trust_state(fold, shown, rule)


def rule_of(state: ToolState, record: TrustRecord, rules: TrustRules) -> EscalationRule:
    """Rule of a record, found without a call that names tool, service and plugin."""
    kind = state.kind_of_scope
    service = state.name if kind == "service" else ""
    of_scopes = rules.rules_for(
        tool=state.name if kind == "tool" else tool_of_key(record.key),
        domain=service if state.kind == "domain" else "",
        service=service if state.kind in {"mcp", "program"} else "",
        plugin=state.plugin_name,
        observed=state.observed,
    )
    return of_scopes.of(record.scope)


def age(fold: ToolFold) -> None:
    """Trust the keys again whose evidence has aged, each at its due time and with an id derived from it."""
    state, emit = fold.state, fold.emit
    cause, now, traceparent = emit.cause, emit.at, emit.traceparent
    for record in records(state):
        due = trust.ages_at(record)
        if not 0 < due <= fold.at:
            continue
        rule = rule_of(state, record, fold.rules.trust)
        last = record.evidence[-1] if record.evidence else cause
        emit.begin(f"{state.workspace_id}{US}{record.key}@{due}/aged", due)
        changes = trust.age(record, rule, due)
        hidden = (
            record is state.trust and state.kind == "mcp" and state.kind_of_scope == "tool" and not record.published
        )
        report = state.fleet_report if record is state.trust else state.command_reports.get(record.key)
        if report is not None:
            report.tally = [0, 0]  # told to the fleet with the next call, whoever noticed the time
        if not hidden:
            _publish_changes(structs.replace(fold, at=due), record, changes, rule, TrustCause(last))
    emit.begin(cause, now, traceparent)
    note_ages(state)


def note_ages(state: ToolState) -> None:
    """Note when the evidence of a key has aged next."""
    state.ages_at = min((due for record in records(state) if (due := trust.ages_at(record))), default=0)


def _publish_changes(
    fold: ToolFold, record: TrustRecord, changes: list[trust.TrustChange], rule: EscalationRule, cause: TrustCause
) -> None:
    for change in changes:
        emitters.trust_changed(fold, record, change, rule, cause)
    if changes:
        publish(fold, record, rule)


def _fold_into(fold: ToolFold, record: TrustRecord, outcome: CallOutcome, judgement: trust.TrustJudgement) -> None:
    """Fold a call into one record, and publish the changes."""
    rule = judgement.rule
    shown = trust.shown(record)
    changes = trust.fold_call(record, outcome, judgement, fold.at)
    if changes or record.state is not TrustState.TRUSTED:
        note_ages(fold.state)
    if judgement.hidden:
        return
    cause = TrustCause(outcome.cause, outcome.session_id, outcome.user_id)
    for change in changes:
        emitters.trust_changed(fold, record, change, rule, cause)
        if change.trigger is TrustTrigger.RECOVERY and not change.pending and record is fold.state.trust:
            for narrow in fold.state.fine.values():
                own = rule_of(fold.state, narrow, fold.rules.trust)
                _publish_changes(fold, narrow, trust.recover_with(narrow, record, own, fold.at), own, cause)
    lapsed = record.published and trust.forget_lapsed(record, rule, fold.at)
    if changes or lapsed or shown != trust.shown(record):
        publish(fold, record, rule)


def _open_fine_key(fold: ToolFold, whole: TrustRecord, outcome: CallOutcome, since: float) -> FineKey:
    """Find or create the record of a call's fine key; failures before `since` (milliseconds) have lapsed."""
    state = fold.state
    fine_key = outcome.fine_key or whole.key
    service = service_of_key(fine_key)
    if whole.scope == "tool":
        if service:
            _note_service(state, service)
            return FineKey(None, digest_of(family_of_key(fine_key)), elsewhere=True)
        if fine_key == whole.key or fine_key == tool_key(outcome.tool_name):
            if not state.keyed:
                return FineKey(None)
            fine_key = whole.key  # the tool has fine keys, so calls without one get a record too
        state.keyed = True
    elif f"service:{service}" != state.scope:
        return FineKey(None, elsewhere=True)
    record = state.fine.get(fine_key)
    noted = (
        (not _never_ran(outcome) and outcome.verdict != "neutral")
        or outcome.denied
        or danger_of_key(fine_key) is not None
    )
    if record is None and noted:
        most = fold.rules.trust.max_fine_keys
        if outcome.severity is FailureSeverity.SECURITY:
            most *= 2  # security failures count only in a fine key's record, never in the scope's
        if len(state.fine) < most or _make_room(fold, since):
            record = state.fine[fine_key] = TrustRecord(key=fine_key, scope="key")
        elif outcome.verdict == "failure" and not outcome.expected:
            fold.emit.count(UNTRACKED)
    return FineKey(record, digest_of(family_of_key(fine_key)))


def _never_ran(outcome: CallOutcome) -> bool:
    """Whether a shell has found no such program, which then needs no record: prose, and what is not installed."""
    return outcome.severity is FailureSeverity.NOT_FOUND and "|command=" in outcome.fine_key


@lru_cache(maxsize=8192)
def digest_of(key: str) -> int:
    """Digest of a fine key or a family, as stored in records."""
    return digest(key.encode())


def _make_room(fold: ToolFold, since: float) -> bool:
    """Drop the oldest trusted fine key without failures, else the oldest with lapsed failures; False if none."""
    state = fold.state
    trusted = [record for record in state.fine.values() if record.state is TrustState.TRUSTED]
    leaving = next((one for one in trusted if not (one.failures or one.published)), None)
    if leaving is None:
        whole = state.trust.key if state.trust is not None else ""
        lapsed = (one for one in trusted if not one.failures or one.failures[-1].at < since)
        leaving = next((one for one in lapsed if one.key != whole), None)  # it shares the tool's key
    if leaving is None:
        return False
    _forget(fold, leaving.key)
    return True


def _note_service(state: ToolState, service: str) -> None:
    """Record that a service keeps fine keys of this tool."""
    state.keyed = state.keyed or state.kind != "mcp"
    if service not in state.services:
        state.services.append(service)
        del state.services[:-MAX_SERVICES]


def _forget(fold: ToolFold, fine_key: str) -> None:
    """Drop the record of a fine key, with a tombstone if it was published."""
    record = fold.state.fine.pop(fine_key)
    fold.state.command_reports.pop(fine_key, None)
    if record.published:
        fold.emit.tombstone("state", emitters.trust_key(fold.state, record))
