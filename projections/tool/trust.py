"""Trust state machine: decides whether a key may run without asking the user (docs/trust.md).

Theory of operation. A key is trusted until counted failures reach a threshold; then it is escalated: every call
asks the user. When the escalation's duration and the cooldown without a counted failure are over, the next success
starts recovery, and enough successes restore trust (or wait for the operator in mode `ask`); as many in a row do so
before. A counted failure during recovery escalates again for twice as long. A day without one ends either state. A
dangerous command blocks its key at once, a risky one escalates it; only a reset unblocks. A removed tool is brought
back by a restore.

A threshold on the count escalates only if at least half of the latest calls failed too. A tool as a whole is judged
only while at least `MIN_FAILING_FAMILIES` families of its keys fail (hosts, top folders, programs), and never by
failures whose cause lies in the key; otherwise only the keys are judged. While a key is escalated or recovering, failed
calls that began before that state change nothing.

The table below holds all transitions: a move that the table does not have for the current state changes counters only.
The rule's filter decides which failures are counted. Operators' orders are moves too, except an approval, which lets
one call pass without moving the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...rules.trust import EscalationRule, RulesOfScopes, TrustRules
from ...schemas.codec import span
from ...schemas.outcomes import CallOutcome, TrustOrderType
from ...schemas.vocabulary import FailureSeverity, RecoveryMode, TrustState, TrustTrigger
from ..calls.attempt import danger_of_key
from .failure_counts import (
    FAILED,
    HOUR_MS,
    WORKED,
    effective_failures,
    failed_lately,
    failing_families,
    failure_rate,
    note_session,
)
from .tool_state import MAX_FAILING, MAX_FAILURES, MAX_RATE_CALLS, CountedFailure, TrustRecord, may_be_answer

MAX_DURATION_MS = 24 * HOUR_MS  # Maximum duration of an escalation, milliseconds

# Milliseconds without a counted failure after which an escalated or recovering key is trusted again
AGED_AFTER_MS = 24 * HOUR_MS

AUTH_FAILURES = 3  # Number of 401 or 403 answers within the window that indicate an invalid credential

# Number of families of a tool's fine keys that must be failing before the tool as a whole is judged
MIN_FAILING_FAMILIES = 3

DEFAULT_COUNT = 3  # Half of the number of latest calls that are checked, if a rule has no count threshold

_AUTH_STATUS = frozenset({401, 403})
_EVIDENCE = 20
_TOLERANCE = 1e-9


_T, _E, _R, _B, _X = (
    TrustState.TRUSTED,
    TrustState.ESCALATED,
    TrustState.RECOVERING,
    TrustState.BLOCKED,
    TrustState.REMOVED,
)

TRANSITIONS: Mapping[tuple[TrustState, TrustTrigger], TrustState] = {
    (_T, TrustTrigger.COUNT): _E,
    (_T, TrustTrigger.CONSECUTIVE): _E,
    (_T, TrustTrigger.RATE): _E,
    (_T, TrustTrigger.REPEATED_AUTH): _E,
    (_R, TrustTrigger.REPEATED_AUTH): _E,
    (_T, TrustTrigger.RISKY): _E,
    (_R, TrustTrigger.RISKY): _E,
    (_R, TrustTrigger.RELAPSE): _E,
    (_E, TrustTrigger.RECOVERY_STARTED): _R,
    (_R, TrustTrigger.RECOVERY): _T,
    (_E, TrustTrigger.EXHAUSTED): _B,
    (_E, TrustTrigger.RECOVERY): _T,
    **{(state, TrustTrigger.AGED): _T for state in (_E, _R)},
    **{(state, TrustTrigger.SECURITY): _B for state in (_T, _E, _R)},
    **{(state, TrustTrigger.RESET): _T for state in (_E, _R, _B)},
    **{(state, TrustTrigger.RECOVER): _T for state in (_E, _R)},
    **{(state, TrustTrigger.REMOVE): _X for state in (_T, _E, _R, _B)},
    (_X, TrustTrigger.RESTORE): _T,
}


# Trigger of each operator's order, by the type of its command; None for an approval, which lets one call pass
ORDERS: Mapping[TrustOrderType, TrustTrigger | None] = {
    "trust.reset": TrustTrigger.RESET,
    "trust.recover": TrustTrigger.RECOVER,
    "trust.approve": None,
    "tool.remove": TrustTrigger.REMOVE,
    "tool.restore": TrustTrigger.RESTORE,
}


class OperatorOrder(NamedTuple):
    """An operator's order about trust."""

    type: TrustOrderType  # type of its command
    cause: str  # id of its command
    until: int = 0  # end of an approval, milliseconds; else 0
    session: str = ""  # session all of whose calls an approval lets pass; empty: one call

    @property
    def trigger(self) -> TrustTrigger | None:
        """Trigger of the transition; None for an approval, which changes no state."""
        return ORDERS[self.type]


class TrustChange(NamedTuple):
    """A trust transition, or (with equal states) a recovery that waits for the operator."""

    before: TrustState
    after: TrustState
    trigger: TrustTrigger
    amount: float  # effective failures, successes or rate that caused it
    threshold: float | None  # the threshold that was reached; None if there is none
    pending: bool = False  # whether recovery waits for the operator
    reason: str = ""
    order_key: str = ""  # key of the record whose reset lets calls of the key run: its own, or that of a wider record
    part_of: str = ""  # key of the wider record whose change already informs users of this one; empty if none
    evidence: tuple[str, ...] = ()  # ids of the events that caused it, oldest first


class ParentRecord(NamedTuple):
    """The record of the tool or service that a fine key belongs to."""

    record: TrustRecord
    notifies: bool  # whether users are notified of its changes


class TrustJudgement(NamedTuple):
    """Rule and context by which one record judges a call."""

    rule: EscalationRule  # rule of the record's own scope
    mode: RecoveryMode  # whether enough successes restore trust automatically or wait for the operator
    # whether no narrower record judges the call; only such a record counts security failures and denials
    narrowest: bool = True
    # digest of the family of the call's fine key if the record is a tool's and its keys have their own records; else 0.
    # Such a record moves only while at least `MIN_FAILING_FAMILIES` of its families fail.
    family: int = 0
    expected_rate: float = 0.0  # failure rate that is normal for the tool, 0 to 1
    # record of the tool or service that the record's key belongs to; None if its changes are hidden
    wider: ParentRecord | None = None
    # whether nothing of the record is published: it is kept for the fleet alone, and changes get no reason
    hidden: bool = False


def number(value: float) -> str:
    """Number as text with at most two decimals: `3`, `2.5`."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def reason(change: TrustChange, rule: EscalationRule) -> str:
    """Reason of a transition as text, with its counts: `3/3 failures in 1h`."""
    window = span(rule.window_seconds)
    limit = number(change.threshold) if change.threshold is not None else ""
    match change.trigger:
        case TrustTrigger.COUNT:
            return f"{number(change.amount)}/{limit} failures in {window}"
        case TrustTrigger.CONSECUTIVE:
            return f"{number(change.amount)}/{limit} consecutive failures"
        case TrustTrigger.RATE:
            return f"{change.amount:.0%} failure rate in {window} (limit {change.threshold:.0%})"
        case TrustTrigger.REPEATED_AUTH:
            return f"{number(change.amount)} authentication failures in {window}: the credential may be invalid"
        case TrustTrigger.SECURITY:
            return "security concern: a dangerous command was attempted"
        case TrustTrigger.RISKY:
            return "security concern: a risky command was attempted"
        case TrustTrigger.EXHAUSTED:
            return f"{number(change.amount)} more failures without a success while escalated"
        case TrustTrigger.RELAPSE:
            return "failed again while recovering"
        case TrustTrigger.RECOVERY_STARTED:
            return (
                f"{number(change.amount)} successes in a row" if change.amount > 1 else "a success after the cooldown"
            )
        case TrustTrigger.RECOVERY if limit:
            return f"{number(change.amount)}/{limit} successes since recovery began"
    return {
        TrustTrigger.RECOVERY: "what its failures were part of has recovered",
        TrustTrigger.AGED: f"no counted failure for {span(AGED_AFTER_MS / 1000)}",
        TrustTrigger.RESET: "reset by an operator",
        TrustTrigger.RECOVER: "recovered by an operator",
        TrustTrigger.REMOVE: "removed by an operator",
        TrustTrigger.RESTORE: "restored by an operator",
    }.get(change.trigger, str(change.trigger))


def rules_for(rules: TrustRules, outcome: CallOutcome) -> RulesOfScopes:
    """Rules by which the records of a call judge it."""
    observed = outcome.kind == "program"
    return rules.rules_for(outcome.tool_name, outcome.domain, outcome.service, outcome.plugin_name, observed=observed)


def has_clean_record(record: TrustRecord, rule: EscalationRule) -> bool:
    """Whether another success changes only counters; true for nearly every key."""
    return (
        record.state is _T
        and rule.rate_threshold is None
        and not (record.failures or record.consecutive or record.published or record.failing or record.auth_failures)
        and not record.own_class
    )


def count_success(record: TrustRecord, at: int) -> None:
    """Count a success of a key with a clean record."""
    record.calls_seen += 1
    record.worked += 1
    record.last_success = at


def recovery_at(record: TrustRecord, rule: EscalationRule) -> int:
    """Earliest start of recovery, milliseconds: the end of both the escalation's duration and the cooldown."""
    return max(record.escalated_at + record.duration_ms, cooldown_until(record, rule))


def cooldown_until(record: TrustRecord, rule: EscalationRule) -> int:
    """End of the cooldown after the last counted failure, milliseconds."""
    return record.last_counted + int(rule.cooldown_seconds * 1000)


def shown(record: TrustRecord) -> tuple[int, ...]:
    """Published values that may change with each call; for a blocked or removed key only the denials."""
    if record.state is _B or record.state is _X:
        return (record.denials,)
    return record.last_counted, record.consecutive, record.successes, record.denials


def forget_lapsed(record: TrustRecord, rule: EscalationRule, at: int) -> bool:
    """Drop the failures of a trusted key once the last has left the window; returns whether any were dropped."""
    if record.state is not _T or not record.failures or at - record.failures[-1].at <= rule.window_seconds * 1000:
        return False
    record.failures = []
    return True


def fold_call(record: TrustRecord, outcome: CallOutcome, judgement: TrustJudgement, at: int) -> list[TrustChange]:
    """Fold one finished call into a trust record; returns the transitions it caused, in order."""
    rule = judgement.rule
    if judgement.narrowest and outcome.denied and outcome.call_id != record.last_denied:
        record.denials += 1
        record.last_denied = outcome.call_id
    if outcome.verdict == "neutral":
        return []
    failed = outcome.verdict == "failure"
    if failed and (outcome.started_ms or outcome.time_ms) < record.watermark:
        return []  # begun before the reset or recovery, so it never counts
    in_key = failed and (_lies_in_key(outcome, judgement) or _is_answer_of_service(record, outcome, rule))
    counted = is_counted(outcome, rule) and not in_key
    if counted or not failed or outcome.severity is not FailureSeverity.TRANSIENT:
        record.calls_seen += 1
        if rule.rate_threshold is not None:
            record.calls.append(at << 1 | counted)
            del record.calls[:-MAX_RATE_CALLS]
    if in_key:
        return []
    if failed:
        changes = _fail(record, outcome, judgement, at, counted=counted)
    else:
        changes = _succeed(record, outcome, judgement, at)
    return changes if judgement.hidden or not changes else _explain(record, changes, rule, judgement.wider)


def _explain(
    record: TrustRecord, changes: list[TrustChange], rule: EscalationRule, wider: ParentRecord | None
) -> list[TrustChange]:
    """Set reason and `part_of` on a record and on its changes; returns the completed changes.

    While the wider record is not trusted and its changes are notified, changes of the key are silent, as users know of
    the outage. Blocking and unblocking are always notified, and so is an escalation or a pending recovery after the
    wider record has recovered.
    """
    order_key, covered = record.key, False
    if wider is not None and wider.record.state is not _T:
        order_key, covered = wider.record.key, wider.notifies
    explained = []
    for change in changes:
        why = reason(change, rule)
        if change.after is _E or change.after is _B:
            record.reason = why
        if change.before is _B or change.after is _B:
            record.part_of = ""
        elif covered:
            record.part_of = order_key
        elif change.after is _E or change.pending:
            record.part_of = ""
        noted = (why, order_key, record.part_of, tuple(record.evidence))
        explained.append(TrustChange(*change[:6], *noted))
        if change.after is _T:
            record.reason = record.part_of = ""
            record.evidence = []
    return explained


def is_counted(outcome: CallOutcome, rule: EscalationRule) -> bool:
    """Whether a call is a failure that the rule's filter counts."""
    return (
        outcome.verdict == "failure"
        and not outcome.expected
        and outcome.severity is not None
        and outcome.severity in rule.severity_filter
    )


def _lies_in_key(outcome: CallOutcome, judgement: TrustJudgement) -> bool:
    """Whether the cause of a failure lies in the call's fine key, so that a wider record is not judged by it.

    So it is with dangerous and risky commands. A tool is not judged by refusals of a host, which has its own
    credentials, nor by those without an HTTP status, which come from the operating system or a program.
    """
    if outcome.severity is FailureSeverity.SECURITY:
        return not judgement.narrowest
    if not judgement.family:
        return False
    if outcome.kind == "domain":
        return outcome.severity is FailureSeverity.PERMISSION or outcome.severity is FailureSeverity.REPEATED_AUTH
    return outcome.severity is FailureSeverity.PERMISSION and outcome.http_status is None


def _is_answer_of_service(record: TrustRecord, outcome: CallOutcome, rule: EscalationRule) -> bool:
    """Whether a service has answered by a failure, which says nothing about it: its tool reports it, or it refuses."""
    if record.scope != "service" or outcome.kind == "program":
        return False
    refused = outcome.severity is FailureSeverity.PERMISSION or outcome.severity is FailureSeverity.REPEATED_AUTH
    return outcome.reached or (refused and FailureSeverity.PERMISSION not in rule.severity_filter)


def _fail(
    record: TrustRecord, outcome: CallOutcome, judgement: TrustJudgement, at: int, *, counted: bool
) -> list[TrustChange]:
    rule = judgement.rule
    if counted or outcome.severity is FailureSeverity.SECURITY or outcome.http_status in _AUTH_STATUS:
        record.error, record.failed_session = outcome.error, outcome.session_id
    if outcome.severity is FailureSeverity.SECURITY and not outcome.expected:
        move = TrustTrigger.RISKY if outcome.risky else TrustTrigger.SECURITY
        if (record.state, move) in TRANSITIONS:
            record.evidence = [*record.evidence[1 - _EVIDENCE :], outcome.cause]
            return _move(record, move, rule, at, 1, None)
    if record.state in {_E, _R} and (outcome.started_ms or outcome.time_ms) <= record.since:
        return []  # begun before the current state, which already reflects it
    auth_failed = not judgement.family and _note_auth_failure(record, outcome, rule, at)
    doubtful = outcome.own_class != 0 and may_be_answer(record.own_class, outcome.own_class)
    if counted:
        _note_failure(record, outcome, judgement, at)
    if counted or outcome.http_status in _AUTH_STATUS:
        record.evidence = [*record.evidence[1 - _EVIDENCE :], outcome.cause]
    if judgement.family and _is_of_keys(record, outcome, rule, at):
        return []  # only the records of the keys are judged
    changes: list[TrustChange] = []
    if outcome.severity is FailureSeverity.REPEATED_AUTH or (auth_failed and not _has_worked_lately(record, judgement)):
        changes = _move(record, TrustTrigger.REPEATED_AUTH, rule, at, AUTH_FAILURES, AUTH_FAILURES)
        record.auth_failures = []
    return changes or (_count_failure(record, judgement, at) if counted and not doubtful else [])


def _is_of_keys(record: TrustRecord, outcome: CallOutcome, rule: EscalationRule, at: int) -> bool:
    """Whether the failures of a tool are caused by single families of its keys and not by the tool.

    Domains fail independently: if the keys are domains, a recent success shows that the tool itself works, until the
    consecutive failures reach twice the count threshold.
    """
    if failing_families(record, rule, at) < MIN_FAILING_FAMILIES:
        return True
    if outcome.kind != "domain" or at - record.last_success > rule.window_seconds * 1000:
        return False
    return record.consecutive < 2 * (rule.count_threshold or DEFAULT_COUNT)


def _has_worked_lately(record: TrustRecord, judgement: TrustJudgement) -> bool:
    """Whether too many of the latest calls succeeded for an invalid credential.

    False if the rule does not count permission failures: there every success clears the earlier refusals.
    """
    if FailureSeverity.PERMISSION not in judgement.rule.severity_filter:
        return False
    lately = failed_lately(record, 2 * AUTH_FAILURES)
    return lately < AUTH_FAILURES or lately <= judgement.expected_rate * 2 * AUTH_FAILURES


def _count_failure(record: TrustRecord, judgement: TrustJudgement, at: int) -> list[TrustChange]:
    """Make the transition that one more counted failure causes, if any."""
    rule = judgement.rule
    record.last_counted = at
    if record.state is _T:
        return _escalate_by_threshold(record, judgement, at)
    if record.state is _R:
        return _move(record, TrustTrigger.RELAPSE, rule, at, 1, None)
    record.failures_since += record.state is _E
    record.successes = 0
    if rule.block_after is not None and record.failures_since >= rule.block_after:
        return _move(record, TrustTrigger.EXHAUSTED, rule, at, record.failures_since, rule.block_after)
    return []


def _note_failure(record: TrustRecord, outcome: CallOutcome, judgement: TrustJudgement, at: int) -> None:
    """Record a counted failure."""
    if not record.failures:
        record.sessions, record.session_flags = [], []
    ordinal = note_session(record, outcome.session_id, FAILED)
    weight = _weight(outcome, judgement.rule)
    record.failures.append(CountedFailure(at, weight, ordinal, outcome.cause, judgement.family, record.calls_seen))
    del record.failures[:-MAX_FAILURES]
    since = at - judgement.rule.window_seconds * 1000
    if record.failures[0].at < since:
        record.failures = [failure for failure in record.failures if failure.at >= since]
    record.consecutive += 1
    record.by_hand = record.by_hand or outcome.unrecoverable
    if judgement.family and judgement.family not in record.failing:
        record.failing.append(judgement.family)
        del record.failing[:-MAX_FAILING]


def _weight(outcome: CallOutcome, rule: EscalationRule) -> float:
    if outcome.severity is FailureSeverity.INVALID_INPUT or outcome.own_class:
        return rule.model_error_weight
    return rule.transient_weight if outcome.severity is FailureSeverity.TRANSIENT else 1.0


def _note_auth_failure(record: TrustRecord, outcome: CallOutcome, rule: EscalationRule, at: int) -> bool:
    """Record a 401 or 403 answer; returns whether the window now holds AUTH_FAILURES of them."""
    if outcome.http_status not in _AUTH_STATUS or outcome.expected:
        return False
    since = at - rule.window_seconds * 1000
    record.auth_failures = [*(seen for seen in record.auth_failures[1 - AUTH_FAILURES :] if seen >= since), at]
    return len(record.auth_failures) >= AUTH_FAILURES


def _escalate_by_threshold(record: TrustRecord, judgement: TrustJudgement, at: int) -> list[TrustChange]:
    """Escalate if a configured threshold is reached, checked in the order: count, consecutive, rate."""
    rule = judgement.rule
    needed = rule.count_threshold or DEFAULT_COUNT
    lately = failed_lately(record, 2 * needed)
    if judgement.expected_rate and lately <= judgement.expected_rate * 2 * needed:
        return []  # within the failure rate that is normal for this tool
    count = effective_failures(record, rule, at)
    record.evidence = [failure.event_id for failure in record.failures[-_EVIDENCE:]]
    if rule.unbroken:
        lately = min(lately, record.consecutive)
    if rule.count_threshold is not None and count >= rule.count_threshold - _TOLERANCE and lately >= needed:
        return _move(record, TrustTrigger.COUNT, rule, at, count, rule.count_threshold)
    if rule.consecutive_threshold is not None and record.consecutive >= rule.consecutive_threshold:
        return _move(record, TrustTrigger.CONSECUTIVE, rule, at, record.consecutive, rule.consecutive_threshold)
    if rule.rate_threshold is not None:
        rate, calls = failure_rate(record, rule, at)
        if calls >= rule.rate_min_calls and rate >= rule.rate_threshold - _TOLERANCE:
            return _move(record, TrustTrigger.RATE, rule, at, rate, rule.rate_threshold)
    return []


def _succeed(record: TrustRecord, outcome: CallOutcome, judgement: TrustJudgement, at: int) -> list[TrustChange]:
    rule = judgement.rule
    record.worked += 1
    record.last_success = at
    record.own_class = []
    record.consecutive = 0
    record.failures_since = 0
    if FailureSeverity.PERMISSION not in rule.severity_filter:
        record.auth_failures = []
    if judgement.family and judgement.family in record.failing:
        record.failing.remove(judgement.family)
    if record.failures:
        note_session(record, outcome.session_id, WORKED)
    changes: list[TrustChange] = []
    if record.state is _E and (outcome.started_ms or outcome.time_ms) > record.since:
        record.successes += 1
        row = record.successes if record.successes >= max(2, record.successes_needed) else 1
        if row > 1 or at >= recovery_at(record, rule):
            changes = _move(record, TrustTrigger.RECOVERY_STARTED, rule, at, row, None)
            record.successes = row
    elif record.state is _R:
        record.successes += 1
    if record.state is _R and record.successes >= record.successes_needed:
        if judgement.mode is RecoveryMode.AUTO and not record.by_hand:
            changes += _move(record, TrustTrigger.RECOVERY, rule, at, record.successes, record.successes_needed)
        elif not record.pending:
            record.pending = True
            changes.append(
                TrustChange(_R, _R, TrustTrigger.RECOVERY, record.successes, record.successes_needed, pending=True)
            )
    return changes


def ages_at(record: TrustRecord) -> int:
    """Time at which an escalated or recovering key is trusted again if nothing fails before, milliseconds; else 0."""
    held = record.state is _E or record.state is _R
    return record.last_counted + AGED_AFTER_MS if held and not record.by_hand else 0


def age(record: TrustRecord, rule: EscalationRule, at: int) -> list[TrustChange]:
    """Trust a key again whose evidence has aged."""
    return _explain(record, _move(record, TrustTrigger.AGED, rule, at, 0, None), rule, None)


def recover_with(record: TrustRecord, wider: TrustRecord, rule: EscalationRule, at: int) -> list[TrustChange]:
    """Trust a key again whose failures were part of an outage that has ended; nothing if it failed later than that."""
    if record.part_of != wider.key or record.state not in {_E, _R} or record.last_counted > wider.last_counted:
        return []
    changes = _move(record, TrustTrigger.RECOVERY, rule, at, 0, None)
    return [change._replace(part_of=wider.key) for change in _explain(record, changes, rule, None)]


def apply_order(
    record: TrustRecord,
    order: OperatorOrder,
    rule: EscalationRule,
    at: int,
    *,
    whole: bool = False,
    hidden: bool = False,
) -> list[TrustChange]:
    """Apply an operator's order; an order without a transition from the current state changes nothing.

    A reset also clears the counters of a trusted key. An order to recover is ignored if the key has relapsed since it
    was ready. An approval lets one call of an escalated or recovering key pass, or one of a trusted key that
    names a danger; other keys are unchanged.

    Args:
        whole: whether the order is for the scope of the record as a whole and did not name its key.
        hidden: whether nothing of the record is published (`TrustJudgement.hidden`).
    """
    trigger = order.trigger
    if trigger is None:
        if record.state in {_E, _R} or (record.state is _T and danger_of_key(record.key) is not None):
            record.approval, record.approval_until, record.approval_session = order.cause, order.until, order.session
        return []
    overtaken = trigger is TrustTrigger.RECOVER and record.state is _E and record.trigger == TrustTrigger.RELAPSE
    changes = [] if overtaken else _move(record, trigger, rule, at, 0, None)
    if trigger is TrustTrigger.RESET:
        record.denials = record.dangers = 0
        if record.state is _T:
            _clean(record, at)
    if trigger is TrustTrigger.REMOVE and not whole:
        record.part_of = ""  # an order that names the key is always notified
    return changes if hidden else _explain(record, changes, rule, None)


def _move(
    record: TrustRecord, move: TrustTrigger, rule: EscalationRule, at: int, count: float, threshold: float | None
) -> list[TrustChange]:
    before = record.state
    after = TRANSITIONS.get((before, move))
    if after is None:
        return []
    record.state = after
    record.trigger = move
    record.since = at
    record.successes = 0
    record.pending = False
    record.approval, record.approval_until, record.approval_session = "", 0, ""
    record.successes_needed = rule.success_count_to_recover
    if after is _E:
        base = int(rule.escalation_duration_seconds * 1000)
        relapsed = before is _R
        record.duration_ms = min(MAX_DURATION_MS, 2 * record.duration_ms) if relapsed else base
        record.escalated_at = at
        record.last_counted = at
        record.failures_since = 0
        if relapsed:
            record.failures = []
    elif after is _T:
        _clean(record, at)
    elif after is not _R:
        record.escalated_at = at
        record.duration_ms = 0
    return [TrustChange(before, after, move, count, threshold)]


def _clean(record: TrustRecord, at: int) -> None:
    """Reset a record to clean trust; the watermark prevents older failures from counting again."""
    record.watermark = at
    record.failures = []
    record.calls = []
    record.auth_failures = []
    record.failing = []
    record.own_class = []
    record.error = record.failed_session = ""
    record.by_hand = False
    record.consecutive = record.failures_since = 0
    record.escalated_at = record.duration_ms = 0
