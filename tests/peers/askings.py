"""Those who ask for a call with an idempotency key, what has come of it for each, and the store that knows the keys."""

from __future__ import annotations

import asyncio
from typing import Any

from trustfold.guard.idempotency.memory import InMemoryDedupeStore
from trustfold.guard.idempotency.record import Claim, DedupeRecord
from trustfold.guard.result import ToolResult

from .case import UnknownWord

_CACHED = """cached cache hit cache_hit cached_result from_cache reused reuse replay replayed done deduplicated deduped
    duplicate"""
_WAITING = (
    """waiting wait waits waited joined join inflight in_flight pending inflight_marker in_flight_marker shared"""
)
_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "executed": """executed execute executes run ran runs started new miss claimed acquired owner proceed
            executed_again reexecuted independent""",
        "cached": _CACHED,
        "cached_error": f"{_CACHED} cached_error failed cached_failure",
        "waiting": _WAITING,
        "joined": f"{_WAITING} {_CACHED}",
        "in_flight": "in_flight inflight busy rejected fast_fail fail_fast 409 in_progress",
        "conflict": "conflict key_conflict mismatch rejected invalid_conflict",
        "cancelled": "cancelled canceled aborted",
    }.items()
}
"""What came of an asking → the words by which cases may call it."""


class WatchedStore(InMemoryDedupeStore):
    """The guard's store, remembering who was given which key."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.claimed: list[str] = []
        self.held: dict[str, DedupeRecord] = {}

    async def claim(self, record: DedupeRecord, lease_ms: int) -> Claim:
        """As ever."""
        claim = await super().claim(record, lease_ms)
        self.claimed.append(record.key)
        if claim.mine:
            self.held[record.key] = claim.record
        return claim


class Asking:
    """One caller's request, and what has come of it so far."""

    def __init__(self, event: dict[str, Any]) -> None:
        self.place = place_of(event)
        self.caller = event.get("caller")
        self.ran = False
        self.record: DedupeRecord | None = None
        self.ends: asyncio.Future[Any] | None = None
        self.task: asyncio.Task[ToolResult] | None = None
        self._word = ""

    def freeze(self) -> None:
        """The case is over: what is so now holds; that nobody waits any longer changes nothing."""
        self._word = self.word

    @property
    def result(self) -> ToolResult | None:
        """The guard's answer; None while there is none, or where the caller has gone away."""
        task = self.task
        return task.result() if task is not None and task.done() and not task.cancelled() else None

    @property
    def word(self) -> str:
        """What has come of it, in one word."""
        if self._word:
            return self._word
        if self.task is not None and self.task.cancelled():
            return "cancelled"
        if self.ran:
            return "executed"
        result = self.result
        if result is None:
            return "waiting"
        if result.cache is not None:
            waited = result.cache.matched_on == "inflight"
            return "joined" if waited else "cached" if result.ok else "cached_error"
        code = result.error.code if result.error is not None else ""
        return "conflict" if code == "key_conflict" else code


def place_of(event: dict[str, Any]) -> tuple[str, str, str]:
    """Session, tool and key: askings that share all three are one call."""
    return str(event.get("session", "s1")), str(event.get("tool", "tool")), str(event.get("key"))


def differs(name: str, wanted: Any, asking: Asking) -> str:
    """What has come of an asking, where a case calls it otherwise; empty where it calls it so.

    Raises UnknownWord: nothing that may come of one is called so.
    """
    word = str(wanted).lower().replace("-", "_")
    if all(word not in words for words in _WORDS.values()):
        raise UnknownWord(f"outcome {word!r} of an asking")
    actual = asking.word
    return "" if word in _WORDS.get(actual, {actual}) else f"{name} is {actual!r}, not {word!r}"
