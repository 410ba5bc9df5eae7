"""Decay and rates of the counted failures of one trust record (docs/trust.md).

The weight of a failure falls with each hour, and with each later session in which the key only succeeded.
"""

from __future__ import annotations

from functools import lru_cache

from ...rules.trust import EscalationRule
from ..calls.fingerprints import digest
from .tool_state import MAX_SESSIONS, TrustRecord

HOUR_MS = 3_600_000

SESSION_DECAY = 0.8  # Factor on the weight of a failure for each later session with successes only
WORKED, FAILED = 1, 2  # Bit flags of a session on a key: it had a success, it had a counted failure


def note_session(record: TrustRecord, session_id: str, flag: int) -> int:
    """Record a success or failure of a session on this key; returns the session's ordinal, by first appearance.

    Only sessions since the oldest remembered failure are kept, because only these reduce its weight.
    """
    if not session_id:
        return record.session_count
    mark, sessions, flags = _mark(session_id), record.sessions, record.session_flags
    if mark in sessions:
        place = sessions.index(mark)
        flags[place] |= flag
        return record.session_count - (len(sessions) - 1 - place)
    sessions.append(mark)
    flags.append(flag)
    record.session_count += 1
    if len(sessions) > MAX_SESSIONS:
        _forget_oldest_session(record)
    return record.session_count


def _forget_oldest_session(record: TrustRecord) -> None:
    """Drop the oldest session, and apply its reduction to the weights of earlier failures permanently."""
    ordinal = record.session_count - (len(record.sessions) - 1)
    del record.sessions[0]
    if record.session_flags.pop(0) == WORKED:
        for failure in record.failures:
            if failure.session < ordinal:
                failure.weight *= SESSION_DECAY


@lru_cache(maxsize=4096)
def _mark(session_id: str) -> int:
    return digest(session_id.encode())


def decay(age_ms: int, clean_sessions: int) -> float:
    """Factor on the weight of a failure by its age and by the number of later sessions with successes only."""
    return float(max(0.1, 1.0 - 0.1 * (age_ms // HOUR_MS)) * SESSION_DECAY**clean_sessions)


def effective_failures(record: TrustRecord, rule: EscalationRule, at: int) -> float:
    """Sum of the decayed weights of the failures inside the window (docs/trust.md, Counting)."""
    window = rule.window_seconds * 1000
    newest = record.session_count
    total = 0.0
    for failure in record.failures:
        age = at - failure.at
        if age > window:
            continue
        clean = 0
        if failure.session < newest:
            clean = record.session_flags[failure.session - newest :].count(WORKED)
        total += failure.weight * decay(age, clean) if clean or age >= HOUR_MS else failure.weight
    return total


def failure_rate(record: TrustRecord, rule: EscalationRule, at: int) -> tuple[float, int]:
    """Failure rate (0 to 1) of the calls in the window, and their number."""
    since = at - rule.window_seconds * 1000
    calls = [call for call in record.calls if call >> 1 >= since]
    return (sum(call & 1 for call in calls) / len(calls) if calls else 0.0), len(calls)


def failed_lately(record: TrustRecord, calls: int) -> int:
    """Number of counted failures among the latest `calls` calls of a record."""
    first = record.calls_seen - calls
    return sum(failure.call > first for failure in record.failures)


def failing_families(record: TrustRecord, rule: EscalationRule, at: int) -> int:
    """Number of families of a tool's fine keys with a counted failure inside the window and no success since."""
    since = at - rule.window_seconds * 1000
    failed = {failure.family for failure in record.failures if failure.at >= since}
    return len(failed.intersection(record.failing))
