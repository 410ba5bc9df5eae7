"""Joined calls as cases see them: who was answered by whose call, and what the store keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trustfold.guard import ToolGuard
from trustfold.guard.idempotency.record import DedupeRecord
from trustfold.guard.result import ToolResult

from .area import Area
from .askings import Asking, differs
from .case import UnknownWord

_FIELDS = ("first", "second", "third", "fourth", "fifth")


def _shows(field: str) -> Callable[[IdempotencyViews], float]:
    return lambda self: float(getattr(self.guard.settings.dedupe, field)) / 1000


class IdempotencyViews(Area):
    """What those who asked were told; `Idempotency` has what they did."""

    policy: dict[str, Any]
    guard: ToolGuard
    max_keys: int
    asked: list[Asking]
    executions: int
    subject: Asking | None
    keys: list[str]
    records: list[DedupeRecord | None]
    size: int

    def _fault(self, name: str, wanted: Any) -> str:
        if name in _FIELDS or name == "last":
            number = len(self.asked) - 1 if name == "last" else _FIELDS.index(name)
            if not 0 <= number < len(self.asked):
                return f"nobody asked a {name} time"
            return differs(name, wanted, self.asked[number])
        order, _, rest = name.partition("_")
        if rest and order in _FIELDS[: len(self.asked)]:
            self.subject = self.asked[_FIELDS.index(order)]
            return super()._fault(rest, wanted)
        self.subject = self.asked[-1] if self.asked else None
        if name in {"outcomes", "results"}:
            if len(wanted) != len(self.asked):
                return f"{len(self.asked)} asked, not {len(wanted)}"
            pairs = enumerate(zip(wanted, self.asked, strict=True), 1)
            return "; ".join(filter(None, (differs(f"number {n}", word, asking) for n, (word, asking) in pairs)))
        return super()._fault(name, wanted)

    def _count(self, *words: str) -> int:
        return sum(asking.word in words for asking in self.asked)

    def _last(self) -> ToolResult | None:
        """The answer in question: the last one, or that of the caller whose number is named in front."""
        return self.subject.result if self.subject is not None else None

    def see_from_cache(self) -> bool:
        """Whether the last one was answered from another's call."""
        result = self._last()
        return result is not None and result.from_cache

    def see_matched_on(self) -> str | None:
        """Whether that call was running or done."""
        result = self._last()
        return result.cache.matched_on if result is not None and result.cache is not None else None

    def see_age_s(self) -> float | None:
        """How old it was, seconds."""
        result = self._last()
        return result.cache.age_ms / 1000 if result is not None and result.cache is not None else None

    def see_status(self) -> str | None:
        """How the last one ended."""
        result = self._last()
        return None if result is None else str(result.status)

    def see_error_code(self) -> str | None:
        """Why it failed."""
        result = self._last()
        return result.error.code if result is not None and result.error is not None else None

    def see_terminal(self) -> bool | None:
        """Whether the same call would fail again."""
        result = self._last()
        return result.error.terminal if result is not None and result.error is not None else None

    def see_result(self) -> Any:
        """What it has got."""
        result = self._last()
        return None if result is None else result.output

    def see_same_result(self) -> bool:
        """Whether all who got something got the same."""
        got = [result.output for asking in self.asked if (result := asking.result) is not None]
        return bool(got) and all(one == got[0] for one in got)

    def see_state(self) -> str | None:
        """Where the key asked for last stands; None where it is free."""
        record = self.records[-1] if self.records else None
        return None if record is None or record.is_free else str(record.state)

    def see_same_key(self) -> bool:
        """Whether all calls have the same key."""
        if len(self.keys) < 2:
            raise UnknownWord("the same key of fewer than two calls")
        return len(set(self.keys)) == 1

    VIEWS = {
        "executions executed runs calls": lambda self: self.executions,  # how often the tool has run
        "cache_hits hits deduplicated duplicates": lambda self: self._count("cached", "cached_error", "joined"),
        "joined": lambda self: self._count("joined"),  # who waited for another one's call and has its end
        "waiting": lambda self: self._count("waiting"),  # who still waits
        "conflicts": lambda self: self._count("conflict"),  # whose key was taken by another call
        "rejected": lambda self: self._count("conflict", "in_flight"),  # who was refused
        "cached": see_from_cache,
        "error code": see_error_code,
        "output": see_result,
        "record_state": see_state,
        "records stored size": lambda self: self.size,  # keys in the store
        "keys_equal": see_same_key,
        "distinct_keys": lambda self: len(set(self.keys)),  # how many keys they have
        "done_ttl_s ttl_s": _shows("done_ms"),
        "failed_ttl_s error_ttl_s": _shows("failed_ms"),
        "lease_s inflight_ttl_s": _shows("lease_ms"),
        "max_keys": lambda self: self.max_keys,  # room in the store
    }
