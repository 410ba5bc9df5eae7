"""Recognising a repeated event by its id, in bounded memory (docs/design/contracts.md#time-and-order)."""

from __future__ import annotations

from hashlib import blake2b

from .state import MAX_RECENT_IDS, SessionState

_WIDTH = 8
_KEPT = MAX_RECENT_IDS * _WIDTH
_PREPARED = blake2b(digest_size=_WIDTH)


def mark_of(event_id: str) -> bytes:
    """Digest under which an event id is remembered."""
    hashed = _PREPARED.copy()  # cheaper than to set up a new one
    hashed.update(event_id.encode())
    return hashed.digest()


def seen_before(state: SessionState, mark: bytes) -> bool:
    """Whether an event of this mark is among the session's latest."""
    recent = state.recent_ids
    position = recent.find(mark)
    while position >= 0:
        if position % _WIDTH == 0:
            return True
        position = recent.find(mark, position + 1)
    return False


def remember(state: SessionState, mark: bytes) -> None:
    """Remember an event that has been folded; one on which the fold failed may come again."""
    recent = state.recent_ids
    if len(recent) >= _KEPT:
        del recent[: len(recent) - _KEPT + _WIDTH]
    recent += mark
