"""Idempotency: callers that ask for the same thing, of whom one is given leave to run it; through a real guard.

A peer's `begin` is a caller who asks a guard for a call whose tool goes on running until the case says `finish`.
Whether the tool runs at all, and what becomes of those who asked, the guard decides. A holder of whom nothing is heard
is dead when its lease ends, as it is in a fleet: time that a case lets pass brings no signs of life.
"""

from __future__ import annotations

import asyncio
from typing import Any

from trustfold.guard import DedupePolicy
from trustfold.guard.idempotency.keys import computed_key
from trustfold.guard.idempotency.memory import MAX_KEYS, InMemoryDedupeStore
from trustfold.guard.idempotency.record import ClaimResult, DedupeRecord
from trustfold.guard.request import GuardedCall
from trustfold.guard.result import ToolResult
from trustfold.schemas.tool_envelopes import DedupeMode

from .area import Area, Checked, only, reads
from .case import Case, UnknownWord, by_word, known
from .endings import OUTCOME_FIELDS, failure_of
from .world import WorldClock

_MODES = by_word(
    {
        "enforced enabled on strict true": DedupeMode.ENFORCED,
        "besteffort best_effort best-effort fail_fast": DedupeMode.BEST_EFFORT,
        "disabled off none false": DedupeMode.DISABLED,
    }
)
_CONFLICTS = by_word({"reject conflict error refuse": "reject", "independent execute separate new": "independent"})
_ASKED = frozenset("key session params args tool".split())
_ENDED = OUTCOME_FIELDS | {"key", "session", "tool"}
_ORDER = ("first", "second", "third", "fourth", "fifth")

_CACHED = """cached cache hit cache_hit cached_result from_cache reused reuse replay replayed done deduplicated deduped
    duplicate"""
_WAITING = (
    "waiting wait waits waited joined join inflight in_flight pending inflight_marker in_flight_marker shared".split()
)
_WORDS: dict[str, list[str]] = {
    "executed": """executed execute executes run ran runs started new miss claimed acquired owner proceed
        executed_again reexecuted independent""".split(),
    "cached": _CACHED.split(),
    "cached_error": [*_CACHED.split(), "cached_error", "failed", "cached_failure"],
    "waiting": _WAITING,
    "joined": [*_WAITING, *_CACHED.split()],
    "in_flight": "in_flight inflight busy rejected fast_fail fail_fast 409 in_progress".split(),
    "conflict": "conflict key_conflict mismatch rejected invalid_conflict".split(),
    "cancelled": "cancelled canceled aborted".split(),
}
"""What came of an asking → the words by which cases may call it."""

_TURNS = 60
"""Turns of the event loop in which everything has happened that waits for nobody."""


async def _settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class _WatchedStore(InMemoryDedupeStore):
    """The guard's store, remembering who was given which key."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.claimed: list[str] = []
        self.held: dict[str, DedupeRecord] = {}

    async def claim(self, record: DedupeRecord, lease_ms: int) -> ClaimResult:
        claim = await super().claim(record, lease_ms)
        self.claimed.append(record.key)
        if claim.mine:
            self.held[record.key] = claim.record
        return claim


class _Asking:
    """One caller's request, and what has come of it so far.

    Attributes:
        place: session, tool and key; askings that share all three are one call.
        record: the key's, once the tool runs.
        ends: the end of the tool's run, once it runs.
    """

    def __init__(self, place: tuple[str, str, str]) -> None:
        self.place = place
        self.record: DedupeRecord | None = None
        self.ends: asyncio.Future[Any] | None = None
        self.task: asyncio.Task[ToolResult] | None = None

    @property
    def result(self) -> ToolResult | None:
        """The guard's answer; None while there is none, or where the caller has gone away."""
        task = self.task
        return task.result() if task is not None and task.done() and not task.cancelled() else None

    @property
    def word(self) -> str:
        """What has come of it, in one word."""
        if self.task is not None and self.task.cancelled():
            return "cancelled"
        if self.ends is not None:
            return "executed"
        result = self.result
        if result is None:
            return "waiting"
        if result.cache is not None:
            waited = result.cache.matched_on == "inflight"
            return "joined" if waited else "cached" if result.ok else "cached_error"
        code = result.error.code if result.error is not None else ""
        return "conflict" if code == "key_conflict" else code


def _place_of(event: dict[str, Any]) -> tuple[str, str, str]:
    return str(event.get("session", "s1")), str(event.get("tool", "tool")), str(event.get("key"))


def _is_called(actual: str, wanted: Any) -> bool:
    """Whether what has come of an asking is called so. Raises UnknownWord: nothing that may come of one is."""
    word = str(wanted).lower().replace("-", "_")
    if all(word not in words for words in _WORDS.values()):
        raise UnknownWord(f"outcome {word!r} of an asking")
    return word in _WORDS.get(actual, [actual])


class Idempotency(Area):
    """Cases of `idempotency`."""

    def __init__(self, case: Case) -> None:
        """A guard over a world, with a store that is looked into; a tool changes something, and may do so again."""
        super().__init__(case)
        self.dedupe = self.policies["dedupe"]
        self.store = _WatchedStore(MAX_KEYS, WorldClock(self.world))
        self.guard = self.world.guard(store=self.store, dedupe=self.dedupe)
        for event in case.given:
            if event.get("ev") in {"op", "tool_call"}:
                self.guard.register(str(event.get("tool", "tool")), dedupe=True, idempotent=True, **self.nature)

    def prepare(self) -> None:
        self.policies["dedupe"] = DedupePolicy()
        self.nature: dict[str, Any] = {}
        self.asked: list[_Asking] = []
        self.running: list[_Asking] = []
        self.executions = 0
        self.words: list[str] = []
        self.record: DedupeRecord | None = None

    KNOBS = {"dedupe": {"lease_ms": "lease_s"}}
    CONFIG = {
        "scope": only("scope", ("session",), "a key belongs to its session"),
        "dedupe": lambda self, value: self.given_fields["dedupe"].update(
            mode=known(str(value).lower(), _MODES, "dedupe")
        ),
        "conflict": lambda self, value: self.given_fields["dedupe"].update(
            conflict=known(value, _CONFLICTS, "conflict")
        ),
        "volatile": lambda self, value: self.nature.update(volatile_params=tuple(value)),
    }

    def play(self) -> None:
        """On an event loop of its own, which stands still between two events."""
        with asyncio.Runner() as self.runner:
            super().play()

    def conclude(self) -> None:
        """What is so now holds; that nobody waits any longer changes nothing."""
        self.runner.run(_settle())
        if self.store.claimed:
            self.record = self.runner.run(self.store.get(self.store.claimed[-1]))
        self.words = [asking.word for asking in self.asked]

    def after(self, event: dict[str, Any]) -> None:
        """Time may have freed keys for those who wait."""
        if event.get("ev") == "advance_clock":
            self.store.sweep()
            self.runner.run(_settle())

    @reads(_ASKED)
    def op_begin(self, event: dict[str, Any]) -> None:
        self.runner.run(self._ask(event))

    @reads(_ENDED)
    def op_finish(self, event: dict[str, Any]) -> None:
        """The call that runs under a key ends; who was answered from elsewhere has nothing to end."""
        if (asking := self._holder(event, leaves=True)) is not None:
            self.runner.run(self._end(asking, event))

    @reads(_ENDED)
    def op_cancel(self, event: dict[str, Any]) -> None:
        """The caller who runs the call goes away."""
        asking = self._holder(event, leaves=True)
        if asking is not None and asking.task is not None:
            asking.task.cancel()
            self.runner.run(_settle())

    @reads(_ENDED)
    def op_crash(self, event: dict[str, Any]) -> None:
        """The process that runs the call is gone: nothing more is heard of it."""
        self._holder(event, leaves=True)

    @reads(_ENDED)
    def op_heartbeat(self, event: dict[str, Any]) -> None:
        """The holder gives a sign of life."""
        asking = self._holder(event)
        if asking is not None and asking.record is not None:
            self.runner.run(self.store.extend(asking.record, self.dedupe.lease_ms))

    @reads(_ASKED, _ENDED)
    def op_call(self, event: dict[str, Any], callers: int = 1) -> None:
        """A whole call; of several callers at once, the one who runs it ends."""
        for _ in range(callers):
            self.runner.run(self._ask(event))
        for asking in [one for one in self.asked[-callers:] if one in self.running]:
            self.running.remove(asking)
            self.runner.run(self._end(asking, {"ok": True, **event}))

    def op_key(
        self, tool: str = "tool", params: dict[str, Any] | None = None, args: Any = None, session: str = "s1"
    ) -> str:
        call = GuardedCall(self.guard.tools.get(tool), params or args or {}, session, "w1")
        call.namespace, call.actor_id = "tools", "agent"
        return computed_key(call, self.guard.privacy)

    OPS = {
        "derive_key": op_key,
        "concurrent": reads(_ASKED, _ENDED, {"callers"})(
            lambda self, event: self.op_call(event, int(event.get("callers", 2)))
        ),
    }
    EVENTS = {
        "tool_call": reads(_ASKED - {"key", "params"}, _ENDED - {"key"})(lambda self, event: self.op_call(event)),
    }

    async def _ask(self, event: dict[str, Any]) -> None:
        asking = _Asking(_place_of(event))

        async def runs(**_: Any) -> Any:
            self.executions += 1
            asking.record = self.store.held.get(self.store.claimed[-1]) if self.store.claimed else None
            asking.ends = asyncio.get_running_loop().create_future()
            self.running.append(asking)
            return await asking.ends

        session, tool, _ = asking.place
        args, options = dict(event.get("params", event.get("args")) or {}), {"idempotency_key": event.get("key")}
        call = self.guard.call(tool, runs, args, session_id=session, max_attempts=1, **options)
        asking.task = asyncio.ensure_future(call)
        self.asked.append(asking)
        await _settle()

    async def _end(self, asking: _Asking, event: dict[str, Any]) -> None:
        if asking.ends is not None and not asking.ends.done():
            if event.get("ok", not event.get("error")):
                asking.ends.set_result(event.get("result", f"result {self.executions}"))
            else:
                asking.ends.set_exception(failure_of(event))
        await _settle()

    def _holder(self, event: dict[str, Any], *, leaves: bool = False) -> _Asking | None:
        """The caller who runs a call, the latest one; if it `leaves`, it runs it no longer.

        Raises ValueError: nobody has ever asked for it.
        """
        place = _place_of(event)
        if all(asking.place != place for asking in self.asked):
            raise ValueError(f"nobody began {place[2]!r} in session {place[0]!r}")
        mine = [one for one in self.running if one.place == place]
        if mine and leaves:
            self.running.remove(mine[-1])
        return mine[-1] if mine else None

    def _number(self, name: str, number: int, wanted: Any) -> Checked:
        if number >= len(self.words):
            return False, f"nobody asked a {name} time"
        return _is_called(self.words[number], wanted), self.words[number]

    def check_outcomes(self, wanted: list[Any]) -> Checked:
        return len(wanted) == len(self.words) and all(map(_is_called, self.words, wanted)), self.words

    def see_same_result(self) -> bool:
        """Whether all who got something got the same."""
        got = [result.output for asking in self.asked if (result := asking.result) is not None]
        return bool(got) and all(one == got[0] for one in got)

    def see_same_key(self) -> bool:
        """Whether all calls have the same key."""
        keys = self.answers["key"] + self.answers["derive_key"]
        if len(keys) < 2:
            raise UnknownWord("the same key of fewer than two calls")
        return len(set(keys)) == 1

    def _answer(self) -> ToolResult | None:
        return self.asked[-1].result if self.asked else None

    CHECKS = {
        word: lambda self, wanted, word=word, number=number: self._number(word, number, wanted)
        for number, word in enumerate(_ORDER)
    }
    VIEWS = {
        "executions": lambda self: self.executions,  # how often the tool has run
        "joined": lambda self: self.words.count("joined"),  # who waited for another one's call and has its end
        "waiting": lambda self: self.words.count("waiting"),
        # Where the key asked for last stands; None where it is free.
        "state": lambda self: None if self.record is None or self.record.is_free else str(self.record.state),
        "from_cache": lambda self: bool(getattr(self._answer(), "from_cache", False)),
        "result": lambda self: getattr(self._answer(), "output", None),
        "error_code": lambda self: getattr(getattr(self._answer(), "error", None), "code", None),
        "terminal": lambda self: getattr(getattr(self._answer(), "error", None), "terminal", None),
    }
