"""Recognising a repeated event by its id, in bounded memory (design 2, Time and order)."""

from __future__ import annotations

from hashlib import blake2b

from .state import MAX_RECENT_IDS, SessionState

_WIDTH = 8
_KEPT = MAX_RECENT_IDS * _WIDTH


def seen_before(state: SessionState, event_id: str) -> bool:
    """Whether this event id is among the session's latest; remembers it if not."""
    mark = blake2b(event_id.encode(), digest_size=_WIDTH).digest()
    recent = state.recent_ids
    position = recent.find(mark)
    while position >= 0:
        if position % _WIDTH == 0:
            return True
        position = recent.find(mark, position + 1)
    state.recent_ids = recent[-(_KEPT - _WIDTH) :] + mark if len(recent) >= _KEPT else recent + mark
    return False
