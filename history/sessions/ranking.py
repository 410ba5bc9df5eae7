"""Ranking of sessions by urgency: stuck now, then with loops, then with failing calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...projections.tool.models import wilson_bounds

ALIVE_MS = 3_600_000
"""A session without events for an hour counts as abandoned, not stuck (`needs_attention`)."""


class Stuck(NamedTuple):
    """Open pattern of a session.

    Attributes:
        pattern: as in the contract.
        severity: 1 minor, 2 moderate, 3 severe.
        times: number of repetitions so far.
        tool: repeated tool; empty if the pattern is not about a tool.
        since_ms: start, milliseconds since 1970.
    """

    pattern: str
    severity: int
    times: int
    tool: str
    since_ms: int


class SessionSummary(NamedTuple):
    """Summary of a session for the list of sessions.

    Attributes:
        workspace, user, model: last values given; empty if none.
        calls: number of started calls.
        failed: number of failed calls.
        neutral: number of calls that count as neither success nor failure.
        stuck: open patterns of all its agents.
        patterns: severities its patterns have reached, as far as stored.
        pending: number of open calls.
        last_ms: time of its last event, milliseconds since 1970.
        turn_open: True during a turn of the model.
    """

    session_id: str
    workspace: str
    user: str
    model: str
    calls: int
    failed: int
    neutral: int
    stuck: tuple[Stuck, ...]
    patterns: int
    pending: int
    last_ms: int
    turn_open: bool

    @property
    def judged(self) -> int:
        """Number of calls that succeeded or failed."""
        return max(self.calls - self.neutral - self.pending, self.failed)

    @property
    def worst(self) -> Stuck | None:
        """Most severe open pattern; of equal severity the one with more repetitions."""
        return max(self.stuck, key=lambda one: (one.severity, one.times), default=None)

    def stuck_now(self, now_ms: int) -> bool:
        """True if it has an open pattern and recent events."""
        return bool(self.stuck) and now_ms - self.last_ms <= ALIVE_MS


def ranked(sessions: Iterable[SessionSummary], now_ms: int) -> list[SessionSummary]:
    """Sessions sorted by urgency.

    Stuck now, by severity and repetitions; then those with open or past patterns, the most first; then by the share of
    failed calls, of which the lower bound counts (90 %, Wilson), so that one failure of one call does not lead; then
    the latest.
    """

    def place(one: SessionSummary) -> tuple[float, ...]:
        worst = one.worst
        now = (worst.severity, worst.times) if worst is not None and one.stuck_now(now_ms) else (0, 0)
        return (*now, max(one.patterns, len(one.stuck)), wilson_bounds(one.failed, one.judged)[0], one.last_ms)

    return sorted(sessions, key=lambda one: (place(one), one.session_id), reverse=True)
