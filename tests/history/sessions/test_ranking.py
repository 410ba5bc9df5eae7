"""Which sessions to look at first."""

from __future__ import annotations

from trustfold.history.sessions.ranking import SessionSummary, ranked
from trustfold.projections.incidents import STUCK_MS, OpenPattern, SessionNews

NOW = 10 * STUCK_MS


def session(name: str, *, calls: int = 10, failed: int = 0, severity: int = 0, times: int = 3, patterns: int = 0,
            ago: int = 0) -> SessionSummary:  # fmt: skip
    """A session of which this is known."""
    stuck = (OpenPattern("", "repetitive_calls", "f", severity, times, "bash", NOW - ago - times),) if severity else ()
    news = SessionNews(name, "w", stuck, news_ms=NOW - ago)
    return SessionSummary(name, "w", "m", calls, failed, 0, news, patterns, 0, NOW - ago)


def test_stuck_now_then_loops_then_failures_then_the_latest() -> None:
    """What a person can still help comes first; a single failure of a single call does not lead."""
    rows = [
        session("idle", ago=5000),
        session("fresh"),
        session("one failed of one", calls=1, failed=1),
        session("half failed", calls=40, failed=20),
        session("was in loops", patterns=4),
        session("left in a loop long ago", severity=3, ago=2 * STUCK_MS),
        session("stuck a little", severity=1),
        session("stuck badly", severity=3),
        session("stuck badly for longer", severity=3, times=9),
    ]
    assert [one.session_id for one in ranked(rows, NOW)] == [
        "stuck badly",
        "stuck badly for longer",
        "stuck a little",
        "was in loops",
        "left in a loop long ago",
        "half failed",
        "one failed of one",
        "fresh",
        "idle",
    ]
