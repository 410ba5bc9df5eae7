"""A real guard in front of the world: publishes into the same folds, follows what they publish, lives in their time.

Nothing here decides anything either. What the guard says about a call is what a case is compared with.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from trustfold.guard import ToolGuard
from trustfold.guard.backends.base import Decisions
from trustfold.guard.publisher import is_event
from trustfold.guard.settings import GuardSettings
from trustfold.guard.state_cache import StateView
from trustfold.schemas.codec import encode

from .case import UnknownWord, refuse_fields
from .world import Refused, World

TURNS = 60
"""Turns of the event loop in which everything has happened that waits for nobody."""

_CAUSES = frozenset("http_status status_code error error_type error_class exception code message terminal".split())
OUTCOME_FIELDS = _CAUSES | frozenset(
    """ok retriable retryable retry_after_s retry_after_ms retry_after duration_s duration_ms result output""".split()
)
"""Fields by which a case says how one attempt ends."""

_HTTP = re.compile(r"http[ _-]?(\d{3})")

_TYPES = {
    **dict.fromkeys(("timeout", "timed_out", "deadline"), "TimeoutError"),
    **dict.fromkeys(("transport", "connection", "network", "reset"), "ConnectionResetError"),
    **dict.fromkeys(("dns", "resolution"), "ConnectionError"),
    **dict.fromkeys(("validation", "schema", "bad_request", "invalid_input"), "ValueError"),
    **dict.fromkeys(("permission", "auth", "authorization", "forbidden"), "PermissionError"),
}
"""Classes of errors by which a peer names what is raised here."""

_ERRNO = re.compile(r"\bE(?:AI_)?[A-Z]{4,}\b")
"""In the message of an error of Node's; there such an error carries it as its code, too."""

_STATUSES = {"rate_limit": 429, "rate_limited": 429, "throttled": 429, "unavailable": 503, "server": 500}


class WorldClock:
    """The time of the world; who waits lets it pass."""

    def __init__(self, world: World) -> None:
        self.waits: list[float] = []
        self._world = world

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._world.now_ms

    def monotonic_ms(self) -> float:
        """The same clock."""
        return self._world.now.timestamp() * 1000

    async def sleep(self, ms: float) -> None:
        """Let so much time pass."""
        self.waits.append(ms)
        self._world.pass_time(ms / 1000)
        await asyncio.sleep(0)

    async def wait(self, future: asyncio.Future[Any], ms: float) -> bool:
        """Wait for a future; the world's time is let pass by the case alone."""
        await asyncio.wait({future}, timeout=ms / 1000)
        return future.done()


class WorldBackend:
    """Feeds the world with what a guard publishes, and shows the guard what stands on the `state` topic."""

    connected = True

    def __init__(self, world: World) -> None:
        self.decisions = Decisions()
        self.refused: Refused | None = None
        self._world = world
        self._view = StateView()
        self._read = 0

    @property
    def view(self) -> StateView:
        """The state as of now, whoever has caused it."""
        outputs = self._world.outputs
        for output in outputs[self._read :]:
            if output.topic == "state":
                self._view.apply(output.key, output.value)
        self._read = len(outputs)
        return self._view

    def publish(self, record: msgspec.Struct) -> None:
        """Fold it at once; that trustfold refuses it fails the case, later, for a guard's calls never raise."""
        try:
            self._world.repeat(encode(record), topic="events" if is_event(record) else "commands")
        except Refused as refused:
            self.refused = refused

    async def start(self, wait_s: float) -> None:
        """Nothing to connect to."""

    async def changed(self, timeout_ms: float) -> None:
        """The view moves as events are published."""
        del timeout_ms
        await asyncio.sleep(0)

    async def flush(self, timeout_s: float) -> bool:
        """Everything is folded."""
        del timeout_s
        return True

    async def close(self) -> None:
        """Nothing to let go of."""


def guard_over(world: World, *, store: Any = None, jitter: float = 1.0, **settings: Any) -> ToolGuard:
    """A guard in a world; a delay before a retry is `jitter` times its bound."""
    chosen = GuardSettings(
        workspace_id=world.workspace, user_id=world.user, send_args=True, send_errors=True, **settings
    )
    return ToolGuard(
        WorldBackend(world),
        chosen,
        store=store,
        clock=WorldClock(world),
        draw=lambda low, high: low + jitter * (high - low),
    )


def check_taken(guard: ToolGuard) -> None:
    """Fail the case if trustfold has refused what the guard published. Raises Refused: the first record that was."""
    refused = getattr(guard.backend, "refused", None)
    if refused is not None:
        raise refused


async def settle() -> None:
    """Let everybody go on who waits for nobody."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def failure_of(event: dict[str, Any]) -> Exception:
    """What a tool raises that fails as an event says."""
    unlike = str(event.get("error_class") or "")
    status = event.get("http_status", event.get("status_code", _STATUSES.get(unlike)))
    told = event.get("error", event.get("message"))
    if isinstance(told, dict):
        event, told = {**told, **event}, told.get("message")
    kind = str(event.get("error_type") or event.get("exception") or _TYPES.get(unlike) or "ToolError")
    if not kind.isidentifier():
        raise UnknownWord(f"error type {kind!r}")
    error = type(kind, (Exception,), {})(told or (f"HTTP {status}" if status else "it failed"))
    wait = event.get("retry_after_s", event.get("retry_after"))
    if wait is None and "retry_after_ms" in event:
        wait = event["retry_after_ms"] / 1000
    code = event.get("code") or next(iter(_ERRNO.findall(str(told or ""))), None)
    hint = event.get("retriable", event.get("retryable", None if "terminal" not in event else not event["terminal"]))
    given = {"status_code": status, "retry_after": wait, "retriable": hint, "code": code}
    for name, value in given.items():
        if value is not None:
            setattr(error, name, value)
    return error


def outcome_of(told: Any) -> dict[str, Any]:
    """How one attempt ends, in whatever form a case says it: a letter, a word, an HTTP status or an object.

    Raises UnknownWord: it says nothing that is known here.
    """
    if isinstance(told, dict):
        refuse_fields(told, OUTCOME_FIELDS, "an outcome")
        failed = told.get("error") or told.get("error_class") or told.get("exception") or told.get("error_type")
        status = told.get("http_status", told.get("status_code")) or 0
        made = {"ok": not failed and status < 400, **told}
        # A failure of which nothing else is said is one that may pass.
        return made if made["ok"] or _CAUSES & made.keys() else {"retriable": True, **made}
    if isinstance(told, int):  # true and false among them
        return {"ok": told} if isinstance(told, bool) else {"ok": told < 400, "http_status": told}
    word = str(told)
    if word in {"S", "ok", "success"}:
        return {"ok": True}
    if word in {"F", "fail", "failed", "failure", "error"}:
        return outcome_of({"ok": False})
    if word in _TYPES or word in _STATUSES:
        return {"ok": False, "error_class": word}
    if (status := _HTTP.fullmatch(word.lower())) is not None:
        return outcome_of(int(status[1]))
    if word.isupper() and word.startswith("E"):
        return {"ok": False, "error": word, "code": word}
    raise UnknownWord(f"outcome {word!r}")
