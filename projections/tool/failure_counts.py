"""Counted failures of one trust record: how much each weighs by its age and by the sessions since (docs/trust.md).

A failure weighs less with every hour, and with every later session in which the key only worked.
"""

from __future__ import annotations

from functools import lru_cache

from ...rules.trust import EscalationRule
from ..calls.fingerprints import digest
from .state import MAX_SESSIONS, TrustRecord

HOUR_MS = 3_600_000

SESSION_DECAY = 0.8
"""Factor on the weight of a failure for each later session that only worked."""

WORKED, FAILED = 1, 2
"""Flags of a session on a key."""


def note_session(record: TrustRecord, session_id: str, flag: int) -> int:
    """Note that a session worked or failed on this key; returns its ordinal, counting sessions as they first appear.

    Only sessions since the oldest remembered failure are kept, for they alone make it count less.
    """
    if not session_id:
        return record.session_count
    mark, sessions, flags = _mark(session_id), record.sessions, record.session_flags
    flags += [FAILED] * (len(sessions) - len(flags))  # sessions that an older version noted lessen nothing
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
    """Drop the oldest session; what it took from earlier failures stays taken."""
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
    """Weight of a failure at an age, after so many later sessions in which the key only worked."""
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
    """Failed share of the calls in the window, and how many calls there were."""
    since = at - rule.window_seconds * 1000
    calls = [call for call in record.calls if call >> 1 >= since]
    return (sum(call & 1 for call in calls) / len(calls) if calls else 0.0), len(calls)


def failed_lately(record: TrustRecord, calls: int) -> int:
    """Counted failures among the latest calls of a record."""
    first = record.calls_seen - calls
    return sum(failure.call > first for failure in record.failures)


def failing_keys(record: TrustRecord, rule: EscalationRule, at: int) -> int:
    """Fine keys of a tool whose latest call failed, with a counted failure inside the window."""
    since = at - rule.window_seconds * 1000
    failed = {failure.key for failure in record.failures if failure.at >= since}
    return len(failed.intersection(record.failing))
