"""Ranking of sessions: incidents by urgency, then sessions with loops, then with failing calls."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from ...projections.incidents import NEEDED, STATES, IncidentRecord, SessionNews, of_session
from ...projections.tool.models import wilson_bounds


class SessionSummary(NamedTuple):
    """Summary of a session for the list of sessions."""

    session_id: str
    # workspace, user, model: last values given; empty if none
    workspace: str
    user: str
    model: str
    calls: int  # number of finished calls
    failed: int  # number of failed calls
    neutral: int  # number of calls that count as neither success nor failure
    news: SessionNews  # its open patterns, questions to people, and lost calls
    patterns: int  # severities its patterns have reached, as far as stored
    pending: int  # number of open calls
    last_ms: int  # time of its last event, milliseconds since 1970
    turn_open: bool  # True during a turn of the model

    @property
    def judged(self) -> int:
        """Number of calls that succeeded or failed."""
        return max(self.calls - self.neutral, self.failed)

    def incident(self, now_ms: int) -> IncidentRecord | None:
        """Its incident; None if nothing is wrong."""
        news = self.news
        return of_session(news, now_ms) if news.patterns or news.asks or news.lost else None

    def state(self, now_ms: int) -> str:
        """State of its incident; `ok` without one."""
        found = self.incident(now_ms)
        return "ok" if found is None else found.state


@lru_cache(maxsize=4096)
def _surely(failed: int, judged: int) -> float:
    return wilson_bounds(failed, judged)[0]


def ranked(sessions: Iterable[SessionSummary], now_ms: int) -> list[SessionSummary]:
    """Sessions sorted by urgency.

    Incidents that need a person, in their order; then sessions with open or past patterns, the most first; then by the
    share of failed calls, of which the lower bound counts (90 %, Wilson), so that one failure does not lead; then the
    latest.
    """

    def place(one: SessionSummary) -> tuple[float, ...]:
        found = one.incident(now_ms)
        order = found.order if found is not None and found.state in NEEDED else (len(STATES), 0, 0, 0, 0)
        patterns = max(one.patterns, len(one.news.patterns))
        return (*order, -patterns, -_surely(one.failed, one.judged), -one.last_ms)

    return sorted(sessions, key=lambda one: (place(one), one.session_id))
