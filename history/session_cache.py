"""Bounded cache of what was last seen of one partition: sessions, requests of calls, ids."""

from __future__ import annotations

from typing import Generic, TypeVar

REMEMBERED = 65_536  # Entries of a cache kept at least

_K = TypeVar("_K")
_V = TypeVar("_V")


class RecentCache(Generic[_K, _V]):
    """Cache of the entries used last, one to two times `REMEMBERED`: two dictionaries, the older is dropped whole."""

    def __init__(self) -> None:
        self._young: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        """Value of a key, which counts as used now; None if missing or evicted."""
        found = self._young.get(key)
        old = self._old.get(key) if found is None else None
        return found if old is None else self.keep(key, old)

    def keep(self, key: _K, value: _V) -> _V:
        """Store a value and return it."""
        self._young[key] = value
        if len(self._young) > REMEMBERED:
            self._old, self._young = self._young, {}
        return value

    def known(self, key: _K, value: _V) -> bool:
        """True if a key is already stored; stores it otherwise."""
        if key in self._young or key in self._old:
            return True
        self.keep(key, value)
        return False
