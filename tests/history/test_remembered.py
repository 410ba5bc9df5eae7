"""What the reader remembers has a bound, whatever the sessions do."""

from __future__ import annotations

from trustfold.history.session_cache import MAX_OF_A_SESSION, REMEMBERED, CachedSession, SessionCache
from trustfold.projections.session.novelty import NO_REQUEST


def held(sessions: SessionCache) -> int:
    """Entries of all sessions that are remembered."""
    halves: tuple[dict[str, CachedSession], ...] = (sessions._young, sessions._old)
    return sum(1 + len(one.requests) for half in halves for one in half.values())


def test_sessions_that_all_go_on_are_bounded_together() -> None:
    """Many at once, none of them long enough to be cut by itself, and no new one among them."""
    sessions = SessionCache()
    for number in range(1_000):
        for name in range(400):
            session = sessions.of(f"s{name}")
            session.requests[f"call-{number}"] = NO_REQUEST
            sessions.grow(session.requests)
    assert held(sessions) <= 2 * (REMEMBERED + 2 * MAX_OF_A_SESSION)


def test_one_session_is_bounded_and_keeps_its_latest() -> None:
    """However long it goes on."""
    sessions = SessionCache()
    for number in range(3 * MAX_OF_A_SESSION):
        session = sessions.of("s1")
        session.requests[f"call-{number}"] = NO_REQUEST
        sessions.grow(session.requests)
    assert len(sessions.of("s1").requests) <= MAX_OF_A_SESSION
    assert f"call-{3 * MAX_OF_A_SESSION - 1}" in sessions.of("s1").requests
