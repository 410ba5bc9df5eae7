"""Helpers for tests of agents: an in-memory guard, a movable clock, and preset states.

clock = MovableClock()
guard = guard_for_tests(clock=clock)
set_state(guard, "breaker", "tool:http_request", state="open", open_until=clock.after(30))
assert guard.check("http_request").code == "circuit_open"
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Unpack

import orjson

from ..rules.rules import RuleSet
from ..schemas.codec import encode, rfc3339
from ..schemas.outcomes import US
from ..schemas.public_state import STATE_KINDS, ProbeLease
from .clock import resolve
from .guard import ToolGuard
from .options import GuardOptions

START_MS = int(datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp() * 1000)


class MovableClock:
    """Clock that stands still until it is moved; sleeping moves it at once.

    A wait with a timeout ends when its future is done or the clock was moved far enough.

    Attributes:
        waits: milliseconds of every wait, in order.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        """Start at `now_ms`, milliseconds since the epoch."""
        self.waits: list[float] = []
        self._now_ms = float(now_ms)
        self._alarms: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds of the same clock."""
        return self._now_ms

    async def sleep(self, ms: float) -> None:
        """Move the clock by `ms`, and let other tasks run once."""
        self.waits.append(ms)
        self.move(ms=ms)
        await asyncio.sleep(0)

    async def wait(self, future: asyncio.Future[Any], ms: float) -> None:
        """Wait for a future, or until the clock was moved by `ms`."""
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._now_ms + ms, alarm)
        self._alarms.append(entry)
        try:
            await asyncio.wait({future, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._alarms.remove(entry)
            alarm.cancel()

    def later(self, ms: float, callback: Callable[[], object]) -> None:
        """Call a function once the clock was moved by `ms`."""
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._now_ms + ms, alarm)
        self._alarms.append(entry)

        def due(_: object) -> None:
            self._alarms.remove(entry)
            callback()

        alarm.add_done_callback(due)

    def move(self, seconds: float = 0, *, ms: float = 0) -> None:
        """Move the clock forward; waits that are due end at the loop's next turn."""
        self._now_ms += seconds * 1000 + ms
        for due, alarm in tuple(self._alarms):
            if due <= self._now_ms:
                alarm.get_loop().call_soon_threadsafe(resolve, alarm, None)

    def after(self, seconds: float) -> str:
        """Return the time `seconds` from now in the form of published states."""
        return rfc3339(int(self._now_ms + seconds * 1000))


def guard_for_tests(
    *,
    clock: MovableClock | None = None,
    rules: RuleSet | None = None,
    jitter: float = 1.0,
    **options: Unpack[GuardOptions],
) -> ToolGuard:
    """Create an in-memory guard with a movable clock; every delay is `jitter` times its bound."""
    clock = clock or MovableClock()
    options.setdefault("workspace_id", "w1")
    return ToolGuard.in_memory(rules=rules, clock=clock, draw=lambda low, high: low + jitter * (high - low), **options)


def set_state(guard: ToolGuard, kind: str, key: str, *, workspace: str | None = None, **fields: Any) -> None:
    """Set a key's state in a guard's view, as if trustfold had published it.

    Args:
        guard: guard whose view is changed.
        kind: `trust`, `breaker`, `quality` or `model`.
        key: e.g. `http_request`, `bash|command=git`, `tool:http_request`.
        workspace: workspace of the key; by default the guard's.
        fields: fields of the kind's struct (`schemas.public_state`), at least `state`. A lease may be a dictionary.
    """
    if kind not in STATE_KINDS:
        raise ValueError(f"no kind of state is called {kind!r}; use one of {', '.join(STATE_KINDS)}")
    place = workspace or guard.settings.workspace_id
    if isinstance(fields.get("lease"), dict):
        fields["lease"] = ProbeLease(**fields["lease"])
    record = STATE_KINDS[kind](
        schema_version="1.0",
        id=f"test-{kind}-{key}-{guard.clock.now_ms()}",
        time=rfc3339(guard.clock.now_ms()),
        workspace_id=place,
        kind=kind,  # type: ignore[arg-type]
        key=key,
        **fields,
    )
    guard.view.apply(f"{kind}:{place}{US}{key}", encode(record))


def clear_state(guard: ToolGuard, kind: str, key: str, *, workspace: str | None = None) -> None:
    """Return a key to its default state."""
    guard.view.apply(f"{kind}:{workspace or guard.settings.workspace_id}{US}{key}", None)


def published(guard: ToolGuard, kind: str = "") -> list[dict[str, Any]]:
    """Return published events of an in-memory guard, oldest first; of one type or of all."""
    events = [orjson.loads(value) for value in guard.memory.published]
    return [event for event in events if not kind or event["type"] == kind]


def decided(guard: ToolGuard, kind: str = "") -> list[dict[str, Any]]:
    """Return decisions of an in-memory guard's folds, oldest first; of one type or of all."""
    return [
        orjson.loads(output.value)
        for output in guard.memory.outputs
        if output.value is not None and (not kind or output.type == kind)
    ]
