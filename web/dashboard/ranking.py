"""Ranking by urgency: a sorted list with one place per state and per stuck session, updated as they change.

Theory of operation. Every key has a place that sorts: first by what is wrong, then by how new that is. Places are put
into a sorted list one by one as records come, so a page of fifty rows costs the same with ten keys as with ten
thousand. A few places change with time alone (an open circuit becomes half-open): these are made again when their time
has come.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from ...history.sessions.timeline import millis
from ...projections.calls.keys import tool_of_key
from ...schemas.decisions import PatternDetected
from ...schemas.public_state import BreakerUpdated, ModelUpdated, PublicState, QualityUpdated, TrustUpdated
from ...schemas.vocabulary import BreakerMode, BreakerState, TrustState

WORDS = ("blocked", "escalated", "stuck", "open", "half-open", "degraded", "recovering", "ok", "handled")
"""Words of places, worst first. `handled`: a person has dealt with it; shown only on request."""

TROUBLE = WORDS[:7]
"""Words of places that need, or may need, a person."""

RANK = {word: number for number, word in enumerate(WORDS)}

STUCK_MS = 3_600_000
"""Milliseconds after the last news of a pattern in which its session still counts as stuck."""

FOR_EVER = 1 << 62


class StuckSession(NamedTuple):
    """Agent of a session with open patterns.

    Attributes:
        worst: its most severe pattern; of equal severity the one with the most repetitions.
        patterns: number of its open patterns.
        time: time of the newest detection, RFC 3339.
    """

    worst: PatternDetected
    patterns: int
    time: str


Ranked = PublicState | StuckSession
"""Subject of a row in the ranking: a public state, or a session with an open pattern."""


class Place(NamedTuple):
    """Sortable place of a key in the ranking.

    Attributes:
        rank: of its word.
        age: negative milliseconds since 1970 of its newest change, so that the newest comes first.
        key: record key: of the `state` topic, or `stuck:SESSION`, U+001F, agent.
        word: one of `WORDS`.
        workspace: where it holds; for a user everywhere, `user:ID`.
        tool: tool, service or tier that it is about; of a stuck session, the session.
        until: milliseconds since 1970 at which it changes by itself.
    """

    rank: int
    age: int
    key: str
    word: str
    workspace: str
    tool: str
    until: int = FOR_EVER


def place_of(key: str, state: Ranked, now_ms: int) -> Place | None:
    """Place of a key or session; None for a model's profile, which is not ranked."""
    if isinstance(state, ModelUpdated):
        return None
    if isinstance(state, StuckSession):
        until = millis(state.time) + STUCK_MS
        word, until = ("stuck", until) if until > now_ms else ("handled", FOR_EVER)
        began, where = state.worst.time, state.worst.workspace_id or ""
        return Place(RANK[word], -millis(began), key, word, where, state.worst.session_id or "", until)
    until, since = FOR_EVER, state.time
    if isinstance(state, TrustUpdated):
        word, since = _trust(state), state.since or since
    elif isinstance(state, BreakerUpdated):
        (word, until), since = _circuit(state, now_ms), state.since or since
    else:
        word = _quality(state)
    where = f"user:{state.user_id}" if state.scope == "user" else state.workspace_id or ""
    return Place(RANK[word], -millis(since), key, word, where, subject_of(state.key), until)


def subject_of(key: str) -> str:
    """Tool, service or tier that a key is about: `bash` for `bash|command=git` and `tool:bash`."""
    return key.removeprefix("tool:") if key.startswith("tool:") else tool_of_key(key)


def _trust(state: TrustUpdated) -> str:
    match state.state:
        case TrustState.REMOVED:
            return "handled"
        case TrustState.RECOVERING:
            return "escalated" if state.recovery_pending else "recovering"
        case TrustState.BLOCKED | TrustState.ESCALATED:
            return str(state.state)
    return "ok"


def _circuit(state: BreakerUpdated, now_ms: int) -> tuple[str, int]:
    """Word of a circuit, and milliseconds since 1970 until which it holds."""
    if state.mode not in {None, BreakerMode.ENFORCE} or state.state is BreakerState.FORCED_OPEN:
        return "handled", FOR_EVER
    if state.state is BreakerState.OPEN:
        until = millis(state.open_until) if state.open_until else FOR_EVER
        return ("open", until) if until > now_ms else ("half-open", FOR_EVER)
    return ("half-open" if state.state is BreakerState.HALF_OPEN else "ok"), FOR_EVER


def _quality(state: QualityUpdated) -> str:
    score, whole = state.score, state.registered_score
    low = score is not None and whole is not None and score < whole / 2
    return "degraded" if low or state.tags else "ok"


class Ranking:
    """Sorted list of all places.

    Attributes:
        counts: how many places have each word.
        tools: how many places each tool has, by workspace and tool.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.counts: Counter[str] = Counter()
        self.tools: Counter[tuple[str, str]] = Counter()
        self._ranked: list[Place] = []
        self._places: dict[str, Place] = {}
        self._states: dict[str, Ranked] = {}
        self._due: list[tuple[int, str]] = []

    def put(self, key: str, state: Ranked | None, now_ms: int) -> None:
        """Set the place of a key by its newest state; None removes it."""
        place = place_of(key, state, now_ms) if state is not None else None
        known = self._places.get(key)
        if known is not None:
            if known == place and state is not None:
                self._states[key] = state
                return
            del self._ranked[bisect_left(self._ranked, known)]
            del self._places[key]
            del self._states[key]
            self.counts[known.word] -= 1
            self.tools[known.workspace, known.tool] -= 1
            if not self.tools[known.workspace, known.tool]:
                del self.tools[known.workspace, known.tool]
        if place is None or state is None:
            return
        insort(self._ranked, place)
        self._places[key] = place
        self._states[key] = state
        self.counts[place.word] += 1
        self.tools[place.workspace, place.tool] += 1
        if place.until < FOR_EVER:
            heappush(self._due, (place.until, key))

    def ranked(self, now_ms: int) -> Sequence[Place]:
        """All places as they are at a time, worst first. Not to be changed, and valid until the next `put`."""
        while self._due and self._due[0][0] <= now_ms:
            _, key = heappop(self._due)
            if (state := self._states.get(key)) is not None:
                self.put(key, state, now_ms)
        return self._ranked

    def state(self, key: str) -> Ranked:
        """The newest state of a key that has a place."""
        return self._states[key]
