"""Ranking of incidents: a sorted list, of which only what has changed is made anew.

A page of fifty rows costs the same with ten keys as with ten thousand: states and sessions that come are noted, and the
incidents of their families (`projections.incidents`) are put into the list when it is read or their time has come.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush

from ...projections.calls.keys import tool_of_key
from ...projections.incidents import FOR_EVER, IncidentRecord, SessionNews, family_of, of_family, of_session
from ...schemas.public_state import IncidentUpdated, ModelUpdated, PublicState

Owner = tuple[str, str]  # Workspace, or `user:ID` for a user everywhere; and tool, service or tier


def subject_of(key: str) -> str:
    """Tool, service or tier that a key is about: `bash` for `bash|command=git` and `tool:bash`."""
    return key.removeprefix("tool:") if key.startswith("tool:") else tool_of_key(key)


def owner_of(state: PublicState) -> Owner:
    """Where a state holds, and what it is about."""
    return f"user:{state.user_id}" if state.scope == "user" else state.workspace_id or "", subject_of(state.key)


class IncidentRanking:
    """Sorted list of all incidents, and of what is well or handled."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.counts: Counter[str] = Counter()  # number of incidents in each state, as of the last `ranked`
        self.tools: Counter[Owner] = Counter()  # number of states that each tool has
        self._ranked: list[IncidentRecord] = []
        self._families: dict[str, dict[str, PublicState]] = {}
        self._sessions: dict[str, SessionNews] = {}
        self._states: dict[str, PublicState] = {}
        self._shown: dict[str, list[IncidentRecord]] = {}
        self._changed: set[str] = set()
        self._due: list[tuple[int, str]] = []

    def put(self, key: str, state: PublicState | None) -> None:
        """Set the newest state of a record key; None removes it. Profiles of models are not ranked."""
        known = self._states.pop(key, None)
        if known is not None:
            family, owner = family_of(known), owner_of(known)
            del self._families[family][key]
            self._changed.add(family)
            self.tools[owner] -= not isinstance(known, IncidentUpdated)
            if not self.tools[owner]:
                del self.tools[owner]
        if state is not None and not isinstance(state, ModelUpdated):
            family = family_of(state)
            self._states[key] = state
            self._families.setdefault(family, {})[key] = state
            self._changed.add(family)
            if not isinstance(state, IncidentUpdated):
                self.tools[owner_of(state)] += 1

    def hear(self, session: str, news: SessionNews | None) -> None:
        """Set what is known of a session; None: it is over."""
        if news is None:
            self._sessions.pop(session, None)
        else:
            self._sessions[session] = news
        self._changed.add(f"session:{session}")

    def ranked(self, now_ms: int) -> Sequence[IncidentRecord]:
        """All incidents as they are at a time, most urgent first. Not to be changed, and valid until the next call."""
        while self._due and self._due[0][0] <= now_ms:
            self._changed.add(heappop(self._due)[1])
        for name in self._changed:
            for old in self._shown.pop(name, ()):
                del self._ranked[bisect_left(self._ranked, old)]
                self.counts[old.state] -= 1
            if found := self._made(name, now_ms):
                self._shown[name] = found
            for new in found:
                insort(self._ranked, new)
                self.counts[new.state] += 1
                if new.until_ms < FOR_EVER:
                    heappush(self._due, (new.until_ms, name))
        self._changed.clear()
        return self._ranked

    def _made(self, name: str, now_ms: int) -> list[IncidentRecord]:
        states = self._families.get(name)
        if name.startswith("session:") and name[8:] in self._sessions:
            found = of_session(self._sessions[name[8:]], now_ms, (states or {}).values())
            return [found] if found is not None else []
        if not states:
            self._families.pop(name, None)
            return []
        return of_family(states.values(), now_ms)
