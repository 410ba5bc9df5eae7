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
from trustfold.guard.idempotency.memory import MAX_KEYS, InMemoryDedupeStore
from trustfold.guard.idempotency.record import Claim, DedupeRecord
from trustfold.guard.request import Call
from trustfold.guard.result import ToolResult
from trustfold.schemas.tool_envelopes import DedupeMode

from .area import Area, only, puts, reads
from .case import Case, UnknownWord, known
from .guarded import WorldClock, check_taken, failure_of, guard_over, settle

MODES = {
    **dict.fromkeys(("enforced", "enabled", "on", "strict", "true"), DedupeMode.ENFORCED),
    **dict.fromkeys(("besteffort", "best_effort", "best-effort", "fail_fast"), DedupeMode.BEST_EFFORT),
    **dict.fromkeys(("disabled", "off", "none", "false"), DedupeMode.DISABLED),
}
_CONFLICTS = {
    **dict.fromkeys(("reject", "conflict", "error", "refuse"), "reject"),
    **dict.fromkeys(("independent", "execute", "separate", "new"), "independent"),
}
_ASKED = frozenset("key session params args tool actor namespace mode dedupe read_only caller request_id".split())
_ENDED = frozenset("key session tool caller ok result output error http_status error_type error_class code "
                   "retriable retryable terminal".split())  # fmt: skip
_OPTIONS = {"idempotency_key": "key", "actor_id": "actor", "request_id": "request_id", "namespace": "namespace"}
_CALLERS = ("callers", "count", "n", "times")
_ORDER = ("first", "second", "third", "fourth", "fifth")


def _count(*words: str) -> Callable[[Idempotency], int]:
    """How many of those who asked it has come out so for."""
    return lambda self: sum(asking.word in words for asking in self.asked)


def _answer(read: Callable[[ToolResult], Any]) -> Callable[[Idempotency], Any]:
    """Part of the answer in question: the last one, or that of the caller whose number is named in front."""
    return lambda self: None if self.subject is None or self.subject.result is None else read(self.subject.result)


def _part(name: str, field: str) -> Callable[[ToolResult], Any]:
    """Field of a part of an answer (`cache`, `error`); None where it has no such part."""
    return lambda result: getattr(getattr(result, name), field, None)


def _mode(value: Any) -> DedupeMode:
    return known(str(value).lower(), MODES, "dedupe")


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


class Idempotency(Area):
    """Cases of `idempotency`."""

    def __init__(self, case: Case) -> None:
        """A guard over a world, with a store that is looked into."""
        super().__init__(case)
        self.store = WatchedStore(self.max_keys, WorldClock(self.world))
        self.guard: ToolGuard = guard_over(self.world, store=self.store, dedupe=self.dedupe)
        for event in case.given:
            if event.get("ev") in {"op", "tool_call"}:
                name = str(event.get("tool", "tool"))
                read_only = bool(event.get("read_only", self.read_only))
                self.guard.register(name, read_only=read_only, dedupe=not read_only, **self.nature)

    def prepare(self) -> None:
        """Nobody has asked yet; a tool changes something unless the case says that it reads."""
        self.dedupe = DedupePolicy()
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

    KNOBS = {
        "dedupe": {
            "derive_keys": "derive_keys computed_keys derive",  # whether a key is computed where none is given
            "done_ms": "ttl_s done_ttl_s success_ttl_s completed_ttl_s ttl_ms done_ttl_ms done_ms",
            "failed_ms": "failed_ttl_s error_ttl_s failure_ttl_s failed_ttl_ms failed_ms",
            "lease_ms": "lease_s inflight_ttl_s lock_ttl_s lock_s lease_ttl_s lease_ms inflight_ttl_ms",
        }
    }
    CONFIG = {
        "scope": only("scope", ("session",), "a key belongs to its session"),
        "dedupe mode dedupe_mode": lambda self, value: self.given_fields["dedupe"].update(mode=_mode(value)),
        "conflict on_conflict key_conflict": lambda self, value: self.given_fields["dedupe"].update(
            conflict=known(value, _CONFLICTS, "conflict")
        ),
        "max_keys capacity max_entries": puts("max_keys"),  # room in the store
        "volatile": lambda self, value: self.nature.update(volatile_params=tuple(value)),
        "read_only": puts("read_only"),  # whether the tools of the case only read
    }

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
            self.runner.run(settle())

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

    def op_derive_key(
        self,
        tool: str = "tool",
        params: dict[str, Any] | None = None,
        args: dict[str, Any] | None = None,
        session: str = "s1",
        namespace: str = "tools",
        actor: str = "agent",
    ) -> None:
        """Which key a call has that brings none."""
        call = Call(self.guard.tools.get(tool), params or args or {}, session, "w1")
        call.namespace, call.actor_id = namespace, actor
        self.keys.append(computed_key(call, self.guard.privacy))

    OPS = {
        # A caller asks for a call.
        "begin start claim acquire": reads(_ASKED)(lambda self, event: self.runner.run(self._ask(event))),
        "complete end": op_finish,
        "abort": op_cancel,
        # The process that runs the call is gone: nothing more is heard of it.
        "crash die holder_crash": reads(_ENDED)(lambda self, event: self._holder(event, leaves=True)),
        "fail": reads(_ENDED)(lambda self, event: self.op_finish({"ok": False, **event})),
        "extend renew": op_heartbeat,
        "execute run request": op_call,
        # Several callers at once, and then the one who runs it ends.
        "concurrent concurrent_calls parallel": reads(_ASKED, _ENDED, _CALLERS)(
            lambda self, event: self.op_call(event, next((int(event[name]) for name in _CALLERS if name in event), 2))
        ),
        # An operator empties the store, or what it keeps of a tool.
        "clear flush": lambda self, tool=None: self.runner.run(self._clear(tool)),
        "key compute_key": op_derive_key,
    }
    EVENTS = {
        "tool_call": reads(_ASKED - {"key", "params"}, _ENDED, "idempotency_key")(
            lambda self, event: self.op_call({"key": event.get("idempotency_key"), **event})
        )
    }

    async def _clear(self, tool: str | None) -> None:
        await self.store.clear(tool)
        await settle()

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
        options = {ours: event.get(theirs) for ours, theirs in _OPTIONS.items()}
        options |= {"dedupe_mode": None if mode is None else _mode(mode), "max_attempts": 1}
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

    def _holder(self, event: dict[str, Any], *, leaves: bool = False) -> Asking | None:
        """The caller who runs a call, as the event names it or the latest one; if it `leaves`, it runs it no longer.

        Raises ValueError: nobody has ever asked for it.
        """
        place, caller = place_of(event), event.get("caller")
        if all(asking.place != place for asking in self.asked):
            raise ValueError(f"nobody began {place[2]!r} in session {place[0]!r}")
        mine = [one for one in self.running if one.place == place and caller in {None, one.caller}]
        if mine and leaves:
            self.running.remove(mine[-1])
        return mine[-1] if mine else None

    # --- what has come of it ------------------------------------------------------------------------------------------

    def fault(self, name: str, wanted: Any) -> str:
        """As ever, about all callers, or about the one whose number is the name or stands in front of it."""
        if name in _ORDER or name == "last":
            number = len(self.asked) - 1 if name == "last" else _ORDER.index(name)
            if not 0 <= number < len(self.asked):
                return f"nobody asked a {name} time"
            return differs(name, wanted, self.asked[number])
        order, _, rest = name.partition("_")
        if rest and order in _ORDER[: len(self.asked)]:
            self.subject = self.asked[_ORDER.index(order)]
            return super().fault(rest, wanted)
        self.subject = self.asked[-1] if self.asked else None
        if name in {"outcomes", "results"}:
            if len(wanted) != len(self.asked):
                return f"{len(self.asked)} asked, not {len(wanted)}"
            pairs = enumerate(zip(wanted, self.asked, strict=True), 1)
            return "; ".join(filter(None, (differs(f"number {n}", word, asking) for n, (word, asking) in pairs)))
        return super().fault(name, wanted)

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
        "cache_hits hits deduplicated duplicates": _count("cached", "cached_error", "joined"),
        "joined": _count("joined"),  # who waited for another one's call and has its end
        "waiting": _count("waiting"),
        "conflicts": _count("conflict"),
        "rejected": _count("conflict", "in_flight"),
        "from_cache cached": lambda self: bool(_answer(lambda result: result.from_cache)(self)),
        "matched_on": _answer(_part("cache", "matched_on")),  # whether that call was running or done
        "age_s": _answer(lambda result: result.cache and result.cache.age_ms / 1000),
        "status": _answer(lambda result: str(result.status)),
        "error_code error code": _answer(_part("error", "code")),
        "terminal": _answer(_part("error", "terminal")),
        "result output": _answer(lambda result: result.output),
        "record_state": see_state,
        "records stored size": lambda self: self.size,  # keys in the store
        "keys_equal": see_same_key,
        "distinct_keys": lambda self: len(set(self.keys)),
        "max_keys": lambda self: self.max_keys,
    }
