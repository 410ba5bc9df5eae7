"""Bounded cache of the active sessions of one partition."""

from __future__ import annotations

from typing import Generic, TypeVar

from ..projections.session.novelty import CallRequest

# Requests of calls of each partition kept in memory at least, for the finishes that follow; as many ids
REMEMBERED = 65_536

MAX_OF_A_SESSION = 16_384  # Maximum requests kept for one session

_K = TypeVar("_K")
_V = TypeVar("_V")


class RecentCache(Generic[_K, _V]):
    """Cache of the latest entries, one to two times `REMEMBERED`: two dictionaries, the older is dropped whole."""

    def __init__(self) -> None:
        self._young: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """Value of a key; None if missing or evicted."""
        found = self._young.get(key)
        return found if found is not None else self._old.get(key)

    def keep(self, key: _K, value: _V) -> None:
        """Store a value."""
        self._young[key] = value
        if len(self._young) > REMEMBERED:
            self._old, self._young = self._young, {}

    def known(self, key: _K, value: _V) -> bool:
        """True if a key is already stored; stores it otherwise."""
        if key in self._young or key in self._old:
            return True
        self.keep(key, value)
        return False


class CachedSession:
    """Active session.

    Attributes:
        workspace, user, model: last values given; empty before.
        requests: what its calls asked for, by call id; the latest of each id.
    """

    __slots__ = ("model", "requests", "user", "workspace")

    def __init__(self) -> None:
        self.workspace = self.user = self.model = ""
        self.requests: dict[str, CallRequest] = {}


class SessionCache:
    """Sessions by id; the least recently used are evicted."""

    def __init__(self) -> None:
        self._young: dict[str, CachedSession] = {}
        self._old: dict[str, CachedSession] = {}
        self._size = 0

    def of(self, session_id: str) -> CachedSession:
        """Session of an id, created if missing."""
        session = self._young.get(session_id)
        if session is None:
            session = self._old.pop(session_id, None) or CachedSession()
            self._young[session_id] = session
            self._hold(1 + len(session.requests))
        return session

    def grow(self, held: dict[_K, _V]) -> None:
        """Count a new entry of a session, and evict its oldest entries above the limit."""
        self._hold(1)
        if len(held) > MAX_OF_A_SESSION:
            for key in list(held)[: MAX_OF_A_SESSION // 2]:
                del held[key]

    def _hold(self, more: int) -> None:
        """Count entries of the newer half; when it is full, it replaces the older half."""
        self._size += more
        if self._size > REMEMBERED:
            self._old, self._young, self._size = self._young, {}, 0
