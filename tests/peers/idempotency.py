"""Idempotency: callers that ask for the same thing, of whom one is given leave to run it; through a real guard.

A peer's `begin` is a caller who asks a guard for a call whose tool goes on running until the case says `finish`.
Whether the tool runs at all, and what becomes of those who asked, the guard decides. A holder of whom nothing is heard
is dead when its lease ends, as it is in a fleet: time that a case lets pass brings no signs of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from trustfold.guard import DedupePolicy, ToolGuard
from trustfold.guard.idempotency.keys import computed_key
from trustfold.guard.idempotency.memory import MAX_KEYS
from trustfold.guard.idempotency.record import DedupeRecord
from trustfold.guard.request import Call
from trustfold.schemas.tool_envelopes import DedupeMode

from .area import puts, reads
from .askings import Asking, WatchedStore, place_of
from .case import Case, UnknownWord
from .guarded import WorldClock, check_taken, failure_of, guard_over, settle
from .idempotency_views import IdempotencyViews

MODES = {
    **dict.fromkeys(("enforced", "enabled", "on", "strict", "true"), DedupeMode.ENFORCED),
    **dict.fromkeys(("besteffort", "best_effort", "best-effort", "fail_fast"), DedupeMode.BEST_EFFORT),
    **dict.fromkeys(("disabled", "off", "none", "false"), DedupeMode.DISABLED),
}
_CONFLICTS = {
    **dict.fromkeys(("reject", "conflict", "error", "refuse"), "reject"),
    **dict.fromkeys(("independent", "execute", "separate", "new"), "independent"),
}
_ASKED = frozenset("key session params args tool actor namespace mode dedupe times read_only caller request_id".split())
_ENDED = frozenset("key session tool caller ok result output error http_status error_type error_class code "
                   "retriable retryable terminal".split())  # fmt: skip
_CALLERS = ("callers", "count", "n", "times")


def _sets(field: str, factor: int = 1) -> Callable[[Idempotency, Any], None]:
    def read(self: Idempotency, value: Any) -> None:
        self.policy[field] = round(value * factor)

    return read


class Idempotency(IdempotencyViews):
    """Cases of `idempotency`."""

    def __init__(self, case: Case) -> None:
        """A guard over a world, with a store that is looked into."""
        super().__init__(case)
        self.store = WatchedStore(self.max_keys, WorldClock(self.world))
        self.guard: ToolGuard = guard_over(self.world, store=self.store, dedupe=DedupePolicy(**self.policy))
        for event in case.given:
            if event.get("ev") in {"op", "tool_call"}:
                name = str(event.get("tool", "tool"))
                read_only = bool(event.get("read_only", self.read_only))
                self.guard.register(name, read_only=read_only, dedupe=not read_only, **self.nature)

    def prepare(self) -> None:
        """Nobody has asked yet; a tool changes something unless the case says that it reads."""
        self.policy: dict[str, Any] = {}
        self.max_keys = MAX_KEYS
        self.read_only = False
        self.nature: dict[str, Any] = {}
        self.asked: list[Asking] = []
        self.running: list[Asking] = []
        self.executions = 0
        self.subject: Asking | None = None
        self.keys: list[str] = []
        self.records: list[DedupeRecord | None] = []
        self.size = 0

    # --- config -------------------------------------------------------------------------------------------------------

    def config_dedupe(self, value: Any) -> None:
        """What becomes of a call whose twin runs."""
        self.policy["mode"] = self._mode(value)

    def config_conflict(self, value: str) -> None:
        """Same key, other parameters."""
        if value not in _CONFLICTS:
            raise UnknownWord(f"conflict {value!r}")
        self.policy["conflict"] = _CONFLICTS[value]

    def config_derive_keys(self, value: bool) -> None:
        """Whether a key is computed where none is given."""
        self.policy["derive_keys"] = value

    def config_volatile(self, value: list[str]) -> None:
        """Parameters by which two calls of a tool do not differ."""
        self.nature["volatile_params"] = tuple(value)

    def config_scope(self, value: str) -> None:
        """Keys are of their session."""
        if value != "session":
            raise UnknownWord(f"scope {value!r}: a key belongs to its session")

    CONFIG = {
        "mode dedupe_mode": config_dedupe,
        "on_conflict key_conflict": config_conflict,
        "computed_keys derive": config_derive_keys,
        "ttl_s done_ttl_s success_ttl_s completed_ttl_s": _sets("done_ms", 1000),
        "ttl_ms done_ttl_ms done_ms": _sets("done_ms"),
        "failed_ttl_s error_ttl_s failure_ttl_s": _sets("failed_ms", 1000),
        "failed_ttl_ms failed_ms": _sets("failed_ms"),
        "lease_s inflight_ttl_s lock_ttl_s lock_s lease_ttl_s": _sets("lease_ms", 1000),
        "lease_ms inflight_ttl_ms": _sets("lease_ms"),
        "max_keys capacity max_entries": puts("max_keys"),  # room in the store
        "read_only": puts("read_only"),  # whether the tools of the case only read
    }

    @staticmethod
    def _mode(value: Any) -> DedupeMode:
        word = str(value).lower()
        if word not in MODES:
            raise UnknownWord(f"dedupe {value!r}")
        return MODES[word]

    # --- what happens -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """On an event loop of its own, which stands still between two events."""
        with asyncio.Runner() as self.runner:
            super().play()
            self.runner.run(settle())
            self.records = [self.runner.run(self.store.get(key)) for key in self.store.claimed]
            self.size = self.runner.run(self.store.size())
            for asking in self.asked:
                asking.freeze()
        check_taken(self.guard)

    def after(self, event: dict[str, Any]) -> None:
        """Time may have freed keys for those who wait."""
        if event.get("ev") == "advance_clock":
            self.store.sweep()
            self.runner.run(settle())

    @reads(_ASKED)
    def op_begin(self, event: dict[str, Any]) -> None:
        """Callers ask for a call."""
        for _ in range(int(event.get("times", 1))):
            self.runner.run(self._ask(event))

    @reads(_ENDED)
    def op_finish(self, event: dict[str, Any]) -> None:
        """The call that runs under a key ends; who was answered from elsewhere has nothing to end."""
        asking = self._holder(event)
        if asking is not None:
            self.running.remove(asking)
            self.runner.run(self._end(asking, event))

    def op_fail(self, event: dict[str, Any]) -> None:
        """It ends with a failure."""
        self.op_finish({"ok": False, **event})

    @reads(_ENDED)
    def op_cancel(self, event: dict[str, Any]) -> None:
        """The caller who runs the call goes away."""
        asking = self._holder(event)
        if asking is not None and asking.task is not None:
            self.running.remove(asking)
            asking.task.cancel()
            self.runner.run(settle())

    @reads(_ENDED)
    def op_crash(self, event: dict[str, Any]) -> None:
        """The process that runs the call is gone: nothing more is heard of it."""
        asking = self._holder(event)
        if asking is not None:
            self.running.remove(asking)

    @reads(_ENDED)
    def op_heartbeat(self, event: dict[str, Any]) -> None:
        """The holder gives a sign of life."""
        asking = self._holder(event)
        if asking is not None and asking.record is not None:
            self.runner.run(self.store.extend(asking.record, self.guard.settings.dedupe.lease_ms))

    @reads(_ASKED | _ENDED)
    def op_call(self, event: dict[str, Any]) -> None:
        """Whole calls, one after the other."""
        asked = {name: value for name, value in event.items() if name in _ASKED and name != "times"}
        ended = {name: value for name, value in event.items() if name in _ENDED}
        for _ in range(int(event.get("times", 1))):
            self.op_begin(asked)
            if self.asked[-1] in self.running:
                self.op_finish({"ok": True, **ended})

    @reads(_ASKED, _ENDED, _CALLERS)
    def op_concurrent(self, event: dict[str, Any]) -> None:
        """Several callers at once, and then the one who runs it ends."""
        event = dict(event)
        callers = next((int(event.pop(name)) for name in _CALLERS if name in event), 2)
        asked = {name: value for name, value in event.items() if name in _ASKED}
        self.op_begin({**asked, "times": callers})
        for asking in list(self.running):
            self.running.remove(asking)
            self.runner.run(self._end(asking, {"ok": True, **event}))

    @reads("tool")
    def op_clear(self, event: dict[str, Any]) -> None:
        """An operator empties the store, or what it keeps of a tool."""
        self.runner.run(self.store.clear(event.get("tool")))
        self.runner.run(settle())

    @reads("tool params args session namespace actor")
    def op_derive_key(self, event: dict[str, Any]) -> None:
        """Which key a call has that brings none."""
        args = dict(event.get("params", event.get("args")) or {})
        call = Call(self.guard.tools.get(str(event.get("tool", "tool"))), args, str(event.get("session", "s1")), "w1")
        call.namespace, call.actor_id = str(event.get("namespace", "tools")), str(event.get("actor", "agent"))
        self.keys.append(computed_key(call, self.guard.privacy))

    OPS = {
        "start claim acquire": op_begin,
        "complete end": op_finish,
        "abort": op_cancel,
        "die holder_crash": op_crash,
        "extend renew": op_heartbeat,
        "execute run request": op_call,
        "concurrent_calls parallel": op_concurrent,
        "flush": op_clear,
        "key compute_key": op_derive_key,
    }

    @reads(_ASKED - {"key", "params"}, _ENDED, "idempotency_key")
    def event_tool_call(self, event: dict[str, Any]) -> None:
        """A call in one piece."""
        named = {"idempotency_key": "key", "args": "params"}
        self.op_call({named.get(name, name): value for name, value in event.items()})

    async def _ask(self, event: dict[str, Any]) -> None:
        asking = Asking(event)

        async def runs(**_: Any) -> Any:
            self.executions += 1
            asking.ran = True
            asking.record = self.store.held.get(self.store.claimed[-1]) if self.store.claimed else None
            asking.ends = asyncio.get_running_loop().create_future()
            self.running.append(asking)
            return await asking.ends

        mode = event.get("mode", event.get("dedupe"))
        options = {
            "idempotency_key": event.get("key"),
            "actor_id": event.get("actor"),
            "request_id": event.get("request_id"),
            "namespace": event.get("namespace"),
            "dedupe_mode": None if mode is None else self._mode(mode),
            "max_attempts": 1,
        }
        args = dict(event.get("params", event.get("args")) or {})
        session, tool, _ = asking.place
        asking.task = asyncio.ensure_future(self.guard.call(tool, runs, args, session_id=session, **options))
        self.asked.append(asking)
        await settle()

    async def _end(self, asking: Asking, event: dict[str, Any]) -> None:
        if asking.ends is not None and not asking.ends.done():
            failed = not event.get("ok", not event.get("error"))
            if failed:
                asking.ends.set_exception(failure_of(event))
            else:
                asking.ends.set_result(event.get("result", event.get("output", f"result {self.executions}")))
        await settle()

    def _holder(self, event: dict[str, Any]) -> Asking | None:
        """Who runs the call that an event is about: the caller it names, or the latest.

        Raises:
            ValueError: nobody has ever asked for it.
        """
        place, caller = place_of(event), event.get("caller")
        if all(asking.place != place for asking in self.asked):
            raise ValueError(f"nobody began {place[2]!r} in session {place[0]!r}")
        mine = [one for one in self.running if one.place == place and caller in {None, one.caller}]
        return mine[-1] if mine else None
