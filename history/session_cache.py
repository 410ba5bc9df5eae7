"""What a partition's reader remembers of sessions under way: bounded, whatever they do."""

from __future__ import annotations

from typing import Generic, TypeVar

from ..projections.session.records import OpenCall

REMEMBERED = 65_536
"""Calls and results of each partition kept in memory at least, to say more about the finishes and repeats that follow;
as many ids."""

MAX_OF_A_SESSION = 16_384
"""Calls, and results, that are remembered of one session."""

_K = TypeVar("_K")
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """The latest entries, one to two times `REMEMBERED`: two dictionaries, of which the older is dropped whole."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._young: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """The value under a key; None where there is none any more."""
        found = self._young.get(key)
        return found if found is not None else self._old.get(key)

    def keep(self, key: _K, value: _V) -> None:
        """Remember a value."""
        self._young[key] = value
        if len(self._young) > REMEMBERED:
            self._old, self._young = self._young, {}

    def known(self, key: _K, value: _V) -> bool:
        """Whether a key is remembered already; from now on it is."""
        if key in self._young or key in self._old:
            return True
        self.keep(key, value)
        return False


class Session:
    """One session under way.

    Attributes:
        workspace, user, model: what it has named last; empty before.
        acted: how many of its calls were actions that brought something new.
        calls: open calls by call id, oldest first; empty where a call of that id has ended.
        results: by call digest and result: how often in a row, and what `acted` was then.
    """

    __slots__ = ("acted", "calls", "model", "results", "user", "workspace")

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self.workspace = self.user = self.model = ""
        self.acted = 0
        self.calls: dict[str, list[OpenCall]] = {}
        self.results: dict[tuple[str, str], tuple[int, int]] = {}


class Sessions:
    """Sessions by id; those of which nothing was heard for the longest time are forgotten."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._young: dict[str, Session] = {}
        self._old: dict[str, Session] = {}
        self._size = 0

    def of(self, session_id: str) -> Session:
        """The session of an id."""
        session = self._young.get(session_id)
        if session is None:
            session = self._old.pop(session_id, None) or Session()
            self._young[session_id] = session
            self._hold(1 + len(session.calls) + len(session.results))
        return session

    def grow(self, held: dict[_K, _V]) -> None:
        """Count an entry that a session has got; its oldest ones go where it has too many."""
        self._hold(1)
        if len(held) > MAX_OF_A_SESSION:
            for key in list(held)[: MAX_OF_A_SESSION // 2]:
                del held[key]

    def _hold(self, more: int) -> None:
        """The younger half holds so many more; when it is full it becomes the older one, which is dropped."""
        self._size += more
        if self._size > REMEMBERED:
            self._old, self._young, self._size = self._young, {}, 0
