"""Which sessions to look at first: those that are stuck now, then those with loops, then those whose calls fail."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...projections.tool.models import wilson_bounds

ALIVE_MS = 3_600_000
"""A session of which nothing was heard for an hour is stuck no more: whoever ran it has gone (`needs_attention`)."""


class Stuck(NamedTuple):
    """A pattern that the model has not broken out of.

    Attributes:
        pattern: as in the contract.
        severity: 1 minor, 2 moderate, 3 severe.
        times: repetitions so far.
        tool: of the repetition; empty where it is of no tool.
        since_ms: when it began, milliseconds.
    """

    pattern: str
    severity: int
    times: int
    tool: str
    since_ms: int


class SessionSummary(NamedTuple):
    """What the list of sessions says of one.

    Attributes:
        session_id: its id.
        workspace, user, model: as it said last; empty where it did not.
        calls: that have begun.
        failed: of these.
        neutral: of these, those that say nothing.
        stuck: patterns it has not broken out of, whatever agent of it.
        patterns: severities that patterns of it have reached, as far as they are remembered.
        pending: calls that have begun and not ended.
        last_ms: when it was last heard of, milliseconds.
        turn_open: the model has its turn.
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
        """Calls that succeeded or failed."""
        return max(self.calls - self.neutral - self.pending, self.failed)

    @property
    def worst(self) -> Stuck | None:
        """The most severe of its open patterns; of two of one severity the one that repeats more."""
        return max(self.stuck, key=lambda one: (one.severity, one.times), default=None)

    def stuck_now(self, now_ms: int) -> bool:
        """Whether a person can still help it."""
        return bool(self.stuck) and now_ms - self.last_ms <= ALIVE_MS


def ranked(sessions: Iterable[SessionSummary], now_ms: int) -> list[SessionSummary]:
    """Sessions, those to look at first on top.

    Stuck now, by severity and repetitions; then those with open or past patterns, the most first; then by the share of
    failed calls, of which the lower bound counts (90 %, Wilson), so that one failure of one call does not lead; then
    the latest.
    """

    def place(one: SessionSummary) -> tuple[float, ...]:
        worst = one.worst
        now = (worst.severity, worst.times) if worst is not None and one.stuck_now(now_ms) else (0, 0)
        return (*now, max(one.patterns, len(one.stuck)), wilson_bounds(one.failed, one.judged)[0], one.last_ms)

    return sorted(sessions, key=lambda one: (place(one), one.session_id), reverse=True)
