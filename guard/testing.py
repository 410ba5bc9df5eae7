"""For tests of agents: a guard in memory, a clock that moves when it is told to, states as they are said to be.

clock = MovableClock()
guard = guard_for_tests(clock=clock)
set_state(guard, "breaker", "tool:http_request", state="open", open_until=clock.after(30))
assert guard.check("http_request").code == "circuit_open"
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import orjson

from ..rules.rules import Rules
from ..schemas.codec import encode, rfc3339
from ..schemas.outcomes import US
from ..schemas.public_state import STATE_KINDS, Lease
from .guard import ToolGuard

START_MS = int(datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp() * 1000)


class MovableClock:
    """A clock that stands still until it is moved; sleeping moves it at once.

    Whoever waits for something else, for at most some time, waits until that has come or the clock has been moved.

    Attributes:
        waits: milliseconds of every wait, in order.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        """Begin at a time."""
        self.waits: list[float] = []
        self._now_ms = float(now_ms)
        self._alarms: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        """The same clock."""
        return self._now_ms

    async def sleep(self, ms: float) -> None:
        """Let the time pass without waiting for it; others get their turn."""
        self.waits.append(ms)
        self.move(ms=ms)
        await asyncio.sleep(0)

    async def wait(self, future: asyncio.Future[Any], ms: float) -> bool:
        """Wait for a future, or until somebody has moved the clock so far."""
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._now_ms + ms, alarm)
        self._alarms.append(entry)
        try:
            await asyncio.wait({future, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._alarms.remove(entry)
            alarm.cancel()
        return future.done()

    def move(self, seconds: float = 0, *, ms: float = 0) -> None:
        """Let time pass; whoever waits for it goes on when the loop comes to it."""
        self._now_ms += seconds * 1000 + ms
        for due, alarm in tuple(self._alarms):
            if due <= self._now_ms:
                alarm.get_loop().call_soon_threadsafe(_ring, alarm)

    def after(self, seconds: float) -> str:
        """A time so many seconds from now, as it stands in a state."""
        return rfc3339(int(self._now_ms + seconds * 1000))


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)


def guard_for_tests(
    *, clock: MovableClock | None = None, rules: Rules | None = None, jitter: float = 1.0, **options: Any
) -> ToolGuard:
    """A guard in memory with a movable clock; every delay is `jitter` times its bound."""
    clock = clock or MovableClock()
    options.setdefault("workspace_id", "w1")
    return ToolGuard.in_memory(rules=rules, clock=clock, draw=lambda low, high: low + jitter * (high - low), **options)


def set_state(guard: ToolGuard, kind: str, key: str, *, workspace: str | None = None, **fields: Any) -> None:
    """Have a guard's view say this about a key, as if trustfold had published it.

    Args:
        guard: whose view.
        kind: `trust`, `breaker`, `quality` or `model`.
        key: e.g. `http_request`, `bash|command=git`, `tool:http_request`.
        workspace: by default the guard's.
        fields: of the kind's struct (`schemas.public_state`); `state` above all. A lease may be given as a dictionary.
    """
    place = workspace or guard.settings.workspace_id
    if isinstance(fields.get("lease"), dict):
        fields["lease"] = Lease(**fields["lease"])
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
    """Have a key be at its default again."""
    guard.view.apply(f"{kind}:{workspace or guard.settings.workspace_id}{US}{key}", None)


def published(guard: ToolGuard, kind: str = "") -> list[dict[str, Any]]:
    """Events that an in-memory guard has published, oldest first; of one type or of all."""
    events = [orjson.loads(value) for value in guard.memory.published]
    return [event for event in events if not kind or event["type"] == kind]


def decided(guard: ToolGuard, kind: str = "") -> list[dict[str, Any]]:
    """Decisions that an in-memory guard's folds have made, oldest first; of one type or of all."""
    return [
        orjson.loads(output.value)
        for output in guard.memory.outputs
        if output.value is not None and (not kind or output.type == kind)
    ]
