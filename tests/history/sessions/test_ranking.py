"""Which sessions to look at first."""

from __future__ import annotations

from trustfold.history.sessions.ranking import ALIVE_MS, SessionSummary, Stuck, ranked

NOW = 10 * ALIVE_MS


def session(name: str, *, calls: int = 10, failed: int = 0, severity: int = 0, times: int = 3, patterns: int = 0,
            ago: int = 0) -> SessionSummary:  # fmt: skip
    """A session of which this is known."""
    stuck = (Stuck("repetitive_calls", severity, times, "bash", 0),) if severity else ()
    return SessionSummary(name, "w", "", "m", calls, failed, 0, stuck, patterns, 0, NOW - ago, turn_open=True)


def test_stuck_now_then_loops_then_failures_then_the_latest() -> None:
    """What a person can still help comes first; a single failure of a single call does not lead."""
    rows = [
        session("idle", ago=5000),
        session("fresh"),
        session("one failed of one", calls=1, failed=1),
        session("half failed", calls=40, failed=20),
        session("was in loops", patterns=4),
        session("left in a loop long ago", severity=3, ago=2 * ALIVE_MS),
        session("stuck a little", severity=1),
        session("stuck badly", severity=3),
        session("stuck badly for longer", severity=3, times=9),
    ]
    assert [one.session_id for one in ranked(rows, NOW)] == [
        "stuck badly for longer",
        "stuck badly",
        "stuck a little",
        "was in loops",
        "left in a loop long ago",
        "half failed",
        "one failed of one",
        "fresh",
        "idle",
    ]
