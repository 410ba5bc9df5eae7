"""Trust: may this key run without asking? (seeds 1 and 2, design 3 Trust).

Theory of operation. A key is trusted until counted failures reach a threshold; then it is escalated: every call
asks the user. Once the escalation has lasted and no counted failure has come for the cooldown, the next success starts
recovery, and enough successes restore trust (or wait for the operator in mode `ask`). A counted failure in recovery
escalates again for twice as long. Security blocks at once; only a reset unblocks. A removed tool comes back by restore.

The transitions are the table below, and nothing else moves the state: an event that is no key of the table in the
current state changes counters only. What counts as a failure is decided by the rule's filter; the rest is neutral.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ...schemas.outcomes import CallOutcome
from ...schemas.rules import EscalationRule
from ...schemas.vocabulary import RecoveryMode, Severity, TrustState
from ..calls.fingerprints import digest
from .state import MAX_FAILURES, MAX_RATE_CALLS, MAX_SESSIONS, Failure, TrustRecord

HOUR_MS = 3_600_000
MAX_DURATION_MS = 24 * HOUR_MS
"""Longest escalation the back-off can reach."""

AUTH_FAILURES = 3
"""401 or 403 answers within the window that mean a credential is broken."""

_AUTH_STATUS = frozenset({401, 403})
_EVIDENCE = 20
_TOLERANCE = 1e-9


class Move(StrEnum):
    """What can move trust."""

    COUNT = "count"
    CONSECUTIVE = "consecutive"
    RATE = "rate"
    REPEATED_AUTH = "repeated_auth"
    SECURITY = "security"
    EXHAUSTED = "exhausted"
    RECOVERY_STARTED = "recovery_started"
    RECOVERY = "recovery"
    RELAPSE = "relapse"
    RESET = "reset"
    RECOVER = "recover"
    REMOVE = "remove"
    RESTORE = "restore"


_T, _E, _R, _B, _X = (
    TrustState.TRUSTED,
    TrustState.ESCALATED,
    TrustState.RECOVERING,
    TrustState.BLOCKED,
    TrustState.REMOVED,
)

TRANSITIONS: Mapping[tuple[TrustState, Move], TrustState] = {
    (_T, Move.COUNT): _E,
    (_T, Move.CONSECUTIVE): _E,
    (_T, Move.RATE): _E,
    (_T, Move.REPEATED_AUTH): _E,
    (_R, Move.REPEATED_AUTH): _E,
    (_R, Move.RELAPSE): _E,
    (_E, Move.RECOVERY_STARTED): _R,
    (_R, Move.RECOVERY): _T,
    (_E, Move.EXHAUSTED): _B,
    **{(state, Move.SECURITY): _B for state in (_T, _E, _R)},
    **{(state, Move.RESET): _T for state in (_E, _R, _B)},
    **{(state, Move.RECOVER): _T for state in (_E, _R)},
    **{(state, Move.REMOVE): _X for state in (_T, _E, _R, _B)},
    (_X, Move.RESTORE): _T,
}


class Change(NamedTuple):
    """A transition that happened, or (from equals to) recovery that waits for the operator.

    Attributes:
        amount: effective failures, successes or rate behind it.
        threshold: what they were compared with, if anything.
        rate: failed share of the window, when the rate moved it.
    """

    before: TrustState
    after: TrustState
    move: Move
    amount: float
    threshold: float | None
    pending: bool = False


def is_untroubled(record: TrustRecord, rule: EscalationRule) -> bool:
    """Whether another success changes nothing that anyone sees, as it is with nearly every key."""
    return (
        record.state is _T
        and rule.rate_threshold is None
        and not (record.failures or record.consecutive or record.published)
    )


def fold_session(record: TrustRecord, session_id: str) -> None:
    """Note a session that used an untroubled key."""
    session_ordinal(record, session_id)


def session_ordinal(record: TrustRecord, session_id: str) -> int:
    """Ordinal of a session on this key, counting distinct sessions as they first appear."""
    if not session_id:
        return record.session_count
    mark = _mark(session_id)
    sessions = record.sessions
    if sessions and sessions[-1] == mark:
        return record.session_count
    if mark in sessions:
        return record.session_count - (len(sessions) - 1 - sessions.index(mark))
    sessions.append(mark)
    del sessions[:-MAX_SESSIONS]
    record.session_count += 1
    return record.session_count


@lru_cache(maxsize=4096)
def _mark(session_id: str) -> int:
    return digest(session_id.encode())


def effective_failures(record: TrustRecord, rule: EscalationRule, at: int) -> float:
    """Σ weight × (1 − 0.1 per whole hour of age, at least 0.1) × 0.8 per later session, inside the window."""
    window = rule.window_seconds * 1000
    newest = record.session_count
    total = 0.0
    for failure in record.failures:
        age = at - failure.at
        if age > window:
            continue
        weight = failure.weight
        if age >= HOUR_MS:
            weight *= max(0.1, 1.0 - 0.1 * (age // HOUR_MS))
        if failure.session < newest:
            weight *= 0.8 ** (newest - failure.session)
        total += weight
    return total


def failure_rate(record: TrustRecord, rule: EscalationRule, at: int) -> tuple[float, int]:
    """Failed share of the calls in the window, and how many calls there were."""
    since = at - rule.window_seconds * 1000
    calls = [call for call in record.calls if call >> 1 >= since]
    return (sum(call & 1 for call in calls) / len(calls) if calls else 0.0), len(calls)


def recovery_at(record: TrustRecord, rule: EscalationRule) -> int:
    """When recovery may start: the escalation has lasted, and no counted failure for the cooldown."""
    return max(record.escalated_at + record.duration_ms, record.last_counted + int(rule.cooldown_seconds * 1000))


def shown(record: TrustRecord) -> tuple[int, ...]:
    """What a follower sees change from call to call; a blocked or removed key shows nothing but its state."""
    if record.state is _B or record.state is _X:
        return ()
    return record.last_counted, record.consecutive, record.successes, record.denials


def has_lapsed(record: TrustRecord, rule: EscalationRule, at: int) -> bool:
    """Whether the last counted failure of a trusted key has left the window: it is back to its default."""
    if record.state is not _T:
        return False
    return not record.failures or at - record.failures[-1].at > rule.window_seconds * 1000


def fold_call(
    record: TrustRecord, outcome: CallOutcome, rule: EscalationRule, at: int, mode: RecoveryMode
) -> list[Change]:
    """Fold one finished call into a trust record; returns the transitions it caused, in order."""
    if outcome.denied and (not outcome.call_id or outcome.call_id != record.last_denied):
        record.denials += 1
        record.last_denied = outcome.call_id
    if outcome.verdict == "neutral":
        return []
    if outcome.verdict == "failure" and outcome.time_ms < record.watermark:
        return []  # older than the reset or recovery: never counts again, however late it comes
    ordinal = session_ordinal(record, outcome.session_id)
    counted = is_counted(outcome, rule)
    if rule.rate_threshold is not None and (counted or outcome.verdict == "success"):
        record.calls.append(at << 1 | counted)
        del record.calls[:-MAX_RATE_CALLS]
    if outcome.verdict == "success":
        return _succeed(record, rule, at, mode)
    return _fail(record, outcome, rule, at, ordinal, counted=counted)


def is_counted(outcome: CallOutcome, rule: EscalationRule) -> bool:
    """Whether a call is a failure that the rule counts."""
    return (
        outcome.verdict == "failure"
        and not outcome.expected
        and outcome.severity is not None
        and outcome.severity in rule.severity_filter
    )


def _fail(
    record: TrustRecord, outcome: CallOutcome, rule: EscalationRule, at: int, ordinal: int, *, counted: bool
) -> list[Change]:
    changes: list[Change] = []
    if outcome.severity is Severity.SECURITY and not outcome.expected:
        record.evidence = [*record.evidence[1 - _EVIDENCE :], outcome.cause]
        return _move(record, Move.SECURITY, rule, at, 1, None)
    repeated_auth = outcome.severity is Severity.REPEATED_AUTH or _auth_failed(record, outcome, rule, at)
    if counted:
        weight = _weight(outcome.severity, rule)
        record.failures.append(Failure(at, weight, ordinal, outcome.cause))
        del record.failures[:-MAX_FAILURES]
        _prune(record, rule, at)
        record.consecutive += 1
        record.last_counted = at
        record.by_hand = record.by_hand or outcome.unrecoverable
    if counted or outcome.http_status in _AUTH_STATUS:
        record.evidence = [*record.evidence[1 - _EVIDENCE :], outcome.cause]
    if repeated_auth:
        changes = _move(record, Move.REPEATED_AUTH, rule, at, AUTH_FAILURES, AUTH_FAILURES)
        record.auth_failures = []
    if counted and not changes:
        if record.state is _T:
            changes = _threshold(record, rule, at)
        elif record.state is _E:
            record.failures_since += 1
            if rule.block_after is not None and record.failures_since >= rule.block_after:
                changes = _move(record, Move.EXHAUSTED, rule, at, record.failures_since, rule.block_after)
        elif record.state is _R:
            changes = _move(record, Move.RELAPSE, rule, at, 1, None)
    return changes


def _weight(severity: Severity | None, rule: EscalationRule) -> float:
    if severity is Severity.INVALID_INPUT:
        return rule.model_error_weight
    return rule.transient_weight if severity is Severity.TRANSIENT else 1.0


def _auth_failed(record: TrustRecord, outcome: CallOutcome, rule: EscalationRule, at: int) -> bool:
    if outcome.http_status not in _AUTH_STATUS or outcome.expected:
        return False
    since = at - rule.window_seconds * 1000
    record.auth_failures = [*(seen for seen in record.auth_failures if seen >= since), at]
    return len(record.auth_failures) >= AUTH_FAILURES


def _prune(record: TrustRecord, rule: EscalationRule, at: int) -> None:
    since = at - rule.window_seconds * 1000
    if record.failures[0].at < since:
        record.failures = [failure for failure in record.failures if failure.at >= since]


def _threshold(record: TrustRecord, rule: EscalationRule, at: int) -> list[Change]:
    """The first configured threshold that holds: count, consecutive, rate."""
    count = effective_failures(record, rule, at)
    record.evidence = [failure.event_id for failure in record.failures[-_EVIDENCE:]]
    if rule.count_threshold is not None and count >= rule.count_threshold - _TOLERANCE:
        return _move(record, Move.COUNT, rule, at, count, rule.count_threshold)
    if rule.consecutive_threshold is not None and record.consecutive >= rule.consecutive_threshold:
        return _move(record, Move.CONSECUTIVE, rule, at, record.consecutive, rule.consecutive_threshold)
    if rule.rate_threshold is not None:
        rate, calls = failure_rate(record, rule, at)
        if calls >= rule.rate_min_calls and rate >= rule.rate_threshold - _TOLERANCE:
            return _move(record, Move.RATE, rule, at, rate, rule.rate_threshold)
    return []


def _succeed(record: TrustRecord, rule: EscalationRule, at: int, mode: RecoveryMode) -> list[Change]:
    record.consecutive = 0
    record.failures_since = 0
    changes: list[Change] = []
    if record.state is _E and at >= recovery_at(record, rule):
        changes = _move(record, Move.RECOVERY_STARTED, rule, at, 1, None)
        record.successes = 1
    elif record.state is _R:
        record.successes += 1
    if record.state is _R and record.successes >= record.successes_needed:
        if mode is RecoveryMode.AUTO and not record.by_hand:
            changes += _move(record, Move.RECOVERY, rule, at, record.successes, record.successes_needed)
        elif not record.pending:
            record.pending = True
            changes.append(Change(_R, _R, Move.RECOVERY, record.successes, record.successes_needed, pending=True))
    return changes


def command(record: TrustRecord, move: Move, rule: EscalationRule, at: int) -> list[Change]:
    """An operator's order; what the table does not know in this state changes nothing.

    A reset also clears the counters of a trusted key.
    """
    changes = _move(record, move, rule, at, 0, None)
    if move is Move.RESET and record.state is _T:
        _clean(record, at)
    return changes


def _move(
    record: TrustRecord, move: Move, rule: EscalationRule, at: int, count: float, threshold: float | None
) -> list[Change]:
    before = record.state
    after = TRANSITIONS.get((before, move))
    if after is None:
        return []
    record.state = after
    record.trigger = move
    record.successes = 0
    record.pending = False
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
    return [Change(before, after, move, count, threshold)]


def _clean(record: TrustRecord, at: int) -> None:
    """Back to clean trust; the watermark keeps older failures from ever counting again."""
    record.watermark = at
    record.failures = []
    record.calls = []
    record.auth_failures = []
    record.by_hand = False
    record.consecutive = record.failures_since = 0
    record.escalated_at = record.duration_ms = 0
